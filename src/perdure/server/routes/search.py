"""Finding what is remembered: the passages of an agent or of archives, and messages.

All of them ask the one search there is. What it did, and what it could not do and why, is told with `explain`, and
always in a header.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from perdure.app import App
from perdure.core.agents import AgentFilter
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, ConversationId
from perdure.core.messages import MessageFilter, Role
from perdure.core.passages import PassageFilter, TagMatch
from perdure.domain.archives.units import archives_of
from perdure.domain.values import filter_tags
from perdure.engine.search.search import Search
from perdure.search.hits import Hits, MessageHit, SearchReport
from perdure.search.query.times import parse_time
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath
from perdure.server.limits import Tags
from perdure.server.wire.search import (
    FOUND_MAX,
    MessageSearch,
    PassageSearch,
    SearchMode,
    agent_passages_shape,
    messages_shape,
    passages_shape,
    ran_shape,
)
from perdure.server.wire.values import Date, Filled
from perdure.storage.tx import Tx

__all__ = ["router"]

router = APIRouter(tags=["search"])

AGENT_FOUND = 10
SCOPES_MAX = 100
"""So many agents or archives are searched by one request; where there are more, one has to be named."""

RAN_HEADER = "x-perdure-ran"
SAID: tuple[Role, ...] = ("user", "assistant", "system")


@router.get("/v1/agents/{agent_id}/archival-memory/search")
async def search_agent(
    agent_id: AgentPath,
    library: Library,
    query: Annotated[Filled, Query(description="What to look for.")],
    tags: Annotated[Tags | None, Query()] = None,
    tag_match_mode: TagMatch = "any",
    top_k: Annotated[int | None, Query(ge=1, le=FOUND_MAX)] = None,
    start_datetime: Annotated[Date | None, Query(description="From this date or time on, included.")] = None,
    end_datetime: Annotated[Date | None, Query(description="Up to this date or time; a date is the whole day.")] = None,
    explain: Annotated[bool, Query(description="Have each hit say why it was found.")] = False,
) -> Response:
    """The passages that best match, best first. Dates and times without an offset are where the agent lives."""
    _check_query("query", query)
    zone = (await library.app.store.read(lambda tx: tx.agents.get(agent_id))).timezone
    where = PassageFilter(
        tags=filter_tags(tags or ()),
        tag_match=tag_match_mode,
        since=parse_time(start_datetime, timezone=zone),
        until=parse_time(end_datetime, timezone=zone, end=True),
    )
    hits = await library.app.search.passages(agent_id, query, where=where, limit=top_k or AGENT_FOUND, explain=explain)
    return _answer(agent_passages_shape(hits, explain=explain), hits.ran)


@router.post("/v1/passages/search")
async def search_passages(body: PassageSearch, library: Library) -> Response:
    """The passages of an agent and its files, of an archive, or of all archives that best match, best first; without a
    query the newest. Dates and times without an offset are in UTC, or where the agent lives."""
    if body.query is not None:
        _check_query("body.query", body.query)
    app = library.app
    zone = "UTC"
    if body.agent_id is not None:
        zone = (await app.store.read(lambda tx: tx.agents.get(AgentId(body.agent_id or "")))).timezone
    where = PassageFilter(
        tags=filter_tags(body.tags or ()),
        tag_match=body.tag_match_mode,
        since=parse_time(body.start_date, timezone=zone),
        until=parse_time(body.end_date, timezone=zone, end=True),
    )
    archives = await app.store.read(_archives, body)
    hits = await app.search.passages(
        archives,
        body.query or "",
        where=where,
        limit=body.limit,
        explain=body.explain,
        timezone=zone,
        skip_deleted=body.archive_id is None,
    )
    return _answer(passages_shape(hits, explain=body.explain), hits.ran)


@router.post("/v1/messages/search")
async def search_messages(body: MessageSearch, library: Library, request: Request) -> Response:
    """The messages of an agent, of a conversation, or of all agents that best match, best first; what was said, without
    the results of tools."""
    _check_query("body.query", body.query)
    app = library.app
    agents, conversation_seq = await app.store.read(_agents, body)
    zone = agents[0][1] if len(agents) == 1 else "UTC"
    where = MessageFilter(
        conversation_seq=conversation_seq,
        roles=SAID,
        since=parse_time(body.start_date, timezone=zone),
        until=parse_time(body.end_date, timezone=zone, end=True),
    )
    by_vector = body.search_mode == "vector"
    search = _search_of(request, app, body.search_mode)
    limit = FOUND_MAX if by_vector else body.limit
    found = [
        await search.messages(agent_id, body.query, where=where, limit=limit, explain=body.explain or by_vector)
        for agent_id, _ in agents
    ]
    hits = _by_cosine(found) if by_vector else _by_score(found)
    del hits[body.limit :]
    places = {(hit.message.agent_id, hit.message.conversation_seq) for hit in hits}
    conversations = await app.store.read(lambda tx: {place: tx.conversations.at(*place).id for place in sorted(places)})
    return _answer(messages_shape(hits, conversations, explain=body.explain), hits.ran)


def _check_query(name: str, query: str) -> None:
    if not query.strip():
        raise InvalidInput(f"{name} is empty: say what to look for")


def _archives(tx: Tx, asked: PassageSearch) -> list[ArchiveId]:
    """The archives to search. Raises: NotFound; InvalidInput: there are too many to search them all."""
    if asked.agent_id is not None:
        own = [archive.id for archive in archives_of(tx, AgentId(asked.agent_id), files=True)]
        if asked.archive_id is None:
            return own
        if asked.archive_id not in own:
            raise NotFound("archive", asked.archive_id, hint="the agent has no such archive")
    if asked.archive_id is not None:
        return [tx.archives.get(ArchiveId(asked.archive_id)).id]
    found = [archive.id for archive in tx.archives.list(limit=SCOPES_MAX + 1)]
    if len(found) > SCOPES_MAX:
        raise InvalidInput(f"there are more than {SCOPES_MAX} archives: give agent_id or archive_id")
    return found


def _agents(tx: Tx, asked: MessageSearch) -> tuple[list[tuple[AgentId, str]], int | None]:
    """(id, time zone) of the agents to search, and the number of the conversation. Raises: NotFound; InvalidInput:
    there are too many to search them all."""
    named = None if asked.agent_id is None else AgentId(asked.agent_id)
    seq: int | None = None
    if asked.conversation_id == "default":
        if named is None:
            raise InvalidInput("body.conversation_id: 'default' needs the agent_id whose first conversation is meant")
        seq = 0
    elif asked.conversation_id is not None:
        conversation = tx.conversations.get(ConversationId(asked.conversation_id))
        if named not in (None, conversation.agent_id):
            raise NotFound("conversation", conversation.id, hint="the agent has no such conversation")
        named, seq = conversation.agent_id, conversation.seq
    if named is not None:
        return [(named, tx.agents.get(named).timezone)], seq
    agents = tx.agents.page(where=AgentFilter(hidden=False), limit=SCOPES_MAX + 1)
    if len(agents) > SCOPES_MAX:
        raise InvalidInput(f"there are more than {SCOPES_MAX} agents: give agent_id")
    return [(agent.id, agent.timezone) for agent in agents], None


def _search_of(request: Request, app: App, mode: SearchMode) -> Search:
    """The search of this mode. Raises: InvalidInput: there are no vectors here."""
    if mode == "vector" and app.embedder is None:
        raise InvalidInput(f"search_mode 'vector' needs an embedder, and there is none here: {app.embedding_reason}")
    if mode != "fts":
        return app.search
    state = request.app.state
    if not hasattr(state, "words_only"):  # one for all requests: it remembers what it has read of each history
        state.words_only = Search(app.store, app.ports.clock, reason="search_mode is 'fts'")
    words_only: Search = state.words_only
    return words_only


def _by_score(found: Iterable[Hits[MessageHit]]) -> Hits[MessageHit]:
    """The hits of several agents as one list."""
    every = list(found)
    if len(every) == 1:
        return every[0]
    hits = sorted((hit for hits in every for hit in hits), key=lambda hit: -hit.score)
    return Hits(hits, _together([hits.ran for hits in every]))


def _by_cosine(found: Iterable[Hits[MessageHit]]) -> Hits[MessageHit]:
    """Those that have a vector, the one most like the query's first."""
    every = list(found)
    near = [
        (hit.why.cosine, hit) for hits in every for hit in hits if hit.why is not None and hit.why.cosine is not None
    ]
    near.sort(key=lambda pair: -pair[0])
    return Hits([replace(hit, score=cosine) for cosine, hit in near], _together([hits.ran for hits in every]))


def _together(several: list[SearchReport]) -> SearchReport:
    """What several searches of one query did."""
    if not several:
        return SearchReport()
    first = several[0]
    return replace(
        first,
        left_out={arm: why for ran in several for arm, why in ran.left_out.items()},
        rows=sum(ran.rows for ran in several),
        pool=sum(ran.pool for ran in several),
    )


def _answer(shape: Any, ran: SearchReport) -> Response:
    answer = json_answer(shape)
    told = {name: value for name, value in ran_shape(ran).items() if name in ("arms", "left_out")}
    answer.headers[RAN_HEADER] = json.dumps(told)[:1_000]
    return answer
