"""Checks of settings: the options of a model's answer, the writer of summaries, limits, and the context engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from perdure.core.agents import AUTOCLEAR
from perdure.core.conversations import COMPACTION, SUMMARIES, CompactionMode, CompactionSettings, SummarySettings
from perdure.core.errors import InvalidInput
from perdure.core.incoming.principals import UseLimits, limits_of
from perdure.core.models import ReasoningEffort
from perdure.core.text.reprs import describe_value
from perdure.domain.values import check_fields, check_json, check_range, read_object

CONTEXT_ENGINE = "context_engine"
DEFAULT_ENGINE = "paged"
NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The name of a context engine, and the options that it is built with."""

    name: str = DEFAULT_ENGINE
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: Any, where: str = CONTEXT_ENGINE) -> EngineChoice:
        """Return the choice from a setting: a name, or an object with `name` and `options`.

        `where`: the setting in error texts. Raises: InvalidInput.
        """
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            raise InvalidInput(f'{where} is {value!r:.80}: give a name, or {{"name": ..., "options": {{...}}}}')
        check_fields(where, value, ("name", "options"))
        name, options = value.get("name"), value.get("options") or {}
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS:
            raise InvalidInput(f"{where}.name is {name!r:.80}: give the name of an engine")
        if not isinstance(options, Mapping) or not all(isinstance(option, str) for option in options):
            raise InvalidInput(f"{where}.options is {options!r:.80}: give an object with the engine's options")
        return cls(name, dict(options))


def engine_choice(settings: Mapping[str, Any]) -> EngineChoice | None:
    """Return the engine that an agent's settings choose; None: the default one. Raises: InvalidInput."""
    value = settings.get(CONTEXT_ENGINE)
    return None if value is None else EngineChoice.parse(value)


LIMITS = "limits"
_NONE = UseLimits()


def limits_in(settings: Mapping[str, Any]) -> UseLimits:
    """Return the limits in an agent's settings."""
    value = settings.get(LIMITS)
    return limits_of(value) if value else _NONE


def check_limits(settings: Mapping[str, Any]) -> None:
    """Check an agent's setting `limits`. Raises: InvalidInput, naming field and value."""
    if (value := settings.get(LIMITS)) is not None:
        limits_of(value)


_MOST = {"temperature": 2, "top_p": 1, "max_output_tokens": 2**53, "max_reasoning_tokens": 2**53, "top_logprobs": 100}
_FLAGS = ("parallel_tool_calls", "logprobs", "token_ids", AUTOCLEAR)


def check_options(settings: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Check the model options in `settings` that differ from `before`. Raises: InvalidInput, naming the option."""
    for name, value in settings.items():
        if value is None or value == before.get(name):
            continue
        helps = ""
        if name in _MOST:
            check_range(name, value, 0, _MOST[name], whole=name not in ("temperature", "top_p"))
        elif name in ("response_format", "extra"):
            check_json(name, value)
        elif name in _FLAGS:
            helps = "" if isinstance(value, bool) else "True or False"
        elif name == "reasoning_effort":
            helps = "" if value in get_args(ReasoningEffort) else f"one of {', '.join(get_args(ReasoningEffort))}"
        elif name == "tool_choice" and value not in ("auto", "required", "none"):
            names = value if isinstance(value, list | tuple) else ()
            are_names = names and all(isinstance(one, str) for one in names)
            helps = "" if are_names else "auto, required, none or a list of names of tools"
        if helps:
            raise InvalidInput(f"{name} is {describe_value(value)}: give {helps}")


_RANGES = {
    "fresh_tail_messages": (1, 10_000),
    "leaf_min_fanout": (1, 1_000),
    "leaf_chunk_tokens": (500, 200_000),
    "leaf_target_tokens": (80, 20_000),
    "condensed_min_fanout": (2, 20),
    "condensed_target_tokens": (80, 20_000),
}


def check_summaries(settings: Mapping[str, Any]) -> None:
    """Check an agent's setting `summaries`. Raises: InvalidInput, naming field and value."""
    if (summaries := read_object(SUMMARIES, settings, SummarySettings)) is None:
        return
    if summaries.author not in ("model", "code"):
        raise InvalidInput(f"{SUMMARIES}.author is {summaries.author!r:.80}: give model or code")
    if not isinstance(summaries.background, bool):
        raise InvalidInput(f"{SUMMARIES}.background is {summaries.background!r:.80}: give true or false")
    check_range(f"{SUMMARIES}.context_threshold", summaries.context_threshold, 0.1, 1, whole=False)
    for name, (least, most) in _RANGES.items():
        check_range(f"{SUMMARIES}.{name}", getattr(summaries, name), least, most)
    if summaries.fresh_tail_tokens is not None:
        check_range(f"{SUMMARIES}.fresh_tail_tokens", summaries.fresh_tail_tokens, 0, 1_000_000)


_KINDS: Mapping[str, tuple[type, str]] = {
    "model": (str, "the handle of a model"),
    "prompt": (str, "a text"),
    "acknowledge": (bool, "true or false"),
    "options": (Mapping, "an object with options of the model"),
}
"""Field -> what it has to be, in words."""


def check_compaction(settings: Mapping[str, Any]) -> None:
    """Check an agent's setting `compaction`. Raises: InvalidInput, naming field and value."""
    if (compaction := read_object(COMPACTION, settings, CompactionSettings)) is None:
        return
    if compaction.mode is not None and compaction.mode not in (modes := get_args(CompactionMode)):
        raise InvalidInput(f"{COMPACTION}.mode is {compaction.mode!r:.80}: give one of {', '.join(modes)}")
    for name, (kind, words) in _KINDS.items():
        field = getattr(compaction, name)
        if field is not None and not isinstance(field, kind):
            raise InvalidInput(f"{COMPACTION}.{name} is {field!r:.80}: give {words}")
    if compaction.evict_share is not None:
        check_range(f"{COMPACTION}.evict_share", compaction.evict_share, 0, 1, whole=False)
    if compaction.clip_chars is not None:
        check_range(f"{COMPACTION}.clip_chars", compaction.clip_chars, 0, 10**9)
