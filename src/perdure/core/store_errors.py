"""What a database says no with. `core.errors` has the whole tree; import them from there."""

from __future__ import annotations

from perdure.core.error_root import PerdureError

__all__ = ["NotAStore", "StoreBusy", "StoreClosed", "StoreError", "StoreFull", "StoreReadOnly", "StoreTooNew"]


class StoreError(PerdureError):
    """The database could not do it. What was not acknowledged was not written."""

    code = "store_error"


class StoreBusy(StoreError):
    code = "store_busy"


class StoreFull(StoreError):
    code = "store_full"


class StoreReadOnly(StoreError):
    code = "store_read_only"


class StoreTooNew(StoreError):
    code = "store_too_new"

    def __init__(self, place: str, *, found: int, known: int) -> None:
        super().__init__(
            f"{place} was written by a newer Perdure (schema {found}, this one knows {known}):"
            " upgrade Perdure; the file was not touched"
        )
        self.place, self.found, self.known = place, found, known


class StoreClosed(StoreError):
    code = "store_closed"

    def __init__(self) -> None:
        super().__init__("the store is closed: open it again")


class NotAStore(StoreError):
    code = "not_a_store"
