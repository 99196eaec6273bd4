"""Calls every operation of the installed `letta_client`: `python -m tests.wire.every_operation MCP_URL [NAME...]`.

It prints JSON: the client's version, the names of its operations, and the outcomes: for the synchronous and the
asynchronous client each entry of `tests.wire.arguments` with what is wrong.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from letta_client import APIStatusError

from perdure.server.wire.errors import NOT_IMPLEMENTED
from tests.wire.arguments import TABLE, arguments_of
from tests.wire.clients import NEWEST
from tests.wire.sdk import VERSION, CheckingAsyncLetta, CheckingLetta, known_arguments, method_of, operations
from tests.wire.world import World, open_world

FULL = os.environ.get("PERDURE_FAULTS") == "full"
UNKNOWN_PATH = "Unknown path"

Outcomes = dict[str, list[str]]
"""Entry -> what is wrong, none if its answer is valid; or one line: `absent: ...` for 501, `unknown: ...` for a path
that the server has not."""


async def call_all(mcp_url: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Call the operations, all or those with these names, with either client. One of them has a server with vectors.

    The older version's asynchronous client is left to the long form: its code differs from the newest one's in names.
    """
    known = {operation.name for operation in operations()}
    entries = [entry for entry in TABLE if entry.split()[0] in known and (not names or entry.split()[0] in names)]
    kinds = ("sync", "async") if FULL or VERSION == NEWEST else ("sync",)
    return {
        "version": VERSION,
        "names": sorted(known if not names else known & set(names)),
        "outcomes": {kind: await _call_all(entries, mcp_url, is_sync=kind == "sync") for kind in kinds},
    }


async def _call_all(entries: Sequence[str], mcp_url: str, *, is_sync: bool) -> Outcomes:
    async with open_world(mcp_url, embedder=is_sync) as (world, open_client):
        if not is_sync:
            return {entry: await _outcome(CheckingAsyncLetta(world.http), entry, world) for entry in entries}
        with open_client() as http:
            return {entry: await _outcome(CheckingLetta(http), entry, world) for entry in entries}


async def _outcome(client: CheckingLetta | CheckingAsyncLetta, entry: str, world: World) -> list[str]:
    """What is wrong with one entry's call."""
    method = method_of(client, entry.split()[0])
    try:
        arguments = known_arguments(method, await arguments_of(entry, world))
        if isinstance(client, CheckingLetta):
            await asyncio.to_thread(_call, method, arguments)
        else:
            answer = method(**arguments)
            answer = await answer if hasattr(answer, "__await__") else answer
            if hasattr(answer, "__aiter__") and not hasattr(answer, "items"):
                async for _ in answer:
                    pass
    except APIStatusError as error:
        body: Any = error.body
        detail = str(body.get("detail") if isinstance(body, dict) else body)
        if error.status_code == NOT_IMPLEMENTED:
            return [f"absent: {detail}"]
        return [f"unknown: {detail}" if detail.startswith(UNKNOWN_PATH) else f"{error.status_code} {error.body!r}"]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    return client.problems


def _call(method: Any, arguments: dict[str, Any]) -> None:
    """Call a method, and read its answer to the end if it is a stream."""
    answer = method(**arguments)
    if hasattr(answer, "__next__"):
        for _ in answer:
            pass


def main(mcp_url: str, *names: str) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)
    print(json.dumps(asyncio.run(call_all(mcp_url, names))))


if __name__ == "__main__":
    main(*sys.argv[1:])
