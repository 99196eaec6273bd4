"""The catalog: the facts of models, such as window and price.

The figures stand in `catalog.toml`, with their date. A file of the same shape named by `PERDURE_CATALOG` wins over it.
"""

from __future__ import annotations

import fnmatch
import functools
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from perdure.core.errors import InvalidInput

CATALOG_VARIABLE = "PERDURE_CATALOG"

_FACTS = {"window": "window_tokens", "output": "max_output_tokens", "cache_min": "min_cache_tokens"}
"""Fields of a file -> those of `ModelFacts`, where they differ."""


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
        """Whether a catalog has the model."""
        return bool(self.family)


def facts_of(handle: str) -> ModelFacts:
    """The facts about the model `provider/name`. If several patterns match it, the longest wins.

    Raises: InvalidInput: the file that PERDURE_CATALOG names can't be read as a catalog.
    """
    return _facts_in(_users_catalog(), handle)


@functools.lru_cache(maxsize=256)
def _facts_in(users: _Catalog | None, handle: str) -> ModelFacts:
    """Return what `facts_of` returns with this catalog of the user."""
    built_in = _shipped_catalog()
    facts = (users and users.find(handle)) or built_in.find(handle) or ModelFacts()
    free = built_in.free_providers | (users.free_providers if users else frozenset())
    if handle.partition("/")[0].lower() in free:
        return replace(facts, input_price=0.0, output_price=0.0, cached_price=0.0, cache_write_price=0.0)
    return facts


def figures_of() -> str:
    """The month that the figures shipped with Perdure are of, as `YYYY-MM`."""
    return _shipped_catalog().figures_of


@dataclass(frozen=True, slots=True, eq=False)
class _Catalog:
    """Patterns with their facts, and the providers whose models cost nothing."""

    entries: tuple[tuple[str, ModelFacts], ...]
    free_providers: frozenset[str]
    figures_of: str

    def find(self, handle: str) -> ModelFacts | None:
        """The facts of the longest pattern that fits; None if none fits."""
        whole = handle.lower()
        name = whole.rpartition("/")[2]
        matches = [
            # Of equally long ones, the one without a * is meant for this very name.
            ((len(pattern.replace("*", "")), "*" not in pattern), facts)
            for pattern, facts in self.entries
            if fnmatch.fnmatchcase(whole if "/" in pattern else name, pattern.replace("[", "[[]").replace("?", "[?]"))
        ]
        return max(matches, key=lambda pair: pair[0])[1] if matches else None


@functools.cache
def _shipped_catalog() -> _Catalog:
    """The catalog that ships with Perdure: that of `providers`, and those of its folders."""
    folder = Path(__file__).parent
    files = (folder / "catalog.toml", *sorted(folder.glob("*/catalog.toml")))
    first, *others = (_parse(file.read_text(encoding="utf-8"), file.relative_to(folder).as_posix()) for file in files)
    free = first.free_providers.union(*(other.free_providers for other in others))
    entries = tuple(entry for catalog in (first, *others) for entry in catalog.entries)
    return replace(first, entries=entries, free_providers=free)


def _users_catalog() -> _Catalog | None:
    """The catalog of the user, if there is one. Raises: InvalidInput: it can't be read."""
    if not (name := os.environ.get(CATALOG_VARIABLE, "").strip()):
        return None
    try:
        path = Path(name).expanduser()
        return _read_users_catalog(path, path.stat().st_mtime_ns)
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidInput(f"{CATALOG_VARIABLE} is {name!r}: the file can't be read ({error})") from error


@functools.lru_cache(maxsize=4)
def _read_users_catalog(path: Path, modified_ns: int) -> _Catalog:
    """The catalog in this file; `modified_ns` is there so that an edited file is read again."""
    return _parse(path.read_text(encoding="utf-8-sig"), str(path))


def _parse(text: str, file: str) -> _Catalog:
    """The catalog that this text is. Raises: InvalidInput, naming file and field."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{file} is not TOML: {error}") from error
    _check(table, _FILE, f"{file}: the file", f"{file}: ")
    models = table.get("model", [])
    for number, model in enumerate(models, 1):
        where = f"{file}: model {number}"
        _check(model, _MODEL, where, f"{where}: ")
        _check(model.get("price", {}), _PRICE, f"{where}: price", f"{where}: price.")
        if not model.get("match"):
            raise InvalidInput(f"{where}: match is missing: give at least one pattern, such as match = ['my-model*']")
    return _Catalog(
        entries=tuple((pattern.lower(), _facts(model, pattern)) for model in models for pattern in model["match"]),
        free_providers=frozenset(table.get("free_providers", ())),
        figures_of=table.get("figures_of", ""),
    )


def _facts(model: Mapping[str, Any], family: str) -> ModelFacts:
    """The facts in a [[model]] table, for the pattern `family`. A missing price of the cache is that of input."""
    price = model.get("price", {})
    base = price.get("input")
    return ModelFacts(
        family=family,
        input_price=base,
        output_price=price.get("output"),
        cached_price=price.get("cached", base),
        cache_write_price=price.get("write", base),
        **{_FACTS.get(name, name): value for name, value in model.items() if name not in ("match", "price")},
    )


_Rule: TypeAlias = tuple[Callable[[Any], bool], str]
"""(Whether a value is right, what to give in place of a wrong one)."""

_TEXT: _Rule = (lambda value: isinstance(value, str), "give a text")
_TEXTS: _Rule = (
    lambda value: isinstance(value, list) and all(isinstance(text, str) and text for text in value),
    "give a list of texts",
)
_TABLES: _Rule = (
    lambda value: isinstance(value, list) and all(isinstance(model, dict) for model in value),
    "write [[model]] tables",
)
_TABLE: _Rule = (lambda value: isinstance(value, dict), "give a table, such as { input = 1.0, output = 2.0 }")
_FLAG: _Rule = (lambda value: isinstance(value, bool), "give true or false")
_TOKENS: _Rule = (lambda value: type(value) is int and value >= 1, "give a whole number of tokens, 1 or more")
_LEAST: _Rule = (lambda value: type(value) is int and value >= 0, "give a whole number of tokens, 0 or more")
_DOLLARS: _Rule = (
    lambda value: type(value) in (int, float) and 0 <= value < math.inf,
    "give US dollars per million tokens, 0 or more",
)

_FILE = {"figures_of": _TEXT, "free_providers": _TEXTS, "model": _TABLES}
_MODEL = {
    **{"match": _TEXTS, "window": _TOKENS, "output": _TOKENS, "price": _TABLE, "cache_min": _LEAST},
    **dict.fromkeys(("tools", "parallel_tools", "reasoning", "forced_tool"), _FLAG),
}
_PRICE = dict.fromkeys(("input", "output", "cached", "write"), _DOLLARS)


def _check(table: Mapping[str, Any], rules: Mapping[str, _Rule], where: str, prefix: str) -> None:
    """Check a table: unknown fields and wrong values raise InvalidInput, naming the field. `where`: name of the table;
    `prefix`: what stands before a field's name."""
    for name, value in table.items():
        if name not in rules:
            raise InvalidInput(f"{where} has an unknown field {name!r}: the fields are {', '.join(rules)}")
        is_right, help_text = rules[name]
        if not is_right(value):
            raise InvalidInput(f"{prefix}{name} is {value!r:.80}: {help_text}")
