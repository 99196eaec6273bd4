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
    """An open store and the event loop that it lives in.

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
        """Return or raise what the coroutine does. Raises: StoreClosed."""
        return self._portal.run(coroutine)

    def close(self) -> None:
        """Close the store. Closing twice is no error."""
        if self._portal.is_open:
            self._portal.run(self.perdure.close())
            self._portal.close()


class Closing:
    """What owns a store: `close`, or `with`."""

    _store: OwnStore

    def close(self) -> None:
        """Close the store. Closing twice is no error."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class OfGraph:
    """What lives in the graph of this name, which is created with the first call."""

    def __init__(self, perdure: AsyncPerdure, *, graph: str) -> None:
        self._perdure, self._name = perdure, graph
        self._id: Any = None

    async def _graph(self) -> Any:
        if self._id is None:
            self._id = (await self._perdure.facts.open_graph(self._name)).id
        return self._id

    async def _facts(self) -> AsyncFacts:
        return self._perdure.facts.of(await self._graph())


class Wrapper(Protocol[Inner]):
    """What has plain calls in the place of the coroutines of another object."""

    @property
    def _store(self) -> OwnStore: ...

    @property
    def _inner(self) -> Inner: ...


def plain(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Wrapper[Inner], P], T]:
    """The method as a plain call, with its arguments and docstring."""

    @functools.wraps(method)
    def call(wrapper: Wrapper[Inner], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return wrapper._store.run(method(wrapper._inner, *args, **kwargs))

    return call
