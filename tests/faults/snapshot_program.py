"""A process that clones, goes back and kills itself: `python -m tests.faults.snapshot_program STORE MOMENT`.

MOMENT counts the moments before and after each transaction that writes, from 0; after the last one the process prints
how many there were.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from perdure import AsyncPerdure


async def main(address: str, moment: int) -> None:
    """Clone `ann`, then bring it back to its first snapshot, and end by SIGKILL at this moment."""
    count = 0

    def pass_moment() -> None:
        nonlocal count
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    async with await AsyncPerdure.open(address) as perdure:
        agent = await perdure.agent("ann")
        store = perdure.app.ports.store
        write = store.write

        async def counted(*unit: Any, **more: Any) -> Any:
            pass_moment()
            result = await write(*unit, **more)
            pass_moment()
            return result

        store.write = counted  # type: ignore[method-assign]
        await agent.snapshots.clone("clone")
        await agent.snapshots.restore(1)
        store.write = write  # type: ignore[method-assign]
    print(count)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
