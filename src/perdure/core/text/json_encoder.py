"""JSON text, made by an encoder that is built once: a message encodes some fifteen small values on its way."""

from __future__ import annotations

import json
from collections.abc import Callable
from json import encoder
from typing import Any

__all__ = ["compact_json", "json_encoder", "json_text"]


def json_encoder(*, item_separator: str, key_separator: str) -> Callable[[Any], str]:
    """A function that gives what `json.dumps` gives with these separators, with other scripts' letters as they are.

    `json.JSONEncoder` builds its C encoder anew at every call, which takes several times as long as encoding a small
    value. So that one is asked directly, without the check for circles: it then stops at the depth of its recursion,
    and the plain encoder is asked for the error to raise.
    """
    plain = json.JSONEncoder(ensure_ascii=False, separators=(item_separator, key_separator))
    make = getattr(encoder, "c_make_encoder", None)
    if make is None:  # an interpreter without the C part
        return plain.encode
    chunks = make(
        None, plain.default, encoder.encode_basestring, None, key_separator, item_separator, False, False, True
    )

    def encode(value: Any) -> str:
        try:
            return "".join(chunks(value, 0))
        except RecursionError:
            return plain.encode(value)

    return encode


compact_json = json_encoder(item_separator=",", key_separator=":")

json_text = encoder.encode_basestring
"""A text in quotes, as `compact_json` writes it, for where the braces around it are always the same."""
