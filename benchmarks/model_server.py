"""The scripted HTTP model that both servers ask: `python -m benchmarks.model_server PORT`."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.message_cost import SAID
from perdure.testing import HttpModel, says

if __name__ == "__main__":

    async def serve(port: int) -> None:
        async with HttpModel(otherwise=says(SAID[1]), models=("gpt-4.1",), port=port) as model:
            while True:  # in half an hour the bodies of all requests would take the memory that is measured
                await asyncio.sleep(1)
                model.requests[:] = [{}] * len(model.requests)  # their number stays: answers are numbered by it

    asyncio.run(serve(int(sys.argv[1])))
