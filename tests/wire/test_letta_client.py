"""The official clients against `perdure serve`, unchanged: the newest, and older ones that are still in use."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from perdure.testing import HttpModel
from tests.features.mcp.servers import running
from tests.wire.clients import FOLDERS, NEWEST, OLD, OLDEST
from tests.wire.obedient import MODEL, Server, obey, served

FOLDER = Path(__file__).parent
FULL = os.environ.get("PERDURE_FAULTS") == "full"


async def run(program: str, version: str, server: Server, *arguments: str) -> None:
    """Run a program with this version of the client. Raises: AssertionError: it failed."""
    if version in FOLDERS and not FOLDERS[version].is_dir():
        pytest.skip(f"letta-client {version} is installed by `make setup`")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(FOLDER / program), server.url, MODEL, *arguments),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(FOLDERS.get(version, "")), "NO_PROXY": "*"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 0, said.decode() + server.log.read_text()
    assert said.decode().split()[-1] == version


@pytest.mark.parametrize("version", [NEWEST, OLD])
async def test_a_letta_program_runs_against_the_server(tmp_path: Path, version: str) -> None:
    """Agents, messages, both kinds of streams, five tools, lists, blocks, archive, cancel, and its own errors."""
    async with served(tmp_path) as server:
        await run("letta_program.py", version, server)


@pytest.mark.slow
@pytest.mark.parametrize("version", [OLDEST, OLD, NEWEST] if FULL else [OLDEST])
async def test_what_users_met_first_works(tmp_path: Path, version: str) -> None:
    """With each generation of the client; and no request holds a schema that a provider would refuse."""
    with running("--http", "/mcp", tmp_path / "state.json") as mcp:
        async with HttpModel(otherwise=obey) as model:
            server = Server(tmp_path, model.url, settings={"PERDURE_MCP_PRIVATE": "on"})
            await server.start()
            try:
                await run("letta_points.py", version, server, mcp.url)
            finally:
                await server.kill()

    sent = [tool["function"] for asked in model.requests for tool in asked.get("tools", ())]
    odd = {tool["name"]: tool["parameters"] for tool in sent if re.search(r"odd\d$", tool["name"])}
    assert len(odd) == 3
    for schema in odd.values():
        assert not schema.keys() & {"anyOf", "allOf", "oneOf"}
        for name, part in schema["properties"].items():
            assert re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name)
            assert part.get("type") != "array" or "items" in part
