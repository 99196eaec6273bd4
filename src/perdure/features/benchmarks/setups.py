"""What is asked for on the command line, checked and with its defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from perdure.core.errors import InvalidInput
from perdure.core.tools.arguments import read_json
from perdure.features.benchmarks.judging import WORD_JUDGES
from perdure.features.benchmarks.sets import DATA_SETS
from perdure.features.benchmarks.sets.reading import SAMPLES
from perdure.features.benchmarks.sets.values import Line, Setup
from perdure.features.benchmarks.systems import texts
from perdure.library.parts.checks import check_choice
from perdure.scratch import user_path

T = TypeVar("T", int, float)


def make_setup(
    name: str,
    *,
    data: str | None,
    model: str = "",
    judge: str = "",
    baselines: str = "",
    seeds: int = 2,
    out: Path | None = None,
    kind: str = "",
    most: int = 0,
    engine: str = "",
    settings: str = "",
    facts: bool = False,
    line: str = "",
    at_once: int = 1,
    lengths: str = "",
    depths: str = "",
) -> Setup:
    """Return how a benchmark is run. Lists are texts with commas, and `settings` is JSON. Raises: InvalidInput."""
    check_choice("NAME", name, (*DATA_SETS, "page"))
    data_set = DATA_SETS[name]
    where: Any = line or data_set.line
    check_choice("--line", where, get_args(Line))
    judge = judge or data_set.default_judge
    if judge not in WORD_JUDGES and "/" not in judge:
        raise InvalidInput(f"--judge is {judge!r:.80}: give exact, f1 or the handle of a model, such as openai/gpt-4.1")
    known = [system for system in texts()["systems"] if system != "perdure"]
    chosen = known if baselines == "all" else _parts(baselines)
    for one in chosen:
        check_choice("--baselines", one, known)
    try:
        given = read_json(settings or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise InvalidInput(f"--settings is {settings!r:.80}: give a JSON object")
    if (lengths or depths) and name != "niah":
        raise InvalidInput(f"--lengths and --depths are of niah: leave them out of {name}")
    if facts and not model:
        raise InvalidInput("--facts needs --model, which reads them")
    return Setup(
        name=name,
        data=_data_path(name, data),
        model=model,
        judge=judge,
        systems=["perdure", *dict.fromkeys(chosen)],
        seeds=seeds,
        out=user_path(out or Path("bench") / name),
        kinds=_parts(kind),
        most=most,
        line=where,
        settings={**given, **({"context_engine": engine} if engine else {})},
        facts=facts,
        at_once=at_once,
        lengths=_numbers("--lengths", lengths, int, 100, 10_000_000),
        depths=_numbers("--depths", depths, float, 0, 100),
    )


def _data_path(name: str, data: str | None) -> Path | None:
    """Return the path of the data; `sample` stands for the data that ships with the package, which niah lacks."""
    if data != "sample":
        return None if data is None else user_path(data)
    return next(iter(SAMPLES.glob(f"{name}.*")), None)


def _parts(text: str) -> Sequence[str]:
    """Return the texts between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(name: str, text: str, kind: Callable[[str], T], least: T, most: T) -> Sequence[T]:
    """Return the numbers between commas. Raises: InvalidInput: something else stands there."""
    try:
        numbers = [kind(part) for part in _parts(text)]
    except ValueError:
        numbers = [most + 1]
    if not all(least <= number <= most for number in numbers):
        raise InvalidInput(f"{name} is {text!r:.80}: give numbers from {least:,} to {most:,}, separated by commas")
    return list(dict.fromkeys(numbers))
