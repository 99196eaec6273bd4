"""Fetch a model file: it goes on where it was broken off, and counts only when its checksum is right."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import httpx

from perdure.core.errors import InvalidInput, PerdureError
from perdure.features.local.folder import PART, CatalogueModel
from perdure.features.local.gguf import read_head

Progress = Callable[[int, int], None]
"""Told the bytes that are here, and all; 0: unknown."""

SILENCE_S = 60.0
TRIES = 5
"""How often in a row a transfer that brings nothing is tried."""
PAUSE_S = 1.0
"""Longer by as much after each of them."""
SPARE_BYTES = 200_000_000
"""What a disk has to keep for the store."""
PIECE_BYTES = 1 << 20


class DownloadFailed(PerdureError):
    """A model file could not be fetched. What came of it is kept, and the next try goes on there."""

    code = "download_failed"


class _Broken(Exception):
    """A transfer that ended early."""


async def download(model: CatalogueModel, target: Path, *, mirror: str = "", progress: Progress) -> None:
    """Fetch the file of a model to `target`.

    Args:
        mirror: the address of a server that has the files under their own paths, or by their names alone.
    Raises: DownloadFailed; InvalidInput: an unusable address, or a disk without the room.
    """
    addresses = addresses_of(model, mirror)
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.with_name(f"{target.name}{PART}")
    with _locked(path) as file:
        part = _Part(file)
        if model.sha256:  # without one, nothing would tell the rest of another file from its own
            await asyncio.to_thread(part.read)
        else:
            part.restart()
        if not model.size_bytes or part.size < model.size_bytes:
            await _fetch(model, addresses, part, progress)
        await asyncio.to_thread(os.fsync, file.fileno())
        if model.sha256 and part.digest.hexdigest() != model.sha256:
            part.restart()
            raise DownloadFailed(
                f"what was fetched as {model.name} has the SHA-256 {part.fetched}, and should have {model.sha256}: it"
                " is another file, or was damaged on its way. It is removed; try again, or another mirror"
            )
        try:
            read_head(path)
        except InvalidInput as error:
            part.restart()
            raise DownloadFailed(f"what {addresses[0]} gave is no model: {error}") from error
        path.replace(target)


def addresses_of(model: CatalogueModel, mirror: str) -> list[str]:
    """Where the file may be, in the order of trying. Raises: InvalidInput."""
    path = urllib.parse.urlsplit(model.address).path
    places = [model.address]
    if mirror:
        base = mirror.rstrip("/")
        places = [f"{base}{path}", f"{base}/{path.rpartition('/')[2]}"]
    for place in places:
        if not place.startswith(("http://", "https://")) or not urllib.parse.urlsplit(place).hostname:
            raise InvalidInput(f"{place!r} is no address of a model file: it has to begin with http:// or https://")
    return places


class _Part:
    """What has come of a file, with its checksum so far."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest, self.size, self.fetched = file, hashlib.sha256(), 0, ""

    def read(self) -> None:
        """Take what an earlier try has left into account."""
        self.file.seek(0)
        while piece := self.file.read(PIECE_BYTES):
            self.digest.update(piece)
            self.size += len(piece)

    def append(self, piece: bytes) -> None:
        self.file.write(piece)
        self.digest.update(piece)
        self.size += len(piece)

    def restart(self) -> None:
        """Drop what has come."""
        self.fetched = self.digest.hexdigest()
        self.file.seek(0)
        self.file.truncate()
        self.digest, self.size = hashlib.sha256(), 0


async def _fetch(model: CatalogueModel, addresses: list[str], part: _Part, progress: Progress) -> None:
    """Append what is missing of the file, by as many transfers as it takes. Raises: DownloadFailed, InvalidInput."""
    tries = 0
    async with httpx.AsyncClient(timeout=SILENCE_S, follow_redirects=True) as client:
        while True:
            before = part.size
            try:
                await _transfer(client, model, addresses, part, progress)
                return
            except (httpx.HTTPError, httpx.InvalidURL, _Broken) as error:
                tries = 1 if part.size > before else tries + 1
                if tries >= TRIES:
                    raise DownloadFailed(
                        f"{model.name} could not be fetched from {addresses[0]}: {error or type(error).__name__}."
                        " The same command goes on where it was"
                    ) from error
                await asyncio.sleep(PAUSE_S * (tries - 1))


async def _transfer(
    client: httpx.AsyncClient, model: CatalogueModel, addresses: list[str], part: _Part, progress: Progress
) -> None:
    """Append what one request brings. Raises: _Broken, httpx.HTTPError; DownloadFailed, InvalidInput."""
    async with _open(client, addresses, part.size) as response:
        if response.status_code != 206 and part.size:  # this server knows no ranges
            part.restart()
        total = model.size_bytes or (part.size + int(response.headers.get("content-length", 0)))
        _check_room(part.file, total - part.size)
        progress(part.size, total)
        async for piece in response.aiter_bytes():
            if model.size_bytes and part.size + len(piece) > model.size_bytes:
                part.restart()
                raise DownloadFailed(f"{response.url} gives more than the {total:,} bytes of {model.name}")
            try:
                await asyncio.to_thread(part.append, piece)
            except OSError as error:
                raise DownloadFailed(f"{part.file.name} can't be written: {error.strerror or error}") from error
            progress(part.size, total)
        if part.size < total:
            raise _Broken(f"it ended after {part.size:,} of {total:,} bytes")


@contextlib.asynccontextmanager
async def _open(client: httpx.AsyncClient, addresses: list[str], start: int) -> AsyncIterator[httpx.Response]:
    """The answer of the first address that has the file, from `start` on where the server can do that."""
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    for address in addresses:
        async with client.stream("GET", address, headers=headers) as response:
            if response.is_success:
                sent = response.headers.get("content-range", "")
                if response.status_code == 206 and not sent.startswith(f"bytes {start}-"):
                    raise _Broken(f"{address} sent another part of the file than it was asked for ({sent})")
                yield response
                return
            if response.status_code >= 500 or response.status_code == 429:
                raise _Broken(f"{address} answered {response.status_code}")
    raise DownloadFailed(
        f"{address} answered {response.status_code}: the file is not there for everybody. PERDURE_MODEL_MIRROR names"
        " another server that has it"
    )


def _check_room(file: BinaryIO, missing: int) -> None:
    """Raises: InvalidInput: the disk has too little room for what is missing."""
    folder = Path(file.name).parent
    free = shutil.disk_usage(folder).free
    if missing + SPARE_BYTES > free:
        raise InvalidInput(
            f"{folder} has {free / 1e9:.1f} GB free, and {missing / 1e9:.1f} GB are to come: make room, or take a"
            " smaller model (`perdure model list`)"
        )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The file, open for reading and appending, which no other process fetches now. Raises: InvalidInput."""
    with path.open("a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InvalidInput(f"{path.stem} is being fetched already: wait for it") from error
        yield file
