"""The targets of escapes: files, a process and listeners of the tests, which show whether anybody touched them."""

from __future__ import annotations

import os
import secrets
import socket
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.toolbox.sandbox.inside.seccomp import AARCH64, X86_64
from perdure.toolbox.sandbox.package_cache import remove_tree

NUMBERS: Mapping[str, int] = {"x86_64": X86_64, "aarch64": AARCH64}.get(os.uname().machine, {})

Snapshot = dict[str, tuple[int, int, bytes]]


class Ground:
    """The targets. Nothing but the sandbox keeps anybody from them: all may read, write and connect."""

    def __init__(self, *, python: str, user: int | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-ground-"))
        self.word = f"secret-{secrets.token_hex(8)}"
        for name in ("tenant-a", "tenant-b", "home"):
            (self.folder / name).mkdir()
        for name in ("secret.txt", "tenant-a/notes.txt", "tenant-b/notes.txt", "home/.key", "marker"):
            (self.folder / name).write_text(self.word, encoding="utf-8")
        with sqlite3.connect(self.folder / "perdure.db") as database:
            database.execute("CREATE TABLE keys AS SELECT ? AS word", (self.word,))
        database.close()
        self.shared = Path("/dev/shm", f"perdure-ground-{secrets.token_hex(8)}")
        self.shared.write_text(self.word, encoding="utf-8")
        for path in (self.folder, *self.folder.rglob("*"), self.shared):
            path.chmod(0o777 if path.is_dir() else 0o666)
            if user is not None:
                os.chown(path, user, user)
        self.connections: list[str] = []
        self._sockets = self._listen()
        options: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        code = "import time; time.sleep(600)"
        self.victim = subprocess.Popen(
            [python, "-I", "-S", "-c", code], env={"PERDURE_KEY": self.word}, cwd="/", **options
        )
        self.before = self._snapshot()

    @property
    def facts(self) -> dict[str, str]:
        """Name -> text, of the placeholders in the targets of cases."""
        ports = {
            name: str(listener.getsockname()[1]) for name, listener in self._sockets.items() if name in {"tcp", "udp"}
        }
        named = {
            "ground": str(self.folder),
            "shared": str(self.shared),
            "victim": str(self.victim.pid),
            "server": str(os.getpid()),
        }
        return {**named, **ports, "abstract": self.word, "uid": str(os.geteuid())}

    def changed(self) -> list[str]:
        """The targets that were changed or reached; empty if none was."""
        after = self._snapshot()
        files = [name for name in after.keys() | self.before.keys() if after.get(name) != self.before.get(name)]
        if self.victim.poll() is not None:
            files.append("the victim has ended")
        return [*files, *self.connections]

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for listener in self._sockets.values():
            listener.close()
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        assert str(self.folder) not in mounts, "something is mounted there: nothing was removed"
        remove_tree(self.folder)
        self.shared.unlink()

    def _listen(self) -> dict[str, socket.socket]:
        sockets = {
            "tcp": socket.socket(socket.AF_INET, socket.SOCK_STREAM),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "unix": socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
            "abstract": socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
            "datagrams": socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        }
        sockets["tcp"].bind(("127.0.0.1", 0))
        sockets["udp"].bind(("127.0.0.1", 0))
        sockets["unix"].bind(str(self.folder / "socket"))
        sockets["abstract"].bind(f"\0{self.word}")
        sockets["datagrams"].bind(f"\0{self.word}-datagrams")
        (self.folder / "socket").chmod(0o777)
        for name, listener in sockets.items():
            if listener.type == socket.SOCK_STREAM:
                listener.listen()
            threading.Thread(target=self._note, args=(name, listener), daemon=True).start()
        return sockets

    def _note(self, name: str, listener: socket.socket) -> None:
        try:
            if listener.type == socket.SOCK_STREAM:
                listener.accept()[0].close()
            else:
                listener.recv(1)
        except OSError:  # closed at the end
            return
        self.connections.append(f"somebody connected to {name}")

    def _snapshot(self) -> Snapshot:
        files: Snapshot = {}
        for path in (*sorted(self.folder.rglob("*")), *filter(Path.exists, (self.shared,))):
            facts = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            files[str(path)] = (facts.st_mode, facts.st_mtime_ns, content)
        return files
