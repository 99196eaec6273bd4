"""A process that runs a benchmark, and kills itself: `python -m tests.faults.bench_program OUT ASKED NAME MOMENT`.

MOMENT counts the moments before and after each transaction that writes, each row, and each answer of a model, from 0;
after the last one the run ends, and the process prints how many there were. ASKED is a file to which the models write a
line for each request that they have answered.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from perdure.core.models import Model, ModelDelta, ModelReply, ModelRequest
from perdure.features.benchmarks.figures import build_result
from perdure.features.benchmarks.opening import open_benchmark
from perdure.features.benchmarks.page import write_result
from tests.features.benchmarks.scripted import JUDGE, last_text, models_of, setup_of


class Moments:
    """Counts moments, and kills the process at one of them."""

    def __init__(self, moment: int) -> None:
        self._moment, self.count = moment, 0

    def __call__(self) -> None:
        """Pass a moment."""
        if self.count == self._moment:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def around(self, work: Any) -> Any:
        """A plain function with a moment before and after it."""

        def counted(*args: Any, **more: Any) -> Any:
            self()
            result = work(*args, **more)
            self()
            return result

        return counted

    def around_async(self, work: Any) -> Any:
        """A coroutine function with a moment before and after it."""

        async def counted(*args: Any, **more: Any) -> Any:
            self()
            result = await work(*args, **more)
            self()
            return result

        return counted


class Noting:
    """A model that writes down each request when it has answered it."""

    def __init__(self, model: Model, asked: Path, passes: Moments) -> None:
        self._model, self._asked, self._pass = model, asked, passes

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Answer as the model does."""
        async for piece in self._model.respond(request):
            if isinstance(piece, ModelReply):
                with self._asked.open("a", encoding="utf-8") as file:
                    print(f"{len(request.messages)} {last_text(request)!r}", file=file, flush=True)
                self._pass()
            yield piece  # type: ignore[misc]


async def main(out: Path, asked: Path, name: str, moment: int) -> None:
    """Run the benchmark, and end by SIGKILL at this moment."""
    more: dict[str, Any] = {"lengths": "300", "depths": "0,100"} if name == "niah" else {"most": 3}
    setup = setup_of(name, out, judge=JUDGE, baselines="files,none", facts=name == "dmr", **more)
    passes = Moments(moment)
    models: dict[str, Model] = {handle: Noting(one, asked, passes) for handle, one in models_of(setup).items()}
    async with open_benchmark(setup, models=models) as benchmark:
        store = benchmark._perdure.app.ports.store
        write = store.write
        store.write = passes.around_async(write)  # type: ignore[method-assign]
        benchmark.rows.add = passes.around(benchmark.rows.add)  # type: ignore[method-assign]
        await benchmark.run(lambda step, done, total: None)
        write_result(out, build_result(benchmark))
        store.write = write  # type: ignore[method-assign]
    print(passes.count)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
