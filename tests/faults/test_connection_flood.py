"""More half-open connections than the process may open files: a real server goes on for everybody else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
from pathlib import Path

import httpx
import pytest

from tests.wire.obedient import SRC, Server, free_port

FILES = 256
FULL = os.environ.get("PERDURE_FAULTS") == "full"


class SmallServer(Server):
    """A server that may open few files, started cold, as its limit is its own."""

    async def start(self, *, wait: bool = True) -> None:
        command = f"ulimit -n {FILES}; exec {sys.executable} -m perdure serve --port {self.port}"
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), "PERDURE_HOME": str(self.home)}
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", command),
                env=environment | {"PERDURE_PROBE_LOCAL": "0", "PERDURE_EMBEDDING": "none"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if wait:
            await self.healthy()


def half_open(stack: contextlib.ExitStack, port: int, count: int) -> None:
    """Connections on which a request begins and never ends."""
    for _ in range(count):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET /v1/health/ HTTP/1.1\r\nx: ")


@pytest.mark.slow
async def test_half_open_connections_do_not_stop_the_server(tmp_path: Path) -> None:
    """It takes, closes and answers, and its store finds files to open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(1_200, files - 200)
    assert count > FILES
    server = SmallServer(tmp_path, "", free_port())
    await server.start()
    try:
        async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20) as kept:
            for _ in range(5 if FULL else 1):
                with contextlib.ExitStack() as stack:
                    await asyncio.to_thread(half_open, stack, server.port, count)
                    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20) as client:
                        assert (await client.get("/v1/health/")).status_code == 200
                        made = await client.post("/v1/agents/", json={"model": "perdure/extractive"})
                        assert made.status_code == 200, made.text
            assert (await kept.get("/v1/agents/count")).json() >= 1
    finally:
        await server.kill()
