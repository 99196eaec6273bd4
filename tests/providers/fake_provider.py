"""A provider on a port of this machine: answers that were prepared, and what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from perdure.providers.provider import PROVIDERS, ProviderKind


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class FakeProvider:
    """`answers`: path without query -> (status, JSON), or JSON alone; what is not there is a 404.

    `delay_s`: how long every answer takes.
    """

    answers: dict[str, Any]
    delay_s: float = 0
    url: str = ""
    requests: list[ReceivedRequest] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            method, target, _ = first.split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            path = target.partition("?")[0]
            self.requests.append(ReceivedRequest(method, path, headers, json.loads(body) if body else None))
            await asyncio.sleep(self.delay_s)
            answer = self.answers.get(path, (404, {"error": "no such path"}))
            if callable(answer):
                answer = answer(self.requests[-1].body)
            status, value = answer if isinstance(answer, tuple) else (200, answer)
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            writer.write(
                f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + data
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):  # a port probe connects and leaves
            pass
        finally:
            writer.close()


@asynccontextmanager
async def fake_provider(answers: Mapping[str, Any], *, delay_s: float = 0) -> AsyncIterator[FakeProvider]:
    """A provider that answers; its `url` is without a path."""
    provider = FakeProvider(dict(answers), delay_s)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)


def set_port(monkeypatch: pytest.MonkeyPatch, name: str, port: int) -> None:
    """Let a server on this machine be looked for at another port."""
    monkeypatch.setitem(cast(dict[str, ProviderKind], PROVIDERS), name, replace(PROVIDERS[name], port=port))


def tool_call(name: str = "note", arguments: str = '{"text": "hi"}') -> dict[str, Any]:
    """A chat completion with one tool call."""
    call = {"id": "call-1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
