"""What is learned of models outlives this process: it is loaded when an engine starts, and stored when it changes."""

from __future__ import annotations

import asyncio
import logging

from perdure.core.errors import StoreError
from perdure.providers.traits import LearnedTraits
from perdure.storage.store import Store
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)


class StoredTraits:
    """Keeps what a process has learned of models in the store."""

    def __init__(self, store: Store, learned: LearnedTraits) -> None:
        self._store, self._learned = store, learned
        self._changed: set[str] = set()
        self._storing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load what was learned before. Raises: StoreError."""
        self._learned.put_stored(await self._store.read(lambda tx: tx.providers.list_traits()))
        self._learned.on_change = self._change

    async def close(self) -> None:
        """Store what is not stored yet."""
        self._learned.on_change = lambda handle: None
        if self._storing is not None:
            await self._storing

    def _change(self, handle: str) -> None:
        """Store the traits of a model soon, together with others that change meanwhile."""
        self._changed.add(handle)
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store_changed())

    async def _store_changed(self) -> None:
        while self._changed:
            changed, self._changed = self._changed, set()
            traits = {handle: self._learned.stored(handle) for handle in sorted(changed)}

            def store(tx: Tx, traits: dict[str, dict[str, object]] = traits) -> None:
                for handle, known in traits.items():
                    tx.providers.put_traits(handle, known)

            try:
                await self._store.write(store)
            except StoreError as error:
                log.warning("what was learned of %s is not kept: %s", ", ".join(traits), error)
