"""Every operation of the TypeScript client, called with real arguments; each answer is valid by the client's types."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.server.config import ServerConfig
from tests.docs.letta_table import state_of
from tests.features.mcp.servers import running
from tests.support.servers import listening
from tests.wire.arguments import MISSING, TABLE, arguments_of
from tests.wire.clients import list_methods
from tests.wire.sdk import Operation, operations
from tests.wire.test_paging import FULL, LIMIT, filled_store, order_argument, problems
from tests.wire.world import open_world

PROGRAM = Path(__file__).parent / "typescript" / "client.mjs"
ANSWER_S = 60.0

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (PROGRAM.parent / "node_modules").is_dir(),
    reason="`make setup` installs the TypeScript client where there is a Node",
)


@dataclass(slots=True)
class NodeClient:
    """The TypeScript client in a process of its own."""

    process: asyncio.subprocess.Process

    async def read(self) -> Any:
        """The next line that it prints."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), ANSWER_S)
        assert line, "the client has ended"
        return json.loads(line)

    async def call(self, operation: Operation, arguments: Mapping[str, Any], **options: Any) -> Any:
        """The outcome of a call."""
        assert self.process.stdin is not None
        call = {"name": operation.name, "path": operation.path, "arguments": arguments, **options}
        self.process.stdin.write(json.dumps(call, default=bytes.decode).encode() + b"\n")
        return await self.read()


@contextlib.asynccontextmanager
async def node_client(url: str) -> AsyncIterator[NodeClient]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("node", str(PROGRAM), url, stdin=pipe, stdout=pipe, limit=1 << 22)
    try:
        yield NodeClient(process)
        assert process.stdin is not None
        process.stdin.close()  # it ends by itself
        await asyncio.wait_for(process.wait(), ANSWER_S)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture(scope="module")
def mcp_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an MCP server."""
    with running("--http", "/mcp", tmp_path_factory.mktemp("mcp") / "state.json") as server:
        yield server.url


def is_wrong(operation: Operation, outcome: Mapping[str, Any]) -> bool:
    """Whether the outcome is not what the table of operations says."""
    expected: Mapping[str, Any] = {"problems": []} if state_of(operation) == "answered" else {"status": 501}
    return {name: value for name, value in outcome.items() if name != "detail"} != expected


@pytest.mark.slow
async def test_every_answer_is_valid_by_the_types_of_the_typescript_client(mcp_url: str) -> None:
    by_name = {operation.name: operation for operation in operations()}
    wrong: dict[str, Any] = {}
    async with (
        open_world(mcp_url, embedder=True) as (world, _),
        listening(world.library, ServerConfig(port=0)) as url,
        node_client(url) as client,
    ):
        names = await client.read()
        assert sorted(names) == sorted(camel(name) for name in by_name)
        for entry in TABLE:
            operation = by_name[entry.split()[0]]
            if operation.name in MISSING:
                continue
            outcome = await client.call(operation, await arguments_of(entry, world))
            if is_wrong(operation, outcome):
                wrong[entry] = outcome

    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.skipif(not FULL, reason="slow; the Python client's loops send the same requests")
async def test_loops_over_lists_are_complete() -> None:
    """In both orders and the default one; see `test_paging`."""
    by_name = {operation.name: operation for operation in operations()}
    wrong: list[str] = []
    async with filled_store() as store, listening(store.server.library, ServerConfig(port=0)) as url:
        methods = list_methods(store.server.letta)
        async with node_client(url) as client:
            await client.read()
            for name, listed in store.lists.items():
                for order in (None, "asc", "desc"):
                    query = {**listed.arguments, **({"limit": LIMIT} if LIMIT else {})}
                    query |= order_argument(methods[name], order) if order else {}
                    outcome = await client.call(by_name[f"{name}.list"], query, every_page=True)
                    items = [item if isinstance(item, str) else SimpleNamespace(**item) for item in outcome["items"]]
                    wrong += [f"{name} {order}: {why}" for why in problems(listed, order, items)]

    assert not wrong, "\n".join(wrong)


def camel(name: str) -> str:
    """An operation's name as the TypeScript client spells it."""
    first, *others = name.split("_")
    return first + "".join([word[0].upper() + word[1:] for word in others])
