"""The catalog: the facts of models, such as window and price.

The figures stand in `catalog.toml`, with their date. A file of the same shape named by `PERDURE_CATALOG` wins over it.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput

CATALOG_VARIABLE = "PERDURE_CATALOG"

_FLAGS = ("tools", "parallel_tools", "reasoning", "forced_tool")
_PRICES = ("input", "output", "cached", "write")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The facts of a model. The defaults are for an unknown one.

    32,768 tokens is what nearly every model that can call tools takes: a wider guess would send requests that are
    refused, a narrower one would summarise for nothing. 4,096 tokens of output are accepted everywhere.

    Args:
        window_tokens: of input and output together.
        max_output_tokens: most tokens of one answer.
        input_price, output_price, cached_price, cache_write_price: US dollars per million tokens; None is unknown.
        min_cache_tokens: a shorter prefix is not cached; 0: no caching is known of.
        tools, parallel_tools, reasoning: whether it can; forced_tool: whether `tool_choice` can make it call one.
        family: the pattern these come from; empty for a model that is in no catalog.
    """

    window_tokens: int = 32_768
    max_output_tokens: int = 4_096
    input_price: float | None = None
    output_price: float | None = None
    cached_price: float | None = None
    cache_write_price: float | None = None
    min_cache_tokens: int = 0
    tools: bool = True
    parallel_tools: bool = False
    reasoning: bool = False
    forced_tool: bool = False
    family: str = ""

    @property
    def known(self) -> bool:
        return bool(self.family)


def facts_of(handle: str) -> ModelFacts:
    """What is known of the model `provider/name`; of several patterns that match it the longest wins.

    Raises: InvalidInput: the file that PERDURE_CATALOG names can't be read as a catalog.
    """
    built_in, own = _built_in(), _own()
    facts = (own and own.find(handle)) or built_in.find(handle) or ModelFacts()
    free = built_in.free_providers | (own.free_providers if own else frozenset())
    if handle.partition("/")[0].lower() in free:
        return replace(facts, input_price=0.0, output_price=0.0, cached_price=0.0, cache_write_price=0.0)
    return facts


def figures_of() -> str:
    """The month that the figures shipped with Perdure are of, as `YYYY-MM`."""
    return _built_in().figures_of


@dataclass(frozen=True, slots=True)
class _Catalog:
    entries: tuple[tuple[str, ModelFacts], ...]
    free_providers: frozenset[str]
    figures_of: str

    def find(self, handle: str) -> ModelFacts | None:
        whole = handle.lower()
        name = whole.rpartition("/")[2]
        found = [
            # Of equally long ones, the one without a * is meant for this very name.
            ((len(pattern.replace("*", "")), "*" not in pattern), facts)
            for pattern, facts in self.entries
            if _fits(whole if "/" in pattern else name, pattern)
        ]
        return max(found, key=lambda pair: pair[0])[1] if found else None


def _fits(text: str, pattern: str) -> bool:
    import fnmatch

    # Only * is special: [ and ? may stand in the name of a model.
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))


@functools.cache
def _built_in() -> _Catalog:
    from importlib.resources import files

    text = files("perdure.providers").joinpath("catalog.toml").read_text(encoding="utf-8")
    return _read(text, "catalog.toml")


def _own() -> _Catalog | None:
    if not (name := os.environ.get(CATALOG_VARIABLE, "").strip()):
        return None
    path = Path(name)
    try:
        path = path.expanduser()
        changed = path.stat().st_mtime_ns
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidInput(f"{CATALOG_VARIABLE} is {name!r}: the file can't be read ({error})") from error
    return _of_file(path, changed)


@functools.lru_cache(maxsize=4)
def _of_file(path: Path, changed: int) -> _Catalog:
    """The catalog in this file; `changed` is there so that an edited file is read again."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{CATALOG_VARIABLE} is {str(path)!r}: the file can't be read ({error})") from error
    return _read(text, str(path))


def _read(text: str, place: str) -> _Catalog:
    """The catalog that this text is. Raises: InvalidInput, naming file and field."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{place} is no TOML: {error}") from error
    _only(place, "the file", table, ("figures_of", "free_providers", "model"))
    models = table.get("model", [])
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        raise InvalidInput(f"{place}: model is {models!r:.80}: write [[model]] tables")
    return _Catalog(
        entries=tuple(entry for number, model in enumerate(models, 1) for entry in _entries(place, number, model)),
        free_providers=frozenset(_texts(f"{place}: free_providers", table.get("free_providers", []))),
        figures_of=str(table.get("figures_of", "")),
    )


def _entries(place: str, number: int, model: Mapping[str, Any]) -> Iterator[tuple[str, ModelFacts]]:
    where = f"{place}: model {number}"
    _only(place, f"model {number}", model, ("match", "window", "output", "price", "cache_min", *_FLAGS))
    patterns = _texts(f"{where}: match", model.get("match"))
    if not patterns:
        raise InvalidInput(f"{where}: match is missing: give at least one pattern, such as match = ['my-model*']")
    values: dict[str, Any] = {}
    for name, field, least in (
        ("window", "window_tokens", 1),
        ("output", "max_output_tokens", 1),
        ("cache_min", "min_cache_tokens", 0),
    ):
        if name in model:
            values[field] = _tokens(f"{where}: {name}", model[name], least)
    for name in _FLAGS:
        if name in model:
            if not isinstance(model[name], bool):
                raise InvalidInput(f"{where}: {name} is {model[name]!r:.80}: give true or false")
            values[name] = model[name]
    values |= _price(place, number, model.get("price", {}))
    for pattern in patterns:
        yield pattern.lower(), ModelFacts(**values, family=pattern)


def _price(place: str, number: int, price: Any) -> dict[str, float]:
    where = f"{place}: model {number}: price"
    if not isinstance(price, dict):
        raise InvalidInput(f"{where} is {price!r:.80}: give a table, such as {{ input = 1.0, output = 2.0 }}")
    _only(place, f"model {number}: price", price, _PRICES)
    for name, value in price.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise InvalidInput(f"{where}.{name} is {value!r:.80}: give US dollars per million tokens, 0 or more")
    if "input" not in price:
        return {} if "output" not in price else {"output_price": float(price["output"])}
    found = {"input_price": price["input"], "cached_price": price.get("cached", price["input"])}
    found["cache_write_price"] = price.get("write", price["input"])
    if "output" in price:
        found["output_price"] = price["output"]
    return {name: float(value) for name, value in found.items()}


def _tokens(where: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{where} is {value!r:.80}: give a whole number of tokens, {least} or more")
    return value


def _texts(where: str, value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise InvalidInput(f"{where} is {value!r:.80}: give a list of texts")
    return value


def _only(place: str, where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            raise InvalidInput(f"{place}: {where} has an unknown field {name!r}: the fields are {', '.join(known)}")
