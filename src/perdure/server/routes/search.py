"""Finding what is remembered: the passages of an agent or of archives, and messages.

What a search did, and what it could not do and why, is in the answer with `explain`, and always in a header.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from perdure.core.errors import InvalidInput
from perdure.core.messages import Role
from perdure.core.passages import TagMatch
from perdure.library.services.passages import passage_filter
from perdure.search.hits import SearchReport
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath
from perdure.server.limits import Tags
from perdure.server.wire.search import (
    FOUND_MAX,
    MessageSearch,
    PassageSearch,
    agent_passages_shape,
    messages_shape,
    passages_shape,
    ran_shape,
)
from perdure.server.wire.values import Date, Filled

router = APIRouter(tags=["search"])

AGENT_FOUND = 10
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
    hits = await library.services.search.passages(
        query,
        passage_filter(tags=tags or (), tag_match=tag_match_mode),
        agent_id=agent_id,
        files=False,
        since=start_datetime,
        until=end_datetime,
        limit=top_k or AGENT_FOUND,
        explain=explain,
    )
    return _answer(agent_passages_shape(hits, explain=explain), hits.ran)


@router.post("/v1/passages/search")
async def search_passages(body: PassageSearch, library: Library) -> Response:
    """The passages of an agent and its files, of an archive, or of all archives that best match, best first; without a
    query the newest. Dates and times without an offset are in UTC, or where the agent lives."""
    if body.query is not None:
        _check_query("body.query", body.query)
    hits = await library.services.search.passages(
        body.query or "",
        passage_filter(tags=body.tags or (), tag_match=body.tag_match_mode),
        agent_id=body.agent_id,
        archive_id=body.archive_id,
        since=body.start_date,
        until=body.end_date,
        limit=body.limit,
        explain=body.explain,
    )
    return _answer(passages_shape(hits, explain=body.explain), hits.ran)


@router.post("/v1/messages/search")
async def search_messages(body: MessageSearch, library: Library) -> Response:
    """The messages of an agent, of a conversation, or of all agents that best match, best first; what was said, without
    the results of tools."""
    _check_query("body.query", body.query)
    if body.conversation_id == "default" and body.agent_id is None:
        raise InvalidInput("body.conversation_id: 'default' needs the agent_id whose first conversation is meant")
    found = await library.services.search.messages(
        body.query,
        mode=body.search_mode,
        agent_id=body.agent_id,
        conversation_id=body.conversation_id,
        roles=SAID,
        since=body.start_date,
        until=body.end_date,
        limit=body.limit,
        explain=body.explain,
    )
    return _answer(messages_shape(found.hits, found.conversations, explain=body.explain), found.hits.ran)


def _check_query(name: str, query: str) -> None:
    if not query.strip():
        raise InvalidInput(f"{name} is empty: say what to look for")


def _answer(shape: Any, ran: SearchReport) -> Response:
    answer = json_answer(shape)
    report = {name: value for name, value in ran_shape(ran).items() if name in ("arms", "left_out")}
    answer.headers[RAN_HEADER] = json.dumps(report)[:1_000]
    return answer
