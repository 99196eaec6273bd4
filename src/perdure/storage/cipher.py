"""Encryption of small values at rest: AES-256-GCM, with the key of the setting or of a file beside the store.

A sealed value is a version byte, four bytes that name the key, a nonce of 12 bytes, and the ciphertext with its tag.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import itertools
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
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
# separates this key from those of other programs.
_SCRYPT = {"salt": b"perdure secret key", "n": 2**14, "r": 8, "p": 1, "dklen": 32}


class AesCipher:
    """`Cipher` that loads its keys at the first use. The first key encrypts, every one decrypts.

    A key file is read again when it has changed, so that processes that run already follow `add_key`.

    Args:
        key: the setting `secret_key`; empty: `file` is used.
        file: the file of the keys, one a line, the newest first; created with the first secret, mode 0600. With `key`
            its keys only decrypt. None: the setting is required.
        old_key: the setting `secret_key_old`, which only decrypts.
    Raises: InvalidInput: a setting that is too short.
    """

    def __init__(self, key: str, *, file: Path | None, old_key: str = "") -> None:
        for name, text in (("PERDURE_SECRET_KEY", key), ("PERDURE_SECRET_KEY_OLD", old_key)):
            if text and len(text) < SECRET_KEY_CHARS_MIN:
                raise InvalidInput(
                    f"{name} has {len(text)} characters: give at least {SECRET_KEY_CHARS_MIN}, such as what"
                    " `openssl rand -base64 32` prints"
                )
        self._setting, self._file, self._old = key, file, old_key
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._texts: list[str] = []
        self._ciphers: list[tuple[bytes, AESGCM]] = []

    def encrypt(self, plain: bytes, *, bound_to: str) -> bytes:
        """The sealed value. `bound_to` names the thing that has it: only under that name is it decrypted again."""
        name, cipher = next(self._keys(create=True))
        nonce = secrets.token_bytes(NONCE_BYTES)
        return VERSION + name + nonce + cipher.encrypt(nonce, plain, bound_to.encode())

    def decrypt(self, sealed: bytes, *, bound_to: str) -> bytes:
        """The plain bytes of a value sealed for this `bound_to`. Raises: SecretKeyMissing, SecretUnreadable."""
        from cryptography.exceptions import InvalidTag

        cipher = self.find_key(sealed)
        try:
            return cipher.decrypt(sealed[1 + NAME_BYTES : HEAD_BYTES], sealed[HEAD_BYTES:], bound_to.encode())
        except InvalidTag:
            raise SecretUnreadable("it is damaged, or was put in another's place") from None

    def find_key(self, sealed: bytes) -> AESGCM:
        """The cipher of the key with which this value was encrypted. Raises: SecretKeyMissing, SecretUnreadable."""
        keys = self._keys(create=False)
        first = next(keys)  # says what is wrong with the keys before what is wrong with the value
        if len(sealed) < HEAD_BYTES or sealed[:1] != VERSION:
            raise SecretUnreadable("it is damaged, or a newer Perdure wrote it")
        wanted = sealed[1 : 1 + NAME_BYTES]
        found = next((cipher for name, cipher in itertools.chain((first,), keys) if name == wanted), None)
        if found is None:
            source = "PERDURE_SECRET_KEY" if self._setting else self._file
            raise SecretUnreadable(f"it was encrypted with another key than that of {source}")
        return found

    def is_current(self, sealed: bytes) -> bool:
        """Whether a value was encrypted with the key that encrypts now."""
        name, _ = next(self._keys(create=False))
        return sealed[: 1 + NAME_BYTES] == VERSION + name

    def _keys(self, *, create: bool) -> Iterator[tuple[bytes, AESGCM]]:
        """Yield (name of four bytes, cipher) of each key, the one that encrypts first. Each is derived when it is
        needed. `create` makes a key file if there is no key. Raises: SecretKeyMissing, SecretUnreadable."""
        with self._lock:
            self._load_texts(create=create)
            texts, ciphers = self._texts, self._ciphers
        for place in range(len(texts)):
            with self._lock:
                if place == len(ciphers):
                    ciphers.append(_derive(texts[place]))
            yield ciphers[place]

    def _load_texts(self, *, create: bool) -> None:
        """Read the texts of the keys, unless they are known and the file has not changed; `create`: see `_keys`."""
        own = [text for text in (self._setting, self._old) if text]
        stamp = () if self._file is None else _stamp_of(self._file)
        # A file that is gone counts as long as the process runs.
        if self._texts and (stamp == self._stamp or not stamp):
            return
        if self._file is None and not self._setting:
            raise SecretKeyMissing
        texts = own
        if self._file is not None and (stamp or not self._setting):
            if create and not stamp:
                make_key_file(self._file)
            lines = read_key_file(self._file)
            texts = [*own, *lines] if self._setting else [*lines, *own]
        if texts != self._texts:
            self._texts, self._ciphers = texts, []
        self._stamp = stamp


def _derive(text: str) -> tuple[bytes, AESGCM]:
    """The name of a key, four bytes, and its cipher."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = hashlib.scrypt(text.encode(), **_SCRYPT)  # type: ignore[arg-type]
    return hashlib.sha256(b"perdure key name" + key).digest()[:NAME_BYTES], AESGCM(key)


def _stamp_of(file: Path) -> tuple[int, ...]:
    """Return numbers that change when the file is written; empty: there is no file."""
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_key_file(file: Path) -> list[str]:
    """The keys of a file, the newest first. Raises: SecretUnreadable."""
    try:
        lines = file.read_text(encoding="ascii").split("\n")
    except FileNotFoundError:
        raise SecretUnreadable(f"its key file {file} is gone: put it back from a backup") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SecretUnreadable(f"its key file {file} can't be used: {error}") from error
    keys = [line.strip() for line in lines if line.strip()]
    if not keys or any(len(key) < SECRET_KEY_CHARS_MIN for key in keys):
        raise SecretUnreadable(f"its key file {file} holds no key: put it back from a backup")
    return keys


def add_key(file: Path) -> None:
    """Put a new random key before those of a file, which stay for older backups and for what other processes still
    encrypt with them. Raises: SecretUnreadable."""
    read_key_file(file)  # raises, if it can't be read
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if os.fstat(held.fileno()).st_ino != file.stat().st_ino:  # another process was faster
            return
        _write_keys(file, [_new_key(), *read_key_file(file)], replaces=True)


def forget_old_keys(file: Path) -> int:
    """Take all keys but the newest out of a file; return how many. Raises: SecretUnreadable."""
    read_key_file(file)  # raises, if it can't be read
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if os.fstat(held.fileno()).st_ino != file.stat().st_ino:  # another process has just added a key
            return forget_old_keys(file)
        keys = read_key_file(file)
        if len(keys) > 1:
            _write_keys(file, keys[:1], replaces=True)
    return len(keys) - 1


def _new_key() -> str:
    """Return a new random key of 32 bytes in base64."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


def make_key_file(file: Path) -> None:
    """Create a file with a random key for its owner only; the first process wins. Raises: SecretUnreadable."""
    try:
        _write_keys(file, [_new_key()], replaces=False)
    except OSError as error:
        raise SecretUnreadable(f"its key file {file} can't be used: {error}") from error


def _write_keys(file: Path, keys: Sequence[str], *, replaces: bool) -> None:
    """Write a file of keys, one a line, atomically. Without `replaces` an existing file is left as it is."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write("".join(f"{key}\n" for key in keys).encode())
            stream.flush()
            os.fsync(stream.fileno())
        if replaces:
            draft.replace(file)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the key's file name must be durable before a secret is
    finally:
        os.close(directory)
