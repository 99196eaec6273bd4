"""mem0's `Memory`: `AsyncMemory` with plain calls, over a store of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from perdure.adapters.mem0.async_memory import AsyncMemory
from perdure.adapters.opening import Closing, OwnStore

P = ParamSpec("P")
T = TypeVar("T")


def _plain(
    method: Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Memory, P], T]:
    """The method as a plain call, with its arguments and docstring."""

    @functools.wraps(method)
    def call(memory: Memory, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return memory._store.run(method(memory._inner, *args, **kwargs))

    return call


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

    add = _plain(AsyncMemory.add)
    search = _plain(AsyncMemory.search)
    get = _plain(AsyncMemory.get)
    get_all = _plain(AsyncMemory.get_all)
    update = _plain(AsyncMemory.update)
    delete = _plain(AsyncMemory.delete)
    delete_all = _plain(AsyncMemory.delete_all)
    history = _plain(AsyncMemory.history)
    reset = _plain(AsyncMemory.reset)
