"""Where memories and answers come from, on the wire. No part of Letta's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from perdure.core.ids import ID_PATTERNS
from perdure.core.provenance.sources import TRUST_LABELS, RevertResult, SourceSummary, TrustLabel, WriteKind, WriteText
from perdure.server.wire.answers.messages import Object
from perdure.server.wire.base import WireRequest, fields
from perdure.server.wire.fields import keywords

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


def source_shape(one: SourceSummary) -> Mapping[str, Any]:
    """A source."""
    counts = ("blocks", "passages", "facts", "reverted")
    shape = fields(one, "title", *counts, "first_at", "last_at", label="source.label", name="source.name")
    return {"source": str(one.source)} | shape


def write_shape(one: WriteText) -> Mapping[str, Any]:
    """A write."""
    names = ("id", "kind", "label", "agent_id", "run_id", "message_id", "created_at", "reverted_by")
    sources = [{"source": str(each.source), "message_ids": each.message_ids} for each in one.write.sources]
    return fields(one.write, *names) | fields(one, "name", "text", "stands") | {"sources": sources}


def revert_shape(result: RevertResult) -> Mapping[str, Any]:
    """What a revert did."""
    conflicts = [fields(one, "name", "reason", "value", "merged", write="write_id") for one in result.conflicts]
    shape = fields(result, "writes", "blocks", "passages", "facts", "correction", dry_run="is_dry_run")
    return shape | {"conflicts": conflicts}


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
