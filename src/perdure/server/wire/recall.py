"""Recall as HTTP shows and takes it. It is no part of Letta's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from perdure.core.ids import AgentId, ArchiveId, ConversationId
from perdure.library.services.search import BUDGET_MAX_TOKENS, BUDGET_TOKENS
from perdure.search.hits import SearchReport, Why
from perdure.search.recalled import Recalled, Source
from perdure.server.ids import IdFormat
from perdure.server.limits import Items
from perdure.server.wire.base import WireRequest, stamp
from perdure.server.wire.values import Filled, keywords

_AgentId = Annotated[AgentId, IdFormat("agent")]
_ArchiveId = Annotated[ArchiveId, IdFormat("archive")]
_ConversationId = Annotated[ConversationId, IdFormat("conversation")]


class _RecallIn(WireRequest):
    query: Filled
    budget_tokens: Annotated[int, keywords(minimum=1, maximum=BUDGET_MAX_TOKENS)] = BUDGET_TOKENS
    archive_ids: Items[_ArchiveId] | None = None
    blocks: bool = True
    messages: bool = True
    floor: Annotated[float, keywords(minimum=0, maximum=1)] = 0.0
    explain: bool = False


class AgentRecallIn(_RecallIn):
    """What is asked of one agent. `archive_ids`: only passages of these; by default of all that it has."""

    conversation_id: _ConversationId | None = None


class RecallIn(_RecallIn):
    """What is asked of archives, and of an agent if one is named. `timezone` is of dates where no agent has one."""

    agent_id: _AgentId | None = None
    timezone: str = "UTC"


def recalled_shape(found: Recalled) -> dict[str, Any]:
    """The text with its sources; a source has the fields of its kind, and `why` where it was asked for."""
    return {
        "text": found.text,
        "tokens": found.tokens,
        "budget_tokens": found.budget_tokens,
        "sources": [_source_shape(source) for source in found.sources],
        "left_out": found.left_out,
        "ran": {name: _ran_shape(ran) for name, ran in found.ran.items()},
    }


def _source_shape(source: Source) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "number": source.number,
        "kind": source.kind,
        "id": source.id,
        "score": source.score,
        "tokens": source.tokens,
        "first": source.first,
        "last": source.last,
        "chars": source.chars,
    }
    match source.kind:
        case "block":
            shape |= {"label": source.label}
        case "passage":
            shape |= {
                "archive_id": source.archive_id,
                "archive_name": source.archive_name,
                "source": dict(source.source or {}),
                "path": source.path,
                "lines": source.lines,
                "occurred_at": stamp(source.occurred_at),
            }
        case "turn":
            shape |= {
                "conversation_id": source.conversation_id,
                "seq": source.seq,
                "role": source.role,
                "name": source.name,
                "occurred_at": stamp(source.occurred_at),
                "beside": list(source.beside),
            }
    return shape if source.why is None else shape | {"why": _why_shape(source.why)}


def _why_shape(why: Why) -> Mapping[str, Any]:
    return {
        "score": why.score,
        "parts": dict(why.parts),
        "words": why.words,
        "session_words": why.session_words,
        "cosine": why.cosine,
        "neighbours": list(why.neighbours),
    }


def _ran_shape(ran: SearchReport) -> Mapping[str, Any]:
    return {
        "arms": list(ran.arms),
        "left_out": dict(ran.left_out),
        "words": list(ran.words),
        "spans": list(ran.spans),
        "rows": ran.rows,
        "pool": ran.pool,
    }
