"""Opening a benchmark: its folder, which one process has at a time, its store, and what all rows have in common."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from perdure.core.errors import InvalidInput, file_errors
from perdure.core.models import EXTRACTIVE, Model
from perdure.features.benchmarks.judging import WORD_JUDGES
from perdure.features.benchmarks.rows import ResultRows, lock_folder
from perdure.features.benchmarks.running import BenchClock, Benchmark
from perdure.features.benchmarks.sets.reading import hash_of
from perdure.features.benchmarks.sets.values import Setup
from perdure.features.benchmarks.systems import search_by, texts
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

MESSAGE_CHARS = 10_000_000
"""So long a message may be that holds a whole history."""
_SAME = ("name", "model", "line", "settings", "facts", "lengths", "depths")
OF_ENVIRONMENT = ("embedding", "context_window_tokens", "token_counter", "tool_output")
"""The settings of Perdure that count here; they and `_SAME` are what all rows of a folder have in common."""


@asynccontextmanager
async def open_benchmark(setup: Setup, *, models: Mapping[str, Model] | None = None) -> AsyncIterator[Benchmark]:
    """Open a benchmark, with its store and rows in `setup.out`. `models` are those of `AsyncPerdure.open`.

    Raises: InvalidInput: the data is not what was published, or the folder has the rows of another run; ModelNotFound;
        StoreError.
    """
    with lock_folder(setup.out):
        rows, home = ResultRows(setup.out), setup.out / "home"
        if len(rows.by_key) > 1 and not (home / "perdure.db").exists():
            raise InvalidInput(f"{home} has lost the store of the rows: remove {rows.path}, or choose another --out")
        with file_errors(home, "used"):
            home.mkdir(exist_ok=True)
        facts = "off" if not setup.facts else "patterns" if setup.model == EXTRACTIVE else "model"
        settings = replace(
            Settings.from_environment(),
            **{"home": str(home), "store": "", "facts": facts, "schedules": "off", "hooks": "none"},  # type: ignore[arg-type]
            message_limit_chars=MESSAGE_CHARS,
        )
        address, clock = home / "perdure.db", BenchClock()
        async with await AsyncPerdure.open(address, settings=settings, models=models, clock=clock) as perdure:
            about = _folder_data(perdure, setup, settings)
            before = rows.find("setup") or about
            for name, value in about.items():
                if name in before and before[name] != value:
                    what = f"{name} was {before[name]!r:.60} and is {value!r:.60}"
                    raise InvalidInput(
                        f"{setup.out} has the rows of another run: {what}. Choose another folder with --out"
                    )
            for model in {setup.model, setup.judge} - {"", *WORD_JUDGES}:
                await perdure.all_agents.check_model(model)
            benchmark = await asyncio.to_thread(Benchmark, perdure, setup, rows, clock)
            if before is about:
                rows.add("setup", **about)
            yield benchmark


def _folder_data(perdure: AsyncPerdure, setup: Setup, settings: Settings) -> Mapping[str, Any]:
    """Return the data that all rows of a folder share, as JSON."""
    about = {name: getattr(setup, name) for name in _SAME} | {name: getattr(settings, name) for name in OF_ENVIRONMENT}
    prompts = hashlib.sha256(json.dumps(texts()["prompts"]).encode()).hexdigest()[:12]
    about |= {"data": hash_of(setup.data), "search": search_by(perdure), "prompts": prompts}
    same: Mapping[str, Any] = json.loads(json.dumps(about))
    return same
