"""Search of passages and messages, and recall for programs that use Perdure as their memory.

What a search did, and what it could not do and why, is in the answer with `explain`, and always in a header. Recall is
no part of Letta's API.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from typing_extensions import TypedDict

from perdure.core.errors import InvalidInput, rename_arguments
from perdure.core.messages import Role
from perdure.core.passages import Passage, PassageState, TagMatch
from perdure.core.text.reprs import attributes
from perdure.library.memory.passages import passage_filter
from perdure.library.memory.search import BUDGET_MAX_TOKENS, BUDGET_TOKENS, SearchMode
from perdure.library.perdure import AsyncPerdure
from perdure.search.ranking import hits as found
from perdure.search.ranking.hits import HITS_MAX, RecallSource, SearchReport
from perdure.server.wire import archives
from perdure.server.wire import fields as ids
from perdure.server.wire.base import WireRequest, fields
from perdure.server.wire.http import Json, Library, Router, json_answer
from perdure.server.wire.shapes import Object, WireShape, computed

_Limit = Annotated[int, Field(ge=1, le=HITS_MAX)]

_DATES = {"since": "start_date", "until": "end_date"}
"""An argument of the library -> the field of a body that it comes from."""

_PLACE_FIELDS = ("first_line", "last_line", "page")
_SOURCE_FIELDS = ("number", "kind", "id", "score", "tokens", "first", "last", "chars")
_SOURCE_FIELDS_BY_KIND = {
    "block": ("label",),
    "fact": ("entities", "refs", "occurred_at"),
    "passage": ("archive_id", "archive_name", "source", "path", "lines", "occurred_at"),
    "turn": ("conversation_id", "seq", "role", "name", "occurred_at", "beside"),
}


class PassageSearch(WireRequest):
    """A search for passages; without a query the newest. Without an agent or archive, in all archives; without states,
    those that are not archived."""

    query: ids.Filled | None = None
    agent_id: ids.AgentIdIn | None = None
    archive_id: ids.ArchiveIdIn | None = None
    tags: ids.Tags | None = None
    tag_match_mode: TagMatch = "any"
    start_date: ids.Date | None = None
    end_date: ids.Date | None = None
    states: ids.Items[PassageState] | None = None
    limit: _Limit = 50
    explain: bool = False


class MessageSearch(WireRequest):
    """A search for messages. Without an agent, in the histories of all."""

    query: ids.Filled
    search_mode: SearchMode = "hybrid"
    agent_id: ids.AgentIdIn | None = None
    conversation_id: ids.ConversationOrDefault | None = None
    start_date: ids.Date | None = None
    end_date: ids.Date | None = None
    limit: _Limit = 50
    explain: bool = False


class _Recall(WireRequest):
    """The fields of every recall."""

    query: ids.Filled
    budget_tokens: Annotated[int, ids.keywords(minimum=1, maximum=BUDGET_MAX_TOKENS)] = BUDGET_TOKENS
    archive_ids: ids.Items[ids.ArchiveIdIn] | None = None
    blocks: bool = True
    messages: bool = True
    floor: Annotated[float, ids.keywords(minimum=0, maximum=1)] = 0.0
    explain: bool = False


class AgentRecallIn(_Recall):
    """A recall from one agent. `archive_ids`: only passages of these; by default of all that it has."""

    conversation_id: ids.ConversationIdIn | None = None


class RecallIn(_Recall):
    """A recall from archives, and from an agent if one is named. `timezone` is of dates where no agent has one."""

    agent_id: ids.AgentIdIn | None = None
    timezone: str = "UTC"


class FoundPassage(WireShape, of=Passage, fields="id timestamp content tags", timestamp="occurred_at", content="text"):
    """A passage of an agent that a search found; with `explain` also why."""


class FoundPassages(TypedDict):
    results: list[FoundPassage]
    count: int


class WirePassageHit(WireShape, of=found.PassageHit, fields="passage score metadata"):
    """A passage that a search found. The metadata of a file's passage are its lines, and its page if it has pages."""

    passage: archives.WirePassage
    metadata: Object = computed(
        lambda hit: {name: hit.passage.source[name] for name in _PLACE_FIELDS if name in hit.passage.source}
    )


class FoundMessage(
    WireShape,
    of=found.MessageHit,
    fields="message.agent_id message.name score",
    message_id="message.id",
    content="message.text",
    created_at="message.occurred_at",
):
    """A message that a search found."""

    message_type: str = computed(lambda hit: f"{hit.message.role}_message")
    conversation_id: ids.ConversationIdIn | None


class WireRecalled(WireShape, of=found.Recalled, fields="text tokens budget_tokens left_out"):
    """A recalled text with its sources; a source has the fields of its kind, and `why` if the request has `explain`."""

    sources: list[Object] = computed(lambda recalled: [_source_shape(source) for source in recalled.sources])
    ran: Object = computed(lambda recalled: {name: asdict(report) for name, report in recalled.ran.items()})


def _source_shape(source: RecallSource) -> dict[str, Any]:
    """A source of a recalled text, with the fields of its kind."""
    shape = fields(source, *_SOURCE_FIELDS, *_SOURCE_FIELDS_BY_KIND[source.kind])
    if source.kind == "passage":
        shape["source"] = source.source or {}
    if source.why is not None:
        shape["why"] = asdict(source.why)
        del shape["why"]["same"]
    return shape


def _hit_shape(hit: found.PassageHit | found.MessageHit, explain: bool, ran: SearchReport | None = None) -> Object:
    """With `explain` a field that says why a hit was found, and what its search did."""
    if not explain:
        return {}
    why = {} if hit.why is None else asdict(hit.why)
    return {"explanation": {"score": hit.score, **why} | ({} if ran is None else {"ran": asdict(ran)})}


router = Router(tags=["search"])

REPORT_HEADER = "x-perdure-ran"
SEARCHED_ROLES: tuple[Role, ...] = ("user", "assistant", "system")


@router.get("/v1/agents/{agent_id}/archival-memory/search")
async def search_agent(
    agent_id: ids.AgentIdIn,
    library: Library,
    query: Annotated[ids.Filled, Query(description="What to look for.")],
    tags: Annotated[ids.Tags | None, Query()] = None,
    tag_match_mode: TagMatch = "any",
    top_k: Annotated[int | None, Query(ge=1, le=HITS_MAX)] = None,
    start_datetime: Annotated[ids.Date | None, Query(description="From this date or time on, included.")] = None,
    end_datetime: Annotated[
        ids.Date | None, Query(description="Up to this date or time; a date is the whole day.")
    ] = None,
    state: Annotated[
        ids.Items[PassageState] | None, Query(description="Several: any of them; without it, active and faded.")
    ] = None,
    explain: Annotated[bool, Query(description="Have each hit say why it was found.")] = False,
) -> Json[FoundPassages]:
    """Search an agent's passages, best first. Dates and times without an offset are in the agent's time zone."""
    _check_query("query", query)
    where = passage_filter(tags=tags or (), tag_match=tag_match_mode, states=state or ())
    with rename_arguments({"since": "start_datetime", "until": "end_datetime"}):
        hits = await library.agent_of(agent_id).search_passages(
            query, where, files=False, since=start_datetime, until=end_datetime, limit=top_k or 10, explain=explain
        )
    results = [FoundPassage.make(hit.passage, **_hit_shape(hit, explain)) for hit in hits]
    ran = {"ran": asdict(hits.ran)} if explain else {}
    return _answer({"results": results, "count": len(hits), **ran}, hits.ran)


@router.post("/v1/passages/search")
async def search_passages(body: PassageSearch, library: Library) -> Json[list[WirePassageHit]]:
    """Search the passages of an agent and its files, of an archive, or of all archives, best first; without a query the
    newest. Dates and times without an offset are in the agent's time zone, or else in UTC."""
    if body.query is not None:
        _check_query("body.query", body.query)
    where = passage_filter(tags=body.tags or (), tag_match=body.tag_match_mode, states=body.states or ())
    with rename_arguments(_DATES):
        hits = await library.agent_of(body.agent_id).search_passages(
            body.query or "", where, **attributes(body, "archive_id", "limit", "explain", **_DATES)
        )
    return _answer([WirePassageHit.make(hit, **_hit_shape(hit, body.explain, hits.ran)) for hit in hits], hits.ran)


@router.post("/v1/agents/messages/search", include_in_schema=False)  # where clients before 1.0 search
@router.post("/v1/messages/search")
async def search_messages(body: MessageSearch, library: Library) -> Json[list[FoundMessage]]:
    """Search the messages of an agent, of a conversation, or of all agents, best first, without results of tools."""
    _check_query("body.query", body.query)
    if body.conversation_id == "default" and body.agent_id is None:
        raise InvalidInput("body.conversation_id: 'default' needs the agent_id whose first conversation is meant")
    with rename_arguments(_DATES):
        results = await library.search.search_messages(
            body.query,
            roles=SEARCHED_ROLES,
            **attributes(body, "agent_id", "conversation_id", "limit", "explain", mode="search_mode", **_DATES),
        )
    shapes = []
    for hit in results.hits:
        conversation_id = results.conversations.get((hit.message.agent_id, hit.message.conversation_seq))
        explained = _hit_shape(hit, body.explain, results.hits.ran)
        shapes.append(FoundMessage.make(hit, conversation_id=conversation_id, **explained))
    return _answer(shapes, results.hits.ran)


@router.post("/v1/agents/{agent_id}/recall")
async def recall_of_agent(agent_id: ids.AgentIdIn, body: AgentRecallIn, library: Library) -> WireRecalled:
    """Recall the best of the agent's memory and messages for a query, within a budget of tokens."""
    return await _recall(library, {**dict(body), "agent_id": agent_id})


@router.post("/v1/recall")
async def recall(body: RecallIn, library: Library) -> WireRecalled:
    """The same of archives, with or without an agent."""
    return await _recall(library, dict(body))


async def _recall(library: AsyncPerdure, options: dict[str, Any]) -> WireRecalled:
    """Answer with a recall; `options` are the fields of the body."""
    agent_id, archives = options.pop("agent_id", None), options.pop("archive_ids")
    found = await library.agent_of(agent_id).recall(
        options.pop("query"), conversation=options.pop("conversation_id", None), archives=archives, **options
    )
    return WireRecalled.make(found)


def _check_query(name: str, query: str) -> None:
    """Raises: InvalidInput: the query is empty."""
    if not query.strip():
        raise InvalidInput(f"{name} is empty: say what to look for")


def _answer(shape: Any, report: SearchReport) -> Json[Any]:
    """Answer with the results, and the report of the search in a header."""
    answer = json_answer(shape)
    arms = {"arms": report.arms, "left_out": dict(report.left_out)}
    answer.headers[REPORT_HEADER] = json.dumps(arms)[:1_000]
    return answer
