"""`Store`: the port of the database. Two databases and the tests' inline store implement it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from perdure.storage.tx import Tx

P = ParamSpec("P")
T = TypeVar("T")


class Store(Protocol):
    """The database, as two verbs that carry a unit of work to it.

    A unit is one synchronous function whose first argument is a `Tx`. It holds no await, no clock and no randomness.
    """

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `unit` returns, over one consistent snapshot. Raises: StoreError; what the unit raises."""

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `unit` returns, once its changes are durable. Raises: StoreError, nothing then being written; what the
        unit raises, nothing then being written either."""

    async def scrub(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Write the database anew, so that nothing that was removed is left in its free space. Others wait meanwhile.
        `progress` takes from time to time how much is done, and how much there is: MB of a file, or tables.
        Raises: StoreError: it is not done."""

    async def close(self) -> None: ...
