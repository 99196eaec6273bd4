"""How long a small write waits while another client sends the largest request of each route.

    python -m benchmarks.writer_wait

Wall-clock time of the machine it runs on; `tests/server/test_writer_wait.py` asserts the same of CPU time.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

from tests.server.full_store import fill
from tests.server.largest import operations
from tests.support.servers import MODEL, in_process

SIZE = 4_500_000
"""Characters of a body; the limit is 5 MiB."""


async def main() -> None:
    """Print the longest wait of each route, longest first."""
    waits: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with in_process(Path(folder)) as (client, perdure):
            there = await fill(perdure, MODEL)
            other = await perdure.create_agent("bystander", model=MODEL)
            document = client._transport.app.openapi()  # type: ignore[attr-defined]
            largest = there.largest(document, SIZE)
            ended = asyncio.Event()
            longest = 0.0

            async def write() -> None:
                nonlocal longest
                while not ended.is_set():
                    began = time.perf_counter()
                    await perdure.app.store.write(lambda tx: tx.agents.lock(other.id))
                    longest = max(longest, time.perf_counter() - began)
                    await asyncio.sleep(0.002)

            writing = asyncio.create_task(write())
            for operation in operations(document):
                body = None if operation.body is None else largest.body(operation)
                content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
                headers = {"content-type": "application/json"} if content else {}
                await asyncio.sleep(0.05)
                longest = 0.0
                path = there.path(operation)
                await client.request(operation.method, path, content=content, headers=headers, timeout=60)
                await asyncio.sleep(0.05)
                waits[operation.name] = longest
            ended.set()
            await writing
    for name, wait in sorted(waits.items(), key=lambda one: -one[1])[:20]:
        print(f"{wait * 1000:6.0f} ms  {name}")


if __name__ == "__main__":
    asyncio.run(main())
