"""Turns of groups under a seeded simulation: 2 histories in `make test-all`, 400 with `PERDURE_FAULTS=full`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from perdure.features.groups import driver
from tests.simulator.groups import simulate_groups
from tests.simulator.invariants import Violation

SEEDS, CHUNK = (400, 20) if os.environ.get("PERDURE_FAULTS") == "full" else (2, 2)

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The faults are meant; their log lines would bury what matters."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_groups_keep_their_promises_in_every_history(first: int) -> None:
    """Each turn ends and has each speech once, in order, whatever crashes, stalls and fails."""
    reports = [simulate_groups(seed) for seed in range(first, first + CHUNK)]

    assert sum(report.crashes for report in reports) > 0
    assert sum(report.taken_over for report in reports) > 0


@pytest.mark.slow
def test_the_simulation_catches_a_run_that_is_begun_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that changes from process to process lets agents speak twice, and some history shows it."""
    key = driver.speech_key
    monkeypatch.setattr(driver, "speech_key", lambda turn, place: f"{key(turn, place)}{turn.lease_number}")

    with pytest.raises(Violation, match="stand in no place"):
        for seed in range(20):
            simulate_groups(seed)
