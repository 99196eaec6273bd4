"""The API key that this machine makes for itself, where `PERDURE_API_KEY` is `auto`: a file that its owner alone can
read, in the data folder. The server asks for it; whatever of Perdure speaks to a server finds it here."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perdure.app import make_key_file
from perdure.core.errors import InvalidInput
from perdure.settings import Settings

__all__ = ["AUTO", "key_file_of", "load_key", "make_key"]

AUTO = "auto"
KEY_FILE = "api.key"
KEY_CHARS_MIN, KEY_BYTES_MAX = 16, 4_096

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)


def key_file_of(settings: Settings) -> Path:
    """Where the key is kept, whether it is there or not. Raises: InvalidInput: there is no such data folder."""
    return settings.store_path.parent / KEY_FILE


def load_key(file: Path) -> str | None:
    """The key in the file; None: there is no file.

    Raises: InvalidInput: others can read it, it is another user's or no plain file, or no key is in it.
    """
    try:
        descriptor = os.open(file, _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(file, f"can't be read: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(file, "is no plain file")
        if found.st_uid != os.geteuid():
            raise _refused(file, f"belongs to the user with the number {found.st_uid}, who knows it then")
        if found.st_mode & 0o077:
            raise _refused(file, f"is open to others (mode {stat.S_IMODE(found.st_mode):o}), who may know it")
        text = os.read(descriptor, KEY_BYTES_MAX + 1).decode("latin-1").strip()
    finally:
        os.close(descriptor)
    if not KEY_CHARS_MIN <= len(text) <= KEY_BYTES_MAX or not (text.isascii() and text.isprintable()):
        raise _refused(file, "holds no key")
    return text


def make_key(file: Path) -> str:
    """A new key, kept in the file. Of several processes that make one at once, all get the first one's.

    Raises: InvalidInput: it can't be written, or what is there can't be used.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_key_file(file)
    except OSError as error:
        raise InvalidInput(f"the API key can't be kept in {file}: {error.strerror}") from error
    key = load_key(file)
    if key is None:
        raise _refused(file, "is gone again")
    return key


def _refused(file: Path, why: str) -> InvalidInput:
    return InvalidInput(f"the file of the API key, {file}, {why}: delete it, and the next start makes a new key")
