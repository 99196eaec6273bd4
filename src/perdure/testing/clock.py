"""A clock that stands still, and ids that count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from perdure.core.ids import PREFIXES

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
