"""Other views of a store: as another organisation sees it, and the directory of all organisations.

A view has no connection of its own: it runs its units through the store, with the verbs of its organisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from perdure.core.ids import OrgId
from perdure.storage.directory import Directory
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    from perdure.storage.store import Store

P = ParamSpec("P")
T = TypeVar("T")


class Views:
    """The part of `Store` that follows from `read` and `write`; each store inherits it."""

    def for_organisation(self: Store, org_id: OrgId) -> Store:
        return OrganisationStore(self, org_id)

    async def read_directory(
        self: Store, unit: Callable[Concatenate[Directory, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.read(_in_directory, unit, args, kwargs)

    async def write_directory(
        self: Store, unit: Callable[Concatenate[Directory, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.write(_in_directory, unit, args, kwargs)


class OrganisationStore(Views):
    """`Store` of one organisation over the connections of another one, which stays open when this is closed."""

    def __init__(self, store: Store, org_id: OrgId) -> None:
        self._store, self._org_id = store, org_id

    @property
    def place(self) -> str:
        return self._store.place

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._store.read(_as_organisation, self._org_id, unit, args, kwargs)

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._store.write(_as_organisation, self._org_id, unit, args, kwargs)

    async def scrub(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        await self._store.scrub(progress)

    async def backup(self, path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        await self._store.backup(path, progress)

    async def mark(self) -> str:
        return await self._store.mark()

    async def close(self) -> None:
        """Do nothing: the store is not this one's."""


# A unit of a view is given the verbs of another organisation over the connection of the transaction.
def _as_organisation(
    tx: Tx, org_id: OrgId, unit: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> T:
    return unit(Tx(tx._db, org_id, tx.limits), *args, **kwargs)


def _in_directory(tx: Tx, unit: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
    return unit(Directory(tx._db), *args, **kwargs)
