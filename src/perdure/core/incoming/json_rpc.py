"""The id of a message of JSON-RPC that no parser reads: its sender waits for an answer with it."""

from __future__ import annotations

import re

HEAD_BYTES, TAIL_BYTES = 500_000, 1_000
"""How much of a line that is no message is searched for its id, from its beginning and from its end."""
# What repeats gives nothing back (`*+`), and a string without end goes to the end: the time grows with the length.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
_VALUE = re.compile(rb'\s*:\s*(?:(-?\d{1,18})(?![\d.eE])|"([^"\\]{0,200})")', re.DOTALL)
_LAST_ID = re.compile(
    rb'[,{]\s*"id"' + _VALUE.pattern + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?,?\s*\}\s*\Z', re.DOTALL
)


def find_id(line: bytes) -> tuple[int | str | None, str]:
    """Return the id and method of a message that can't be parsed: those of the outermost object, read from its
    beginning, and an id from its end. Not found: None and an empty text."""
    id: int | str | None = None
    method, depth = "", 0
    for token in _TOKEN.finditer(line, 0, HEAD_BYTES):
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and token[0] in (b'"id"', b'"method"') and (value := _VALUE.match(line, token.end())):
            if token[0] == b'"id"':
                id = _value(value)
            else:
                method = str(_value(value))
            if id is not None and method:
                return id, method
    if id is None and len(line) > HEAD_BYTES and (value := _LAST_ID.search(line, len(line) - TAIL_BYTES)):
        id = _value(value)
    return id, method


def _value(found: re.Match[bytes]) -> int | str:
    """Return the number or text that `_VALUE` found."""
    return int(found[1]) if found[1] else found[2].decode("utf-8", "replace")
