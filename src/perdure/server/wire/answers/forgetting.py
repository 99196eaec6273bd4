"""Forgetting and undoing: what clients ask for, and the shapes of the results. No part of Letta's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from typing_extensions import TypedDict

from perdure.core.forgetting.redaction import ASCII_MIN, CHARS_MAX
from perdure.core.forgetting.values import Correction, ForgetPreview, ForgetResult, UndoResult
from perdure.server.wire.base import WireRequest, fields
from perdure.server.wire.fields import FILLED, keywords


class MentionsIn(WireRequest):
    """What to look for: a text, or the id of a message or passage for all of its text."""

    text: Annotated[str, keywords(pattern=FILLED, minLength=ASCII_MIN, maxLength=CHARS_MAX)]


class ForgetIn(MentionsIn):
    """What to forget; `erase` removes it from the store's file, for good."""

    erase: bool = False


class UndoIn(WireRequest):
    """Which correction to undo; by default the last."""

    number: Annotated[int, keywords(minimum=1, maximum=2**53)] | None = None


class Mention(TypedDict):
    """A thing in which the text stands."""

    place: str
    id: str
    name: str
    excerpt: str


class Mentions(TypedDict):
    """Where a text stands."""

    text: str
    total: int
    in_view: int
    counts: dict[str, int]
    mentions: list[Mention]
    shared_with: list[str]
    unended: bool


class CorrectionShape(TypedDict):
    """A correction that can be undone."""

    number: int
    kind: str
    text: str
    items: int
    created_at: str
    undone_at: str | None


class Forgotten(TypedDict):
    """What was forgotten; `correction` can be undone."""

    counts: dict[str, int]
    erased: bool
    correction: CorrectionShape | None


class Undone(TypedDict):
    """What was undone, and why the rest was not."""

    correction: CorrectionShape
    restored: int
    conflicts: list[str]


def mentions_shape(preview: ForgetPreview) -> Mapping[str, Any]:
    """Where a text stands."""
    mentions = [fields(one, "place", "id", "name", "excerpt") for one in preview.mentions]
    return fields(preview, "text", "total", "in_view", "counts", "shared_with", "unended") | {"mentions": mentions}


def forgotten_shape(result: ForgetResult) -> Mapping[str, Any]:
    """What was forgotten."""
    correction = None if result.correction is None else correction_shape(result.correction)
    return {"counts": dict(result.counts), "erased": result.erased, "correction": correction}


def correction_shape(one: Correction) -> Mapping[str, Any]:
    """A correction."""
    return fields(one, "number", "kind", "text", "items", "created_at", "undone_at")


def undone_shape(result: UndoResult) -> Mapping[str, Any]:
    """What was undone."""
    correction = correction_shape(result.correction)
    return {"correction": correction, "restored": result.restored, "conflicts": list(result.conflicts)}
