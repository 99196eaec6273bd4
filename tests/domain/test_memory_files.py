"""The `memory` tool: blocks worked on like files."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.errors import (
    AlreadyExists,
    BlockLimitExceeded,
    BlockNotFound,
    BlockReadOnly,
    InvalidArguments,
    InvalidInput,
    TextNotFound,
)
from perdure.domain.blocks.units import NewBlock
from tests.support.agents import agent_in_run

HUMAN = NewBlock(label="human", value="Name: Ada\nLikes: tea", description="The person.")
LOCKED = NewBlock(label="persona", value="I am kind.", read_only=True)


async def test_the_root_lists_the_blocks() -> None:
    """With sizes, limits and descriptions, in their order; without any, it says so."""
    s = await agent_in_run(HUMAN, LOCKED)
    for path in ({}, {"path": "/memories"}, {"path": "/memories/"}):
        lines = (await s.call("memory", command="view", **path)).text.splitlines()

        assert lines[0] == "/memories/human (20 of 5000 characters): The person."
        assert lines[1].startswith("/memories/persona (10 of 5000 characters)")
        assert len(lines) == 2

    assert (await (await agent_in_run()).call("memory", command="view")).text == "There are no memory blocks."


@pytest.mark.parametrize("path", ["/memories/human", "human", "/human", " /memories/human ", "/memories/human/"])
async def test_a_block_is_viewed_by_its_path(path: str) -> None:
    """The ways in which models write a path lead to the same block."""
    s = await agent_in_run(HUMAN)
    result = await s.call("memory", command="view", path=path)

    assert (result.text, result.edits) == (HUMAN.value, ())


async def test_a_block_is_created_for_the_agent() -> None:
    """It has the text and description given, and stands last."""
    s = await agent_in_run(HUMAN)
    result = await s.call(
        "memory", command="create", path="/memories/todo", file_text="buy tea", description="What to do."
    )
    block = await s.block("todo")

    assert (block.value, block.description, block.version) == ("buy tea", "What to do.", 0)
    assert await s.labels() == ["human", "todo"]
    assert "'todo'" in result.text
    assert "buy tea" in result.text
    assert result.edits[0].diff == "@@ -1 +1 @@\n-\n+buy tea"
    with pytest.raises(AlreadyExists):
        await s.call("memory", command="create", path="/memories/todo")


async def test_a_block_may_stand_in_a_folder() -> None:
    """A label may have slashes."""
    s = await agent_in_run()
    await s.call("memory", command="create", path="/memories/projects/perdure", file_text="a")

    assert (await s.call("memory", command="view", path="/memories/projects/perdure")).text == "a"


async def test_text_is_replaced_and_inserted() -> None:
    """As with the tools for one edit; the answer shows the new value."""
    s = await agent_in_run(HUMAN)
    replaced = await s.call(
        "memory", command="str_replace", path="/memories/human", old_string="tea", new_string="coffee"
    )
    inserted = await s.call("memory", command="insert", path="/memories/human", insert_line=0, insert_text="# Human")
    removed = await s.call("memory", command="str_replace", path="/memories/human", old_string="\nLikes: coffee")

    assert "Name: Ada\nLikes: coffee" in replaced.text
    assert "# Human\nName: Ada\nLikes: coffee" in inserted.text
    assert removed.edits[0].block.value == "# Human\nName: Ada"
    assert (await s.block("human")).version == 3


async def test_a_deleted_block_leaves_this_agents_memory_only() -> None:
    """Its history stays, so that others go on and people can bring it back."""
    s = await agent_in_run(HUMAN)
    block = await s.block("human")
    result = await s.call("memory", command="delete", path="/memories/human")

    assert await s.labels() == []
    assert result.edits[0].deleted
    assert await s.store.read(lambda tx: tx.blocks.get(block.id)) == block


async def test_a_block_is_renamed_and_described_anew() -> None:
    """Either or both; the value stays, and the change is a version."""
    s = await agent_in_run(HUMAN)
    await s.call("memory", command="rename", old_path="/memories/human", new_path="/memories/user")
    await s.call("memory", command="rename", path="/memories/user", description="Who it is.")
    block = await s.block("user")

    assert (block.label, block.description, block.value, block.version) == ("user", "Who it is.", HUMAN.value, 2)
    assert await s.labels() == ["user"]


async def test_renaming_keeps_labels_apart() -> None:
    """A label that another block has is refused."""
    s = await agent_in_run(HUMAN, NewBlock(label="notes"))
    with pytest.raises(AlreadyExists):
        await s.call("memory", command="rename", old_path="/memories/notes", new_path="/memories/human")

    assert await s.labels() == ["human", "notes"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "str_replace", "path": "/memories/persona", "old_string": "kind", "new_string": "bad"},
        {"command": "insert", "path": "/memories/persona", "insert_text": "bad"},
        {"command": "delete", "path": "/memories/persona"},
        {"command": "rename", "old_path": "/memories/persona", "new_path": "/memories/p"},
        {"command": "rename", "old_path": "/memories/persona", "description": "bad"},
    ],
)
async def test_a_read_only_block_is_left_alone(arguments: dict[str, Any]) -> None:
    """No command edits, removes or renames it; it can be viewed."""
    s = await agent_in_run(LOCKED)
    with pytest.raises(BlockReadOnly):
        await s.call("memory", **arguments)

    block = await s.block("persona")
    assert block.version == 0
    assert (await s.call("memory", command="view", path="/memories/persona")).text == "I am kind."


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"command": "create"}, InvalidArguments, "needs 'path'"),
        ({"command": "str_replace", "path": "/memories/human"}, InvalidArguments, "needs 'old_string'"),
        ({"command": "insert", "path": "/memories/human"}, InvalidArguments, "needs 'insert_text'"),
        ({"command": "delete"}, InvalidArguments, "needs 'path'"),
        ({"command": "rename", "old_path": "/memories/human"}, InvalidArguments, "'new_path', 'description' or both"),
        ({"command": "rename", "new_path": "/memories/x"}, InvalidArguments, "needs 'old_path'"),
        ({"command": "burn"}, InvalidArguments, "must be one of"),
        ({"command": "view", "path": "/memories/absent"}, BlockNotFound, "there are human"),
        ({"command": "delete", "path": "/memories/absent"}, BlockNotFound, "there are human"),
        ({"command": "create", "path": "/memories/"}, InvalidInput, "can't be used"),
        ({"command": "create", "path": "/memories/my notes"}, InvalidInput, "can't be used"),
        ({"command": "create", "path": "/memories/../etc"}, InvalidInput, "can't be used"),
        ({"command": "create", "path": "/memories/<x>"}, InvalidInput, "can't be used"),
        ({"command": "create", "path": "/memories/" + "x" * 101}, InvalidInput, "can't be used"),
        (
            {"command": "rename", "old_path": "/memories/human", "new_path": "/memories/a b"},
            InvalidInput,
            "can't be used",
        ),
        ({"command": "create", "path": "/memories/big", "file_text": "x" * 5001}, BlockLimitExceeded, "5,000"),
        (
            {"command": "str_replace", "path": "/memories/human", "old_string": "x", "new_string": "y"},
            TextNotFound,
            "verbatim",
        ),
    ],
)
async def test_a_command_that_cannot_be_done_is_told(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    """What is missing, unknown or unusable is named, and nothing changes."""
    s = await agent_in_run(HUMAN)
    with pytest.raises(error, match=message):
        await s.call("memory", **arguments)

    assert await s.labels() == ["human"]
    assert (await s.block("human")).version == 0


async def test_only_the_root_itself_is_left_out_of_a_label() -> None:
    """A name that begins like the root is a name; the block of the shorter name is not made in its place."""
    s = await agent_in_run()
    await s.call("memory", command="create", path="/memories_backup", file_text="a")

    assert await s.labels() == ["memories_backup"]
    with pytest.raises(InvalidInput, match="block label ''"):
        await s.call("memory", command="create", path="/memories", file_text="a")


async def test_a_command_that_leaves_the_text_as_it_was_is_no_edit() -> None:
    """The result shows the block, and nobody is told of an edit; the block keeps its version."""
    s = await agent_in_run(HUMAN)
    same = await s.call("memory", command="str_replace", path="human", old_string="tea", new_string="tea")
    await s.call("memory", command="create", path="notes", file_text="")
    inserted = await s.call("memory", command="insert", path="notes", insert_line=0, insert_text="")

    assert HUMAN.value in same.text
    assert (same.edits, inserted.edits) == ((), ())
    assert ((await s.block("human")).version, (await s.block("notes")).version) == (0, 0)
