"""A package index on loopback, with packages that tests build: good ones and hostile ones."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self


def make_wheel(name: str, version: str = "1.0", *, needs: tuple[str, ...] = (), size: int = 0) -> tuple[str, bytes]:
    """The file name and the bytes of a wheel with one module, which says `WORD = 'name'`.

    Args:
        needs: lines for `Requires-Dist`.
        size: of another file in it, of zeros, which takes next to nothing in the wheel.
    """
    module, data = name.replace("-", "_"), io.BytesIO()
    facts = f"{module}-{version}.dist-info"
    dependencies = "".join(f"Requires-Dist: {one}\n" for one in needs)
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{module}.py", f"WORD = {name!r}")
        wheel.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{dependencies}")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")
        if size:
            wheel.writestr(f"{module}.bin", bytes(size))
    return f"{module}-{version}-py3-none-any.whl", data.getvalue()


def source_files(name: str, marker: Path) -> dict[str, str]:
    """The files of a project whose build code, old and new, writes the file `marker`."""
    write = f"open({str(marker)!r}, 'w').write('ran')\n"
    return {
        "setup.py": f"{write}from setuptools import setup\nsetup(name={name!r})\n",
        "backend.py": write,
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    }


def make_source(name: str, marker: Path, version: str = "1.0") -> tuple[str, bytes]:
    """The file name and the bytes of a source distribution with these files."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in source_files(name, marker).items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return f"{name}-{version}.tar.gz", data.getvalue()


class PackageIndex:
    """An HTTP server with a page of links for each package, and the files; used as a context manager.

    `place` is put before the links: where the files are said to lie.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.place = ""
        self.headers: list[dict[str, str]] = []
        self._swaps: dict[str, tuple[int, bytes]] = {}
        self.gate, self.reached = threading.Event(), threading.Event()
        self.gate.set()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.requests.append(self.path)
                index.headers.append({name.lower(): value for name, value in self.headers.items()})
                index.reached.set()
                index.gate.wait(20)
                body = index._body(self.path)
                self.send_response(404 if body is None else 200)
                kind = "text/html" if self.path.startswith("/simple/") else "application/octet-stream"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.address}/simple"

    def add(self, file: tuple[str, bytes]) -> str:
        """Offer a file. Returns its address."""
        name, data = file
        self.files[name] = data
        return f"{self.address}/files/{name}"

    def swap_after(self, name: str, data: bytes, *, times: int) -> None:
        """Serve other data after so many downloads of a file. The page still shows the hash of the first."""
        self._swaps[name] = (times, data)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    def _body(self, path: str) -> bytes | None:
        _, place, name, *_ = [*path.split("/"), "", ""]
        if place == "files":
            times, other = self._swaps.get(name, (len(self.requests), b""))
            return self.files.get(name) if self.requests.count(path) <= times else other
        links = []
        for file, data in self.files.items():
            if file.replace("_", "-").lower().startswith(f"{name}-"):
                links.append(
                    f'<a href="{self.place}/files/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>'
                )
        return f"<html><body>{''.join(links)}</body></html>".encode() if links else None
