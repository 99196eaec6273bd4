"""A process that imports, and kills itself: `python -m tests.faults.importing_program STORE SOURCE PLACE MOMENT`.

MOMENT counts the moments before and after each transaction that writes, from 0; after the last one the import ends, and
the process prints how many there were.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from perdure import AsyncPerdure


async def main(address: str, source: Any, place: str, moment: int) -> None:
    """Import, and end by SIGKILL at this moment."""
    count = 0

    def pass_moment() -> None:
        nonlocal count
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    async with await AsyncPerdure.open(address) as perdure:
        store = perdure.app.ports.store
        write = store.write

        async def counted(*unit: Any, **more: Any) -> Any:
            pass_moment()
            result = await write(*unit, **more)
            pass_moment()
            return result

        store.write = counted  # type: ignore[method-assign]
        if source == "letta":
            await perdure.imports.run_server(place)
        elif source == "manifest":
            await perdure.manifests.apply(place)
        else:
            await perdure.imports.run(source, place)
        store.write = write  # type: ignore[method-assign]
    print(count)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
