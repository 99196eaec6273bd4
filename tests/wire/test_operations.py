"""Every operation of both clients, called with real arguments; each answer is valid by the client's own strict types.

`python -m tests.wire.every_operation MCP_URL NAME` shows what is wrong with one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from letta_client import Stream
from letta_client.pagination import SyncArrayPage
from letta_client.types import Folder
from letta_client.types.agents import LettaStreamingResponse
from letta_client.types.agents.letta_streaming_response import LettaStopReason

from tests.docs.letta_table import state_of
from tests.features.mcp.servers import running
from tests.support.warm import warm
from tests.wire.arguments import MISSING, TABLE
from tests.wire.every_operation import Outcomes, call_all
from tests.wire.sdk import VERSION, operations, problems

ROOT = Path(__file__).parents[2]
OLD = Path(sys.prefix) / "letta-old"


@pytest.fixture(scope="module")
def mcp_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an MCP server."""
    with running("--http", "/mcp", tmp_path_factory.mktemp("mcp") / "state.json") as server:
        yield server.url


async def called_by_the_older_client(mcp_url: str) -> Any:
    """What the program prints with the older client on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (OLD, ROOT, ROOT / "src")))}
    program = await asyncio.create_subprocess_exec(
        *(warm("tests.wire.every_operation", environment), mcp_url),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(program.communicate(), 200)
    assert program.returncode == 0, out.decode()
    return json.loads(out.splitlines()[-1])


def wrong(outcomes: Outcomes) -> Mapping[str, Any]:
    """The entries whose outcome is not what the table of operations says."""
    states = {operation.name: state_of(operation) for operation in operations()}
    found: dict[str, Any] = {}
    for entry, lines in outcomes.items():
        name = entry.split()[0]
        absent = bool(lines) and lines[0].startswith("absent: ")
        if name in MISSING:
            expected = bool(lines)
        elif states[name] == "answered":
            expected = not lines
        else:
            expected = absent
        if not expected:
            found[entry] = lines or "it is answered now: take it from MISSING"
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", ["1.12.1", "1.7.12"])
async def test_every_answer_is_valid_by_the_client_s_own_types(version: str, mcp_url: str) -> None:
    """Both kinds of client; an operation that is missing here, and one that is no longer, fails."""
    if version == VERSION:
        found = await call_all(mcp_url)
    elif OLD.is_dir():
        found = await called_by_the_older_client(mcp_url)
    else:
        pytest.skip("the older client is installed by `make setup`")

    assert found["version"] == version
    for outcomes in found["outcomes"].values():
        assert sorted({entry.split()[0] for entry in outcomes}) == found["names"]
        assert not wrong(outcomes), json.dumps(wrong(outcomes), indent=1)


def test_every_operation_has_arguments() -> None:
    """One that is forgotten fails; so does an entry of none."""
    names = {operation.name for operation in operations()}

    assert {entry.split()[0] for entry in TABLE} == names
    assert names >= MISSING


def test_what_is_missing_is_open_in_the_table() -> None:
    """No operation is missing here that has a route, nor the other way round."""
    open_names = {operation.name for operation in operations() if state_of(operation) == "open"}

    assert open_names == MISSING


@pytest.mark.parametrize(
    ("body", "kind", "problem"),
    [
        (b'"1"', int, "valid integer"),
        (b"null", Folder, "object"),
        (b'[{"id": 1}]', SyncArrayPage[Folder], "items.0.id"),
        (b'{"message_type": "stop_reason", "stop_reason": "bored"}', LettaStopReason, "stop_reason: "),
        (b"null", type(None), "not empty"),
    ],
)
def test_an_answer_that_is_not_of_its_type_is_found(body: bytes, kind: Any, problem: str) -> None:
    """No text counts as a number, no null as an object; in pages, unions and streams too."""
    assert any(problem in line for line in problems(body, kind)), problems(body, kind)
    assert not problems(b"", type(None))


def test_a_stream_s_events_are_checked() -> None:
    """Each of them, and that there are any."""
    event = b'data: {"message_type": "usage_statistics", "step_count": 1.5}\n\ndata: [DONE]\n\n'

    assert problems(b": ping\n\n", None, Stream[LettaStreamingResponse]) == ["the stream has no event"]
    assert any("step_count" in line for line in problems(event, None, Stream[LettaStreamingResponse]))
