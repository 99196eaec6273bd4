"""mem0's `Memory`: `AsyncMemory` with plain calls, over a store of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.adapters.mem0.async_memory import AsyncMemory
from perdure.adapters.opening import Closing, OwnStore, plain


class Memory(Closing):
    """Memories of users, agents and runs, as mem0's `Memory` has them.

    Each method is that of `AsyncMemory`.

    Args:
        address: the store, as `Perdure` takes it: a file, `postgresql://...`, by default the user's own.
        graph: the name of the graph that holds the memories.
        options: as `Perdure` takes them.
    Raises: StoreError, InvalidInput.
    """

    def __init__(self, address: str | Path | None = None, *, graph: str = "mem0", **options: Any) -> None:
        self._store = OwnStore(address, **options)
        self._inner = AsyncMemory(self._store.perdure, graph=graph)

    add = plain(AsyncMemory.add)
    search = plain(AsyncMemory.search)
    get = plain(AsyncMemory.get)
    get_all = plain(AsyncMemory.get_all)
    update = plain(AsyncMemory.update)
    delete = plain(AsyncMemory.delete)
    delete_all = plain(AsyncMemory.delete_all)
    history = plain(AsyncMemory.history)
    reset = plain(AsyncMemory.reset)
