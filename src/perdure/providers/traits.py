"""What has been learned of models: by their servers' listings, by trying them, and by their answers.

Listings are parsed without I/O: of llama.cpp `/v1/models` (`meta`) and `/props`; of vLLM `max_model_len`; of LM Studio
`/api/v0/models`; of Ollama `/api/ps` and `/api/show`. What a model was trained for (`n_ctx_train`,
`max_context_length`) is no window of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from perdure.core.models import ModelTraits

ADDRESS: Final = "address"
SPEED_CHANGE = 1.25
"""A speed is news if it differs this much: it is measured with every answer."""

ANSWER_TOKENS = 30
"""A short answer, of which people are told how long it takes."""

_UNSURE = (("takes_tools", False), ("calling", "none"))
_NAMES = frozenset(field.name for field in fields(ModelTraits))


class LearnedTraits:
    """The traits that were learned of models, by handle, each at one address of its server: at another they don't hold.

    `on_change` is called by `add` with a handle whose traits have changed.
    """

    def __init__(self) -> None:
        self._learned: dict[str, dict[str, Any]] = {}
        # Handle -> the newest answer, and what it was made of: each message asks several times.
        self._known: dict[str, tuple[ModelTraits, dict[str, Any], ModelTraits]] = {}
        self.on_change: Callable[[str], None] = lambda handle: None

    def of(self, handle: str, base: ModelTraits, *, address: str) -> ModelTraits:
        """Return the traits `base` of a model, updated by those that were learned of it at this address."""
        learned = self._learned.get(handle)
        if learned is None or learned.get(ADDRESS) != address:
            return base
        known = self._known.get(handle)
        if known is None or known[0] != base or known[1] is not learned:
            traits = replace(base, **{name: value for name, value in learned.items() if name in _NAMES})
            known = self._known[handle] = base, learned, traits
        return known[2]

    def add(self, handle: str, traits: Mapping[str, Any], *, address: str) -> None:
        """Learn traits of a model at an address: name in `ModelTraits` -> value."""
        before = self._learned.get(handle, {})
        before = before if before.get(ADDRESS) == address else {ADDRESS: address}
        after = {**before, **traits}
        if "tokens_per_s" in traits and not _is_news(before.get("tokens_per_s"), traits["tokens_per_s"]):
            after["tokens_per_s"] = before["tokens_per_s"]
        if after != before:
            self._learned[handle] = after
            self.on_change(handle)

    def stored(self, handle: str) -> dict[str, Any]:
        """Return what to store of a model, as JSON; not "makes no calls", which its server's restart may change."""
        known = self._learned.get(handle, {})
        return {name: value for name, value in known.items() if (name, value) not in _UNSURE}

    def put_stored(self, stored: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over what was stored, except of models that something has been learned of since."""
        for handle, traits in stored.items():
            known = {name: value for name, value in traits.items() if name in _NAMES or name == ADDRESS}
            if isinstance(speeds := known.get("tokens_per_s"), list):
                known["tokens_per_s"] = tuple(speeds)
            self._learned.setdefault(handle, known)


def describe_calling(traits: ModelTraits) -> str:
    """What a model does about tools, as the rest of a sentence about it."""
    if not traits.takes_tools:
        return "is offered no tools: its server or its template takes none"
    match traits.calling:
        case "native":
            return "calls tools"
        case "text":
            return "writes its tool calls as text, which is read"
        case "none":
            return "calls no tools; memory is kept and recalled for it without its help"
        case None:
            return "has not been asked to call a tool yet"


def first_answer_s(traits: ModelTraits, *, prompt_tokens: int) -> float | None:
    """How long the first answer of a conversation takes with a prompt of this size; None: nothing is measured."""
    if traits.tokens_per_s is None:
        return None
    read, written = traits.tokens_per_s
    return prompt_tokens / max(0.1, read) + ANSWER_TOKENS / max(0.1, written)


def _is_news(before: tuple[float, float] | None, after: tuple[float, float]) -> bool:
    """Whether one of two speeds, (tokens read, tokens written) a second, has changed much."""
    if before is None:
        return True
    return any(max(old, new) > SPEED_CHANGE * min(old, new) for old, new in zip(before, after, strict=True))


TOKENS_MAX = 100_000_000
_WINDOWS = ("max_model_len", "loaded_context_length", "context_length", "context_window")
_SERVERS = {"llamacpp": "llamacpp", "vllm": "vllm", "library": "ollama", "organization_owner": "lmstudio"}
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


ServerTraits = Mapping[str, Any]
"""What a server says of a model, by the names of `ModelTraits`: the program that runs it, its window, how many
parameters it has, whether its template shows tools to the model. Without what it does not say."""


def _known_traits(**traits: Any) -> dict[str, Any]:
    """The traits without those that are None or empty, which are not known."""
    return {name: value for name, value in traits.items() if value not in (None, "")}


def join_traits(first: ServerTraits, *others: ServerTraits) -> ServerTraits:
    """What several answers say together; of several windows the smallest, which is that of a slot."""
    windows = [one["window_tokens"] for one in (first, *others) if "window_tokens" in one]
    both = {name: value for one in (first, *others) for name, value in one.items()}
    return both | _known_traits(window_tokens=min(windows, default=None))


def served_in(answer: Any) -> dict[str, ServerTraits]:
    """Model -> what a list of models says of it: `/v1/models`, or `/api/v0/models` of LM Studio."""
    rows = ((row.get("id") or row.get("name"), _row_traits(row)) for row in _rows(answer, "data", "models"))
    return {name: traits for name, traits in rows if isinstance(name, str) and name and traits}


def _row_traits(row: Mapping[str, Any]) -> ServerTraits:
    """What one row of a list of models says of its model."""
    meta = row.get("meta")
    meta = meta if isinstance(meta, Mapping) else {}
    windows = [meta.get("n_ctx"), *map(row.get, _WINDOWS)]
    # LM Studio also lists what is not loaded; it then loads it with a window that nobody knows yet.
    is_loaded = row.get("state") in (None, "loaded")
    return _known_traits(
        server=_SERVERS.get(str(row.get("owned_by")), "lmstudio" if "loaded_context_length" in row else ""),
        window_tokens=next(filter(None, map(_tokens, windows)), None) if is_loaded else None,
        parameters=_count(meta.get("n_params")),
    )


def props_of(answer: Any) -> ServerTraits:
    """What `/props` of llama.cpp says: the window of each slot."""
    settings = answer.get("default_generation_settings") if isinstance(answer, Mapping) else None
    if not isinstance(settings, Mapping):
        return {}
    return _known_traits(server="llamacpp", window_tokens=_tokens(settings.get("n_ctx")))


def loaded_in(answer: Any, name: str) -> ServerTraits:
    """What `/api/ps` of Ollama says of a model; nothing, as long as it is not loaded."""
    for row in _rows(answer, "models"):
        if row.get("name") in (name, f"{name}:latest"):
            return _known_traits(
                server="ollama", window_tokens=_tokens(row.get("context_length")), parameters=_size(row)
            )
    return {}


def ollama_traits(answer: Any) -> ServerTraits:
    """What `/api/show` of Ollama says of a model."""
    if not isinstance(answer, Mapping):
        return {}
    info, able = answer.get("model_info"), answer.get("capabilities")
    count = _count(info.get("general.parameter_count")) if isinstance(info, Mapping) else None
    return _known_traits(
        server="ollama",
        parameters=count or _size(answer),
        takes_tools="tools" in able if isinstance(able, list) else None,
    )


def _rows(answer: Any, *names: str) -> Iterator[Mapping[str, Any]]:
    """Return the items of the list under the first of these names that has one."""
    for name in names:
        rows = answer.get(name) if isinstance(answer, Mapping) else None
        if isinstance(rows, list):
            yield from (row for row in rows if isinstance(row, Mapping))
            return


def _size(row: Mapping[str, Any]) -> int | None:
    """The number of parameters in Ollama's details, such as "1.5B"."""
    details = row.get("details")
    size = details.get("parameter_size") if isinstance(details, Mapping) else None
    match = re.fullmatch(r"\s*([\d.]{1,20})\s*([KMBT])\s*", size.upper()) if isinstance(size, str) else None
    try:
        return _count(round(float(match[1]) * _UNITS[match[2]])) if match else None
    except ValueError:
        return None


def _tokens(value: Any) -> int | None:
    """The value, if it is a number of tokens."""
    return value if type(value) is int and 0 < value < TOKENS_MAX else None


def _count(value: Any) -> int | None:
    """The value, if it is a count."""
    return value if type(value) is int and 0 < value < 1 << 60 else None
