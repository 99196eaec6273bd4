"""The API key that Perdure makes by itself if `PERDURE_API_KEY` is `auto`.

It is in a file in the data folder that only its owner can read. The server requires it; the CLI and the dashboard read
it from there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perdure.app import make_key_file
from perdure.core.errors import InvalidInput
from perdure.settings import Settings

AUTO = "auto"
KEY_FILE = "api.key"
KEY_CHARS_MIN, KEY_BYTES_MAX = 16, 4_096

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)


def key_path(settings: Settings) -> Path:
    """The path of the key's file, which may not exist yet. Raises: InvalidInput: the data folder can't be used."""
    return settings.store_path.parent / KEY_FILE


def load_key(file: Path) -> str | None:
    """The key in the file; None: the file does not exist.

    Raises: InvalidInput: other users can read it or own it, it is not a plain file, or it holds no key.
    """
    try:
        descriptor = os.open(file, _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(file, f"can't be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unusable(file, "is no plain file")
        if status.st_uid != os.geteuid():
            raise _unusable(file, f"belongs to the user with the number {status.st_uid}, who knows it then")
        if status.st_mode & 0o077:
            raise _unusable(file, f"is open to others (mode {stat.S_IMODE(status.st_mode):o}), who may know it")
        text = os.read(descriptor, KEY_BYTES_MAX + 1).decode("latin-1").strip()
    finally:
        os.close(descriptor)
    if not KEY_CHARS_MIN <= len(text) <= KEY_BYTES_MAX or not (text.isascii() and text.isprintable()):
        raise _unusable(file, "holds no key")
    return text


def make_key(file: Path) -> str:
    """Create the file with a new key, and return its key. Processes that do so at once all get the same key.

    Raises: InvalidInput: the file can't be written, or an existing one can't be used.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_key_file(file)
    except OSError as error:
        raise InvalidInput(f"the API key can't be kept in {file}: {error.strerror}") from error
    key = load_key(file)
    if key is None:
        raise _unusable(file, "is gone again")
    return key


def _unusable(file: Path, problem: str) -> InvalidInput:
    return InvalidInput(f"the file of the API key, {file}, {problem}: delete it, and the next start makes a new key")
