"""Agents that write to one block at the same time: no line is lost, and each sees the others' before it goes on.

Short in `make test-all`; with `PERDURE_FAULTS=full` two agents make 500 edits each, and eight 2,000 on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults import counting_program
from tests.faults.counting_program import Counter, block_of, counts_of
from tests.faults.editing_program import LABEL, Editor, lines_of, open_store
from tests.faults.killing import ENVIRONMENT
from tests.support.stores import new_address
from tests.support.warm import warm

FULL = os.environ.get("PERDURE_FAULTS") == "full"
EDITS = 500 if FULL else 15
NAMES = ("ann", "bob")
COUNTERS = tuple(f"a{place}" for place in range(8))
COUNT = 2_000 if FULL else 4


async def make_agents(path: str) -> None:
    """Both agents, with a block that they share."""
    async with await open_store(path, *(Editor(name, 0) for name in NAMES)) as perdure:
        block = await perdure.blocks.create(LABEL, "", limit_chars=100_000)
        for name in NAMES:
            agent = await perdure.create_agent(name, model=f"test/{name}", block_ids=[block.id])
            for tool in ("memory_insert", "memory_replace", "memory_rethink"):
                await agent.tools.attach(tool)


async def check_block(path: str) -> None:
    """Each line of both agents stands in the block once, and each version has one line more than the one before."""
    async with await open_store(path) as perdure:
        agent = await perdure.agent("ann")
        block = await agent.blocks.get(LABEL)
        versions = await agent.blocks.history(LABEL, limit=2 * EDITS + 1)

    assert sorted(lines_of(block.value)) == [f"{name}-{number:04}" for name in NAMES for number in range(EDITS)]
    assert block.version == 2 * EDITS
    assert len(versions) == 2 * EDITS + 1


def _start(command: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [command, *arguments], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


async def run_programs(program: str, path: str, *arguments: Sequence[str]) -> list[dict[str, Any]]:
    """What programs of this folder print at their ends, in JSON, one for each list of arguments; they begin at once."""
    command = warm(str(Path(__file__).with_name(program)), ENVIRONMENT)
    children = [_start(command, path, *own) for own in arguments]
    try:
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        outputs = await asyncio.gather(*(asyncio.to_thread(child.communicate, "go\n") for child in children))
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert [child.returncode for child in children] == [0] * len(children)
    return [json.loads(out) for out, _ in outputs]


@pytest.mark.faults
async def test_agents_of_one_program_lose_no_edit_of_a_shared_block(tmp_path: Path) -> None:
    """Their runs go on at the same time; a rewrite that would drop the other's line is refused and made again."""
    path = new_address(tmp_path)
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
    path = new_address(tmp_path)
    await make_agents(path)
    told = await run_programs("editing_program.py", path, *((name, str(EDITS)) for name in NAMES))

    assert [one["missed"] for one in told] == [[], []]
    assert any(one["seen"] for one in told)
    assert not FULL or all(one["refused"] for one in told), "they did not run at the same time"
    await check_block(path)


@pytest.mark.faults
async def test_eight_agents_of_two_programs_lose_no_count(tmp_path: Path) -> None:
    """Each counts in its own line of one block on PostgreSQL; whoever writes the whole block anew has seen the rest."""
    path = new_address(tmp_path, postgres=True)
    counters = [Counter(name, COUNT, COUNTERS) for name in COUNTERS]
    async with await counting_program.open_store(path, *counters) as perdure:
        block = await perdure.blocks.create(counting_program.LABEL, block_of(dict.fromkeys(COUNTERS, 0)))
        for name in COUNTERS:
            agent = await perdure.create_agent(
                name, model=f"test/{name}", block_ids=[block.id], tools=["memory_replace", "memory_rethink"]
            )
            await agent.update(settings={"message_buffer_autoclear": True})
    began = time.monotonic()
    told = await run_programs("counting_program.py", path, *((str(COUNT), *COUNTERS[half::2]) for half in (0, 1)))
    took, refused = time.monotonic() - began, {name: count for one in told for name, count in one.items()}
    print(f"{len(COUNTERS) * COUNT} edits in {took:.0f} s, {sum(refused.values())} refused and made again")

    async with await counting_program.open_store(path) as perdure:
        agent = await perdure.agent("a0")
        last = await agent.blocks.get(counting_program.LABEL)
        versions = await agent.blocks.history(counting_program.LABEL, limit=10_000)
    assert counts_of(last.value) == dict.fromkeys(COUNTERS, COUNT)
    assert last.version == len(COUNTERS) * COUNT
    assert all(sum(counts_of(one.value).values()) == one.version for one in versions)
    assert set(refused) == set(COUNTERS)
    assert not FULL or all(refused.values()), "they did not run at the same time"
