"""A process that pushes to a memory, and kills itself: `python -m tests.faults.memory_git_program STORE DIR MOMENT`.

MOMENT counts the moments before and after each run of git and each transaction that writes, from 0; after the last one
the push ends, and the process prints how many there were.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from perdure import AsyncPerdure
from perdure.features.memory_git import git, service


async def main(address: str, folder: str, moment: int) -> None:
    """Push, and end by SIGKILL at this moment."""
    count = 0

    def pass_moment() -> None:
        nonlocal count
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    def counted(work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def run(*arguments: Any, **more: Any) -> Any:
            pass_moment()
            result = await work(*arguments, **more)
            pass_moment()
            return result

        return run

    async with await AsyncPerdure.open(address) as perdure:
        agent = await perdure.agent("ann")
        store = perdure.app.ports.store
        write = store.write
        store.write = counted(write)  # type: ignore[method-assign,assignment]
        git.run_git = service.run_git = counted(git.run_git)  # type: ignore[assignment,attr-defined]
        await agent.memory_git.push(folder)
        print(count, flush=True)
        store.write = write  # type: ignore[method-assign]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
