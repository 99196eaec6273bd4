"""What the tools that edit one block do, what they answer, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.errors import (
    BlockLimitExceeded,
    BlockNotFound,
    BlockReadOnly,
    InvalidArguments,
    LineNumbersInText,
    PatchInvalid,
    TextAmbiguous,
    TextNotFound,
)
from perdure.domain.blocks.units import NewBlock
from perdure.storage.tx import Tx
from tests.support.agents import agent_in_run

HUMAN = NewBlock(label="human", value="Name: Ada\nLikes: tea\nWork: maths", limit_chars=60)
LOCKED = NewBlock(label="persona", value="I am kind.", read_only=True)

EDITS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("core_memory_append", {"content": "Dog: Rex"}, "Name: Ada\nLikes: tea\nWork: maths\nDog: Rex"),
    ("core_memory_replace", {"old_content": "tea", "new_content": "coffee"}, "Name: Ada\nLikes: coffee\nWork: maths"),
    ("core_memory_replace", {"old_content": "Likes: tea\n", "new_content": ""}, "Name: Ada\nWork: maths"),
    ("memory_replace", {"old_string": "Ada", "new_string": "Ada L."}, "Name: Ada L.\nLikes: tea\nWork: maths"),
    ("memory_insert", {"new_string": "Dog: Rex"}, "Name: Ada\nLikes: tea\nWork: maths\nDog: Rex"),
    ("memory_insert", {"new_string": "Dog: Rex", "insert_line": -1}, "Name: Ada\nLikes: tea\nWork: maths\nDog: Rex"),
    ("memory_insert", {"new_string": "Dog: Rex", "insert_line": 0}, "Dog: Rex\nName: Ada\nLikes: tea\nWork: maths"),
    ("memory_insert", {"new_string": "Dog: Rex", "insert_line": 1}, "Name: Ada\nDog: Rex\nLikes: tea\nWork: maths"),
    ("memory_insert", {"new_string": "Dog: Rex", "insert_line": 3}, "Name: Ada\nLikes: tea\nWork: maths\nDog: Rex"),
    ("memory_rethink", {"new_memory": "Ada, tea, maths"}, "Ada, tea, maths"),
    (
        "memory_apply_patch",
        {"patch": "@@ -2 +2 @@\n-Likes: tea\n+Likes: coffee"},
        "Name: Ada\nLikes: coffee\nWork: maths",
    ),
    (
        "memory_apply_patch",
        {
            "patch": "*** Begin Patch\n*** Update File: human\n@@\n Likes: tea\n-Work: maths\n+Work: engines\n"
            "*** End Patch"
        },
        "Name: Ada\nLikes: tea\nWork: engines",
    ),
)

# A way to edit with each tool, and a text that is too long for it.
SOME_EDIT: dict[str, dict[str, Any]] = {name: arguments for name, arguments, _ in EDITS}
TOO_LONG = "x" * 61
LONG_EDIT: dict[str, dict[str, Any]] = {
    "core_memory_append": {"content": TOO_LONG},
    "core_memory_replace": {"old_content": "tea", "new_content": TOO_LONG},
    "memory_replace": {"old_string": "tea", "new_string": TOO_LONG},
    "memory_insert": {"new_string": TOO_LONG},
    "memory_rethink": {"new_memory": TOO_LONG},
    "memory_apply_patch": {"patch": f"@@ -2 +2 @@\n-Likes: tea\n+{TOO_LONG}"},
}


@pytest.mark.parametrize(("tool", "arguments", "value"), EDITS)
async def test_an_edit_answers_with_the_new_value(tool: str, arguments: dict[str, Any], value: str) -> None:
    """The block holds the new value as its next version, made by the agent's call, and the answer shows it."""
    s = await agent_in_run(HUMAN)
    result = await s.call(tool, label="human", **arguments)
    block = await s.block("human")
    (version, *_) = await s.store.read(lambda tx: tx.blocks.versions(block.id))

    assert result.text == block.value == value
    assert (block.version, version.version, version.value) == (1, 1, value)
    assert (version.author.kind, version.author.agent_id) == ("agent", s.agent.id)
    assert (version.author.run_id, version.author.message_id) == (s.run.id, "message-of-the-call")
    (edit,) = result.edits
    assert (edit.block, edit.diff, edit.deleted) == (block, version.diff, False)


@pytest.mark.parametrize("tool", SOME_EDIT)
async def test_a_read_only_block_is_not_edited(tool: str) -> None:
    """Every tool is refused, whatever it would have done, and the block stays at its version."""
    s = await agent_in_run(LOCKED)
    with pytest.raises(BlockReadOnly, match=r"This block is read-only and cannot be edited\. .*'persona'"):
        await s.call(tool, label="persona", **SOME_EDIT[tool] | ({"insert_line": 0} if tool == "memory_insert" else {}))

    assert (await s.block("persona")).version == 0


@pytest.mark.parametrize("tool", SOME_EDIT)
async def test_an_unknown_label_names_those_there_are(tool: str) -> None:
    """The model is told which blocks it has."""
    s = await agent_in_run(HUMAN, LOCKED)
    with pytest.raises(BlockNotFound, match="'humans' not found: there are human, persona") as caught:
        await s.call(tool, label="humans", **SOME_EDIT[tool])

    assert caught.value.known == ("human", "persona")


@pytest.mark.parametrize("tool", LONG_EDIT)
async def test_an_edit_beyond_the_limit_is_refused(tool: str) -> None:
    """With size and limit in the message; the block stays as it was."""
    s = await agent_in_run(HUMAN)
    with pytest.raises(BlockLimitExceeded, match="its limit is 60") as caught:
        await s.call(tool, label="human", **LONG_EDIT[tool])

    assert caught.value.size > caught.value.limit == 60
    assert (await s.block("human")).value == HUMAN.value


async def test_an_edit_up_to_the_limit_is_made() -> None:
    """The limit itself is allowed."""
    s = await agent_in_run(HUMAN)
    await s.call("memory_rethink", label="human", new_memory="字" * 60)

    assert (await s.block("human")).value == "字" * 60


@pytest.mark.parametrize(
    ("tool", "old", "new"),
    [("core_memory_replace", "old_content", "new_content"), ("memory_replace", "old_string", "new_string")],
)
async def test_text_to_replace_stands_there_once(tool: str, old: str, new: str) -> None:
    """Text that is absent, or there twice, is not replaced; in the second case the lines are named."""
    s = await agent_in_run(NewBlock(label="human", value="tea\ncoffee\ntea and tea"))
    with pytest.raises(TextNotFound, match="old_string `Tea` did not appear verbatim"):
        await s.call(tool, label="human", **{old: "Tea", new: "x"})
    with pytest.raises(TextNotFound):
        await s.call(tool, label="human", **{old: "", new: "x"})
    with pytest.raises(TextAmbiguous, match=r"appears 3 times .*\(lines 1, 3, 3\)") as caught:
        await s.call(tool, label="human", **{old: "tea", new: "x"})
    assert caught.value.lines == (1, 3, 3)
    with pytest.raises(TextAmbiguous):
        await s.call(tool, label="human", **{old: "e", new: "x"})

    assert (await s.block("human")).version == 0
    result = await s.call(tool, label="human", **{old: "tea\ncoffee", new: "milk"})
    assert result.text == "milk\ntea and tea"


async def test_overlapping_occurrences_are_more_than_one() -> None:
    """In `aaa`, `aa` stands twice: which one is meant can't be known."""
    s = await agent_in_run(NewBlock(label="human", value="aaa"))
    with pytest.raises(TextAmbiguous):
        await s.call("memory_replace", label="human", old_string="aa", new_string="b")


async def test_text_to_replace_is_no_pattern() -> None:
    """What looks like a regular expression, or a reference in the new text, is taken as it is."""
    s = await agent_in_run(NewBlock(label="human", value=r"a.b (c) \1 $"))
    result = await s.call("memory_replace", label="human", old_string="(c) \\1 $", new_string=r"\g<0> \2")

    assert result.text == r"a.b \g<0> \2"


@pytest.mark.parametrize("line", [-2, 4, 99])
async def test_a_line_that_is_not_there_is_the_end(line: int) -> None:
    """A model that counts wrong keeps what it wanted to keep."""
    s = await agent_in_run(HUMAN)
    result = await s.call("memory_insert", label="human", new_string="x", insert_line=line)

    assert result.text.endswith("\nx")


@pytest.mark.parametrize("label", ["Human", "HUMAN", " human "])
async def test_a_label_counts_without_regard_to_case(label: str) -> None:
    """As long as one block alone can be meant; an exact label always counts."""
    s = await agent_in_run(HUMAN)
    result = await s.call("memory_insert", label=label, new_string="x")
    await s.call("memory", command="create", path="/memories/HUMAN", file_text="y")

    assert result.text.endswith("\nx")
    assert (await s.call("memory_insert", label="HUMAN", new_string="z")).text == "y\nz"
    with pytest.raises(BlockNotFound, match="'hUMAN' not found"):
        await s.call("memory_insert", label="hUMAN", new_string="x")


async def test_the_first_line_of_an_empty_block() -> None:
    """Appending and inserting into an empty block makes no empty line."""
    for tool, arguments in (
        ("core_memory_append", {"content": "a"}),
        ("memory_insert", {"new_string": "a"}),
        ("memory_insert", {"new_string": "a", "insert_line": 0}),
        ("memory_replace", {"old_string": "", "new_string": "a"}),
    ):
        s = await agent_in_run(NewBlock(label="human"))

        assert (await s.call(tool, label="human", **arguments)).text == "a", tool


async def test_an_edit_that_changes_nothing_makes_no_version() -> None:
    """Writing what is there already is answered with the value, and is no edit."""
    s = await agent_in_run(HUMAN)
    result = await s.call("memory_rethink", label="human", new_memory=HUMAN.value)

    assert (result.text, result.edits) == (HUMAN.value, ())
    assert (await s.block("human")).version == 0


async def test_a_patch_that_does_not_fit_changes_nothing() -> None:
    """All of it or nothing: the first hunk would have fitted."""
    s = await agent_in_run(HUMAN)
    with pytest.raises(PatchInvalid, match="hunk 2 does not fit"):
        await s.call(
            "memory_apply_patch", label="human", patch="@@ -1 +1 @@\n-Name: Ada\n+Name: A\n@@ -3 +3 @@\n-absent\n+x"
        )

    assert (await s.block("human")).value == HUMAN.value


async def test_finishing_edits_only_says_so() -> None:
    """It takes nothing and changes nothing."""
    s = await agent_in_run(HUMAN)
    result = await s.call("memory_finish_edits")

    assert (result.text, result.edits) == ("Done.", ())


@pytest.mark.parametrize("tool", SOME_EDIT)
async def test_arguments_that_do_not_fit_are_told(tool: str) -> None:
    """A missing or an unknown argument is named; the tool is not run."""
    s = await agent_in_run(HUMAN)
    with pytest.raises(InvalidArguments, match="missing 'label'"):
        await s.call(tool, **SOME_EDIT[tool])
    with pytest.raises(InvalidArguments, match="unknown 'colour'"):
        await s.call(tool, label="human", colour="red", **SOME_EDIT[tool])

    assert (await s.block("human")).version == 0


async def test_a_refused_tool_leaves_the_whole_transaction_undone() -> None:
    """What the unit did before the tool raised is undone too."""
    s = await agent_in_run(HUMAN)

    def detach_and_edit(tx: Tx) -> None:
        tx.blocks.detach(s.agent.id, tx.blocks.list_by_agent(s.agent.id)[0].id)
        s.run_tool(tx, "memory_rethink", {"label": "human", "new_memory": "x"})

    with pytest.raises(BlockNotFound):
        await s.store.write(detach_and_edit)

    assert await s.labels() == ["human"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("memory_replace", {"old_string": "1→ Name: Ada", "new_string": "Name: Eve"}),
        ("memory_replace", {"old_string": "Name: Ada", "new_string": "Name: Eve\nLine 2: Likes: tea"}),
        ("memory_insert", {"new_string": "4→Dog: Rex"}),
        ("memory_rethink", {"new_memory": "1→Ada\n2→tea"}),
    ],
)
async def test_line_numbers_do_not_get_into_a_block(tool: str, arguments: dict[str, Any]) -> None:
    """They only show where a line stands. A block that has such lines itself can be edited."""
    s = await agent_in_run(HUMAN, NewBlock(label="steps", value="1→ Name: Ada\nName: Ada"))

    with pytest.raises(LineNumbersInText, match="contains a line number prefix, which is not allowed"):
        await s.call(tool, label="human", **arguments)
    if arguments.get("old_string") != "Name: Ada":
        assert await s.call(tool, label="steps", **arguments)


async def test_a_text_that_stands_in_several_lines_is_refused_with_their_numbers() -> None:
    """And one that stands in none."""
    s = await agent_in_run(NewBlock(label="human", value="tea\ncoffee\ntea"))

    with pytest.raises(TextAmbiguous, match=r"old_string `tea` appears 2 times .* \(lines 1, 3\)"):
        await s.call("memory_replace", label="human", old_string="tea", new_string="milk")
    with pytest.raises(TextNotFound) as refused:
        await s.call("memory_replace", label="human", old_string="beer", new_string="milk")

    assert str(refused.value).startswith(
        "No replacement was performed, old_string `beer` did not appear verbatim in memory block with label `human`."
    )


async def test_the_older_name_of_memory_rethink_rewrites_a_block() -> None:
    """`rethink_memory`, with the names that its arguments had."""
    s = await agent_in_run(HUMAN)

    result = await s.call("rethink_memory", new_memory="Ada", target_block_label="human")

    assert (result.text, (await s.block("human")).value) == ("Ada", "Ada")
