"""Two agents that write to one block at the same time: no line is lost, and each sees the other's before it goes on.

Short in `make test`, 500 edits each with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.faults.editing_program import LABEL, Editor, lines_of, open_store
from tests.support.warm import warm

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("editing_program.py")
FULL = os.environ.get("PERDURE_FAULTS") == "full"
EDITS = 500 if FULL else 15
NAMES = ("ann", "bob")


async def make_agents(path: Path) -> None:
    """Both agents, with a block that they share."""
    async with await open_store(path, *(Editor(name, 0) for name in NAMES)) as perdure:
        block = await perdure.blocks.create(LABEL, "", limit_chars=100_000)
        for name in NAMES:
            agent = await perdure.create_agent(name, model=f"test/{name}", block_ids=[block.id])
            for tool in ("memory_insert", "memory_replace", "memory_rethink"):
                await agent.tools.attach(tool)


async def check_block(path: Path) -> None:
    """Each line of both agents stands in the block once, and each version has one line more than the one before."""
    async with await open_store(path) as perdure:
        agent = await perdure.agent("ann")
        block = await agent.blocks.get(LABEL)
        versions = await agent.blocks.history(LABEL, limit=2 * EDITS + 1)

    assert sorted(lines_of(block.value)) == [f"{name}-{number:04}" for name in NAMES for number in range(EDITS)]
    assert block.version == 2 * EDITS
    assert len(versions) == 2 * EDITS + 1


def start(path: Path, name: str) -> subprocess.Popen[str]:
    """A program of this agent."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.Popen(
        [warm(str(PROGRAM), environment), str(path), name, str(EDITS)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.faults
async def test_agents_of_one_program_lose_no_edit_of_a_shared_block(tmp_path: Path) -> None:
    """Their runs go on at the same time; a rewrite that would drop the other's line is refused and made again."""
    path = tmp_path / "agents.db"
    await make_agents(path)
    editors = [Editor(name, EDITS) for name in NAMES]
    async with await open_store(path, *editors):
        await asyncio.gather(*(editor.run() for editor in editors))

    assert [editor.missed for editor in editors] == [[], []]
    assert any(editor.seen for editor in editors)
    assert not FULL or all(editor.refused for editor in editors), "they did not run at the same time"
    await check_block(path)


@pytest.mark.faults
async def test_agents_of_two_programs_lose_no_edit_of_a_shared_block(tmp_path: Path) -> None:
    """One file is all that they share."""
    path = tmp_path / "agents.db"
    await make_agents(path)
    children = [start(path, name) for name in NAMES]
    try:
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        outputs = await asyncio.gather(*(asyncio.to_thread(child.communicate, "go\n") for child in children))
    finally:
        for child in children:
            child.kill()
            child.wait()

    told = [json.loads(out) for out, _ in outputs]
    assert [child.returncode for child in children] == [0, 0]
    assert [one["missed"] for one in told] == [[], []]
    assert any(one["seen"] for one in told)
    assert not FULL or all(one["refused"] for one in told), "they did not run at the same time"
    await check_block(path)
