"""What a database says no with. `core.errors` has the whole tree; import them from there."""

from __future__ import annotations

import errno

from perdure.core.errors.root import PerdureError


class StoreError(PerdureError):
    """The database could not do it. What was not acknowledged was not written."""

    code = "store_error"


class StoreBusy(StoreError):
    code = "store_busy"


class StoreFull(StoreError):
    code = "store_full"


class StoreReadOnly(StoreError):
    code = "store_read_only"


class StoreUnavailable(StoreError):
    """The disk fails, or the database can't be reached."""

    code = "store_unavailable"


class StoreDamaged(StoreError):
    """What is in the file is not what was written into it."""

    code = "store_damaged"


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


def disk_error(error: OSError) -> StoreError | None:
    """Our error where a file beside the database could not be written because of its disk; None for any other."""
    what = f"{error.filename or 'a temporary file'}: {error.strerror}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StoreFull(f"no space left for {what}: free some, then try again")
        case errno.EFBIG:
            return StoreFull(f"the file-size limit of this process is too low for {what}: raise it (ulimit -f)")
        case errno.EROFS:
            return StoreReadOnly(f"{what}: mount its disk for writing, or choose another folder")
        case errno.EIO:
            return StoreUnavailable(f"{what}: check the disk")
        case _:
            return None
