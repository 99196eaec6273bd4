"""Where memories and answers come from, on the wire. No part of Letta's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from perdure.core.forgetting.redaction import ASCII_MIN, CHARS_MAX
from perdure.core.forgetting.values import Correction, ForgetPreview, ForgetResult, UndoResult
from perdure.core.ids import ID_PATTERNS
from perdure.core.provenance.sources import TRUST_LABELS, TrustLabel, WriteKind
from perdure.server.wire.answers.messages import Object
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


WRITES_MAX = 1_000

SOURCE_CHARS = 600
_RUN, _BLOCK, _PASSAGE, _EPISODE = (ID_PATTERNS[kind].strip("^$") for kind in ("run", "block", "passage", "episode"))
SOURCE = rf"^((run:)?{_RUN}|({'|'.join(TRUST_LABELS)}):[ -~]*[!-~][ -~]*)$"
"""What a source looks like; the documented characters are a part of those that do."""
WRITE = rf"^({_BLOCK}@[0-9]{{1,9}}|{_PASSAGE}|{_EPISODE})$"

WriteId = Annotated[str, keywords(pattern=WRITE)]


class RevertIn(WireRequest):
    """The source or run of which all is taken back; with `dry_run` only say what would go."""

    source: Annotated[str, keywords(pattern=SOURCE, maxLength=SOURCE_CHARS)]
    dry_run: bool = False


class RevertWritesIn(WireRequest):
    """The writes to take back: versions of blocks as `block-…@3`, ids of passages and episodes; with `dry_run` only say
    what would go."""

    writes: Annotated[list[WriteId], keywords(minItems=1, maxItems=WRITES_MAX)]
    dry_run: bool = False


class SourceShape(TypedDict):
    """A source of an agent's memory, with how many writes of each kind came from it and stand."""

    source: str
    label: TrustLabel
    name: str
    title: str
    blocks: int
    passages: int
    facts: int
    reverted: int
    first_at: str
    last_at: str


class WriteSourceShape(TypedDict):
    """A source of a write, with the messages that brought it."""

    source: str
    message_ids: list[str]


class WriteShape(TypedDict):
    """A write of memory, and whether any of it is still there."""

    id: str
    kind: WriteKind
    name: str
    label: TrustLabel
    sources: list[WriteSourceShape]
    text: str
    stands: bool
    agent_id: str | None
    run_id: str | None
    message_id: str | None
    created_at: str
    reverted_by: str | None


class ConflictShape(TypedDict):
    """A write that was not taken back, with what the block holds and would hold."""

    write: str
    name: str
    reason: str
    value: str
    merged: str


class RevertShape(TypedDict):
    """What was taken back, or would be. `correction` undoes it."""

    dry_run: bool
    writes: list[str]
    blocks: int
    passages: int
    facts: int
    conflicts: list[ConflictShape]
    correction: int | None


class MemoryOriginShape(TypedDict):
    type: Literal["memory"]
    kind: Literal["block", "line", "passage", "summary"]
    id: str
    label: str | None
    line: int | None
    conversation_id: str | None
    text: str
    writes: list[Object]
    earlier_writes: int
    stands_for: list[Object]
    message_count: int
    source: Object


class AnswerOriginShape(TypedDict):
    type: Literal["answer"]
    agent_id: str
    conversation_id: str
    run_id: str
    step_id: str
    message_id: str | None
    model: str
    at: str
    text: str
    blocks: list[Object]
    summaries: list[Object]
    recalled: list[Object]
    searches: list[Object]
    messages: list[Object]
    tail: str
    problem: str | None


class FactOriginShape(TypedDict):
    type: Literal["fact"]
    id: str
    text: str
    subject: str
    relation: str
    object: str
    versions: list[Object]
    sources: list[Object]
