"""The root of every error, what a database says no with, and errors of what is outside: secrets that can't be opened,
servers that can't be reached, answers that can't be read. `core.errors` has the whole tree; import them from there."""

from __future__ import annotations

import errno
import re
from typing import ClassVar


class PerdureError(Exception):
    """The root: catch this to catch everything Perdure raises on purpose.

    `code` names the error on the wire: `block_read_only` of `BlockReadOnly`, where a class sets no other.
    """

    code: ClassVar[str] = "error"

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


class StoreError(PerdureError):
    """The database could not do it. What was not acknowledged was not written."""


class StoreBusy(StoreError):
    """Another process or connection has locked the database for longer than the store waits."""


class StoreFull(StoreError):
    """The disk, or a limit of it, has no room left."""


class StoreReadOnly(StoreError):
    """The database can be read, not written."""


class StoreUnavailable(StoreError):
    """The disk fails, or the database can't be reached.

    `outcome_unknown`: the connection was lost during a commit, so the commit may have been made or not.
    """

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class StoreDamaged(StoreError):
    """What is in the file is not what was written into it."""


class StoreTooNew(StoreError):
    """A newer Perdure wrote the store at `place`; `found` and `known` are versions of the schema."""

    def __init__(self, place: str, *, found: int, known: int) -> None:
        super().__init__(
            f"{place} was written by a newer Perdure (schema {found}, this one knows {known}):"
            " upgrade Perdure; the file was not touched"
        )
        self.place, self.found, self.known = place, found, known


class StoreIncomplete(StoreError):
    """The store is an unfinished copy of another one; `command` would finish it."""

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
    """Return our error for a file beside the database that can't be used as the disk or its rights are; None: it has
    another reason."""
    what = f"{error.filename or 'a temporary file'}: {error.strerror}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StoreFull(f"no space left for {what}: free some, then try again")
        case errno.EFBIG:
            return StoreFull(f"the file-size limit of this process is too low for {what}: raise it (ulimit -f)")
        case errno.EROFS:
            return StoreReadOnly(f"{what}: mount its disk for writing, or choose another folder")
        case errno.EACCES | errno.EPERM:
            return StoreUnavailable(f"{what}: give this user the right to it, or choose another file or folder")
        case errno.ENAMETOOLONG:
            return StoreUnavailable(f"{what}: choose a shorter one")
        case errno.EIO:
            return StoreUnavailable(f"{what}: check the disk")
        case _:
            return None


class SecretKeyMissing(PerdureError):
    """Secrets are kept encrypted, and there is no key to do it with. Nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "secrets need a key here: set PERDURE_SECRET_KEY to a long random text (`openssl rand -base64 32` prints"
            " one), the same for every process of this store"
        )


class SecretUnreadable(PerdureError):
    """A secret can't be decrypted: another key, or a damaged row. Its value is lost unless the key comes back."""

    def __init__(self, why: str) -> None:
        super().__init__(f"a secret can't be decrypted: {why}. Set the key back, or set the secret anew")
        self.why = why


class McpUnreachable(PerdureError):
    """An MCP server can't be reached, does not speak MCP, or ended. `why`: the reason, for everybody; `detail`: the
    reason for whoever registered the server, with what its process wrote last."""

    code = "mcp_connection_error"

    def __init__(self, server: str, why: str, *, detail: str = "") -> None:
        super().__init__(f"the MCP server {server!r} can't be reached: {detail or why}")
        self.server, self.why, self.detail = server, why, detail


class McpStdioRefused(PerdureError):
    """A stdio MCP server is a program that is run on this machine: whoever may only use the API may not name one."""

    def __init__(self) -> None:
        super().__init__(
            "a stdio MCP server runs a program on this machine, so it is registered there: `perdure mcp add NAME --"
            " COMMAND`. PERDURE_MCP_STDIO=on lets clients of the API do it too"
        )


class McpPrivateRefused(PerdureError):
    """A client of the API named an MCP server on this machine or in a private network. Nothing was sent there."""

    def __init__(self) -> None:
        super().__init__(
            "the address of this MCP server leads to this machine or a private network, so it is registered where"
            " Perdure runs: `perdure mcp add NAME --url URL`. PERDURE_MCP_PRIVATE=on lets clients of the API do it too"
        )


class DataTooLarge(PerdureError, ValueError):
    """Data from outside pass a limit; they were not parsed. The message says which, without saying whose data."""


class BodyUnreadable(PerdureError, ValueError):
    """A body from outside can't be unpacked."""
