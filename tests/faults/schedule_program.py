"""A process that fires schedules until it is killed: `schedule_program STORE CLOCK`; the file CLOCK holds the time."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from pathlib import Path

from perdure import AsyncPerdure, Settings
from perdure.features.schedules import worker
from perdure.testing import ScriptedModel, says
from tests.support.stores import SECRET_KEY

MODEL = "test/scripted"
SETTINGS = Settings(model=MODEL, embedding="none", facts="off", schedules_per_agent=10_000, secret_key=SECRET_KEY)


class FileClock:
    """`Clock` of several processes: whoever writes the file sets it, forwards or backwards."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> datetime:
        return datetime.fromisoformat(self._file.read_text())

    def set(self, moment: datetime) -> None:
        """Set the clock of all; no reader sees half of it."""
        part = self._file.with_suffix(".part")
        part.write_text(moment.isoformat())
        part.replace(self._file)


def scripted_model() -> ScriptedModel:
    """A model that answers everything."""
    return ScriptedModel(otherwise=lambda request: says("done"))


async def main(store: str, clock: str) -> None:
    worker.LOOK_S = 0.01
    async with await AsyncPerdure.open(
        store, models={MODEL: scripted_model()}, clock=FileClock(Path(clock)), settings=SETTINGS
    ):
        print("{}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
