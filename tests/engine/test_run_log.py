"""The log of a run, loaded anew: only whoever still holds the run gets it."""

from __future__ import annotations

import pytest

from perdure.core.errors import LeaseLost
from perdure.core.runs import Run
from perdure.engine.log.run_log import RunLog, load_run_log, run_log_of
from perdure.storage.tx import Tx
from perdure.testing import InlineStore
from tests.contracts.base import AT, UNTIL, Contract, claimed

units = Contract()


def start_run(tx: Tx) -> RunLog:
    run = units.add_run(tx, units.add_agent(tx).id)
    return run_log_of(tx, claimed(tx, run.key, "here"))


def take_run(tx: Tx, log: RunLog) -> Run | None:
    return tx.runs.claim(log.run.key, owner="elsewhere", at=AT, until=UNTIL, dead_owner="here")


async def test_the_holder_of_a_run_loads_its_log() -> None:
    """The log is that of the store."""
    store = InlineStore()
    log = await store.write(start_run)

    assert await store.read(load_run_log, log) == log
    await store.close()


async def test_a_run_that_was_taken_is_not_loaded_under_the_others_lease() -> None:
    """An interrupted hook, summary or model call loads the log again; by then another process may hold the run."""
    store = InlineStore()
    log = await store.write(start_run)
    assert await store.write(take_run, log) is not None

    with pytest.raises(LeaseLost):
        await store.read(load_run_log, log)
    await store.close()
