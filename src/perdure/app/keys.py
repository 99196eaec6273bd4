"""The keys that encrypt secrets: where they are, and the cipher that has them."""

from __future__ import annotations

from pathlib import Path

from perdure.core.text.addresses import is_postgres
from perdure.settings import Settings
from perdure.storage.cipher import KEY_FILE as KEY_FILE
from perdure.storage.cipher import AesCipher
from perdure.storage.cipher import add_key as add_key
from perdure.storage.cipher import forget_old_keys as forget_old_keys
from perdure.storage.cipher import make_key_file as make_key_file


def key_file_of(address: str | Path | None) -> Path | None:
    """The file of the keys; None: only a store in a file can keep one beside it."""
    return None if address is None or is_postgres(address) else Path(str(address)).parent / KEY_FILE


def cipher_of(settings: Settings, address: str | Path | None) -> AesCipher:
    """The cipher for the store at this address; None: a store that the program brought. Raises: InvalidInput."""
    return AesCipher(settings.secret_key, file=key_file_of(address), old_key=settings.secret_key_old)
