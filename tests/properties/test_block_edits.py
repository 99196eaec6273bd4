"""Block edits in any order, through the store, against a model that is a list of values."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import InvalidInput, PerdureError, ToolError, VersionConflict
from perdure.core.text.line_diff import unified_diff
from perdure.domain.blocks.patches import apply_patch
from perdure.domain.blocks.units import NewBlock, restore_block, update_block
from perdure.storage.tx import Tx
from tests.support.agents import USER, AgentInRun, agent_in_run
from tests.support.strategies import effort

LIMIT = 40
TEXT = st.text(alphabet="ab 字\n", max_size=12)
LINE = st.integers(-1, 4)


@dataclass(frozen=True)
class Edit:
    """What is done to the block `human`: by a tool of the agent, or from outside."""

    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)


EDITS = st.one_of(
    st.builds(lambda text: Edit("core_memory_append", {"content": text}), TEXT),
    st.builds(lambda old, new: Edit("memory_replace", {"old_string": old, "new_string": new}), TEXT, TEXT),
    st.builds(lambda text, line: Edit("memory_insert", {"new_string": text, "insert_line": line}), TEXT, LINE),
    st.builds(lambda text: Edit("memory_rethink", {"new_memory": text}), TEXT),
    st.builds(lambda text: Edit("patch", {"to": text}), TEXT),
    st.builds(lambda text, behind: Edit("outside", {"value": text, "behind": behind}), TEXT, st.integers(0, 2)),
    st.builds(lambda version: Edit("restore", {"version": version}), st.integers(0, 6)),
)


def expected(edit: Edit, values: list[str]) -> str | None:
    """The value after the edit, from the values so far; None if the edit must be refused."""
    value, arguments = values[-1], edit.arguments
    lines = value.split("\n") if value else []
    match edit.kind:
        case "core_memory_append":
            new: str | None = "\n".join([*lines, arguments["content"]])
        case "memory_replace":
            old = arguments["old_string"]
            starts = [at for at in range(len(value)) if value.startswith(old, at)] if old else [0] * (not value)
            new = (
                value[: starts[0]] + arguments["new_string"] + value[starts[0] + len(old) :]
                if len(starts) == 1
                else None
            )
        case "memory_insert":
            line = arguments["insert_line"]
            at = line if 0 <= line <= len(lines) else len(lines)
            new = "\n".join([*lines[:at], arguments["new_string"], *lines[at:]])
        case "memory_rethink":
            new = arguments["new_memory"]
        case "patch":
            new = arguments["to"] if arguments["to"] != value else None
        case "outside":
            new = arguments["value"] if arguments["behind"] == 0 else None
        case _:
            new = values[arguments["version"]] if arguments["version"] < len(values) else None
    return new if new is not None and len(new) <= LIMIT else None


async def make(s: AgentInRun, edit: Edit, values: list[str]) -> None:
    """Carry the edit out. Raises: PerdureError."""
    block = await s.block("human")
    arguments = edit.arguments
    now = s.clock.now()
    match edit.kind:
        case "patch":
            patch = unified_diff(values[-1], arguments["to"])
            await s.call("memory_apply_patch", label="human", patch=patch)
        case "outside":
            expected = block.version - arguments["behind"]
            changes = {"value": arguments["value"]}
            await s.store.write(update_block, block.id, changes, author=USER, at=now, expected=expected)
        case "restore":
            await s.store.write(restore_block, block.id, arguments["version"], author=USER, at=now)
        case tool:
            await s.call(tool, label="human", **arguments)


@effort(12, 2000)
@given(TEXT.filter(lambda text: len(text) <= LIMIT), st.lists(EDITS, max_size=12))
async def test_the_block_is_what_its_edits_made_of_it(first: str, edits: list[Edit]) -> None:
    """Each edit is made or refused as the model says; versions have no gap; every diff repeats its edit."""
    s = await agent_in_run(NewBlock(label="human", value=first, limit_chars=LIMIT))
    values = [first]
    for edit in edits:
        s.clock.advance(1)
        wanted = expected(edit, values)
        try:
            await make(s, edit, values)
        except PerdureError as error:
            assert wanted is None, (edit, error)
            assert isinstance(error, ToolError | InvalidInput | VersionConflict) or edit.kind == "restore"
        else:
            assert wanted is not None, edit
            if wanted != values[-1]:
                values.append(wanted)
        assert (await s.block("human")).value == values[-1]

    block = await s.block("human")
    history = list(await s.store.read(lambda tx: tx.blocks.versions(block.id)))[::-1]
    assert [version.version for version in history] == list(range(len(values)))
    assert [version.value for version in history] == values
    assert block.version == len(values) - 1
    for before, version in zip(["", *values], history, strict=False):
        patched = apply_patch(before, version.diff) if version.diff else before
        assert patched == version.value


@effort(20, 500)
@given(st.lists(st.tuples(st.integers(0, 1), TEXT.filter(bool)), max_size=8))
async def test_editors_with_their_own_copies_lose_nothing(appends: list[tuple[int, str]]) -> None:
    """Two people append to what each saw last, and repeat on a conflict: every line of both is there, in some order."""
    s = await agent_in_run(NewBlock(label="human", limit_chars=1000))
    block = await s.block("human")
    seen = [block, block]

    def put(tx: Tx, who: int, line: str) -> None:
        changes = {"value": f"{seen[who].value}{line}|"}
        update_block(tx, block.id, changes, author=USER, at=s.clock.now(), expected=seen[who].version)

    conflicts = 0
    for who, line in appends:
        while True:
            try:
                await s.store.write(put, who, line)
            except VersionConflict as conflict:
                conflicts += 1
                assert conflict.expected == seen[who].version
                seen[who] = await s.block("human")
            else:
                seen[who] = await s.block("human")
                break

    final = await s.block("human")
    changes_of_hand = sum(one[0] != other[0] for one, other in itertools.pairwise(appends))
    assert sorted(final.value.split("|")[:-1]) == sorted(line for _, line in appends)
    assert final.version == len(appends)
    assert conflicts == changes_of_hand  # whoever takes over has not seen what the other wrote
