"""A scripted session whose n-th write fails, for many n: `python -m ... FOLDER ERROR FIRST STEP` below the file layer.

A line of JSON tells of each n what happened; the last one has no fault.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import shutil
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure import AlreadyExists, AsyncPerdure, NotFound, PerdureError
from perdure.engine.run import runner
from perdure.settings import Settings
from perdure.testing.clock import START

MODEL = "perdure/extractive"
FACTS = ("My name is Ada.", "I live in Turin.")
TRIES = 3
arm = ctypes.CDLL(None).file_layer_arm


async def build(path: Path) -> None:
    """The store with which each session begins."""
    async with await AsyncPerdure.open(path) as perdure:
        await perdure.create_agent("ada", model=MODEL)
        gone = await perdure.create_agent("gone", model=MODEL)
        await gone.import_messages([("user", None, f"walrus {number}", START) for number in range(50)])


async def send_first(perdure: AsyncPerdure) -> None:
    await (await perdure.agent("ada")).send(FACTS[0], idempotency_key="first")


async def insert(perdure: AsyncPerdure) -> None:
    ada = await perdure.agent("ada")
    if not await ada.search_archive("trains"):
        await ada.archive("Ada likes trains", tags=["travel"])


async def create_block(perdure: AsyncPerdure) -> None:
    if not await perdure.blocks.list(label="ports"):
        await perdure.blocks.create("ports", "Genoa, Trieste")


async def send_second(perdure: AsyncPerdure) -> None:
    await (await perdure.agent("ada")).send(FACTS[1], idempotency_key="second")


async def delete(perdure: AsyncPerdure) -> None:
    with suppress(NotFound):
        await perdure.delete_agent((await perdure.agent("gone")).id)


async def create_agent(perdure: AsyncPerdure) -> None:
    try:
        await perdure.agent("grace")
    except NotFound:
        await perdure.create_agent("grace", model=MODEL)


SESSION: tuple[Callable[[AsyncPerdure], Awaitable[None]], ...] = (
    send_first,
    insert,
    create_block,
    send_second,
    delete,
    create_agent,
)


async def attempt(path: Path, done: list[str]) -> None:
    """Open the store and do what is left of the session; note each step that was acknowledged."""
    settings = replace(Settings.from_environment(), lease_s=1.0)  # an earlier try may have kept a run
    async with await AsyncPerdure.open(path, settings=settings) as perdure:
        for step in SESSION[len(done) :]:
            await step(perdure)
            done.append(step.__name__)


async def found(path: Path) -> dict[str, Any]:
    """What is in the store afterwards."""
    async with await AsyncPerdure.open(path) as perdure:
        ada = await perdure.agent("ada")
        said = [message.text for message in await ada.messages(limit=1_000) if message.role == "user"]
        comparison = await perdure.upkeep.compare(repair=False, progress=lambda step, done, total: None)
        return {
            "said": said,
            "passages": len(await ada.search_archive("trains")),
            "blocks": len(await perdure.blocks.list(label="ports")),
            "agents": sorted([agent.name for agent in await perdure.agents()]),
            "faults": [fault.text for fault in comparison.faults],
        }


def session(template: Path, path: Path, n: int, error: int) -> dict[str, Any]:
    """One session; n = 0: without a fault."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    shutil.copyfile(template, path)
    done: list[str] = []
    errors: list[str] = []
    arm(n, error, int(error == errno.ENOSPC))  # a full disk stays full
    for _ in range(TRIES):
        try:
            asyncio.run(attempt(path, done))
            break
        except PerdureError as refused:
            errors.append(f"{type(refused).__name__}: {refused}")
            arm(0, 0, 0)
        except AlreadyExists:
            raise
        except Exception as defect:  # no error of ours
            errors.append(f"defect {type(defect).__name__}: {defect}")
            arm(0, 0, 0)
    writes = arm(0, 0, 0)
    with closing(sqlite3.connect(path)) as connection:
        integrity = connection.execute("PRAGMA integrity_check").fetchall()
    return {
        "n": n,
        "writes": writes,
        "errors": errors,
        "whole": len(done) == len(SESSION),
        "integrity": [row[0] for row in integrity],
        **asyncio.run(found(path)),
    }


def main(folder: Path, error: int, first: int, step: int) -> None:
    runner.STORE_PAUSE_S = 0.001  # a full disk stays full until a caller has heard of it
    template, path = folder / "template.db", folder / "session.db"
    if not template.exists():
        asyncio.run(build(template))
    total = session(template, path, 0, 0)
    for n in range(first, total["writes"] + 1, step):
        print(json.dumps(session(template, path, n, error)), flush=True)
    print(json.dumps(total), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
