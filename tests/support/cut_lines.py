"""A line to a PostgreSQL server that is cut where a test says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import quote

import psycopg

Cut = Literal["", "before commit", "after commit", "dead"]

SYNC = b"S\x00\x00\x00\x04"
"""The message after which the server sends its answers. The client's own may not have arrived yet."""


class CutLine:
    """Passes bytes between a store and its server.

    `cut`: `before commit`: the next COMMIT does not arrive, and the line is closed; `after commit`: it arrives, and its
    answer does not; `dead`: nothing passes. After one cut the line is `then`.
    """

    def __init__(self, address: str) -> None:
        self.cut: Cut = ""
        self.then: Cut = ""
        self.cuts = 0
        self.refusals = asyncio.Semaphore(0)  # released for each connection while the line is dead
        found = psycopg.conninfo.conninfo_to_dict(address)
        self._socket = f"{found.pop('host')}/.s.PGSQL.5432"
        self._rest = found
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The address of the near end."""
        server = await asyncio.start_server(self._serve, "127.0.0.1")
        try:
            port = server.sockets[0].getsockname()[1]
            more = {"host": "127.0.0.1", "port": port, "sslmode": "disable", "gssencmode": "disable"}
            yield "postgresql://?" + "&".join(
                f"{name}={quote(str(value), safe='')}" for name, value in {**self._rest, **more}.items()
            )
        finally:
            server.close()
            for writer in self._open:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        if self.cut == "dead":
            self.refusals.release()
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_unix_connection(self._socket)
        self._open.add(far_writer)
        back = asyncio.create_task(self._pass_back(far_reader, writer))
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                cut: Cut = self.cut
                if cut == "dead" or (cut and b"COMMIT" in data):
                    self.cuts += 1
                    back.cancel()
                    await asyncio.gather(back, return_exceptions=True)
                    if cut == "after commit":
                        far_writer.write(data + SYNC)
                        await far_reader.read(1)  # the server has answered
                    self.cut = self.then
                    break
                far_writer.write(data)
        back.cancel()
        for one in (writer, far_writer):
            one.close()

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()
