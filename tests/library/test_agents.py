"""Opening a store, making agents in it, finding them again."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from perdure import (
    AlreadyExists,
    AsyncPerdure,
    BlockLimitExceeded,
    InvalidInput,
    ModelNotFound,
    NewBlock,
    NotFound,
    Perdure,
    Settings,
    StoreError,
)
from perdure.core.agents import AgentFilter
from perdure.core.errors import NameInvalid, NotAStore, StoreClosed
from perdure.server.wire.agents import AgentType
from perdure.testing import InlineStore, ScriptedModel, says
from tests.support.library import MODEL, open_async, open_sync


@pytest.mark.uses("extractive")
def test_an_agent_remembers_in_the_next_process(tmp_path: Path) -> None:
    """What was said before a store was closed is known after it is opened again, with what comes with Perdure alone."""
    with Perdure(tmp_path / "new" / "agents.db") as perdure:
        agent = perdure.create_agent("helper")
        agent.send("My name is Ada.")

    with Perdure(tmp_path / "new" / "agents.db") as perdure:
        again = perdure.agent("helper")
        assert again.id == agent.id
        assert "Ada" in again.send("What is my name?").text
        assert "Ada" in again.blocks.get("human").value


@pytest.mark.uses("extractive")
async def test_the_asynchronous_face_does_the_same(tmp_path: Path) -> None:
    """`AsyncPerdure` opens the same file and its agents answer there."""
    async with await AsyncPerdure.open(tmp_path / "agents.db") as perdure:
        agent = await perdure.create_agent("helper")
        await agent.send("My name is Ada.")

        assert "Ada" in (await (await perdure.agent("helper")).send("What is my name?")).text


def test_an_agent_has_blocks_and_memory_tools_from_the_start(tmp_path: Path) -> None:
    """Without being asked for: persona, human, and tools to edit and search; other blocks stand beside them."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent(
            persona="I am brief.", blocks=[NewBlock(label="rules", value="No jokes.", read_only=True)]
        )

        values = {block.label: block.value for block in agent.blocks.list()}
        assert values == {"rules": "No jokes.", "persona": "I am brief.", "human": ""}
        assert agent.info.model in perdure.models


async def test_a_name_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    """The error for an unknown agent names the known ones, each name once, or says that there is none."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        with pytest.raises(NotFound, match="there is none yet"):
            await perdure.agent("helpr")
        await perdure.create_agent("helper")
        await perdure.create_agent("planner")
        other = await perdure.create_agent("other")
        await perdure.agent_of(other.id).edit({"name": "helper"})  # as over HTTP
        with pytest.raises(NotFound, match=r"'helpr' not found: there are 'helper', 'planner'$"):
            await perdure.agent("helpr")


def test_agents_are_listed_newest_first_and_found_by_id(tmp_path: Path) -> None:
    """Pages go on after the last agent of the page before; the one used last is known."""
    with open_sync(tmp_path / "agents.db") as perdure:
        assert perdure.last_agent() is None
        one, two, three = (perdure.create_agent(name) for name in ("one", "two", "three"))
        one.send("hello")

        assert [agent.name for agent in perdure.agents(limit=2)] == ["three", "two"]
        assert [agent.name for agent in perdure.agents(after=two.id)] == ["one"]
        assert perdure.agent(three.id).name == "three"
        last = perdure.last_agent()
        assert last is not None and last.id == one.id


def test_a_deleted_agent_is_gone_and_its_blocks_stay(tmp_path: Path) -> None:
    """Deleting takes the history with it; a block that others may share is still there."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent("helper", human="Ada")
        agent.send("hello")
        block = agent.blocks.get("human")

        perdure.delete_agent(agent.id)

        with pytest.raises(NotFound):
            perdure.agent("helper")
        assert perdure.blocks.get(block.id).value == "Ada"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "a/b"}, NameInvalid),
        ({"name": ""}, NameInvalid),
        ({"timezone": "Mars/Olympus"}, InvalidInput),
        ({"blocks": {"two words": ""}}, InvalidInput),
        ({"tools": ["no_such_tool"]}, NotFound),
        ({"model": "nobody/nothing"}, ModelNotFound),
        ({"model": ""}, ModelNotFound),
        ({"agent_type": "gpt_agent"}, InvalidInput),
        ({"settings": {"context_window_tokens": 999}}, InvalidInput),
        ({"settings": {"context_window_tokens": "32000"}}, InvalidInput),
        ({"settings": {"context_window_tokens": True}}, InvalidInput),
        ({"metadata": ["red"]}, InvalidInput),
        ({"metadata": {"at": object()}}, InvalidInput),
        ({"system": 5}, InvalidInput),
        ({"tags": "travel"}, InvalidInput),
        ({"persona": "x" * 5_001}, BlockLimitExceeded),
        ({"blocks": [NewBlock(label="a"), NewBlock(label="a")]}, AlreadyExists),
    ],
)
def test_an_agent_that_can_not_be_made_leaves_nothing(
    tmp_path: Path, arguments: dict[str, object], error: type[Exception]
) -> None:
    """A wrong value is told by a typed error, and neither agent nor block comes of it."""
    with open_sync(tmp_path / "agents.db") as perdure:
        with pytest.raises(error):
            perdure.create_agent(**arguments)  # type: ignore[arg-type]  # wrong on purpose

        assert perdure.agents() == []
        assert perdure.blocks.list() == []


def test_an_agent_has_any_type_that_clients_know(tmp_path: Path) -> None:
    """The same as over HTTP, with the tools of its type; others are refused with those that are there."""
    with open_sync(tmp_path / "agents.db") as perdure:
        made = {kind: perdure.create_agent(agent_type=kind, archival=False) for kind in get_args(AgentType)}
        tools = {kind: [tool.name for tool in one.tools.list()] for kind, one in made.items()}
        with pytest.raises(InvalidInput, match=r"'gpt_agent' is not known: use letta_v1_agent.*react_agent"):
            perdure.create_agent(agent_type="gpt_agent")

        assert {kind: one.info.agent_type for kind, one in made.items()} == {kind: kind for kind in made}
        assert (tools["react_agent"], tools["workflow_agent"]) == ([], [])
        assert sorted(tools["voice_convo_agent"]) == ["search_memory", "send_message"]
        assert made["workflow_agent"].info.settings["message_buffer_autoclear"] is True


def test_an_agent_is_changed_for_its_next_answer(tmp_path: Path) -> None:
    """What is given is changed and seen by the next request, in the same conversation; what is not given stays."""
    path, one, other = tmp_path / "agents.db", ScriptedModel(), ScriptedModel()
    with Perdure(path, models={MODEL: one, "test/other": other}, settings=Settings(model=MODEL)) as perdure:
        agent = perdure.create_agent("helper", description="Helps.", tags=["a"])
        agent.send("hello")

        changed = agent.update(
            model="test/other", system="Be brief. {CORE_MEMORY}", tags=["b"], settings={"context_window_tokens": 9_000}
        )
        changed.send("again")

        assert (agent.info.model, changed.info.model, changed.name) == (MODEL, "test/other", "helper")
        assert (changed.info.description, changed.info.tags) == ("Helps.", ("b",))
        assert [len(one.requests), len(other.requests)] == [1, 1]
        assert other.requests[0].system.startswith("Be brief.")
        assert [message.text for message in other.requests[0].messages if message.role == "user"] == ["hello", "again"]
        assert perdure.agent("helper").info == changed.info
        assert changed.update(system=None).info.system is None


async def test_a_hidden_agent_is_left_out_of_filtered_lists(tmp_path: Path) -> None:
    """Those who know it still find it, and it can be shown again."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        agents, shown = perdure.all_agents, AgentFilter(hidden=False)
        agent = await (await perdure.create_agent("helper")).update(hidden=True)
        hidden = await agents.count(shown)
        known = (await perdure.agent("helper")).info.hidden
        await agent.update(hidden=False)

        assert (hidden, known, await agents.count(shown)) == (0, True, 1)


async def test_a_change_that_changes_nothing_is_not_written(tmp_path: Path) -> None:
    """The settings revision names what requests are made with, so it stays too."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        agent = await perdure.create_agent("helper")

        assert (await agent.update()).info == (await agent.update(name="helper")).info == agent.info
        assert (await agent.update(system="Be kind.")).info.settings_revision == agent.info.settings_revision + 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": "nobody/nothing"}, ModelNotFound),
        ({"name": "a/b"}, NameInvalid),
        ({"timezone": "Mars/Olympus"}, InvalidInput),
        ({"settings": {"context_window_tokens": -1}}, InvalidInput),
        ({"settings": None}, InvalidInput),
        ({"name": None}, InvalidInput),
        ({"timezone": None}, InvalidInput),
        ({"hidden": "yes"}, InvalidInput),
        ({"tags": "travel"}, InvalidInput),
        ({"agent_type": "letta_v1_agent"}, InvalidInput),
        ({"id": "agent-1"}, InvalidInput),
    ],
)
def test_a_change_that_can_not_be_made_changes_nothing(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    """A wrong value or an unknown field is told by a typed error; the good ones beside it are not written either."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent("helper")
        with pytest.raises(error):
            agent.update(**{"description": "new", **changes})

        assert perdure.agent(agent.id).info == agent.info


def test_a_deleted_agent_can_not_be_changed(tmp_path: Path) -> None:
    """Whoever still holds it is told that it is gone."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        perdure.delete_agent(agent.id)

        with pytest.raises(NotFound):
            agent.update(name="ghost")
        with pytest.raises(NotFound, match="agent 'bob' not found"):
            perdure.delete_agent("bob")  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1, 10_001, 2.5, True, "10"])
def test_a_page_has_bounds(tmp_path: Path, limit: Any) -> None:
    """Every listing and search refuses a limit that gives nothing, or more than a page, and says what goes."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        pages: list[Callable[..., object]] = [
            perdure.agents,
            perdure.blocks.list,
            agent.messages,
            agent.conversations,
            agent.passages,
            partial(agent.search, "x"),
            partial(agent.search_archive, "x"),
            partial(agent.blocks.history, "human"),
        ]

        for page in pages:
            with pytest.raises(InvalidInput, match=r"limit is .*: give a number from 1 to 10,000"):
                page(limit=limit)


@pytest.mark.uses("extractive", "files")
def test_a_store_in_memory_is_refused_with_what_there_is_instead(tmp_path: Path, monkeypatch: Any) -> None:
    """No file of that name comes of it; a stand-in for tests works without any file."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"perdure\.testing\.InlineStore"):
        Perdure(":memory:")
    with pytest.raises(InvalidInput, match=r"postgresql://user@host"):
        Perdure("host=127.0.0.1 dbname=x")
    assert list(tmp_path.iterdir()) == []

    with Perdure(store=InlineStore()) as perdure:
        assert "Ada" in perdure.create_agent().send("My name is Ada.").text


def test_a_home_of_nobody_is_named() -> None:
    """The variable, its value, and what to write instead."""
    with pytest.raises(InvalidInput, match=r"PERDURE_HOME is '~nosuchuser/x': .* write the whole path"):
        Perdure(settings=Settings(home="~nosuchuser/x"))


def test_a_zero_that_the_documentation_gives_a_meaning_is_taken() -> None:
    """ "0: no limit" and the like; the names are those of the class's own documentation."""
    parts = re.split(r"\n        (?=[a-z_]+: )", Settings.__doc__ or "")
    names = {part.split(":")[0].strip() for part in parts if re.search(r"[;,]\s0: ", " ".join(part.split()))}
    assert {"max_tokens", "max_cost_usd", "audit_days"} <= names
    taken = Settings.from_environment({f"PERDURE_{name.upper()}": "0" for name in names})
    assert {name: getattr(taken, name) for name in names} == dict.fromkeys(names, 0)


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "soon"])
def test_a_setting_that_is_no_positive_number_is_named(value: str) -> None:
    """Also what Python takes for a number, and no clock can count."""
    with pytest.raises(InvalidInput, match=f"PERDURE_LEASE_S is '{value}': a positive number is needed"):
        Settings.from_environment({"PERDURE_LEASE_S": value})


def test_closing_twice_is_no_error(tmp_path: Path) -> None:
    """A closed store may be closed again; whatever else is asked of it is answered by a typed error."""
    perdure = open_sync(tmp_path / "agents.db")
    agent = perdure.create_agent()
    perdure.close()
    perdure.close()

    with pytest.raises(StoreClosed, match="open it again"):
        agent.send("hello")
    with pytest.raises(StoreClosed):
        perdure.agents()


async def test_plain_calls_work_beside_a_running_loop(tmp_path: Path) -> None:
    """In a notebook, say: the store has a loop of its own and minds nobody else's."""
    with open_sync(tmp_path / "agents.db") as perdure:
        assert perdure.create_agent().send("hello").text == "OK."


async def test_closing_twice_is_no_error_for_coroutines_either(tmp_path: Path) -> None:
    """The asynchronous face keeps the same promise."""
    perdure = await open_async(tmp_path / "agents.db")
    agent = await perdure.create_agent()
    await perdure.close()
    await perdure.close()

    with pytest.raises(StoreClosed):
        await agent.send("hello")


def test_two_objects_share_one_file(tmp_path: Path) -> None:
    """What one has written the other one sees, and each can talk to the other's agents."""
    path = tmp_path / "agents.db"
    with open_sync(path, says("from one")) as one, open_sync(path, says("from two")) as two:
        agent = one.create_agent("helper")
        other = two.agent("helper")

        assert [agent.send("a").text, other.send("b").text] == ["from one", "from two"]
        assert [message.text for message in agent.messages()] == ["a", "from one", "b", "from two"]


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """What is no Perdure store is refused by name and not touched."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at as one " * 20)
    before = path.read_bytes()

    with pytest.raises(NotAStore, match=r"notes\.txt"):
        Perdure(path)
    assert path.read_bytes() == before


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    """The error says which folder, and how another one is chosen."""
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="PERDURE_HOME"):
        Perdure(tmp_path / "file" / "agents.db")
