"""What a database says no with. `core.errors` has the whole tree; import them from there."""

from __future__ import annotations

import errno

from perdure.core.errors.root import PerdureError


class StoreError(PerdureError):
    """The database could not do it. What was not acknowledged was not written."""


class StoreBusy(StoreError):
    """Somebody else holds the database for too long."""


class StoreFull(StoreError):
    """The disk, or a limit of it, has no room left."""


class StoreReadOnly(StoreError):
    """The database can be read, not written."""


class StoreUnavailable(StoreError):
    """The disk fails, or the database can't be reached.

    `outcome_unknown`: the connection was lost during a commit, and nobody can say whether it was made.
    """

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class StoreDamaged(StoreError):
    """What is in the file is not what was written into it."""


class StoreTooNew(StoreError):
    """A newer Perdure wrote the store."""

    def __init__(self, place: str, *, found: int, known: int) -> None:
        super().__init__(
            f"{place} was written by a newer Perdure (schema {found}, this one knows {known}):"
            " upgrade Perdure; the file was not touched"
        )
        self.place, self.found, self.known = place, found, known


class StoreIncomplete(StoreError):
    """The store is a copy of another one, and was not finished."""

    def __init__(self, place: str, *, command: str) -> None:
        super().__init__(
            f"{place} is a copy that is not whole: go on with it by `{command}`, or remove it and begin anew"
        )
        self.place, self.command = place, command


class StoreClosed(StoreError):
    """The store was closed before the call, or is about to be."""

    def __init__(self, message: str = "the store is closed: open it again") -> None:
        super().__init__(message)


class NotAStore(StoreError):
    """The file or database is not one of Perdure's."""


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
