"""Two apps over one store in one test, as two processes have it: each with connections, leases and tasks of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure, Model, ModelReply, ModelRequest
from perdure.core.models import ModelDelta
from perdure.settings import Settings
from tests.support.postgres_server import address_of_an_empty_store

MODEL = "test/model"
STORES = ("sqlite", "postgres")


async def address_of(store: str, folder: Path) -> str:
    """The address of an empty store of this kind."""
    return str(folder / "perdure.db") if store == "sqlite" else await asyncio.to_thread(address_of_an_empty_store)


@asynccontextmanager
async def two_apps(
    address: str, model: Model, *, settings: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[AsyncPerdure, AsyncPerdure]]:
    """Two apps with the same model."""
    chosen = replace(Settings(), model=MODEL, embedding="none", **(settings or {}))
    async with (
        await AsyncPerdure.open(address, models={MODEL: model}, settings=chosen, **options) as first,
        await AsyncPerdure.open(address, models={MODEL: model}, settings=chosen, **options) as second,
    ):
        yield first, second


class Gate:
    """A model whose requests wait until they are let through; `asked` counts them.

    Args:
        answers: the answers, in order; the last one again and again.
        deltas: what it says before each answer, at once, a moment after each other.
    """

    def __init__(self, *answers: ModelReply, deltas: tuple[ModelDelta, ...] = ()) -> None:
        self._answers, self._deltas = list(answers), deltas
        self.asked, self._passes = 0, asyncio.Semaphore(0)
        self._changed = asyncio.Condition()

    def let(self, count: int = 1) -> None:
        """Let so many requests through."""
        for _ in range(count):
            self._passes.release()

    async def reached(self, count: int) -> None:
        """Return once so many requests have come."""
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(lambda: self.asked >= count)

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        async with self._changed:
            self.asked += 1
            self._changed.notify_all()
        for delta in self._deltas:
            yield delta
            await asyncio.sleep(0.06)  # longer than previews are joined
        await self._passes.acquire()
        yield self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
