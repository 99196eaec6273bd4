"""Secrets out of what a tool gave back: in place of a value stands the name of its secret."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

__all__ = ["MASKED_CHARS_MIN", "SecretMask"]

MASKED_CHARS_MIN = 6
"""A shorter value would blank out parts of plain words and numbers, and can be guessed anyway."""


class SecretMask:
    """What takes the values of a call's secrets out of texts: as they are, as Python, JSON and addresses write them,
    and in base64 and hexadecimal digits. A tool that encodes one in another way, or takes it apart, is not held back.

    Args:
        values: the value of a secret -> its name.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        forms = {form: name for value, name in values.items() for form in _forms(value)}
        # The longest first: the value of one secret may stand in another's.
        self._forms = sorted(forms.items(), key=lambda one: len(one[0]), reverse=True)

    def text(self, text: str) -> str:
        """The text with `[secret NAME]` in place of the value of the secret NAME."""
        for form, name in self._forms:
            text = text.replace(form, f"[secret {name}]")
        return text

    def value(self, value: Any) -> Any:
        """The value with each text in it, names of fields too, as `text` gives it back."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.text(str(name)): self.value(inner) for name, inner in value.items()}
            case list():
                return [self.value(inner) for inner in value]
            case _:
                return value


def _forms(value: str) -> Iterator[str]:
    for plain in dict.fromkeys((value, value.strip())):
        if len(plain) < MASKED_CHARS_MIN:
            continue
        data = plain.encode()
        yield plain
        yield from (repr(plain)[1:-1], json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1])
        yield from (quote(plain), quote(plain, safe=""), quote_plus(plain))
        for encoded in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()):
            yield from (encoded, encoded.rstrip("="))
        yield from (data.hex(), data.hex().upper())
