"""Each tool with each of its arguments, through the SDK's client."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, ImportedMessage
from perdure.features.notes.projects import ProjectMemory
from perdure.features.notes.values import note_kinds
from perdure.testing import InlineStore
from tests.features.mcp_server.clients import READING, TOOLS, connected, opened, refused, said

_ID = re.compile(r"(?:passage|fact|message)-[0-9a-f-]{36}")
_UNDO = re.compile(r"undo='([^']+)'")


def id_in(text: str) -> str:
    """The first id in an answer."""
    found = _ID.search(text)
    assert found, text
    return found[0]


def undo_in(text: str) -> str:
    """What an answer says to pass as `undo`."""
    found = _UNDO.search(text)
    assert found, text
    return found[1]


async def test_twelve_tools_are_described_for_a_model(tmp_path: Path) -> None:
    """Each with a text for each argument; those that change nothing say so."""
    async with connected(tmp_path) as client:
        tools = (await client.list_tools()).tools

    assert [tool.name for tool in tools] == TOOLS
    assert [tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint] == READING
    for tool in tools:
        assert len(tool.description or "") > 100 and tool.input_schema["additionalProperties"] is False
        assert all(value["description"] for value in tool.input_schema["properties"].values())


async def test_a_server_that_only_reads_has_no_tool_that_writes(tmp_path: Path) -> None:
    async with connected(tmp_path, read_only=True) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        error = await refused(client, "memory_remember", text="x")
        empty = await said(client, "memory_list", kind="passages")

    assert names == READING
    assert "this server only reads" in error and empty == "There are no passages yet."


async def test_what_is_remembered_is_found_with_its_id_and_level(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        of_project = await said(client, "memory_remember", text="The parser is written in Rust.", tags=["build"])
        of_all = await said(client, "memory_remember", text="Deploys run on Fridays at noon.", level="global")
        found = await said(client, "memory_search", query="when do we deploy?")
        nothing = await said(client, "memory_search", query="zeppelin", budget_tokens=100)
        passages = await said(client, "memory_list", kind="passages")

    assert id_in(of_all) in found and "Fridays at noon" in found and found.startswith("# global")
    assert nothing == "Nothing was found."
    assert id_in(of_project) in passages and id_in(of_all) in passages


async def test_what_is_remembered_of_the_user_becomes_facts(tmp_path: Path) -> None:
    """Also in the third person, as programs write it down."""
    async with connected(tmp_path) as client:
        told = await said(client, "memory_remember", text="The user Ada lives in Ghent.")
        entity = await said(client, "memory_entity", name="Ada")
        facts = await said(client, "memory_list", kind="facts")
        unknown = await said(client, "memory_entity", name="Bob")
        timeline = await said(client, "memory_timeline", about="Ada")

    assert "Understood: Ada lives in Ghent." in told
    assert "Ada (Person)" in entity and "fact-" in entity and "Ada lives in Ghent" in facts
    assert "Ada lives in Ghent" in timeline
    assert unknown.startswith("Nothing names 'Bob'")


async def test_a_timeline_has_what_is_in_its_time(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        for number in range(3):
            await said(client, "memory_remember", text=f"thing {number}")
        all_ = await said(client, "memory_timeline", since="2020-01-01", until="2999-01-01")
        two = await said(client, "memory_timeline", limit=2)
        none = await said(client, "memory_timeline", until="2020-01-01")
        error = await refused(client, "memory_timeline", since="yesterday-ish")

    assert len(all_.splitlines()) == 3 and len(two.splitlines()) == 2
    assert none == "Nothing is known of that time." and "yesterday-ish" in error


async def test_a_passage_is_forgotten_and_comes_back(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        told = await said(client, "memory_remember", text="The parser is written in Rust.")
        gone = await said(client, "memory_forget", id=id_in(told))
        without = await said(client, "memory_list", kind="passages")
        back = await said(client, "memory_forget", undo=undo_in(gone))
        again = await said(client, "memory_list", kind="passages")
        changes = await said(client, "memory_list", kind="changes")

    assert "written in Rust" in gone and without == "There are no passages yet."
    assert back.startswith("Undone (project)") and "written in Rust" in again
    assert "(undone)" in changes


async def test_a_fact_is_forgotten_and_comes_back(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        told = await said(client, "memory_remember", text="My name is Ada and I live in Ghent.", level="global")
        fact = next(one for one in _ID.findall(told) if one.startswith("fact-"))
        gone = await said(client, "memory_forget", id=fact)
        without = await said(client, "memory_list", kind="facts")
        back = await said(client, "memory_forget", undo=undo_in(gone))
        again = await said(client, "memory_list", kind="facts")

    assert "Ada lives in Ghent" in gone and without == "There are no facts yet."
    assert back == "Back (global): Ada lives in Ghent." and fact in again


async def test_facts_go_and_come_back_with_the_text_that_they_are_from(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        told = await said(client, "memory_remember", text="My name is Ada and I live in Ghent.")
        gone = await said(client, "memory_forget", id=id_in(told))
        without = await said(client, "memory_list", kind="facts")
        await said(client, "memory_forget", undo=undo_in(gone))
        again = await said(client, "memory_list", kind="facts")

    assert without == "There are no facts yet." and "Ada lives in Ghent" in again
    assert "Forgotten with it: Ada lives in Ghent. (fact-" in gone


async def test_a_fact_that_is_forgotten_names_the_text_that_stays(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        told = await said(client, "memory_remember", text="My name is Ada and I live in Ghent.")
        fact = next(one for one in _ID.findall(told) if one.startswith("fact-"))
        gone = await said(client, "memory_forget", id=fact)

    assert f"Its source stays: {id_in(told)}" in gone


async def test_every_change_is_listed_with_what_takes_it_back(tmp_path: Path) -> None:
    """Texts, notes, blocks and facts, the newest first; removals are named."""
    async with connected(tmp_path) as client:
        told = await said(client, "memory_remember", text="My name is Ada and I live in Ghent.")
        fact = next(one for one in _ID.findall(told) if one.startswith("fact-"))
        await said(client, "memory_edit_block", label="project", value="Built with make.")
        await said(client, "memory_edit_block", label="project", old="make", new="just")
        await said(client, "memory_forget", id=fact)
        await said(client, "memory_forget", id=id_in(told))
        changes = await said(client, "memory_list", kind="changes")
        for line in changes.splitlines()[1:]:
            await said(client, "memory_forget", undo=line.split()[0])
        block = await said(client, "memory_list", kind="blocks")
        after = await said(client, "memory_list", kind="changes", limit=2)

    removed, forgot, second, first, added = (line.split(" ", 3) for line in changes.splitlines()[1:])
    assert removed[3].startswith("removed passage: My name") and added[3].startswith("new passage: My name")
    assert forgot[0] == fact and forgot[3] == "forgotten fact: Ada lives in Ghent."
    assert (second[0], second[3]) == ("project:project@1", "block project: 1 line added, 1 removed")
    assert (first[0], first[3]) == ("project:project@0", "block project: 1 line added, 0 removed")
    assert "make" not in block and "just" not in block and len(after.splitlines()) == 3


async def test_a_message_is_forgotten_and_comes_back(tmp_path: Path) -> None:
    """Of an agent that was talked to: `--agent`."""
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.send("The vault's code word is marmalade.")
        async with opened(perdure, None, agent="ann") as client:
            context = await said(client, "memory_context")
            listed = await said(client, "memory_list", kind="messages")
            (line,) = [line for line in listed.splitlines() if " user: " in line]
            gone = await said(client, "memory_forget", id=id_in(line))
            without = await said(client, "memory_list", kind="messages")
            await said(client, "memory_forget", undo=undo_in(gone))
            again = await said(client, "memory_list", kind="messages")

    assert "marmalade" in context and "marmalade" in line
    assert "marmalade" not in without and line in again


async def test_a_message_of_the_memory_behind_all_projects_is_forgotten(tmp_path: Path) -> None:
    """With a project's agent before it, which has no such message."""
    said_once = ImportedMessage(role="user", text="My salary is 91,000.", occurred_at=datetime.now(UTC))
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        project = ProjectMemory(perdure, tmp_path)
        behind = await project.open("global")
        await project.open()
        await behind.import_messages([said_once])
        async with opened(perdure, tmp_path) as client:
            listed = await said(client, "memory_list", kind="messages")
            gone = await said(client, "memory_forget", id=id_in(listed))
            without = await said(client, "memory_list", kind="messages")

    assert "91,000" in listed and "91,000" not in without
    assert gone.startswith("Forgotten (global): 1 in message")


async def test_only_ids_are_forgotten(tmp_path: Path) -> None:
    """A word would take out all that has it."""
    async with connected(tmp_path) as client:
        await said(client, "memory_remember", text="Ada likes tea")
        word = await refused(client, "memory_forget", id="Ada")
        both = await refused(client, "memory_forget", id="Ada", undo="project:1")
        other = await refused(client, "memory_forget", id="passage-00000000-0000-4000-8000-000000000000")
        undo = [await refused(client, "memory_forget", undo=one) for one in ("x", "project:", "other:1", "project:9")]
        left = await said(client, "memory_list", kind="passages")

    assert "whole id" in word and "either id" in both and "not found" in other
    assert all(undo) and "Ada likes tea" in left


async def test_a_block_is_changed_in_each_way_and_back(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        answers = [
            await said(client, "memory_edit_block", label="human", append="Name: Ada"),
            await said(client, "memory_edit_block", label="human", append="City: Ghent"),
            await said(client, "memory_edit_block", label="human", old="Ghent", new="Rome"),
            await said(client, "memory_edit_block", label="human", value="nobody"),
        ]
        values = []
        for answer in reversed(answers):
            await said(client, "memory_forget", undo=undo_in(answer))
            blocks = await said(client, "memory_list", kind="blocks")
            values.append(blocks.partition("## human")[2].partition("\n")[2].partition("\n## ")[0].strip())

    assert "Block human (global) is now:\nName: Ada\nCity: Ghent\n" in answers[1]
    assert values == ["Name: Ada\nCity: Rome", "Name: Ada\nCity: Ghent", "Name: Ada", ""]


async def test_a_new_block_is_of_the_project_or_global(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        own = await said(client, "memory_edit_block", label="rules", value="Use tabs.")
        of_all = await said(client, "memory_edit_block", label="style", value="Short.", level="global")
        none = await refused(client, "memory_edit_block", label="nope", old="a", new="b")
        several = await refused(client, "memory_edit_block", label="rules", value="a", append="b")
        half = await refused(client, "memory_edit_block", label="rules", old="a")
        nothing = await refused(client, "memory_edit_block", label="rules", append=" ")
        absent = await refused(client, "memory_edit_block", label="rules", old="spaces", new="tabs")
        after = await said(client, "memory_list", kind="blocks")

    assert "rules (project)" in own and "style (global)" in of_all
    assert (
        "not found" in none
        and "give one of" in several
        and "give one of" in half
        and "give one of" in nothing
        and "spaces" in absent
    )
    assert "Use tabs." in after and "nope" not in after


async def test_a_new_block_with_a_value_that_is_too_long_is_not_made(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        error = await refused(client, "memory_edit_block", label="rules", value="x" * 50_000)
        without = await said(client, "memory_list", kind="blocks")
        made = await said(client, "memory_edit_block", label="rules", append="Use tabs.")

    assert "would hold 50,000 characters" in error and "## rules" not in without
    assert made == (
        "Block rules (project) is new:\nUse tabs.\n"
        "To undo: memory_edit_block(label='rules', value='', level='project')."
    )


async def test_a_block_that_only_people_may_change_stays(tmp_path: Path) -> None:
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.blocks.create("law", "Be kind.", read_only=True)
        async with opened(perdure, None, agent=agent.id) as client:
            errors = [
                await refused(client, "memory_edit_block", label="law", **ways)
                for ways in ({"append": "x"}, {"value": "x"}, {"old": "kind", "new": "x"})
            ]
        value = (await agent.blocks.get("law")).value

    assert all("read-only" in error for error in errors) and value == "Be kind."


@pytest.mark.parametrize("kind", sorted(note_kinds()))
async def test_a_note_of_each_kind_is_written_changed_put_away_and_undone(tmp_path: Path, kind: str) -> None:
    fields = {name: f"the {name} is marmalade{number}" for number, name in enumerate(note_kinds()[kind].fields)}
    first = next(iter(fields))
    async with connected(tmp_path) as client:
        written = await said(client, "note", kind=kind, title="A title", fields=fields, level="global")
        note = id_in(written)
        found = await said(client, "memory_search", query="marmalade0")
        changed = await said(client, "note", id=note, title="Another", fields={first: "new words"})
        listed = await said(client, "memory_list", kind="notes", note_kind=kind)
        back = await said(client, "memory_forget", undo=undo_in(changed))
        away = await said(client, "note", id=note, archive=True)
        none = await said(client, "memory_list", kind="notes")
        here = await said(client, "note", id=note, archive=False)
        stale = await said(client, "memory_list", kind="notes", stale=True)
        await said(client, "memory_forget", undo=undo_in(written))
        gone = await refused(client, "note", id=note, title="x")

    assert note in found and "# Another" in changed and "new words" in changed and "Another" in listed
    assert back.startswith("Undone (global)") and "archived" in away and none == "There are no notes yet."
    assert "# A title" in here and first and "marmalade0" in here and stale == "There are no stale notes."
    assert "not found" in gone


async def test_a_note_that_can_not_be_written_is_refused_whole(tmp_path: Path) -> None:
    """One of 1 MB, titles of control characters, unknown fields and kinds."""
    async with connected(tmp_path) as client:
        plan: dict[str, Any] = {"kind": "plan", "title": "t", "fields": {"goal": "g"}}
        wrongs: list[dict[str, Any]] = [
            {"fields": {"goal": "x" * 1_000_000}},
            {"fields": {"goal": "x" * 50_000}},
            {"title": "a\x00\x1b[2Jb"},
            {"title": "two\nlines"},
            {"title": ""},
            {"kind": "poem"},
            {"fields": {"verse": "x"}},
            {"fields": {}},
            {"id": "nonsense"},
        ]
        errors = [await refused(client, "note", **{**plan, **wrong}) for wrong in wrongs]
        nothing = await refused(client, "note", id="passage-00000000-0000-4000-8000-000000000000")
        listed = await said(client, "memory_list", kind="notes")

    assert "limit" in errors[0] and "limit" in errors[1] and "control characters" in errors[2]
    assert all(errors) and "not found" in nothing and listed == "There are no notes yet."


async def test_reminders_come_by_the_counts(tmp_path: Path) -> None:
    """After 8 edits in 2 files, once in 8; strict from 4, each time; light once; off never. A note clears them."""
    seen: dict[str, list[int]] = {}
    for level in ("off", "light", "balanced", "strict"):
        folder = tmp_path / level
        folder.mkdir()
        async with connected(folder, nudges=level) as client:
            seen[level] = [
                number
                for number in range(1, 18)
                if "since the last note: if" in await said(client, "track", files=[f"file{number % 2}.py"])
            ]
            await said(client, "note", kind="plan", title="t", fields={"goal": "g"})
            assert await said(client, "track", files=["a"]) == "1 edit in 1 file since the last note."

    assert seen == {"off": [], "light": [8], "balanced": [8, 16], "strict": [*range(4, 18)]}


async def test_arguments_that_do_not_fit_are_named(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await said(client, "memory_remember", text="x")
        errors = [
            await refused(client, "memory_search", q="x"),
            await refused(client, "memory_search", query="x", budget_tokens=99),
            await refused(client, "memory_search", query="x" * 200_000),
            await refused(client, "memory_search", query="  "),
            await refused(client, "memory_list", kind="dreams"),
            await refused(client, "memory_remember", text="x", tags=["t"] * 2_000),
            await refused(client, "track", files="x" * 200_000),
            await refused(client, "no_such_tool"),
        ]

    assert "missing 'query'; unknown 'q'" in errors[0] and "budget_tokens" in errors[1] and "limit is" in errors[2]
    assert "kind" in errors[4] and "2,000 items" in errors[5] and "there are memory_context" in errors[7]


async def test_the_memory_of_a_named_agent_takes_the_place_of_the_projects(tmp_path: Path) -> None:
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        agent = await perdure.create_agent("ann")
        async with opened(perdure, None, agent="ann") as client:
            await said(client, "memory_remember", text="Only ann knows this.")
        async with opened(perdure, None, agent="nobody") as client:
            error = await refused(client, "memory_list", kind="passages")
        found = await agent.search_archive("")

    assert [hit.passage.text for hit in found] == ["Only ann knows this."]
    assert "nobody" in error


async def test_without_a_project_all_is_global(tmp_path: Path) -> None:
    async with await AsyncPerdure.open(store=InlineStore()) as perdure, opened(perdure, None) as client:
        told = await said(client, "memory_remember", text="x y z")
        error = await refused(client, "memory_remember", text="x", level="project")

    assert "(global)" in told and "there is no project" in error


async def test_two_projects_share_the_global_memory_only(tmp_path: Path) -> None:
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        for name in ("one", "two"):
            (tmp_path / name / ".git").mkdir(parents=True)
            (tmp_path / name / "src").mkdir()
        async with opened(perdure, tmp_path / "one" / "src") as client:
            await said(client, "memory_remember", text="the secret of one")
            await said(client, "memory_remember", text="the rule of all", level="global")
        async with opened(perdure, tmp_path / "two") as client:
            other = await said(client, "memory_list", kind="passages")
        async with opened(perdure, tmp_path / "one") as client:
            own = await said(client, "memory_list", kind="passages")

    assert "the rule of all" in other and "the secret of one" not in other
    assert "the rule of all" in own and "the secret of one" in own


async def test_a_fact_comes_back_only_where_it_was(tmp_path: Path) -> None:
    """Another project of the same store knows neither it nor that it was forgotten."""
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        for name in ("one", "two"):
            (tmp_path / name / ".git").mkdir(parents=True)
        async with opened(perdure, tmp_path / "one") as first, opened(perdure, tmp_path / "two") as second:
            await said(second, "memory_remember", text="My name is Bob and I live in Oslo.")
            told = await said(first, "memory_remember", text="My name is Ada and I live in Ghent.")
            fact = next(one for one in _ID.findall(told) if one.startswith("fact-"))
            await said(first, "memory_forget", id=fact)

            await refused(second, "memory_forget", undo=fact)


async def test_a_protected_block_is_not_changed_over_mcp(tmp_path: Path) -> None:
    """The clients are agents: no edit, no undo of an edit, and nothing taken out of it by forgetting."""
    async with await AsyncPerdure.open(store=InlineStore()) as perdure, opened(perdure, tmp_path) as client:
        await said(client, "memory_edit_block", label="policy", value="Be kind.", level="project")
        await said(client, "memory_edit_block", label="policy", append="Never say cobalt.")
        (agent,) = [one for one in await perdure.agents() if "policy" in [own.label for own in await one.blocks.list()]]
        await agent.blocks.replace_line("policy", 1, "Be fair.")
        await agent.blocks.change("policy", metadata={"protected": True})
        before = await agent.blocks.get("policy")
        await agent.import_messages(
            [ImportedMessage(role="user", text="Never say cobalt.", occurred_at=before.updated_at)]
        )
        (said_so,) = await agent.messages()
        errors = [
            await refused(client, "memory_edit_block", label="policy", append="x"),
            await refused(client, "memory_edit_block", label="policy", value="x"),
            await refused(client, "memory_edit_block", label="policy", old="fair", new="x"),
            await refused(client, "memory_forget", undo="project:policy@0"),
            await refused(client, "memory_forget", id=said_so.id),
        ]
        undone = await said(client, "memory_forget", undo="project:1")

        assert all("'policy' is protected" in error for error in errors), errors
        assert "Not taken back: Block 'policy' is protected" in undone
        assert await agent.blocks.get("policy") == before
