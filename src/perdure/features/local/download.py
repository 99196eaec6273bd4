"""Fetch a model file: it goes on where it was broken off, and counts only when its checksum is right."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import shutil
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import httpx

from perdure.core.errors import InvalidInput, PerdureError
from perdure.features.local.catalogue import LocalModel

Progress = Callable[[int, int], None]
"""Called with the bytes that have come, and how many there are in all."""

SILENCE_S = 60.0
TRIES = 5
"""How many transfers in a row may bring nothing before the download fails."""
PAUSE_S = 1.0
"""The pause after the second of them; it grows by as much with each."""
SPARE_BYTES = 200_000_000
"""How much of the disk has to stay free, for the store."""


class DownloadFailed(PerdureError):
    """A model file could not be downloaded. The part that came is kept, and the next try continues it."""

    code = "download_failed"


async def download(model: LocalModel, part: Path, target: Path, *, mirror: str = "", progress: Progress) -> None:
    """Fetch the file of a model to `part`, and move it to `target` when it is whole. `mirror` is the address of a
    server that has the files under their own paths. Raises: DownloadFailed; InvalidInput: an unusable address, or a
    disk without the room."""
    address = f"{mirror.rstrip('/')}{urllib.parse.urlsplit(model.address).path}" if mirror else model.address
    if not address.startswith(("http://", "https://")):
        raise InvalidInput(f"{address!r} is not an address of a model file: it has to begin with http:// or https://")
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InvalidInput(f"{model.name} is being fetched already: wait for it") from error
        await _fetch(model, address, file, progress)
        file.seek(0)
        found = (await asyncio.to_thread(hashlib.file_digest, file, "sha256")).hexdigest()
        if found != model.sha256:
            file.truncate(0)
            raise DownloadFailed(
                f"what was fetched as {model.name} has the SHA-256 {found}, and should have {model.sha256}: it is"
                " another file, or was damaged on its way. It is removed; try again, or another mirror"
            )
        await asyncio.to_thread(part.replace, target)


async def _fetch(model: LocalModel, address: str, file: BinaryIO, progress: Progress) -> None:
    """Append the rest of a model's file, by as many transfers as it takes. Raises: DownloadFailed, InvalidInput."""
    tries = 0
    async with httpx.AsyncClient(timeout=SILENCE_S, follow_redirects=True) as client:
        while (before := file.seek(0, 2)) < model.size_bytes:
            headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={before}-"} if before else {})}
            try:
                async with client.stream("GET", address, headers=headers) as response:
                    await _append(model, response, file, progress)
            except OSError as error:
                raise DownloadFailed(f"{file.name} can't be written: {error.strerror or error}") from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                tries = 1 if file.tell() > before else tries + 1
                if tries >= TRIES:
                    raise DownloadFailed(
                        f"{model.name} could not be fetched from {address}: {error or type(error).__name__}."
                        " The same command goes on where it was"
                    ) from error
                await asyncio.sleep(PAUSE_S * (tries - 1))


async def _append(model: LocalModel, response: httpx.Response, file: BinaryIO, progress: Progress) -> None:
    """Append the body of a response to `file`. Raises: httpx.HTTPError: try again; DownloadFailed, InvalidInput."""
    status = response.status_code
    if status >= 500 or status == 429:
        raise httpx.RemoteProtocolError(f"it answered {status}")
    if not response.is_success:
        raise DownloadFailed(
            f"{response.url} answered {status}: the file is not there for everybody. PERDURE_MODEL_MIRROR names"
            " another server that has it"
        )
    if status != 206:  # this server knows no ranges
        file.truncate(0)
    done, total = file.seek(0, 2), model.size_bytes
    free = shutil.disk_usage(file.name).free
    if total - done + SPARE_BYTES > free:
        raise InvalidInput(
            f"the disk of {file.name} has {free / 1e9:.1f} GB free, and {(total - done) / 1e9:.1f} GB are to come:"
            " make room, or take a smaller model (`perdure model list`)"
        )
    progress(done, total)
    async for piece in response.aiter_bytes():
        done += len(piece)
        if done > total:  # another file
            raise DownloadFailed(f"{response.url} gives more than the {total:,} bytes of {model.name}")
        await asyncio.to_thread(file.write, piece)
        progress(done, total)
    if done < total:
        raise httpx.RemoteProtocolError(f"it ended after {done:,} of {total:,} bytes")
