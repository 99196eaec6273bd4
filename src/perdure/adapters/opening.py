"""A store that an adapter opens for itself, with plain calls into it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from perdure.features.facts.service import AsyncFacts
from perdure.library.parts.portal import Portal
from perdure.library.perdure import AsyncPerdure

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner", covariant=True)


class OwnStore:
    """An open store with its own event loop in a thread, for calls from programs without one.

    Args:
        address, options: as `AsyncPerdure.open` takes them.
    Raises: StoreError, InvalidInput.
    """

    def __init__(self, address: str | Path | None = None, **options: Any) -> None:
        self._portal = Portal()
        try:
            self.perdure = self._portal.run(AsyncPerdure.open(address, **options))
        except BaseException:
            self._portal.close()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the store's event loop; return or raise what it does. Raises: StoreClosed."""
        return self._portal.run(coroutine)

    def close(self) -> None:
        """Close the store. Closing twice is no error."""
        if self._portal.is_open:
            self._portal.run(self.perdure.close())
            self._portal.close()


class Closing:
    """The base of adapters that own a store, which `close`, or the end of `with`, closes."""

    _store: OwnStore

    def close(self) -> None:
        """Close the store. Closing twice is no error."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class OfGraph:
    """The base of adapters over the facts of the graph with the name `graph`, which the first call creates."""

    def __init__(self, perdure: AsyncPerdure, *, graph: str) -> None:
        self._perdure, self._name = perdure, graph
        self._id: Any = None

    async def _graph(self) -> Any:
        """Return the id of the graph."""
        if self._id is None:
            self._id = (await self._perdure.facts.open_graph(self._name)).id
        return self._id

    async def _facts(self) -> AsyncFacts:
        """Return the service of the graph's facts."""
        return self._perdure.facts.of(await self._graph())


class Wrapper(Protocol[Inner]):
    """A class with plain methods in place of the coroutines of its `_inner` object, which run in its `_store`."""

    @property
    def _store(self) -> OwnStore: ...

    @property
    def _inner(self) -> Inner: ...


def plain(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Wrapper[Inner], P], T]:
    """Return a coroutine method of the inner object as a plain method of its `Wrapper`, with the same docstring."""

    @functools.wraps(method)
    def call(wrapper: Wrapper[Inner], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return wrapper._store.run(method(wrapper._inner, *args, **kwargs))

    return call
