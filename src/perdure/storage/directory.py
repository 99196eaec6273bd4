"""`Directory`: organisations, users, keys, the audit log and counts of use, of the whole store.

It is what has to be read before anybody knows the organisation of a request. It sees these tables only, never memory,
which belongs to the `Tx` of one organisation.
"""

from __future__ import annotations

from perdure.storage.database.base import Database
from perdure.storage.tables.access.audit import Audit, UsedTable
from perdure.storage.tables.access.keys import Keys
from perdure.storage.tables.access.organisations import Organisations, Users


class Directory:
    """The verbs over all organisations on one connection."""

    def __init__(self, db: Database) -> None:
        self.organisations = Organisations(db)
        self.users = Users(db)
        self.keys = Keys(db)
        self.audit = Audit(db)
        self.used = UsedTable(db)
