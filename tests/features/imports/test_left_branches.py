"""A branch that ChatGPT has left is gone wherever it was: from facts, from summaries, and from what is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.features.imports.sources.streams import OLDER
from perdure.testing import says
from tests.features.imports import golden
from tests.support.library import open_sync

SECRET = "zeppelin"


def tree(count: int, current: str) -> list[dict[str, Any]]:
    """One conversation: a trunk, a branch `a` that speaks of the secret, and a branch `b`, each of so many messages."""
    words = "we talked at length about quinces, gates, kettles and the weather of the northern coast " * 4
    nodes, parent = [golden.node("root", None)], "root"
    for number in range(count):
        nodes.append(golden.node(f"t{number}", parent, "user", f"{number} {words}", at=golden.DAY + number))
        parent = f"t{number}"
    for branch, said in (("a", f"I live in Turin. The {SECRET} is red."), ("b", "I like espresso.")):
        last = parent
        for number in range(count):
            role = "assistant" if number % 2 else "user"
            at = golden.DAY + 1_000 + number
            nodes.append(golden.node(f"{branch}{number}", last, role, f"{said} {number} {words}", at=at))
            last = f"{branch}{number}"
    mapping = {one["id"]: one for one in nodes}
    return [{"id": "c", "title": "Long", "create_time": golden.DAY, "mapping": mapping, "current_node": current}]


def write(folder: Path, **how: Any) -> Path:
    return golden.write_json(folder / "conversations.json", tree(**how))


def test_a_title_and_a_text_that_changed_at_the_source_change_here(tmp_path: Path) -> None:
    """But not over what a person has changed here."""

    def write_one(title: str, *texts: str) -> Path:
        nodes = [golden.node("r", None)]
        for number, text in enumerate(texts):
            nodes.append(golden.node(f"m{number}", nodes[-1]["id"], "user", text, at=golden.DAY + number))
        mapping = {one["id"]: one for one in nodes}
        one = {"id": "c", "title": title, "create_time": golden.DAY, "mapping": mapping, "current_node": f"m{number}"}
        return golden.write_json(tmp_path / "conversations.json", [one])

    def take(*how: str) -> list[Any]:
        place = write_one(*how)
        plan, report = store.imports.plan("chatgpt", place), store.imports.run("chatgpt", place)
        agent = store.agent("chatgpt")
        line = agent.conversations()[1]
        counts = [(one.messages.new, one.withdrawn, one.changed) for one in (plan, report)]
        assert counts[0] == counts[1]
        return [line.summary, [one.text for one in agent.messages(conversation=line.id)], counts[0]]

    with open_sync(tmp_path / "perdure.db") as store:
        take("New chat", "question", "other")
        changed = take("Garden plan", "question, corrected", "other")
        again = take("Garden plan", "question, corrected", "other")
        back = take("New chat", "question", "other")
        agent = store.agent("chatgpt")
        line = agent.conversations()[1].id
        agent.update_conversation(line, summary="Mine")
        agent.update_message(agent.messages(conversation=line)[0].id, text="my other")
        third = take("Garden", "question", "other!")

    assert changed == ["Garden plan", ["other", "question, corrected"], (1, 1, 1)]
    assert again == ["Garden plan", ["other", "question, corrected"], (0, 0, 0)]
    assert back == ["New chat", ["other", "question"], (1, 1, 1)]
    assert third == ["Mine", ["my other", "question"], (0, 0, 0)]


def test_of_two_downloads_in_one_folder_the_newest_conversation_counts(tmp_path: Path) -> None:
    """However often they are imported, and in whatever order they lie there."""
    (older,), (newer,) = tree(2, "a1"), tree(2, "b1")
    exports = tmp_path / "exports"
    exports.mkdir()
    for names in (("conversations.json", "conversations (1).json"), ("conversations-2.json", "conversations-1.json")):
        for path in exports.iterdir():
            path.unlink()
        for name, one, at in zip(names, (older, newer), (golden.DAY, golden.DAY + 9), strict=True):
            golden.write_json(exports / name, [{**one, "update_time": at}])
        with open_sync(tmp_path / f"{names[0]}.db") as store:
            reports = [store.imports.run("chatgpt", exports) for _ in range(3)]
            shown = [one.text for one in store.agent("chatgpt").messages()]

        assert [(one.messages.new, one.withdrawn) for one in reports] == [(4, 0), (0, 0), (0, 0)]
        assert [one.left_out for one in reports] == [{OLDER: 1}] * 3
        assert any("espresso" in text for text in shown) and not any("Turin" in text for text in shown)


@pytest.mark.parametrize(
    ("source", "older", "newer"),
    [
        (
            "claude",
            {"uuid": "c", "updated_at": "2024-01-01", "chat_messages": [{"sender": "human", "text": "old"}]},
            {"uuid": "c", "updated_at": "2024-01-02", "chat_messages": [{"sender": "human", "text": "new"}]},
        ),
        (
            "mem0",
            {"id": "m", "memory": "old", "updated_at": "2024-01-01"},
            {"id": "m", "memory": "new", "updated_at": "2024-01-02"},
        ),
        ("zep", {"uuid": "f", "fact": "old"}, {"uuid": "f", "fact": "new", "invalid_at": "2024-01-02"}),
    ],
)
def test_of_two_downloads_of_other_programs_the_newest_counts_too(
    tmp_path: Path, source: Any, older: Any, newer: Any
) -> None:
    exports = tmp_path / "exports"
    for folder, value in (("export", older), ("export (1)", newer)):
        (exports / folder).mkdir(parents=True)
        golden.write_json(exports / folder / "conversations.json", [value])
    with open_sync(tmp_path / "perdure.db") as store:
        report = store.imports.run(source, exports)
        agent = store.agent(source)
        shown = [one.text for talk in agent.conversations() for one in agent.messages(conversation=talk.id)]
        shown += [one.passage.text for one in agent.search_archive("old new")]

    assert report.left_out == {OLDER: 1}
    assert [text[:3] for text in shown] == ["new"]


def test_facts_of_a_left_branch_are_known_no_more(tmp_path: Path) -> None:
    with open_sync(tmp_path / "perdure.db") as store:
        store.imports.run("chatgpt", write(tmp_path, count=2, current="a1"), facts=True)
        agent = store.agent("chatgpt")
        agent.facts.extract()
        before = [one.fact.text for one in agent.facts.list()]
        store.imports.run("chatgpt", write(tmp_path, count=2, current="b1"), facts=True)
        agent.facts.extract()
        after = [one.fact.text for one in agent.facts.list()]

    assert any("Turin" in text for text in before)
    assert not any("Turin" in text for text in after)


def test_summaries_and_requests_hold_nothing_of_a_left_branch(tmp_path: Path) -> None:
    """The window is small, so that most of the conversation is behind summaries."""
    answers = [says("one"), says("two")]
    with open_sync(tmp_path / "perdure.db", *answers, context_window_tokens=8_000) as store:
        store.imports.run("chatgpt", write(tmp_path, count=60, current="a59"))
        agent = store.agent("chatgpt")
        line = agent.conversations()[1].id
        first = agent.send("And now?", conversation=line)
        report = store.imports.run("chatgpt", write(tmp_path, count=60, current="b59"))
        second = agent.send("And now?", conversation=line)
        sent = [str(agent.request(agent.steps(run_id=one.run_id)[0].id)) for one in (first, second)]
        found = [one.message.text for one in agent.search(SECRET)]
        whole = [one.text for one in agent.messages(conversation=line, limit=1_000)]

    assert (report.withdrawn, report.messages.new) == (60, 60)
    assert SECRET in sent[0] and SECRET not in sent[1]
    assert not [text for text in (*found, *whole) if SECRET in text]
    assert whole[-2:] == ["And now?", "two"]


@pytest.mark.slow
@pytest.mark.uses("exports")
@pytest.mark.parametrize("moves", [1, 2, 3])
def test_a_branch_that_is_left_after_a_move_is_gone_too(tmp_path: Path, moves: int) -> None:
    """The agent was exported and read back elsewhere, as often as `moves` says, before the branch is another one."""
    with open_sync(tmp_path / "0.db") as store:
        store.imports.run("chatgpt", write(tmp_path, count=2, current="a1"), agent="ann")
        store.imports.run("markdown", notes := golden.write_markdown(tmp_path), agent="ann")
        store.export(tmp_path / "0", store.agent("ann").id)
    for number in range(1, moves + 1):
        with open_sync(tmp_path / f"{number}.db") as store:
            store.imports.run("jsonl", tmp_path / str(number - 1))
            store.export(tmp_path / str(number), store.agent("ann").id)
    with open_sync(tmp_path / f"{moves}.db") as store:
        agent = store.agent("ann")
        same = store.imports.run("chatgpt", write(tmp_path, count=2, current="a1"), agent="ann")
        report = store.imports.run("chatgpt", write(tmp_path, count=2, current="b1"), agent="ann")
        texts = [one.text for one in agent.messages(conversation=agent.conversations()[1].id)]
        again = store.imports.run("chatgpt", write(tmp_path, count=2, current="b1"), agent="ann")
        assert not store.imports.run("markdown", notes, agent="ann").has_news

    assert not same.has_news and not again.has_news
    assert (report.withdrawn, report.messages.new, len(texts)) == (2, 2, 4)
    assert not [text for text in texts if SECRET in text]
