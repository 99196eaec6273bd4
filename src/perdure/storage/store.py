"""`Store`: the port of the database. Two databases and the tests' inline store implement it.

A view of a store, as another organisation sees it, has no connection of its own: it runs its units through the store,
with the verbs of its organisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from perdure.core.ids import OrgId
from perdure.storage.tx import Tx

P = ParamSpec("P")
T = TypeVar("T")


Hear = Callable[[Sequence[str] | None], None]
"""Takes topics, each a kind and after spaces what it is about; None: any topic may have been missed."""


class Store(Protocol):
    """The database, as two verbs that carry a unit of work to it.

    A unit is one synchronous function whose first argument is a `Tx`. It holds no await, no clock and no randomness.
    """

    @property
    def place(self) -> str:
        """Where the data is, for people: the path of the file, or the name of the PostgreSQL database and its host."""

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `unit` returns, over one consistent snapshot. Raises: StoreError; what the unit raises."""

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `unit` returns, once its changes are durable. Raises: StoreError, nothing then being written; what the
        unit raises, nothing then being written either."""

    def for_organisation(self, org_id: OrgId) -> Store:
        """This store as another organisation sees it, over the same connections. Closing it closes nothing."""

    async def scrub(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Rewrite the database, so that nothing that was removed is left in its free space. Others wait meanwhile.
        `progress` takes from time to time how much is done, and how much there is: MB of a file, or tables.
        Raises: StoreError: it is not done."""

    async def backup(self, path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Copy the database as it is now to a new file of SQLite; others read and write meanwhile. `progress` takes how
        much is done, and how much there is, in pages of a file or rows of PostgreSQL; an error of its own ends the
        copy. Raises: InvalidInput: the file can't be a new one; StoreError. Then there is no file."""

    def listen(self, hear: Hear) -> bool:
        """Have `hear` called in this event loop after commits of other processes; whether it will be.

        False: the store can't (SQLite), and a caller that waits for others has to look again and again. True: `hear`
        takes topics within milliseconds, but some may be lost, so the caller looks at times too.
        """

    async def mark(self) -> str:
        """A text that changes with every commit, of this process and of others. It costs next to nothing to read."""

    async def close(self) -> None:
        """Close the store; work that was begun is finished."""


class StoreBase:
    """The part of `Store` that follows from `read` and `write`; each store inherits it."""

    def listen(self, hear: Hear) -> bool:
        return False  # a store hears of other processes only if its database tells of them

    def for_organisation(self: Store, org_id: OrgId) -> Store:
        return OrganisationStore(self, org_id)


class StoreOver(StoreBase):
    """`Store` over another one: what a subclass does not change is passed on."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def place(self) -> str:
        return self._store.place

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._store.read(unit, *args, **kwargs)

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._store.write(unit, *args, **kwargs)

    async def scrub(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        await self._store.scrub(progress)

    async def backup(self, path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        await self._store.backup(path, progress)

    def listen(self, hear: Hear) -> bool:
        return self._store.listen(hear)

    async def mark(self) -> str:
        return await self._store.mark()

    async def close(self) -> None:
        await self._store.close()


class OrganisationStore(StoreOver):
    """`Store` of one organisation over the connections of another one, which stays open when this is closed."""

    def __init__(self, store: Store, org_id: OrgId) -> None:
        super().__init__(store)
        self._org_id = org_id

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the unit for this organisation over a snapshot."""
        return await self._store.read(_as_organisation, self._org_id, unit, args, kwargs)

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the unit for this organisation in a write transaction."""
        return await self._store.write(_as_organisation, self._org_id, unit, args, kwargs)

    async def close(self) -> None:
        """Do nothing: the store is not this one's."""


def _as_organisation(
    tx: Tx, org_id: OrgId, unit: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> T:
    """What a unit of work returns with these arguments, in this transaction but as another organisation sees it."""
    return unit(Tx(tx._db, org_id, tx.limits), *args, **kwargs)
