"""What agents have by their files: lists that grow and shrink, things that were forgotten or deleted, MCP tools."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from perdure.core.errors import InvalidInput
from perdure.domain.agents.units import NewAgent
from perdure.features.mcp.units import sync_tools
from perdure.features.mcp.values import ToolDefinition, ToolListing
from tests.features.manifests.office_files import OFFICE, write_office
from tests.features.manifests.test_apply import labels, paths, said
from tests.support.library import MODEL, open_async
from tests.support.mcp_server import __file__ as MCP_PROGRAM

HEAD = f"agents:\n  ada:\n    model: {MODEL}\n"


async def test_what_an_agent_has_is_taken_from_it_by_prune_only(tmp_path: Path) -> None:
    """Tools, archives, shared and own blocks that leave a file; what a person gave the agent stays."""
    file = write_office(tmp_path)
    async with await open_async(tmp_path / "store.db") as library:
        await library.manifests.apply(file)
        ada = await library.agent("ada")
        await ada.tools.attach("conversation_search")
        await ada.blocks.create("own", "Mine.")
        text = OFFICE.replace(
            "    tools: [roll_dice]\n    archives: [library]\n    shared_blocks: [house-rules]\n", "", 1
        )
        write_office(tmp_path, text.replace("      notes:\n        seed: Nothing yet.\n        limit_chars: 900\n", ""))
        kept = await library.manifests.apply(file)
        still = await labels(library, "ada")
        pruned = await library.manifests.apply(file, prune=True)
        after = await labels(library, "ada")
        tools = [tool.name for tool in await ada.tools.list()]
        again = await library.manifests.plan(file, prune=True)
        write_office(tmp_path)
        await library.manifests.apply(file)
        back = await labels(library, "ada")

        lost = ["archives.library", "blocks.notes", "shared_blocks.house-rules", "tools.roll_dice"]
        assert kept.changes == [] and sorted(name for _, name in kept.left) == [f"ada {one}" for one in lost]
        assert "rules" in still and "notes" in still
        assert {*paths(pruned)} >= {f"ada.{one}" for one in lost}
        assert {*after} == {"persona", "own"}
        assert "roll_dice" not in tools and "conversation_search" in tools
        assert again.changes == [] and again.left == []
        assert {*back} == {"persona", "own", "rules", "notes"}
        assert (await library.manifests.plan(file)).changes == []


async def test_every_kind_that_is_pruned_comes_back(tmp_path: Path) -> None:
    """All but one agent leave, and return; the block that was written meanwhile has its text."""
    file = write_office(
        tmp_path, OFFICE.replace("    value: |\n      Be kind.\n      Be brief.\n", "    seed: Be kind.\n")
    )
    whole = file.read_text()
    async with await open_async(tmp_path / "store.db") as library:
        await library.manifests.apply(file)
        block = await (await library.agent("bob")).blocks.get("rules")
        await library.blocks.update(block.id, value="Be kind, and learn.")
        file.write_text(f"name: office\n{HEAD}")
        pruned = await library.manifests.apply(file, prune=True)
        servers = await library.mcp.list()
        empty = await library.manifests.plan(file, prune=True)
        file.write_text(whole)
        back = await library.manifests.apply(file)

        assert {one.action for one in pruned.changes} == {"change", "remove"} and servers == []
        assert len([one for one in pruned.changes if one.action == "remove"]) == 9
        assert empty.changes == []
        assert {"restore agents/bob", "restore groups/council", "create tools/roll_dice"} <= {*said(back)}
        assert (await labels(library, "bob"))["rules"] == "Be kind, and learn."
        assert (await (await library.agent("bob")).blocks.get("rules")).id == block.id
        assert (await library.manifests.plan(file)).changes == []


async def test_a_thing_that_was_deleted_by_hand_is_made_again(tmp_path: Path) -> None:
    """The plan says so before."""
    async with await open_async(tmp_path / "store.db") as library:
        await library.manifests.apply({"a.yaml": HEAD})
        await library.delete_agent((await library.agent("ada")).id)
        plan = await library.manifests.apply({"a.yaml": HEAD})

        assert said(plan) == ["create agents/ada"] and "deleted" in plan.changes[0].note


async def test_agents_that_are_there_are_taken_over_or_asked_for_by_id(tmp_path: Path) -> None:
    """One of the name is changed; of two, the file has to give the id."""
    async with await open_async(tmp_path / "store.db") as library:
        ada = await library.create_agent("ada", blocks={"notes": "Old."})
        text = f"{HEAD}    description: New.\n    blocks: {{notes: {{seed: Empty.}}}}\n"
        taken = await library.manifests.apply({"a.yaml": text})
        notes = await labels(library, "ada")
        await library.all_agents.add(NewAgent(name="ada", model=MODEL))
        with pytest.raises(InvalidInput, match="several agents have the name"):
            await library.manifests.plan({"b.yaml": "name: other\n" + text})
        by_id = await library.manifests.plan({"b.yaml": f"name: other\n{text}    id: {ada.id}\n"})

        assert paths(taken) == ["ada.description"] and notes["notes"] == "Old."
        assert by_id.changes == [] and by_id.noted == 1


async def test_what_an_agent_has_forgotten_does_not_come_back_by_a_file(tmp_path: Path) -> None:
    """A file that enforces a forgotten text is refused with its line; a seed of a block that is there counts for
    nothing."""
    secret = "The code is xylocarp."
    async with await open_async(tmp_path / "store.db") as library:
        enforced = f"{HEAD}    blocks:\n      notes:\n        value: {secret}\n"
        await library.manifests.apply({"a.yaml": enforced})
        ada = await library.agent("ada")
        await ada.forget("xylocarp")
        with pytest.raises(InvalidInput, match=r"a\.yaml:4: blocks has a text that the agent has forgotten"):
            await library.manifests.apply({"a.yaml": enforced})
        await library.manifests.apply({"a.yaml": HEAD})

        shared = f"{HEAD}    shared_blocks: [rules]\nblocks:\n  rules:\n    value: Be kind.\n"
        await library.manifests.apply({"a.yaml": shared})
        with pytest.raises(InvalidInput, match=r"a\.yaml:7: value has a text that the agent has forgotten"):
            await library.manifests.apply({"a.yaml": shared.replace("Be kind.", secret)})

        assert "xylocarp" not in (await labels(library, "ada"))["notes"]
        assert "xylocarp" not in await library.manifests.show(ada.id)


async def test_a_field_that_is_named_no_more_keeps_its_value(tmp_path: Path) -> None:
    """A description stays; the settings that a file does not name, too."""
    async with await open_async(tmp_path / "store.db") as library:
        await library.manifests.apply({"a.yaml": f"{HEAD}    description: Old.\n    settings: {{temperature: 0.5}}\n"})
        plan = await library.manifests.apply({"a.yaml": f"{HEAD}    settings: {{max_output_tokens: 100}}\n"})
        agent = (await (await library.agent("ada")).state()).agent

        assert paths(plan) == ["ada.settings.max_output_tokens"]
        assert agent.description == "Old." and agent.settings == {"temperature": 0.5, "max_output_tokens": 100}


@pytest.mark.slow
@pytest.mark.uses("mcp")
async def test_tools_of_a_new_mcp_server_follow_when_it_was_read(tmp_path: Path) -> None:
    """Its program starts after all else is applied, never for a plan; one that does not start waits."""
    started = tmp_path / "started"
    program = f"open({str(started)!r}, 'w').close(); import runpy; runpy.run_path({MCP_PROGRAM!r}, run_name='__main__')"
    server = f"mcp_servers:\n  local:\n    command: {sys.executable}\n    args: [-c, {program!r}]\n"
    text = f"{HEAD}    tools: [local__add]\n{server}"
    async with await open_async(tmp_path / "store.db") as library:
        plan = await library.manifests.plan({"a.yaml": text})
        was_started = started.exists()
        done = await library.manifests.apply({"a.yaml": text}, plan=plan)
        tools = [tool.name for tool in await (await library.agent("ada")).tools.list()]
        again = await library.manifests.plan({"a.yaml": text})
        broken = await library.manifests.apply(
            {"a.yaml": text.replace("local", "gone").replace(sys.executable, "/nope")}
        )

        assert plan.waiting == ["local"] and not was_started
        assert done.waiting == [] and "ada.tools.local__add" in paths(done)
        assert "local__add" in tools and again.changes == [] and again.waiting == []
        assert broken.waiting == ["gone"]


@pytest.mark.slow
async def test_hundreds_of_agents_are_applied_at_once(tmp_path: Path) -> None:
    """Up to the limit of a set."""
    text = "blocks: {rules: {value: Be kind.}}\nagents:\n" + "".join(
        f"  agent {number}:\n    model: {MODEL}\n    shared_blocks: [rules]\n" for number in range(499)
    )
    async with await open_async(tmp_path / "store.db") as library:
        done = await library.manifests.apply({"a.yaml": text})
        again = await library.manifests.plan({"a.yaml": text})
        with pytest.raises(InvalidInput, match="501 things"):
            await library.manifests.plan({"a.yaml": f"{text}  one: {{}}\n"})

        assert len(done.changes) == 500 and again.changes == []


async def test_what_the_files_call_otherwise_or_other_files_have_is_not_pruned(tmp_path: Path) -> None:
    """An agent under another name by its id, and a tool of two sets of files."""
    tool = "tools: {f: {source: \"def f():\\n  'It.'\\n  return 1\\n\"}}\n"
    async with await open_async(tmp_path / "store.db") as library:
        await library.manifests.apply({"a.yaml": f"name: one\n{tool}{HEAD}    tools: [f]\n"})
        ada = await library.agent("ada")
        await library.manifests.apply({"b.yaml": f"name: two\n{tool}agents: {{bob: {{model: {MODEL}}}}}"})
        tools = await library.manifests.apply({"b.yaml": f"name: two\nagents: {{bob: {{model: {MODEL}}}}}"}, prune=True)
        other = f"name: one\n{tool}agents: {{eve: {{id: {ada.id}}}}}"
        renamed = await library.manifests.apply({"a.yaml": other}, prune=True)
        again = await library.manifests.plan({"a.yaml": other}, prune=True)

        assert tools.changes == [] and renamed.changes == [] and again.changes == [] and again.noted == 0
        assert not (await ada.state()).agent.hidden
        assert "f" in [one.name for one in await ada.tools.list()]


async def test_what_the_files_still_name_is_not_pruned(tmp_path: Path) -> None:
    """The error says where it is named; a shared block has to be in the files in any case."""
    async with await open_async(tmp_path / "store.db") as library:
        named = f"{HEAD}    archives: [books]\n"
        await library.manifests.apply({"a.yaml": f"{named}archives: {{books: {{}}}}\nblocks: {{rules: {{}}}}"})
        with pytest.raises(InvalidInput, match=r"a\.yaml:4: archive 'books' is named here, and the files describe"):
            await library.manifests.apply({"a.yaml": named}, prune=True)
        with pytest.raises(InvalidInput, match=r"a\.yaml:4: the files have no block 'rules'"):
            await library.manifests.apply({"a.yaml": f"{HEAD}    shared_blocks: [rules]\n"})
        with pytest.raises(InvalidInput, match=r"a\.yaml:4: 'ada' in a\.yaml:3 has the id 'x', too"):
            await library.manifests.plan({"a.yaml": "agents:\n  ada:\n    id: x\n  bob: {id: x}"})

        assert [one.name for one in await (await library.agent("ada")).archives.list()] == ["books"]


async def test_an_agent_that_shares_names_is_shown_as_a_file_that_changes_nothing(tmp_path: Path) -> None:
    """Agents, archives and schedules of one name, and half a character, which no file can hold."""
    async with await open_async(tmp_path / "store.db") as library:
        ada = await library.create_agent("ada", blocks={"notes": "Cut \ud83d"})
        await library.all_agents.add(NewAgent(name="ada", model=MODEL))
        for every in ("1d", "2d"):
            await ada.archives.attach((await library.archives.add({"name": "books"})).id)
            await ada.schedules.create("Good morning.", every=every, name="morning")
        text = await library.manifests.show(ada.id)
        plan = await library.manifests.plan({"a.yaml": text})

        assert plan.changes == [] and plan.total == 5


async def test_texts_are_shown_as_they_are(tmp_path: Path) -> None:
    """Whatever stands in them: a file that enforces them changes nothing."""
    texts = [
        "a \n b",
        "  a\nb",
        "\n\na",
        "a\r\nb",
        "a\t\nb",
        "a\x07\nb",
        "a\u2028b",
        "a\x85b",
        "a\x85b\nc",
        "- a\n# b",
        "\n",
    ]
    async with await open_async(tmp_path / "store.db") as library:
        blocks = {
            f"b{at}": text for at, text in enumerate([*texts, "yes", "1e5", "0x1f", "~", "2024-01-01", "\ufeffa"])
        }
        ada = await library.create_agent("ada", blocks=blocks)
        text = await library.manifests.show(ada.id)

        assert (await library.manifests.plan({"a.yaml": text.replace("seed:", "value:")})).changes == []


@pytest.mark.slow
@pytest.mark.uses("mcp")
async def test_arguments_that_may_be_secrets_are_not_shown(tmp_path: Path) -> None:
    """A program that is started with a key."""
    program = f"import runpy, sys; del sys.argv[1:]; runpy.run_path({MCP_PROGRAM!r}, run_name='__main__')"
    async with await open_async(tmp_path / "store.db") as library:
        await library.mcp.add("local", command=sys.executable, args=["-c", program, "--key", "xylocarp"])
        ada = await library.create_agent("ada")
        await ada.tools.attach("local__add")
        text = await library.manifests.show(ada.id)
        plan = await library.manifests.plan({"a.yaml": text})

        assert "local" in text and "xylocarp" not in text and plan.changes == []


async def test_labels_with_dots_are_labels(tmp_path: Path) -> None:
    """A block `notes.value` is another one than the text of the block `notes`, also when it leaves the file."""
    notes = "      notes: {value: One.}\n"
    text = f"{HEAD}    blocks:\n{notes}      notes.value: {{value: Two., description: Dotted.}}\n"
    async with await open_async(tmp_path / "store.db") as library:
        await library.manifests.apply({"a.yaml": text})
        first, again = await labels(library, "ada"), await library.manifests.plan({"a.yaml": text})
        ada = await library.agent("ada")
        await ada.blocks.update("notes.value", "Three.")
        drift = await library.manifests.apply({"a.yaml": text})
        pruned = await library.manifests.apply({"a.yaml": f"{HEAD}    blocks:\n{notes}"}, prune=True)
        with pytest.raises(InvalidInput, match=r"a\.yaml:6: agent 'ada': .*limit"):
            await library.manifests.plan({"a.yaml": text.replace("Two.", "Two., limit_chars: 1")})

        assert first == {"notes": "One.", "notes.value": "Two."} and again.changes == []
        assert paths(drift) == ['ada.blocks."notes.value".value']
        assert paths(pruned)[0] == 'ada.blocks."notes.value"' and await labels(library, "ada") == {"notes": "One."}


@pytest.mark.uses("mcp")
async def test_a_key_in_the_address_of_a_server_is_not_shown(tmp_path: Path) -> None:
    """The file says what to fill in; applied elsewhere it has no stars; a named secret takes its place."""
    secret = "https://weather.example.com/mcp?key=xylocarp"
    async with await open_async(tmp_path / "store.db") as library:
        server = await library.mcp.add("weather", url=secret, check=False)
        listing = ToolListing(
            definitions=(ToolDefinition(name="now", description="Now.", parameters={"type": "object"}),)
        )
        ports = library.app.ports
        await ports.store.write(partial(sync_tools, ids=ports.ids, at=ports.clock.now()), server.id, listing)
        ada = await library.create_agent("ada")
        await ada.tools.attach("weather__now")
        text = await library.manifests.show(ada.id)
        here = await library.manifests.plan({"a.yaml": text})
        named = text.replace("example.com/mcp", "example.com/mcp?secret:WEATHER")
        change = await library.manifests.apply({"a.yaml": named})
        shown = await library.manifests.show(ada.id)
        again = await library.manifests.plan({"a.yaml": named})
    async with await open_async(tmp_path / "other.db") as other:
        await other.manifests.apply({"a.yaml": text})
        (made,) = await other.mcp.list()

    assert "xylocarp" not in text and "***" not in text and here.changes == []
    assert "# Not written: the key in the url of MCP server 'weather'" in text
    assert paths(change) == ["weather.url"] and again.changes == [] and "secret:WEATHER" in shown
    assert made.url == "https://weather.example.com/mcp"
