"""`Store`: the port of the database. Two databases and the tests' inline store implement it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from perdure.core.ids import OrgId
from perdure.storage.directory import Directory
from perdure.storage.tx import Tx
from perdure.storage.views import Views as Views

P = ParamSpec("P")
T = TypeVar("T")


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

    async def read_directory(
        self, unit: Callable[Concatenate[Directory, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `read`, for the tables of all organisations, users and keys, which hold nothing of memory."""

    async def write_directory(
        self, unit: Callable[Concatenate[Directory, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `write`, for those tables."""

    async def scrub(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Write the database anew, so that nothing that was removed is left in its free space. Others wait meanwhile.
        `progress` takes from time to time how much is done, and how much there is: MB of a file, or tables.
        Raises: StoreError: it is not done."""

    async def backup(self, path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Copy the database as it is now to a new file; others read and write meanwhile. `progress` takes how many
        pages are copied, and how many there are; an error of its own ends the copy. Raises: InvalidInput: PostgreSQL,
        which has a tool of its own, or the file can't be a new one; StoreError. Then there is no file."""

    async def mark(self) -> str:
        """A text that changes with every commit, of this process and of others. It costs next to nothing to read."""

    async def close(self) -> None: ...
