"""A client that leaves while its tool runs: the work ends with it, installations of requirements too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from perdure.core.tools.sandbox import Isolation, SandboxJob, SandboxResult
from tests.server.routed import MODEL
from tests.support.servers import served

SOURCE = 'def wait():\n    """Wait."""\n'


class Endless:
    """`Sandbox` in which every job goes on until somebody ends it."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def run(
        self,
        job: SandboxJob,
        *,
        progress: Callable[[str], None] | None = None,
        lines: Callable[[str], None] | None = None,
    ) -> SandboxResult:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        raise AssertionError

    async def isolation(self) -> Isolation:
        return Isolation(backend="none", measures=(), enough=True, summary="a stand-in")

    async def close(self) -> None: ...


@pytest.mark.parametrize("by_agent", [False, True])
async def test_a_run_by_hand_ends_when_its_client_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_agent: bool
) -> None:
    """And the server goes on."""
    sandbox = Endless()
    async with served(tmp_path) as (address, perdure), httpx.AsyncClient(base_url=address) as http:
        monkeypatch.setattr(perdure.app.custom, "_sandbox", sandbox)
        path, body = "/v1/tools/run", {"source_code": SOURCE, "args": {}}
        if by_agent:
            await http.post("/v1/tools/", json={"source_code": SOURCE})
            agent = (await http.post("/v1/agents/", json={"model": MODEL, "tools": ["wait"]})).json()
            path = f"/v1/agents/{agent['id']}/tools/wait/run"
        request = asyncio.create_task(http.post(path, json=body))
        async with asyncio.timeout(20):
            await asyncio.wait({request, asyncio.create_task(sandbox.begun.wait())}, return_when="FIRST_COMPLETED")
            request.cancel()
            await sandbox.ended.wait()

        assert (await http.get("/v1/health/")).status_code == 200
