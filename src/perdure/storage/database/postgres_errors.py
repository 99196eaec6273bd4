"""PostgreSQL's errors as Perdure's. No text of them holds a password."""

from __future__ import annotations

import psycopg

from perdure.core import errors
from perdure.core.incoming.addresses import without_password


def check_address(address: str) -> None:
    """Check that this is an address. Raises: StoreUnavailable, without what could be a part of the password."""
    try:
        psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        problem = None
    else:
        problem = "" if address.partition("?")[0].count("@") < 2 else "a second @"
    if problem != "":
        raise errors.StoreUnavailable(
            f"the address {without_password(address)!r} has {problem or 'a wrong form'}: write"
            " postgresql://user:password@host:5432/database, with %40 for an @ in the password"
        ) from None


LOST = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "53300"})
"""The server stops, crashed, starts, ends idle sessions, or has no connection left."""


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, or could not be made; another one may be made later."""
    if isinstance(error, psycopg.InterfaceError):
        return "closed" in str(error)
    code = error.sqlstate
    if code is None:
        return isinstance(error, psycopg.OperationalError)
    return code in LOST or code.startswith("08")


def is_starting(error: psycopg.Error) -> bool:
    """Whether the server says that it is starting or stopping. A refused connection has no code."""
    return error.sqlstate == "57P03" or "starting up" in str(error) or "shutting down" in str(error)


def store_error(error: psycopg.Error) -> errors.PerdureError:
    """Perdure's error for an error of PostgreSQL."""
    text = " ".join(str(error).split())  # libpq breaks lines
    match error:
        case psycopg.errors.UniqueViolation():
            taken = (error.diag.message_detail or "").partition(")=(")[2].partition(") already exists")[0]
            return errors.AlreadyExists(f"a row of {error.diag.table_name}", taken)
        case psycopg.errors.SerializationFailure() | psycopg.errors.DeadlockDetected():
            return errors.StoreBusy(f"the database was too busy with competing transactions: {text}")
        case psycopg.errors.DiskFull():
            return errors.StoreFull(f"no space left in the database: {text}")
        case psycopg.errors.DataCorrupted() | psycopg.errors.IndexCorrupted():
            return errors.StoreDamaged(f"the database is damaged: restore a backup ({text})")
        case psycopg.errors.IoError():
            return errors.StoreUnavailable(f"the disk of the database failed: {text}")
        case psycopg.errors.ReadOnlySqlTransaction() | psycopg.errors.InsufficientPrivilege():
            return errors.StoreReadOnly(f"the database can't be written: {text}")
        case psycopg.errors.LockNotAvailable():
            return errors.StoreBusy(f"the database was locked: {text}")
        case psycopg.OperationalError():
            return errors.StoreUnavailable(
                f"the database can't be reached: check the address and that the server runs ({text})"
            )
        case _:
            return errors.StoreError(f"the database failed: {text}")
