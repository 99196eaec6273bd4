"""Small model files, and a server that gives files away, well or badly."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FACTS: Mapping[str, Any] = {
    "general.architecture": "qwen2",
    "qwen2.context_length": 32_768,
    "qwen2.block_count": 24,
    "qwen2.embedding_length": 896,
    "qwen2.attention.head_count": 14,
    "qwen2.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ["a", "be", "ce"],
    "tokenizer.ggml.token_type": [1, 2, 3],
    "general.quantization_version": 2,
    "qwen2.rope.freq_base": 10_000.0,
    "tokenizer.ggml.add_bos_token": False,
}
TENSORS: Mapping[str, tuple[int, ...]] = {"token_embd.weight": (896, 1_000), "output_norm.weight": (896,)}


def gguf(
    facts: Mapping[str, Any] = FACTS, tensors: Mapping[str, tuple[int, ...]] = TENSORS, *, tail: int = 64
) -> bytes:
    """A model file with this head, and so many bytes of numbers."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(facts))]
    parts += [_text(name) + _value(value) for name, value in facts.items()]
    for name, sizes in tensors.items():
        parts.append(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, 0, 0))
    return b"".join(parts) + bytes(index % 251 for index in range(tail))


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
        case _:
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


@dataclass
class FileServer:
    """What a server gives away, and how.

    Args:
        files: path -> contents.
        ranges: whether it sends parts of a file.
        cuts: after how many bytes the next answers break off, one each.
        asked: (path, header `Range`) of each request.
    """

    url: str
    files: dict[str, bytes]
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)


@contextmanager
def file_server(files: Mapping[str, bytes]) -> Iterator[FileServer]:
    """A server with these files: path -> contents."""
    state = FileServer("", dict(files))

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            wanted = self.headers.get("range")
            state.asked.append((self.path, wanted))
            data = state.files.get(self.path)
            if data is None or state.statuses:
                self.send_error(state.statuses.pop(0) if state.statuses else 404)
                return
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and state.ranges else 0
            self.send_response(206 if start else 200)
            if start:
                self.send_header("content-range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            data = data[start:]
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: state.cuts.pop(0)] if state.cuts else data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_model(folder: Path, name: str = "one.gguf") -> Path:
    """A small model file."""
    path = folder / name
    path.write_bytes(gguf())
    return path
