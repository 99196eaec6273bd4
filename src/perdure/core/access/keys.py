"""The text of API keys: its form, and the digest by which a key is found."""

from __future__ import annotations

import base64
import hashlib
import re

PREFIX = "perdure_"
"""By which people and scanners of leaked secrets recognise a key."""

KEY_BYTES = 32
"""The random part of a key: 256 bits."""

START_CHARS = len(PREFIX) + 6
_FORM = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")


def key_text(secret: bytes) -> str:
    """The text of the key of this random part."""
    assert len(secret) == KEY_BYTES
    return PREFIX + base64.urlsafe_b64encode(secret).decode().rstrip("=")


def is_key(text: str) -> bool:
    """Whether the text has the form of a key; if not, nothing needs to be looked up."""
    return _FORM.fullmatch(text) is not None


def digest_of(text: str) -> str:
    """The digest of a key, as hexadecimal digits.

    SHA-256 without salt is right here, unlike for passwords: there is no dictionary of 256 random bits to try, so a
    slow function would protect nothing and cost time with each request. Without a salt an index finds the key.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def start_of(text: str) -> str:
    """The first characters of a key, which may be shown."""
    return text[:START_CHARS]
