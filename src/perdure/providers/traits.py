"""What has been learned of models: by their servers' listings, by trying them, and by their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from perdure.core.models import ModelTraits

ADDRESS: Final = "address"
SPEED_CHANGE = 1.25
"""A speed is news if it differs this much: it is measured with every answer."""

_UNSURE = (("takes_tools", False), ("calling", "none"))
_NAMES = frozenset(field.name for field in fields(ModelTraits))


class LearnedTraits:
    """Handle -> the traits that were learned of the model at one address. At another address nothing of it holds.

    `on_change` is called with a handle whose traits have changed, by whoever has learned them.
    """

    def __init__(self) -> None:
        self._learned: dict[str, dict[str, Any]] = {}
        self.on_change: Callable[[str], None] = lambda handle: None

    def of(self, handle: str, base: ModelTraits, *, address: str) -> ModelTraits:
        """The traits of a model, as far as they are learned in place of those of `base`."""
        learned = self._learned.get(handle)
        if learned is None or learned.get(ADDRESS) != address:
            return base
        return replace(base, **{name: value for name, value in learned.items() if name in _NAMES})

    def add(self, handle: str, traits: Mapping[str, Any], *, address: str) -> None:
        """Learn these traits, by their names."""
        before = self._learned.get(handle, {})
        before = before if before.get(ADDRESS) == address else {ADDRESS: address}
        after = {**before, **traits}
        if "tokens_per_s" in traits and not _is_news(before.get("tokens_per_s"), traits["tokens_per_s"]):
            after["tokens_per_s"] = before["tokens_per_s"]
        if after != before:
            self._learned[handle] = after
            self.on_change(handle)

    def stored(self, handle: str) -> dict[str, Any]:
        """What is stored of a model, as JSON; not that it makes no calls, which its server's restart may change."""
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


def first_answer_s(traits: ModelTraits, *, prompt_tokens: int, answer_tokens: int = 30) -> float | None:
    """How long the first answer of a conversation takes with a prompt of this size; None: nothing is measured."""
    if traits.tokens_per_s is None:
        return None
    read, written = traits.tokens_per_s
    return prompt_tokens / max(0.1, read) + answer_tokens / max(0.1, written)


def _is_news(before: tuple[float, float] | None, after: tuple[float, float]) -> bool:
    """Whether one of two speeds has changed much."""
    if before is None:
        return True
    return any(max(old, new) > SPEED_CHANGE * min(old, new) for old, new in zip(before, after, strict=True))
