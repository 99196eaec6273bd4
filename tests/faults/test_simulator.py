"""The loop under a seeded simulation: 4 histories in `make test-all`, 2,000 in `make faults`."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from perdure.engine.run import tool_calls
from tests.simulator import Violation, simulate

SEEDS, CHUNK = (2_000, 50) if os.environ.get("PERDURE_FAULTS") == "full" else (4, 2)

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """The faults are meant; their log lines would bury what matters."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_holds_in_every_simulated_history(first: int) -> None:
    """No acknowledged message lost or doubled, one result a call, no run stuck, versions gapless, requests rebuilt."""
    reports = [simulate(seed) for seed in range(first, first + CHUNK)]

    assert sum(report.crashes for report in reports) > 0


@pytest.mark.slow
def test_a_seed_is_one_history() -> None:
    """The same seed does the same things, so that a violation can be looked at again."""
    assert simulate(7) == simulate(7)


def test_the_simulator_catches_a_loop_that_forgets_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop without T6 repeats tools that must not run twice, and some history shows it."""
    check = tool_calls._ToolPhase._check

    async def forgetful(phase: Any, open_call: Any) -> Any:
        log, phase.log = phase.log, replace(phase.log, started={})
        try:
            return await check(phase, open_call)
        finally:
            phase.log = log

    monkeypatch.setattr(tool_calls._ToolPhase, "_check", forgetful)

    with pytest.raises(Violation, match="must not run twice"):
        _simulate_all(range(5, 20))  # nothing shows before seed 5


def _simulate_all(seeds: Sequence[int]) -> None:
    for seed in seeds:
        simulate(seed)
