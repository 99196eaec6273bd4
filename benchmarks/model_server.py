"""The scripted HTTP model that both servers ask: `python -m benchmarks.model_server PORT`."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.message_cost import SAID
from perdure.testing import HttpModel, says

if __name__ == "__main__":

    async def serve(port: int) -> None:
        async with HttpModel(otherwise=says(SAID[1]), models=("gpt-4.1",), port=port):
            await asyncio.Event().wait()

    asyncio.run(serve(int(sys.argv[1])))
