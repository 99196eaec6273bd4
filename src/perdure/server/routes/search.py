"""Search of passages and messages, and recall for programs that use Perdure as their memory.

What a search did, and what it could not do and why, is in the answer with `explain`, and always in a header.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from perdure.core.errors import InvalidInput
from perdure.core.messages import Role
from perdure.core.passages import PassageState, TagMatch
from perdure.core.text.reprs import attributes
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.passages import passage_filter
from perdure.search.hits import HITS_MAX, SearchReport
from perdure.server.http import Library, json_answer
from perdure.server.wire.fields import AgentIdIn, Date, Filled, Items, Tags
from perdure.server.wire.search import (
    AgentRecallIn,
    MessageSearch,
    PassageSearch,
    RecallIn,
    agent_passages_shape,
    messages_shape,
    passages_shape,
    recall_shape,
)

router = APIRouter(tags=["search"])

REPORT_HEADER = "x-perdure-ran"
SEARCHED_ROLES: tuple[Role, ...] = ("user", "assistant", "system")


@router.get("/v1/agents/{agent_id}/archival-memory/search")
async def search_agent(
    agent_id: AgentIdIn,
    library: Library,
    query: Annotated[Filled, Query(description="What to look for.")],
    tags: Annotated[Tags | None, Query()] = None,
    tag_match_mode: TagMatch = "any",
    top_k: Annotated[int | None, Query(ge=1, le=HITS_MAX)] = None,
    start_datetime: Annotated[Date | None, Query(description="From this date or time on, included.")] = None,
    end_datetime: Annotated[Date | None, Query(description="Up to this date or time; a date is the whole day.")] = None,
    state: Annotated[
        Items[PassageState] | None, Query(description="Several: any of them; without it, active and faded.")
    ] = None,
    explain: Annotated[bool, Query(description="Have each hit say why it was found.")] = False,
) -> Response:
    """Search an agent's passages, best first. Dates and times without an offset are in the agent's time zone."""
    _check_query("query", query)
    hits = await library.services.search.passages(
        query,
        passage_filter(tags=tags or (), tag_match=tag_match_mode, states=state or ()),
        agent_id=agent_id,
        files=False,
        since=start_datetime,
        until=end_datetime,
        limit=top_k or 10,
        explain=explain,
    )
    return _answer(agent_passages_shape(hits, explain=explain), hits.ran)


@router.post("/v1/passages/search")
async def search_passages(body: PassageSearch, library: Library) -> Response:
    """Search the passages of an agent and its files, of an archive, or of all archives, best first; without a query the
    newest. Dates and times without an offset are in the agent's time zone, or else in UTC."""
    if body.query is not None:
        _check_query("body.query", body.query)
    hits = await library.services.search.passages(
        body.query or "",
        passage_filter(tags=body.tags or (), tag_match=body.tag_match_mode, states=body.states or ()),
        **attributes(body, "agent_id", "archive_id", "limit", "explain", since="start_date", until="end_date"),
    )
    return _answer(passages_shape(hits, explain=body.explain), hits.ran)


@router.post("/v1/messages/search")
async def search_messages(body: MessageSearch, library: Library) -> Response:
    """Search the messages of an agent, of a conversation, or of all agents, best first, without results of tools."""
    _check_query("body.query", body.query)
    if body.conversation_id == "default" and body.agent_id is None:
        raise InvalidInput("body.conversation_id: 'default' needs the agent_id whose first conversation is meant")
    results = await library.services.search.messages(
        body.query,
        roles=SEARCHED_ROLES,
        **attributes(body, "agent_id", "conversation_id", "limit", "explain", mode="search_mode"),
        **attributes(body, since="start_date", until="end_date"),
    )
    return _answer(messages_shape(results.hits, results.conversations, explain=body.explain), results.hits.ran)


@router.post("/v1/agents/{agent_id}/recall")
async def recall_of_agent(agent_id: AgentIdIn, body: AgentRecallIn, library: Library) -> Response:
    """Recall the best of the agent's blocks, passages and messages for a query, within a budget of tokens. It changes
    nothing."""
    return await _recall(library, {**dict(body), "agent_id": agent_id})


@router.post("/v1/recall")
async def recall(body: RecallIn, library: Library) -> Response:
    """The same of archives, with or without an agent."""
    return await _recall(library, dict(body))


async def _recall(library: AsyncPerdure, options: dict[str, Any]) -> Response:
    """Answer with a recall; `options` are the fields of the body."""
    archives = options.pop("archive_ids")
    return json_answer(recall_shape(await library.services.search.recall(**options, archives=archives)))


def _check_query(name: str, query: str) -> None:
    """Raises: InvalidInput: the query is empty."""
    if not query.strip():
        raise InvalidInput(f"{name} is empty: say what to look for")


def _answer(shape: Any, report: SearchReport) -> Response:
    """Answer with the results, and the report of the search in a header."""
    answer = json_answer(shape)
    arms = {"arms": report.arms, "left_out": dict(report.left_out)}
    answer.headers[REPORT_HEADER] = json.dumps(arms)[:1_000]
    return answer
