"""SIGTERM: readiness turns at once, requests under way are answered, new messages are refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import httpx
import pytest

from perdure import AsyncPerdure
from perdure.server.config import ServerConfig
from perdure.server.serving.serve import serve
from perdure.settings import Settings
from perdure.testing import says
from tests.server.test_connections import Pair, connected
from tests.support.servers import served
from tests.support.two_apps import MODEL, Gate

HEALTH = b"GET /v1/health/ HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def test_sigterm_drains(tmp_path: Path) -> None:
    """The client that waits gets its answer, although the server was told to stop; then the server stops."""
    gate, ready = Gate(says("done")), asyncio.get_running_loop().create_future()
    async with await AsyncPerdure.open(
        tmp_path / "p.db", models={MODEL: gate}, settings=Settings(model=MODEL, embedding="none")
    ) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        other = await perdure.create_agent("b", model=MODEL)
        serving = asyncio.create_task(serve(perdure, ServerConfig(port=0), on_ready=ready.set_result))
        async with httpx.AsyncClient(base_url=await ready, trust_env=False, timeout=20) as http:
            body = {"messages": [{"role": "user", "content": "hello"}]}
            waiting = asyncio.create_task(http.post(f"/v1/agents/{agent.id}/messages", json=body))
            await gate.reached(1)
            assert (await http.get("/v1/ready/")).status_code == 200
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(100):  # the signal reaches the loop between two requests
                probe = await http.get("/v1/ready/")
                if probe.status_code != 200:
                    break
            refused = await http.post(f"/v1/agents/{other.id}/messages", json=body)
            healthy = await http.get("/v1/health/")
            gate.let()
            answer = await waiting
            async with asyncio.timeout(10):
                await serving

    assert (probe.status_code, probe.json()["status"]) == (503, "stopping")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert healthy.status_code == 200
    assert answer.status_code == 200
    assert answer.json()["messages"][-1]["content"] == "done"


async def test_a_drain_keeps_no_connection_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle connection is closed at once. Every answer says that its connection closes: of a run under way, of a
    request that was arriving, in part or as a whole, and of a client that comes now."""
    monkeypatch.setattr("perdure.server.serving.connections.IDLE_S", 0.0)
    gate = Gate(says("done"))
    async with served(tmp_path, model=gate) as (address, perdure), contextlib.AsyncExitStack() as stack:
        agent = await perdure.create_agent("a", model="test/scripted")
        idle, partial, sent, busy = [await stack.enter_async_context(connected(address)) for _ in range(4)]
        for connection in (idle, partial, sent):
            assert "connection: close" not in await answer_on(connection, HEALTH)
        body = b'{"messages": [{"role": "user", "content": "hello"}]}'
        head = f"POST /v1/agents/{agent.id}/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        waiting = asyncio.create_task(answer_on(busy, head.encode() + b"content-type: application/json\r\n\r\n" + body))
        await gate.reached(1)
        partial[1].write(HEALTH[:9])
        await asyncio.sleep(0.05)  # the server reads it
        sent[1].write(HEALTH)
        os.kill(os.getpid(), signal.SIGTERM)  # it is handled before the server reads

        async with asyncio.timeout(10):
            assert await idle[0].read() == b""
            assert not waiting.done()
            late = await stack.enter_async_context(connected(address))
            answers = [*(await answer_on(partial, HEALTH[9:]), await answer_on(sent), await answer_on(late, HEALTH))]
            gate.let()
            answers.append(await waiting)
            ends = [await connection[0].read() for connection in (partial, sent, late, busy)]

    for answer in answers:
        assert answer.startswith("HTTP/1.1 200 OK\r\n") and "\r\nconnection: close\r\n" in answer
    assert ends == [b""] * 4


async def answer_on(connection: Pair, request: bytes = b"") -> str:
    """The answer to a request on an open connection."""
    reader, writer = connection
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(line.partition(": ")[2] for line in head.split("\r\n") if line.startswith("content-length"))
    return head + (await reader.readexactly(int(length))).decode()
