"""A stand-in for the package of the same name: llama.cpp's server as far as Perdure uses it, in plain Python.

What it does is said by files beside the model's: `FILE.deaths` holds in how many answers it dies, `FILE.broken` makes
it fail while it loads. `FILE.seen` gets what it was started with, and each request.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class CommonParams(SimpleNamespace):
    """The parameters, which are whatever is set."""

    def __init__(self) -> None:
        super().__init__(model=SimpleNamespace(path=""), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())


class Server:
    """It answers until its process ends."""

    def __init__(self, params: CommonParams) -> None:
        self.params, self.path = params, Path(params.model.path)
        print("the library prints what it likes")
        if self.beside("broken").exists():
            print("0.00.1 E llama_model_load: error loading model: the file is odd", file=sys.stderr, flush=True)
            raise RuntimeError("Failed to init server, please check the input params.")
        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        self.note({"pid": os.getpid(), "environment": sorted(os.environ), "argv": sys.argv, "data": limit})
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", params.port), handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{self._http.server_port}"

    def beside(self, what: str) -> Path:
        """The file beside the model's that says something about it."""
        return self.path.with_name(f"{self.path.name}.{what}")

    def note(self, what: dict[str, Any]) -> None:
        """Add a line to what was seen."""
        with self.beside("seen").open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(what)}\n")

    def dies(self) -> bool:
        """Whether it has to die in this answer."""
        file = self.beside("deaths")
        left = int(file.read_text()) if file.exists() else 0
        if left:
            file.write_text(str(left - 1))
        return left > 0


class _Handler(BaseHTTPRequestHandler):
    server_of: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server_of
        if self.headers["authorization"] != f"Bearer {server.params.api_keys[0]}":
            self.send_error(401)
            return
        said = str(body["messages"][-1:])
        server.note({"model": body["model"], "said": said[-200:], "n_ctx": server.params.n_ctx})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._send("I rem", None)
        if server.dies():
            self.wfile.flush()
            time.sleep(0.05)  # what was written is on its way
            os.kill(os.getpid(), signal.SIGKILL)
        self._send("ember.", "stop")
        self._write(b"data: [DONE]\n\n")
        self._write(b"")

    def _send(self, text: str, reason: str | None) -> None:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
        usage = {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22}
        chunk = {"id": "1", "object": "chat.completion.chunk", "choices": [choice], "usage": usage}
        self._write(f"data: {json.dumps(chunk)}\n\n".encode())

    def _write(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
