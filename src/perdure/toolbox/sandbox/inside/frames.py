"""Messages on a pipe: eight bytes of length, then JSON."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

HEADER = struct.Struct("<Q")


def pack(value: Any) -> bytes:
    """A message with its header. Raises: ValueError: NaN or infinity. TypeError: a value that JSON has no form for."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    body = text.encode("utf-8", "backslashreplace")  # as JSON escapes a lone surrogate, which has no UTF-8
    return HEADER.pack(len(body)) + body


def read_frame(fd: int) -> Any:
    """The next message of a blocking pipe. Raises: EOFError: it ended before."""
    (length,) = HEADER.unpack(_read_exactly(fd, HEADER.size))
    return json.loads(_read_exactly(fd, length))


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data to a blocking pipe."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read_exactly(fd: int, length: int) -> bytes:
    """The next `length` bytes of a blocking pipe. Raises: EOFError: it ended before."""
    parts = []
    while length:
        part = os.read(fd, min(length, 1 << 20))
        if not part:
            raise EOFError("the pipe ended in a message")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
