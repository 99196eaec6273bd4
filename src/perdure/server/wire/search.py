"""Searches as the wire asks for them, and what they found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from perdure.core.ids import AgentId, ArchiveId
from perdure.core.messages import Message
from perdure.core.passages import Passage, TagMatch
from perdure.library.services.search import SearchMode
from perdure.search.hits import Hits, MessageHit, PassageHit, SearchReport, Why
from perdure.server.ids import IdFormat
from perdure.server.limits import Tags
from perdure.server.wire.base import WireRequest, stamp
from perdure.server.wire.passages import passage_shape
from perdure.server.wire.values import Date, Filled

FOUND = 50
FOUND_MAX = 1_000

_AgentId = Annotated[AgentId, IdFormat("agent")]
_ArchiveId = Annotated[ArchiveId, IdFormat("archive")]
_Limit = Annotated[int, Field(ge=1, le=FOUND_MAX)]


class PassageSearch(WireRequest):
    """Which passages are looked for; without a query the newest. Without an agent or archive, in all archives."""

    query: Filled | None = None
    agent_id: _AgentId | None = None
    archive_id: _ArchiveId | None = None
    tags: Tags | None = None
    tag_match_mode: TagMatch = "any"
    start_date: Date | None = None
    end_date: Date | None = None
    limit: _Limit = FOUND
    explain: bool = False


class MessageSearch(WireRequest):
    """Which messages are looked for. Without an agent, in the histories of all."""

    query: Filled
    search_mode: SearchMode = "hybrid"
    agent_id: _AgentId | None = None
    conversation_id: Annotated[str, IdFormat("conversation", words=("default",))] | None = None
    start_date: Date | None = None
    end_date: Date | None = None
    limit: _Limit = FOUND
    explain: bool = False


def agent_passages_shape(hits: Hits[PassageHit], *, explain: bool) -> dict[str, Any]:
    """What a search of an agent's passages found, best first: `{"results": [{id, timestamp, content, tags}], "count":
    n}`; with `explain` each says why, and `ran` what the search did."""
    shape: dict[str, Any] = {
        "results": [
            {
                "id": hit.passage.id,
                "timestamp": stamp(hit.passage.occurred_at),
                "content": hit.passage.text,
                "tags": list(hit.passage.tags),
            }
            | ({"explanation": _explanation(hit.score, hit.why)} if explain else {})
            for hit in hits
        ],
        "count": len(hits),
    }
    return shape | ({"ran": ran_shape(hits.ran)} if explain else {})


def passages_shape(hits: Hits[PassageHit], *, explain: bool) -> list[dict[str, Any]]:
    """What a search of passages found, best first: `[{passage, score, metadata}]`; of a file's passage the metadata
    say its lines, and its page if it has pages."""
    return [
        {"passage": passage_shape(hit.passage), "score": hit.score, "metadata": _place(hit.passage)}
        | ({"explanation": _explanation(hit.score, hit.why, hits.ran)} if explain else {})
        for hit in hits
    ]


def _place(passage: Passage) -> dict[str, Any]:
    return {name: passage.source[name] for name in ("first_line", "last_line", "page") if name in passage.source}


def messages_shape(
    hits: Hits[MessageHit], conversations: Mapping[tuple[AgentId, int], str], *, explain: bool
) -> list[dict[str, Any]]:
    """What a search of messages found, best first, each with the agent and conversation (by agent and number) it is
    of."""
    return [
        _message(hit.message, conversations)
        | {"score": hit.score}
        | ({"explanation": _explanation(hit.score, hit.why, hits.ran)} if explain else {})
        for hit in hits
    ]


def ran_shape(ran: SearchReport) -> dict[str, Any]:
    """What a search did."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(ran).items()}


def _message(message: Message, conversations: Mapping[tuple[AgentId, int], str]) -> dict[str, Any]:
    return {
        "message_type": f"{message.role}_message",
        "message_id": message.id,
        "content": message.text,
        "created_at": stamp(message.occurred_at),
        "agent_id": message.agent_id,
        "conversation_id": conversations.get((message.agent_id, message.conversation_seq)),
        "name": message.name,
    }


def _explanation(score: float, why: Why | None, ran: SearchReport | None = None) -> dict[str, Any]:
    shape: dict[str, Any] = {"score": score}
    if why is not None:
        shape |= {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(why).items()}
    return shape | ({"ran": ran_shape(ran)} if ran is not None else {})
