"""Opening a store, making agents in it, finding them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import AsyncPerdure, BlockLimitExceeded, InvalidInput, NotFound, Perdure, StoreError
from perdure.core.errors import AlreadyExists, NameInvalid, NotAStore, StoreClosed
from perdure.memory.agents import NewBlock
from perdure.testing import says
from tests.library.opened import open_async, open_sync


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


def test_a_name_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    """The error for an unknown agent names the known ones, or says that there is none."""
    with open_sync(tmp_path / "agents.db") as perdure:
        with pytest.raises(NotFound, match="there is none yet"):
            perdure.agent("helpr")
        perdure.create_agent("helper")
        with pytest.raises(NotFound, match="'helpr' not found: there are 'helper'"):
            perdure.agent("helpr")


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
