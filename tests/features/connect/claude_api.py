"""A server on this machine that answers Claude Code in place of its model: the write of a file, then a text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Answers(ThreadingHTTPServer):
    """The server.

    Args:
        file: the path of the file that the model has Claude Code write.
    """

    daemon_threads = True

    def __init__(self, file: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.file = file
        self.requests: list[Mapping[str, Any]] = []
        self.paths: list[str] = []

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Answers

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_POST(self) -> None:
        self.server.paths.append(self.path)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
            self._send(b'{"input_tokens": 1}', "application/json")
            return
        self.server.requests.append(body)
        has_result = "tool_result" in json.dumps(body.get("messages"))
        block: dict[str, Any] = {"type": "text", "text": "Nice to meet you, Ada."}
        if not has_result and any(tool.get("name") == "Write" for tool in body.get("tools", ())):
            given = {"file_path": self.server.file, "content": "hello\n"}
            block = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": given}
        message = {
            "id": f"msg_{len(self.server.requests)}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [block],
            "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if body.get("stream"):
            self._send("".join(_events(message)).encode(), "text/event-stream")
        else:
            self._send(json.dumps(message).encode(), "application/json")

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self._send(b"{}", "application/json")

    do_HEAD = do_GET

    def _send(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _events(message: Mapping[str, Any]) -> Iterator[str]:
    """The message as the events of a stream."""
    (block,) = message["content"]
    empty = {**block, "input": {}} if block["type"] == "tool_use" else {**block, "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": block.get("text")}
    if block["type"] == "tool_use":
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    for name, data in (
        ("message_start", {"message": {**message, "content": [], "stop_reason": None}}),
        ("content_block_start", {"index": 0, "content_block": empty}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": ended, "usage": {"output_tokens": 1}}),
        ("message_stop", {}),
    ):
        yield f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"


@contextmanager
def answers(file: str) -> Iterator[Answers]:
    """Serve until the block ends."""
    server = Answers(file)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
