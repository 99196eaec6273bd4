"""Forgetting a text: where it stands, out of view with a way back, and out of the store's file."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from perdure import Agent, AsyncPerdure, InvalidInput, NotFound, Perdure
from perdure.context.sections.assemble import canonical
from perdure.core.messages import ToolResult
from perdure.testing import ScriptedEmbedder, ScriptedModel, calls, says
from tests.support.library import open_async, open_sync

CANARY = 'The vault code of Zorblatt Quintessa is "7Q-Fjord" near Häagen street'
WORDS = ("zorblatt", "quintessa", "fjord", "7q-f", "vault code", "häagen")
"""Pieces of it that no other text has: in the word index each word stands by itself."""
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 40
FILLER = "lorem ipsum dolor sit amet " * 60
SMALL_WINDOW = {"context_window_tokens": 8_000}


def lookup() -> str:
    """Look something up."""
    return "row of data\n" * 2_000 + CANARY + "\nmore rows" * 500


def bytes_left(path: Path) -> list[tuple[str, str]]:
    """(File, word) of each piece of the text that stands in the store's files."""
    files = [file for file in path.parent.iterdir() if file.name.startswith(path.name)]
    return [(file.name, word) for file in files for word in WORDS if word.encode() in file.read_bytes().lower()]


def tell_everywhere(perdure: Perdure) -> Agent:
    """An agent that was told the text, stored it in a block and its archive, got it from a tool and in a file, and
    whose window is so small that it is summarised."""
    agent = perdure.create_agent("ada", settings=SMALL_WINDOW)
    folder = perdure.folders.create("docs")
    folder.upload(("intro\n" * 30 + CANARY + "\ntail\n" * 20).encode(), name="notes.md")
    folder.wait(timeout_s=30)
    agent.files.attach("docs")
    agent.send(f"Remember: {CANARY}")
    agent.send("look it up")
    for number in range(8):
        agent.send(f"message number {number} {FILLER}")
    agent.schedules.create(CANARY, every="1d", name=CANARY)
    agent.blocks.append("human", f"likes tea\n{CANARY}\nlikes jam")
    return agent


SCRIPT = (
    calls("archival_memory_insert", content=CANARY),
    calls("memory_insert", label="human", new_string=CANARY),
    says(f"Noted: {CANARY}"),
    calls("lookup"),
)


@pytest.fixture
def told(tmp_path: Path) -> Iterator[tuple[Perdure, Agent, Path]]:
    path = tmp_path / "agents.db"
    with open_sync(path, *SCRIPT, tools=[lookup]) as perdure:
        yield perdure, tell_everywhere(perdure), path


@pytest.mark.slow
@pytest.mark.uses("facts", "files")
def test_an_erased_text_is_nowhere_in_the_files(told: tuple[Perdure, Agent, Path]) -> None:
    """Not as a whole, and none of its words in the index; the agent answers, and old requests say so."""
    perdure, agent, path = told
    found = agent.find_mentions(CANARY)
    assert {*found.counts} >= {"block", "block_version", "passage", "message", "summary", "request", "file", "schedule"}
    assert bytes_left(path)

    result = agent.forget(CANARY, erase=True)

    assert (result.erased, result.correction, bytes_left(path)) == (True, None, [])
    assert agent.find_mentions(CANARY).counts == {}
    assert agent.blocks.get("human").value == "likes tea\nlikes jam"
    assert agent.search_archive("vault code") == []
    assert "█" in perdure.folders.get("docs").text("notes.md")
    old = agent.steps(limit=100)
    requests = [canonical(agent.request(step.id)) for step in old]
    redacted = [step.id for step, request in zip(old, requests, strict=True) if b"[redacted]" in request]
    assert redacted and all(agent.explain(step_id).redacted for step_id in redacted)
    assert agent.send("still there?").text == "OK."
    assert not agent.explain(agent.steps(limit=1)[0].id).redacted
    assert bytes_left(path) == []


async def test_an_erased_store_has_no_faults(tmp_path: Path) -> None:
    """Checksums, words, tags, counts and vectors agree with the texts that are left."""
    path = tmp_path / "agents.db"
    models = {"test/model": ScriptedModel(*SCRIPT)}
    async with await AsyncPerdure.open(path, models=models, tools=[lookup], embedder=ScriptedEmbedder()) as perdure:
        agent = await perdure.create_agent("ada", model="test/model")
        for text in (f"Remember: {CANARY}", "look it up"):
            await agent.send(text)
        await agent.archive("kept", tags=[f"tag {CANARY}", "other"])
        await agent.forget(CANARY)
        await agent.forget(CANARY, erase=True)
        await perdure.upkeep.reindex(again=False, progress=lambda what, done, total: None)

        comparison = await perdure.upkeep.compare(repair=False, progress=lambda what, done, total: None)

    assert (comparison.faults, bytes_left(path)) == ([], [])


async def test_a_replay_of_an_erased_text_says_that_it_is_redacted(tmp_path: Path) -> None:
    """The model is sent "[redacted]", and the end of the replay says so; that of another run does not."""
    model = ScriptedModel(says("Noted."), says("Hello."))
    async with await AsyncPerdure.open(tmp_path / "agents.db", models={"test/model": model}) as perdure:
        agent = await perdure.create_agent("ada", model="test/model")
        first = await agent.send(f"Remember: {CANARY}")
        other = await perdure.create_agent("bob", model="test/model")
        second = await other.send("hello")
        await agent.forget(CANARY, erase=True)

        replay = await perdure.runs.replay(first.run_id)
        assert "[redacted]" in replay.end
        assert model.requests[-1].messages[-1].text == "Remember: [redacted]"
        assert "[redacted]" not in (await perdure.runs.replay(second.run_id)).end


@pytest.mark.slow
@pytest.mark.uses("facts", "files")
def test_forgetting_takes_it_out_of_view_and_undo_brings_it_back(told: tuple[Perdure, Agent, Path]) -> None:
    """Blocks, archive, messages and summaries; the old versions stay, so that it can come back."""
    _, agent, _ = told
    before = agent.find_mentions(CANARY)
    block = agent.blocks.get("human").value

    result = agent.forget(CANARY.upper().replace(" ", "\n"))
    after = agent.find_mentions(CANARY)

    assert result.correction is not None and result.correction.items == result.total == before.in_view
    assert (after.in_view, after.total > 0) == (0, True)
    assert agent.blocks.get("human").value == "likes tea\nlikes jam"
    assert not agent.passages()
    assert not any(CANARY in message.text for message in agent.messages())
    assert agent.send("what do you know?").text == "OK."
    sent = canonical(agent.request(agent.steps(limit=1)[0].id)).decode()
    assert "Zorblatt" not in sent

    undone = agent.undo()

    assert (undone.restored, undone.conflicts) == (result.total, [])
    assert agent.find_mentions(CANARY).in_view == before.in_view
    assert agent.blocks.get("human").value == block
    assert [passage.text for passage in agent.passages()] == [CANARY]
    with pytest.raises(NotFound, match="nothing of this agent"):
        agent.undo()


def test_what_was_changed_again_is_not_undone(tmp_path: Path) -> None:
    """It stays as it is, and is named; the rest comes back."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent(human="tea\nplums and quinces\njam")
        agent.archive("plums and quinces grow here")
        agent.forget("plums and quinces")
        agent.blocks.append("human", "bread")

        undone = agent.undo()

        assert (undone.restored, len(undone.conflicts)) == (1, 1)
        assert "block 'human' was changed again" in undone.conflicts[0]
        assert agent.blocks.get("human").value == "tea\njam\nbread"
        assert len(agent.passages()) == 1


def test_single_things_are_corrected_and_undone(tmp_path: Path) -> None:
    """A line of a block by number or text, a passage, a message; the last correction first, or by its number."""
    with open_sync(tmp_path / "agents.db", says("You like plums.")) as perdure:
        agent = perdure.create_agent(human="tea\nplums\njam")
        agent.send("I like plums")
        said = agent.messages()[-1]
        passage = agent.archive("plums are ripe in July", tags=["fruit"])
        kept = agent.archive("bread")

        assert agent.blocks.replace_line("human", 2, "quinces").value == "tea\nquinces\njam"
        assert agent.blocks.delete_line("human", "jam").value == "tea\nquinces"
        assert agent.update_passage(passage.id, text="quinces are ripe in October").tags == ("fruit",)
        agent.delete_passage(kept.id)
        assert agent.update_message(said.id, "You like quinces.").text == "You like quinces."
        assert [one.kind for one in agent.corrections()] == ["message", "passage", "passage", "block", "block"]

        for _ in range(3):
            agent.undo()
        agent.undo(2)
        agent.undo()

        assert agent.blocks.get("human").value == "tea\nplums\njam"
        assert sorted(one.text for one in agent.passages()) == ["bread", "plums are ripe in July"]
        assert agent.messages()[-1].text == "You like plums."
        with pytest.raises(InvalidInput, match="has the lines 1 to 3"):
            agent.blocks.delete_line("human", 4)
        with pytest.raises(InvalidInput, match="no such line"):
            agent.blocks.delete_line("human", "figs")
        with pytest.raises(NotFound, match="undone already"):
            agent.undo(2)


def test_an_id_stands_for_its_text(tmp_path: Path) -> None:
    """That of a message or passage, of this agent; too short a text is refused."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent, other = perdure.create_agent("ada"), perdure.create_agent("bob")
        passage = agent.archive("plums are ripe in July")
        agent.send("Well: plums are ripe in july.")
        short = agent.archive("plums")

        assert agent.find_mentions(passage.id).counts == {"passage": 1, "message": 1, "request": 1}
        agent.send("the apricots are ripe", images=[PNG])
        assert agent.forget(agent.messages()[-2].id).counts == {"message": 1}
        with pytest.raises(InvalidInput, match="too short"):
            agent.forget(short.id)
        with pytest.raises(InvalidInput, match="characters"):
            agent.forget("pl")
        with pytest.raises(NotFound):
            other.forget(passage.id)


def test_an_agent_that_shares_a_block_loses_the_text_too(tmp_path: Path) -> None:
    """Erasing takes a shared block's line out of what the others were sent; who shares nothing keeps the text."""
    path = tmp_path / "agents.db"
    with open_sync(path) as perdure:
        shared = perdure.blocks.create("team", f"rules\n{CANARY}")
        ada, bob, eve = (perdure.create_agent(name) for name in ("ada", "bob", "eve"))
        for agent in (ada, bob):
            agent.blocks.attach(shared.id)
        for agent in (ada, bob, eve):
            agent.send("hello")
        eve.send("plums and quinces")

        assert ada.find_mentions(CANARY).shared_with == (bob.id,)
        ada.forget(CANARY, erase=True)
        ada.forget("plums and quinces", erase=True)

        assert bytes_left(path) == []
        assert eve.messages()[-2].text == "plums and quinces"
        assert bob.send("hello again").text == "OK."


def test_reasoning_and_tool_results_are_redacted(tmp_path: Path) -> None:
    """Where a tool's result holds it inside JSON, what is left is still JSON."""
    with open_sync(tmp_path / "agents.db", calls("lookup"), tools=[lookup]) as perdure:
        agent = perdure.create_agent()
        agent.send("look")

        agent.forget(CANARY)

        results = [part for message in agent.messages() for part in message.parts if isinstance(part, ToolResult)]
        assert "[redacted]" in results[0].text
        assert agent.send("go on").text == "OK."


@pytest.mark.slow
@pytest.mark.uses("facts")
@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("text", ["İstanbul'da oturuyorum", "José Núñez has gout", "한국에서 살아요"])
def test_a_text_is_gone_in_every_form_of_unicode(tmp_path: Path, text: str, form: Literal["NFC", "NFD"]) -> None:
    """Wherever it stands, composed or not, also behind brackets that nest deeply."""
    path = tmp_path / "agents.db"
    forms = [unicodedata.normalize(one, text) for one in ("NFC", "NFD")]
    with open_sync(path) as perdure:
        agent = perdure.create_agent("ada", human=forms[0])
        for one in forms:
            agent.send(f"{'[' * 5_000} {one}")
            agent.archive(one)
        agent.facts.extract()

        assert agent.find_mentions(unicodedata.normalize(form, text)).counts["passage"] == 2
        agent.forget(unicodedata.normalize(form, text))
        assert not any(one in message.text for one in forms for message in agent.messages())
        agent.forget(unicodedata.normalize(form, text), erase=True)

    left = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not any(one.encode() in left for one in forms)


@pytest.mark.uses("facts")
@pytest.mark.parametrize("text", ["My SECRET 1234", "Ｍｙ ＳＥＣＲＥＴ １２３４", "カタカナガギ", "ｶﾀｶﾅｶﾞｷﾞ"])
def test_a_text_is_gone_in_letters_of_any_width(tmp_path: Path, text: str) -> None:
    """As Japanese keyboards write them: double width Latin, half width katakana."""
    path = tmp_path / "agents.db"
    forms = ["My SECRET 1234", "Ｍｙ ＳＥＣＲＥＴ １２３４"] if "1" in unicodedata.normalize("NFKC", text) else []
    forms = forms or ["カタカナガギ", "ｶﾀｶﾅｶﾞｷﾞ"]
    with open_sync(path) as perdure:
        agent = perdure.create_agent("ada", human="\n".join(forms))
        for one in forms:
            agent.send(f"so: {one}!")
            agent.archive(one)
        agent.facts.extract()

        assert agent.find_mentions(text).counts["passage"] == 2
        agent.forget(text)
        users = [message.text for message in agent.messages() if message.role == "user"]
        assert (users, agent.blocks.get("human").value) == (["so: [redacted]!"] * 2, "")
        agent.forget(text, erase=True)

    left = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not any(one.encode() in left for one in forms)


@pytest.mark.uses("facts")
def test_a_name_is_one_entity_in_every_form(tmp_path: Path) -> None:
    """A rule holds for it too, and a text says the same in both forms."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent("ada")
        for number, form in enumerate(("NFC", "NFD")):
            name = unicodedata.normalize(form, "José")  # type: ignore[arg-type]
            agent.facts.add(f"{name} likes tea {number}.", subject=name, relation="LIKES", object=f"tea {number}")
        agent.facts.add_rule(text=unicodedata.normalize("NFC", "café"))
        agent.send(unicodedata.normalize("NFD", "I like café."))
        agent.facts.extract()

        assert [entity.name for entity in agent.facts.entities() if entity.name.startswith("Jos")] == ["José"]
        assert len(agent.facts.list(entity=unicodedata.normalize("NFD", "JOSÉ"))) == 2
        assert len(agent.facts.list()) == 2


def test_the_name_of_a_speaker_is_forgotten_and_comes_back(tmp_path: Path) -> None:
    """As imports store it; requests that were sent before are built as they were."""
    with open_sync(tmp_path / "perdure.db", *map(says, "abcd")) as perdure:
        agent = perdure.create_agent("ada")
        rows = [("user", name, f"I am {number}", "2024-01-01T00:00:00Z") for number, name in enumerate(("Zorb", "Ann"))]
        agent.import_messages(rows)
        said = [agent.send("and?")]
        mentions = agent.find_mentions("Zorb").counts
        agent.forget("zorb")
        said.append(agent.send("and now?"))
        shown = [one.name for one in agent.messages()][:2]
        agent.undo()
        said.append(agent.send("and then?"))
        requests = [agent.request(agent.steps(run_id=one.run_id)[0].id) for one in said]
        back = [one.name for one in agent.messages()][:2]
        agent.forget("zorb", erase=True)
        gone = [one.name for one in agent.messages()][:2]

    assert mentions["message"] == 1
    assert (shown, back, gone) == (["[redacted]", "Ann"], ["Zorb", "Ann"], ["[redacted]", "Ann"])
    assert len(requests) == 3
    assert b"zorb" not in b"".join(one.read_bytes().lower() for one in tmp_path.iterdir())


async def test_large_texts_are_forgotten_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking the words of a million characters out of the index takes a while, and other writers wait."""
    async with await open_async(tmp_path / "perdure.db") as perdure:
        agent = await perdure.create_agent("ada")
        for number in range(6):
            await agent.archive(f"{number} walrus {'some words ' * 15_000}")
        store, found = perdure.app.ports.store, list[int]()
        write = store.write

        async def counted(unit: Any, *rest: Any, **more: Any) -> Any:
            """Write, and keep how many texts there are then."""
            result = await write(unit, *rest, **more)
            found.append(len(await agent.search_archive("walrus", limit=50)))
            return result

        monkeypatch.setattr(store, "write", counted)
        await agent.forget("walrus")

        assert list(dict.fromkeys(found)) == [6, 4, 2, 0]
        await agent.undo()
        assert len(await agent.search_archive("walrus", limit=50)) == 6
