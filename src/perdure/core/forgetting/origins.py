"""Where a fact comes from, and how origins of all kinds look as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any, Literal

from perdure.core.ids import EpisodeId, FactId, RunId, StepId
from perdure.core.sources import TrustLabel
from perdure.core.text.reprs import short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class FactVersionText:
    """A version of a fact.

    Args:
        change: why it was written, in one word; `reason` says it in a sentence.
        author: who wrote it: extraction, person, program, policy, correction or system.
        model, run_id, step_id, message_id: of an extraction: who read, and the last message from which the version
            comes, with its run.
        expired_at: until when it was believed; None: it still is.
    """

    text: str
    change: str
    reason: str
    author: str
    model: str | None = None
    run_id: str | None = None
    step_id: str | None = None
    message_id: str | None = None
    rating: float
    state: str
    valid_at: datetime | None
    invalid_at: datetime | None
    created_at: datetime
    expired_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSource:
    """What a fact was derived from. `id` is of the message or passage, or of the episode that is a text of its own.

    Args:
        run_id, step_id: of the message: the run in which it was said, and the step by which the model said it.
        text: None: it is gone.
    """

    kind: str
    id: str
    episode_id: EpisodeId
    role: str | None = None
    name: str | None = None
    trust: TrustLabel
    at: datetime
    run_id: RunId | None = None
    step_id: StepId | None = None
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactOrigin:
    """Where a fact comes from.

    Args:
        versions: all, oldest first; the times at which each was true are in the time zone of the agent.
        sources: the messages, passages and texts that support it, oldest first.
    """

    __repr__ = short_repr("id", "text", "versions", "sources")

    type: Literal["fact"] = "fact"
    id: FactId
    text: str
    subject: str
    relation: str
    object: str
    versions: tuple[FactVersionText, ...]
    sources: tuple[FactSource, ...]


def origin_shape(origin: Any) -> dict[str, Any]:
    """Return `origin`, a dataclass, as JSON has it: without fields that its `repr` hides, such as a whole request."""
    shape: dict[str, Any] = _as_json(origin)
    return shape


def _as_json(value: Any) -> Any:
    """Return a field's value as JSON has it: dataclasses as objects, tuples as lists, times as ISO 8601 text."""
    if is_dataclass(value):
        names = [each.name for each in fields(value) if each.repr]
        return {name: _as_json(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [_as_json(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.isoformat() if isinstance(value, datetime) else value
