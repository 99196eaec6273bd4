"""The sources of memory on the wire. No part of Letta's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from typing_extensions import TypedDict

from perdure.core.errors import InvalidInput
from perdure.core.provenance.sources import RevertResult, SourceSummary, TrustLabel, WriteKind, WriteText
from perdure.server.wire.base import WireRequest, stamp
from perdure.server.wire.fields import FILLED, keywords

WRITES_MAX = 1_000

SourceName = Annotated[str, keywords(pattern=FILLED, minLength=1, maxLength=600)]
WriteId = Annotated[str, keywords(pattern=FILLED, minLength=1, maxLength=100)]


class RevertIn(WireRequest):
    """What to take back: all from a `source` or run, or these `writes`; with `dry_run` only say what would go."""

    source: SourceName | None = None
    writes: Annotated[list[WriteId], keywords(minItems=1, maxItems=WRITES_MAX)] | None = None
    dry_run: bool = False

    def check(self) -> None:
        """Raises: InvalidInput: unless it has one of the two."""
        if (self.source is None) == (self.writes is None):
            raise InvalidInput("give either source, such as 'web:https://example.com', or writes, a list of ids")


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
    return {
        "source": str(one.source),
        "label": one.source.label,
        "name": one.source.name,
        "title": one.title,
        "blocks": one.blocks,
        "passages": one.passages,
        "facts": one.facts,
        "reverted": one.reverted,
        "first_at": stamp(one.first_at),
        "last_at": stamp(one.last_at),
    }


def write_shape(one: WriteText) -> Mapping[str, Any]:
    """A write."""
    write = one.write
    return {
        "id": write.id,
        "kind": write.kind,
        "name": one.name,
        "label": write.label,
        "sources": [{"source": str(each.source), "message_ids": list(each.message_ids)} for each in write.sources],
        "text": one.text,
        "stands": one.stands,
        "agent_id": write.agent_id,
        "run_id": write.run_id,
        "message_id": write.message_id,
        "created_at": stamp(write.created_at),
        "reverted_by": write.reverted_by,
    }


def revert_shape(result: RevertResult) -> Mapping[str, Any]:
    """What a revert did."""
    return {
        "dry_run": result.is_dry_run,
        "writes": list(result.writes),
        "blocks": result.blocks,
        "passages": result.passages,
        "facts": result.facts,
        "conflicts": [
            {"write": one.write_id, "name": one.name, "reason": one.reason, "value": one.value, "merged": one.merged}
            for one in result.conflicts
        ],
        "correction": result.correction,
    }
