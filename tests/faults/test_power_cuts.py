"""The power goes at any moment: what was told before is in the store, and the store is whole.

A process works once while a file layer records its writes and flushes; each cut is then made from the record.
Short in `make test-all`, two hundred cuts with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.storage.tx import Tx
from perdure.testing import InlineStore
from tests.faults.children import Line, Place, make_agents
from tests.faults.file_layer import COMPILER, Operation, lines_told, read_record, run_recorded, write_cut
from tests.simulator.invariants import check_moment

FULL = os.environ.get("PERDURE_FAULTS") == "full"
CUTS = 200 if FULL else 5
MESSAGES = 60 if FULL else 44  # the log is taken into the file after 1,000 pages, about 35 messages
PLANS = ("append", "insert archive", "share", "archive append", "")

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler, as `make setup` does"),
]


def orders(lines: Sequence[Line], chance: random.Random) -> str:
    shapes = [
        chance.choice(lines).order(f"k{number}", chance.choice(PLANS), background=chance.random() < 0.3)
        for number in range(MESSAGES)
    ]
    return "".join(json.dumps(shape) + "\n" for shape in shapes)


def work(folder: Path, *, fail_flush: int = 0) -> tuple[Place, list[Line], list[Operation], Any]:
    """A store with agents, then a process that works in it; the store as it was before lies in `before`."""
    (folder / "store").mkdir()
    place = Place(folder / "store", str(folder / "store" / "store.db"))
    lines = list(asyncio.run(make_agents(place)))
    shutil.copytree(place.folder, folder / "before")
    ended = run_recorded(
        "tests.support.kill_target",
        [str(place.store), str(place.effects)],
        root=place.folder,
        record=folder / "record",
        text=orders(lines, random.Random(7)),
        fail_flush=fail_flush,
    )
    return place, lines, read_record(folder / "record"), ended


def check_promises(tx: Tx, lines: Sequence[Line], told: Sequence[str]) -> int:
    """Everything that was told stands in the store; how many runs were told to have ended."""
    messages = [message for line in lines for message in tx.messages.list(line.agent, limit=10_000)]
    keys = {message.text.split()[0] for message in messages if message.role == "user"}
    runs = {run.id: run for line in lines for run in tx.runs.list(line.agent, limit=10_000)}
    run_ids: dict[str, str] = {}
    ended = 0
    for fact in map(json.loads, told):
        if (key := fact.get("accepted")) is not None:
            run_ids[key] = fact["run_id"]
            assert fact["run_id"] in runs, f"{key} was accepted, and its run is gone"
        if (key := fact.get("ended")) is not None:
            assert key in keys, f"{key} has ended, and its message is gone"
            assert runs[run_ids[key]].status == "completed"  # type: ignore[index]
            ended += 1
    for agent_id in {line.agent for line in lines}:
        check_moment(tx, agent_id)
    return ended


@pytest.mark.slow
def test_what_was_told_survives_a_power_cut(tmp_path: Path) -> None:
    """Accepted messages, ended runs, their edits and passages with all that is derived from them; no page is broken."""
    place, lines, operations, ended = work(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert any(one.kind == "s" and one.path == str(Path(place.store).resolve()) for one in operations), "no checkpoint"
    chance = random.Random(11)
    told_to_end = 0
    for number in range(CUTS):
        upto = chance.randrange(len(operations))
        after = tmp_path / f"cut-{number}"
        write_cut(_moved(operations[:upto], place, tmp_path / "before"), tmp_path / "before", after, chance)

        connection = sqlite3.connect(after / "store.db")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        store = InlineStore(after / "store.db")
        told = lines_told(operations[:upto])
        told_to_end += asyncio.run(store.read(check_promises, lines, told))
        asyncio.run(store.close())
        shutil.rmtree(after)
    assert told_to_end > CUTS  # else the cuts came too early to show anything


@pytest.mark.slow
def test_nothing_is_told_as_done_after_a_flush_failed(tmp_path: Path) -> None:
    """A commit whose flush fails is an error to whoever waits, and the store takes no more writes until it is opened
    anew: a second flush may lie."""
    place, lines, operations, ended = work(tmp_path, fail_flush=30)
    log = str(Path(place.store).resolve()) + "-wal"
    failed = next(at for at, one in enumerate(operations) if one.kind == "f")
    told = [json.loads(line) for line in lines_told(operations)]

    assert [one for one in operations[failed:] if one.kind == "w" and one.path == log] == []
    assert len([fact for fact in told if "ended" in fact]) < MESSAGES
    assert ended.returncode != 0
    after = tmp_path / "cut"
    write_cut(_moved(operations, place, tmp_path / "before"), tmp_path / "before", after, random.Random(3), share=0)
    store = InlineStore(after / "store.db")
    assert asyncio.run(store.read(check_promises, lines, lines_told(operations))) > 0
    asyncio.run(store.close())


def _moved(operations: Sequence[Operation], place: Place, before: Path) -> list[Operation]:
    """The same, as if they had been done in the folder `before`."""
    old, new = str(place.folder.resolve()), str(before.resolve())
    return [Operation(one.kind, one.path.replace(old, new, 1), one.offset, one.data) for one in operations]
