"""Copies of whole stores, for the command line. They are apart from `app`, so that nobody else loads them."""

from __future__ import annotations

from perdure.storage.copy.moves import migrate_db as migrate_db
from perdure.storage.copy.moves import same_address as same_address
from perdure.storage.copy.moves import split as split
from perdure.storage.copy.restore import look_at_backup as look_at_backup
from perdure.storage.copy.restore import restore as restore
