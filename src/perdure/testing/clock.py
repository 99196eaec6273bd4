"""A clock that stands still, ids that count, and a listener that keeps what the program reports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from perdure.core.ids import PREFIXES
from perdure.core.telemetry import Fact, Work

START = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)


class FakeClock:
    """`Clock` that moves only by `advance`."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class SequentialIds:
    """`Ids` that count: valid, and the same in every run. Sources with another `salt` give other ids."""

    def __init__(self, salt: int = 0) -> None:
        self._salt, self._count = salt, 0

    def new(self, kind: str) -> str:
        self._count += 1
        if kind == "run":  # its last digits leave room for the ids of its messages
            return f"{PREFIXES[kind]}-{self._salt:08x}-0000-4000-9000-{self._count:09x}000"
        return f"{PREFIXES[kind]}-{self._salt:08x}-0000-4000-8000-{self._count:012x}"


W = TypeVar("W")


class RecordedTelemetry:
    """`Telemetry` that keeps works in the order in which they ended, and facts in the order in which they came."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.facts: list[Fact] = []

    @contextlib.contextmanager
    def during(self, work: Work) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            work.error = work.error or type(error).__name__
            raise
        finally:
            self.works.append(work)

    def count(self, fact: Fact) -> None:
        self.facts.append(fact)

    def of(self, kind: type[W]) -> list[W]:
        """Return the works and facts of the class `kind`."""
        return [one for one in (*self.works, *self.facts) if isinstance(one, kind)]
