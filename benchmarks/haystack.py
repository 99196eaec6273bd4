"""The pictures of docs/benchmarks.md: a needle in a haystack, without a language model.

    python -m benchmarks.haystack [FOLDER]

The built-in program is asked, and a scripted model that says the needle if it is in the request, and with a search tool
searches once: so the picture shows what reaches a model, not how well one reads. Beside Perdure it is given the whole
history, as far as it fits the window of 128,000 tokens. Written are pictures to FOLDER, by default docs/images.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from perdure.core.models import EXTRACTIVE, Model, ModelReply, ModelRequest
from perdure.features.benchmarks.figures import build_result
from perdure.features.benchmarks.opening import open_benchmark
from perdure.features.benchmarks.page import render_grid
from perdure.features.benchmarks.sets import DATA_SETS
from perdure.features.benchmarks.setups import make_setup
from perdure.testing import ScriptedModel, calls, says

__all__ = ["main"]

READER = "scripted/reader"
LENGTHS = "1000,8000,32000,128000,256000"


def reader(needles: frozenset[str]) -> Model:
    """A model that says the first of these words that its request holds."""

    def answer(request: ModelRequest) -> ModelReply:
        """Search, then read everything."""
        if request.messages[-1].role != "tool" and request.tools:
            return calls("conversation_search", query=request.messages[-1].text)
        results = (result.text for one in request.messages for result in one.results)
        seen = " ".join([request.tail, *(one.text for one in request.messages), *results])
        return says(next((needle for needle in needles if f"{needle}." in seen), "It was not said."))

    return ScriptedModel(otherwise=answer)


async def measure(model: str, baselines: str, folder: Path) -> None:
    """Run the grid with two seeds, and write a picture for each system."""
    with tempfile.TemporaryDirectory() as out:
        setup = make_setup("niah", data=None, model=model, baselines=baselines, lengths=LENGTHS, out=Path(out))
        cases = [case for seed in (1, 2) for case in DATA_SETS["niah"].load(setup, seed)]
        needles = frozenset(question.answer for case in cases for question in case.questions)
        models: Mapping[str, Model] = {READER: reader(needles)}
        async with open_benchmark(setup, models=models) as benchmark:
            await benchmark.run(lambda step, done, total: print(f"\r{done} of {total}", end="", flush=True))
            result = build_result(benchmark)
    for system in result["systems"]:
        name = f"niah-{model.partition('/')[2]}-{system['name']}"
        print(f"\r{name}: {100 * system['kinds']['needle']['score']:.1f} % found")
        (folder / f"{name}.svg").write_text(render_grid(system, model), encoding="utf-8")


def main() -> None:
    """Write the pictures."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    asyncio.run(measure(EXTRACTIVE, "", folder))
    asyncio.run(measure(READER, "full", folder))


if __name__ == "__main__":
    main()
