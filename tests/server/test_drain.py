"""SIGTERM: readiness turns at once, requests under way are answered, new messages are refused."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx

from perdure import AsyncPerdure
from perdure.server.config import ServerConfig
from perdure.server.serve import serve
from perdure.settings import Settings
from perdure.testing import says
from tests.support.two_apps import MODEL, Gate


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
