"""A backup of the store, for programs, the command line and the page of data."""

from __future__ import annotations

from pathlib import Path

from perdure.library.parts.part import AsyncPart


class AsyncCopies(AsyncPart):
    """Copies of the store."""

    async def backup(self, path: str | Path) -> None:
        """Copy the store as it is now to a new file, which opens like any store; agents work on meanwhile.

        It is a file of SQLite, also of a store on PostgreSQL. `perdure restore` puts it back into either database.

        Raises: InvalidInput: the file can't be a new one; StoreError. Then there is no file.
        """
        await self._ports.store.backup(Path(path))
