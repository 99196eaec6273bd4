"""The official client against `perdure serve`, unchanged: the newest, and an older one that is still in use."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.wire.obedient import MODEL, served

PROGRAM = Path(__file__).parent / "letta_program.py"
OLD = Path(sys.prefix) / "letta-old"


@pytest.mark.parametrize(("version", "path"), [("1.12.1", ""), ("1.7.12", str(OLD))])
async def test_a_letta_program_runs_against_the_server(tmp_path: Path, version: str, path: str) -> None:
    """Agents, messages, both kinds of streams, five tools, lists, blocks, archive, cancel, and its own errors."""
    if path and not OLD.is_dir():
        pytest.skip("the older client is installed by `make setup`")
    async with served(tmp_path) as server:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, str(PROGRAM), server.url, MODEL),
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "NO_PROXY": "*"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(program.communicate(), 90)

    assert program.returncode == 0, said.decode() + server.log.read_text()
    assert said.decode().split()[-1] == version
