"""A store that an adapter opens for itself, with plain calls into it."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from perdure.library.perdure import AsyncPerdure
from perdure.library.portal import Portal

T = TypeVar("T")


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
