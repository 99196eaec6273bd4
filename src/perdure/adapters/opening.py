"""A store that an adapter opens for itself, with plain calls into it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from types import CoroutineType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from perdure import Passage
from perdure.features.facts.service import AsyncFacts
from perdure.library.memory.archives import AsyncArchive
from perdure.library.memory.passages import passage_filter
from perdure.library.parts.checks import Page
from perdure.library.parts.portal import Portal
from perdure.library.perdure import AsyncPerdure

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner", covariant=True)
PAGE = 500


class AdapterStore:
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


class ArchiveStore(AdapterStore):
    """An open store, and its archive with the name `archive`, which is created with the first call."""

    def __init__(self, address: str | Path | None = None, *, archive: str, **options: Any) -> None:
        super().__init__(address, **options)
        self._name = archive
        self._found: AsyncArchive | None = None

    async def archive(self) -> AsyncArchive:
        """Return the archive."""
        if self._found is None:
            self._found = await self.perdure.archives.open(self._name)
        return self._found

    async def passages(
        self, tags: Sequence[str], *, newest_first: bool = False, page_size: int | None = None
    ) -> AsyncIterator[Passage]:
        """Yield the passages that have all of these tags, by their creation; `page_size` of them are read at once.
        Collect them before you delete some."""
        where, archive, size = passage_filter(tags=tags, tag_match="all"), await self.archive(), page_size or PAGE
        after = None
        while True:
            page = await archive.list_passages(Page(size, ascending=not newest_first, after=after), where=where)
            for passage in page:
                yield passage
            if len(page) < size:
                return
            after = page[-1].id


Store = TypeVar("Store", bound=AdapterStore)


class StoreOwner(Generic[Store]):
    """The base of adapters that own a store, which `close`, or the end of `with`, closes."""

    _store: Store

    def close(self) -> None:
        """Close the store. Closing twice is no error."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ArchiveAdapter(StoreOwner[ArchiveStore]):
    """The base of adapters over one archive, by default `_archive`.

    Args:
        address: the store, as `Perdure` takes it: a file, `postgresql://...`, by default the user's own.
        archive: the name of the archive; it is created with the first call.
        options: as `Perdure` takes them.
    Raises: StoreError, InvalidInput.
    """

    _archive: str

    def __init__(self, address: str | Path | None = None, *, archive: str | None = None, **options: Any) -> None:
        self._store = ArchiveStore(address, archive=archive or self._archive, **options)


Adapter = TypeVar("Adapter", bound=StoreOwner[Any])


def in_store(method: Callable[Concatenate[Adapter, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Adapter, P], T]:
    """Return a coroutine method of an adapter as a plain one, which runs in the event loop of its store."""

    @functools.wraps(method)
    def call(adapter: Adapter, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = adapter._store.run(method(adapter, *args, **kwargs))
        return result

    return call


def in_thread(
    method: Callable[Concatenate[Adapter, P], T],
) -> Callable[Concatenate[Adapter, P], CoroutineType[Any, Any, T]]:
    """Return a plain method of an adapter as a coroutine method, which runs it in a thread with a loop of its own."""

    @functools.wraps(method)
    async def call(adapter: Adapter, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, adapter, *args, **kwargs)

    return call  # type: ignore[return-value]  # mypy says Coroutine of an `async def`, pyright CoroutineType


class GraphAdapter:
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
    """A synchronous form of an asynchronous class: each method runs the coroutine of its name in `_store`."""

    @property
    def _store(self) -> AdapterStore:
        """The store in whose event loop the coroutines run."""

    @property
    def _inner(self) -> Inner:
        """The asynchronous object that does the work."""


def plain(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Wrapper[Inner], P], T]:
    """Return a coroutine method of the inner object as a plain method of its `Wrapper`, with the same docstring."""

    @functools.wraps(method)
    def call(wrapper: Wrapper[Inner], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return wrapper._store.run(method(wrapper._inner, *args, **kwargs))

    return call
