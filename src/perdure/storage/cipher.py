"""Encryption of small values at rest: AES-256-GCM, with the key of the setting or of a file beside the store.

A sealed value is a version byte, four bytes that name the key, a nonce of 12 bytes, and the ciphertext with its tag.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import secrets
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.core.errors import InvalidInput, SecretKeyMissing, SecretUnreadable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_FILE = "secret.key"
SECRET_KEY_CHARS_MIN = 16
VERSION = b"\x01"
NAME_BYTES = 4
NONCE_BYTES = 12
HEAD_BYTES = 1 + NAME_BYTES + NONCE_BYTES

# The setting may be a guessable phrase, so deriving the key is slow: 30 ms and 16 MB, once per process. The salt only
# separates this key from those of other programs: a store has one key.
_SCRYPT = {"salt": b"perdure secret key", "n": 2**14, "r": 8, "p": 1, "dklen": 32}


class AesCipher:
    """`Cipher` that loads its key at the first use.

    Args:
        key: the setting `secret_key`; empty: `file` is used.
        file: the file of the key, created with the first secret, mode 0600; None: the setting is required.
    Raises: InvalidInput: a setting that is too short.
    """

    def __init__(self, key: str, *, file: Path | None) -> None:
        if key and len(key) < SECRET_KEY_CHARS_MIN:
            raise InvalidInput(
                f"PERDURE_SECRET_KEY has {len(key)} characters: give at least {SECRET_KEY_CHARS_MIN}, such as what"
                " `openssl rand -base64 32` prints"
            )
        self._setting, self._file = key, file
        self._lock = threading.Lock()

    def encrypt(self, plain: bytes, *, bound_to: str) -> bytes:
        name, box = self._box(create=True)
        nonce = secrets.token_bytes(NONCE_BYTES)
        return VERSION + name + nonce + box.encrypt(nonce, plain, bound_to.encode())

    def decrypt(self, sealed: bytes, *, bound_to: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        name, box = self._box(create=False)
        if len(sealed) < HEAD_BYTES or sealed[:1] != VERSION:
            raise SecretUnreadable("it is damaged, or a newer Perdure wrote it")
        if sealed[1 : 1 + NAME_BYTES] != name:
            raise SecretUnreadable(f"it was encrypted with another key than that of {self._source}")
        try:
            return box.decrypt(sealed[1 + NAME_BYTES : HEAD_BYTES], sealed[HEAD_BYTES:], bound_to.encode())
        except InvalidTag:
            raise SecretUnreadable("it is damaged, or was put in another's place") from None

    @property
    def _source(self) -> str:
        return "PERDURE_SECRET_KEY" if self._setting else str(self._file)

    def _box(self, *, create: bool) -> tuple[bytes, AESGCM]:
        with self._lock:
            if "_named_box" not in self.__dict__:
                self._text = self._setting or self._load_key(create=create)
            return self._named_box

    @cached_property
    def _named_box(self) -> tuple[bytes, AESGCM]:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = hashlib.scrypt(self._text.encode(), **_SCRYPT)  # type: ignore[arg-type]
        del self._text
        return hashlib.sha256(b"perdure key name" + key).digest()[:NAME_BYTES], AESGCM(key)

    def _load_key(self, *, create: bool) -> str:
        if self._file is None:
            raise SecretKeyMissing
        try:
            if create and not self._file.exists():
                make_key_file(self._file)
            text = self._file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise SecretUnreadable(f"its key file {self._file} is gone: put it back from a backup") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SecretUnreadable(f"its key file {self._file} can't be used: {error}") from error
        if len(text) < SECRET_KEY_CHARS_MIN:
            raise SecretUnreadable(f"its key file {self._file} holds no key: put it back from a backup")
        return text


def make_key_file(file: Path) -> None:
    """Create a file with a random key that only its owner can read, atomically; of several processes at once the first
    wins."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(base64.b64encode(secrets.token_bytes(32)) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink()
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the key's file name must be durable before a secret is
    finally:
        os.close(directory)
