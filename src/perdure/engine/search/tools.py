"""The built-in tools that search: they change nothing, so they run before the transaction that stores their result.

A search may wait for a query's vector, and its ranking takes time that the one writer does not have.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from perdure.context.sections.expand import Budget
from perdure.core.documents import Chunk, Document
from perdure.core.errors import ToolError
from perdure.core.messages import Message, MessageFilter
from perdure.core.models import without_notice
from perdure.core.nodes import message_handle
from perdure.core.passages import Passage, PassageFilter
from perdure.core.runs import Run
from perdure.core.specs import ToolOutcome
from perdure.core.text.dates.in_words import add_dates
from perdure.core.text.zones import local, zone
from perdure.core.tools.engine_specs import feature_tools
from perdure.domain.conversations.handles import resolve_handle
from perdure.domain.provenance.context import sources_of_messages, sources_of_passages
from perdure.domain.tools.context_tools import DEFAULT_TOKENS, answer_budget
from perdure.domain.values import filter_tags
from perdure.engine.search.search import QUERY_TIMEOUT_S, Search
from perdure.search.chunking import ChunkSizes, chunks
from perdure.search.ranking.hits import MessageHit, SearchReport
from perdure.search.ranking.query import parse_time
from perdure.storage.store import Store
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    from perdure.search.output import OutputParts


MAX_RESULTS = 50
OFFSET_MAX = 950
RESULTS, QUERIES_MAX, MINUTES_MAX = 5, 10, 100_000_000  # of `search_memory`: the first for each query
SHOWN_CHARS = 2_000  # of one result; the whole text stays where it is


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCall:
    """What a search tool needs beside its arguments.

    Args:
        timezone: the agent's.
        budget: the size of an answer about files.
    """

    run: Run
    timezone: str
    now: datetime
    search: Search
    store: Store
    budget: Budget


async def _conversation_search(
    call: SearchCall,
    query: str | None = None,
    roles: list[str] | None = None,
    limit: int = 5,
    offset: int = 0,
    start_date: str | None = None,
    end_date: str | None = None,
) -> ToolOutcome:
    """The tool `conversation_search`: find messages of the agent's whole history, the newest without a query."""
    where = MessageFilter(
        roles=tuple(roles or ()),  # type: ignore[arg-type]  # checked against the schema's enum
        since=parse_time("start_date", start_date, timezone=call.timezone),
        until=parse_time("end_date", end_date, timezone=call.timezone, end=True),
        before_seq=call.run.first_message_seq,  # what is being said just now is in view anyway
    )
    limit, offset = max(1, min(limit, MAX_RESULTS)), max(0, min(offset, OFFSET_MAX))
    agent_id = call.run.key.agent_id
    hits = await call.search.messages(agent_id, query or "", where=where, limit=limit, offset=offset)
    results = [_message_shape(hit, hits.ran, call) for hit in hits]
    summary = f"Showing {len(results)} results:" if results else "No results found."
    if offset > 0 and results:
        summary = f"Showing {len(results)} results behind the first {offset}:"
    text = json.dumps({"message": summary, "results": results}, ensure_ascii=False)
    return ToolOutcome(text=text, sources=await call.store.read(sources_of_messages, [hit.message for hit in hits]))


async def _archival_memory_search(
    call: SearchCall,
    query: str,
    tags: list[str] | None = None,
    tag_match_mode: str = "any",
    top_k: int = 10,
    offset: int = 0,
    start_datetime: str | None = None,
    end_datetime: str | None = None,
) -> ToolOutcome:
    """The tool `archival_memory_search`: find passages of the agent's archives."""
    where = PassageFilter(
        tags=filter_tags(tags or ()),
        tag_match="all" if tag_match_mode == "all" else "any",
        since=parse_time("start_datetime", start_datetime, timezone=call.timezone),
        until=parse_time("end_datetime", end_datetime, timezone=call.timezone, end=True),
    )
    limit, offset = max(1, min(top_k, MAX_RESULTS)), max(0, min(offset, OFFSET_MAX))
    hits = await call.search.passages(call.run.key.agent_id, query, where=where, limit=limit, offset=offset)
    results = [_passage_shape(hit.passage) for hit in hits]
    passages = tuple(hit.passage for hit in hits)
    sources = await call.store.read(sources_of_passages, passages)
    return ToolOutcome(text=json.dumps(results, ensure_ascii=False), passages=passages, sources=sources)


async def _search_memory(
    call: SearchCall,
    convo_keyword_queries: list[str] | None = None,
    start_minutes_ago: int | None = None,
    end_minutes_ago: int | None = None,
) -> ToolOutcome:
    """The tool `search_memory`: find messages and passages for each query, the newest messages without one."""
    since, until = (
        None if minutes is None else call.now - timedelta(minutes=max(0, min(minutes, MINUTES_MAX)))
        for minutes in (start_minutes_ago, end_minutes_ago)
    )
    agent_id, before = call.run.key.agent_id, call.run.first_message_seq
    of_messages = MessageFilter(roles=("user", "assistant"), since=since, until=until, before_seq=before)
    of_passages = PassageFilter(since=since, until=until)
    messages: dict[int, dict[str, Any]] = {}
    found_messages: dict[int, Message] = {}
    passages: dict[str, Passage] = {}
    queries = [query for query in convo_keyword_queries or () if query.strip()][:QUERIES_MAX]
    for query in queries or [""]:
        hits = await call.search.messages(agent_id, query, where=of_messages, limit=RESULTS)
        for hit in hits:
            messages.setdefault(hit.message.seq, _message_shape(hit, hits.ran, call))
            found_messages[hit.message.seq] = hit.message
    for query in queries:
        for found in await call.search.passages(agent_id, query, where=of_passages, limit=RESULTS):
            passages.setdefault(found.passage.id, found.passage)
    shape = {"messages": [*messages.values()], "archival": [_passage_shape(passage) for passage in passages.values()]}
    text, shown = json.dumps(shape, ensure_ascii=False), tuple(passages.values())

    sources = await call.store.read(
        lambda tx: (*sources_of_messages(tx, [*found_messages.values()]), *sources_of_passages(tx, shown))
    )
    return ToolOutcome(text=text, passages=shown, sources=tuple(dict.fromkeys(sources)))


def _message_shape(hit: MessageHit, ran: SearchReport, call: SearchCall) -> dict[str, Any]:
    """Return a hit as the model sees it, with the dates that its words count from their day."""
    message = hit.message
    text = cut(without_notice(message.text))
    if message.role != "tool":
        text = add_dates(text, said_at=local(message.occurred_at, zone(call.timezone)))
    return {
        "timestamp": message.occurred_at.isoformat(timespec="seconds"),
        "time_ago": _describe_age(call.now, message.occurred_at),
        "role": message.role,
        **({"name": message.name} if message.name and message.role != "tool" else {}),
        "relevance": _relevance(hit, ran),
        "content": text,
    }


def _passage_shape(passage: Passage) -> dict[str, Any]:
    """Return a passage as the model sees it."""
    return {
        "timestamp": passage.occurred_at.isoformat(timespec="seconds"),
        "content": cut(passage.text),
        "tags": list(passage.tags),
        "id": passage.id,
    }


async def _search_output(
    call: SearchCall, handle: str, query: str, max_tokens: int = DEFAULT_TOKENS, offset: int = 0
) -> ToolOutcome:
    """The tool `search_output`: find the passages of a long tool result that match."""
    budget = answer_budget(call.budget, max_tokens)
    message = await call.store.read(load_output, call.run, handle)
    text = await search_output(call.search, message, query, budget, offset=offset)
    return ToolOutcome(text=text, sources=await call.store.read(sources_of_messages, [message]))


def _relevance(hit: MessageHit, ran: SearchReport) -> dict[str, Any]:
    """Return how a message was found, and its score, which compares within a search; without a query there is none."""
    if not ran.arms:
        return {"search_mode": "newest"}
    return {"search_mode": "hybrid" if "vectors" in ran.arms else "fts", "score": round(hit.score, 3)}


def cut(text: str) -> str:
    """Return the beginning of a result's text, with how much is left out."""
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… [{len(text) - SHOWN_CHARS:,} more characters]"


def _describe_age(now: datetime, then: datetime) -> str:
    """Return how long ago `then` was, such as "3 days ago"."""
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def count_use(tx: Tx, passages: Sequence[Passage]) -> None:
    """Count that the passages were shown: what is used often comes a little earlier."""
    for archive_id in dict.fromkeys(passage.archive_id for passage in passages):
        seqs = [passage.seq for passage in passages if passage.archive_id == archive_id]
        tx.passages.count(archive_id, seqs, "uses")


_SEARCH_TOOLS: Mapping[str, Callable[..., Awaitable[ToolOutcome]]] = {
    "conversation_search": _conversation_search,
    "archival_memory_search": _archival_memory_search,
    "search_memory": _search_memory,
    "search_output": _search_output,
}
"""Name -> what it does."""


@functools.cache
def search_tools() -> Mapping[str, Callable[..., Awaitable[ToolOutcome]]]:
    """Return the search tools by name: those of this module, and those of features."""
    return {**_SEARCH_TOOLS, **feature_tools(searching=True)}


SIZES = ChunkSizes(target=500, most=800)
"""Of the passages of an output; smaller than those of files, since each token counts."""


def load_output(tx: Tx, run: Run, handle: str) -> Message:
    """Return the message of a handle. Raises: ToolError: it is of no single message, or of none with a text."""
    target = resolve_handle(tx, run, handle)
    if not isinstance(target, Message):
        raise ToolError(f"{handle[:40]!r} is not one message: give the handle of a tool's result, such as msg-17")
    if not target.text.strip():
        raise ToolError(f"{message_handle(target.seq)} has no text to search")
    return target


async def search_output(search: Search, message: Message, query: str, budget: Budget, *, offset: int) -> str:
    """Return the passages of a message's text that match best, and how many there are. `offset`: how many passages are
    passed over. Raises: ToolError: the query or the offset can't be used; TooMany: the query is too long."""
    search.check_query(query)
    if not query.strip():
        raise ToolError("the query is empty: say what to look for")
    if offset < 0:
        raise ToolError(f"offset={offset} can't be used: give how many passages to pass over, 0 or more")
    from perdure.search.output import EMBEDDED

    found, order = await asyncio.to_thread(_find, message.text, query)
    if search.has_embedder:
        spread = range(0, len(found.parts), max(1, len(found.parts) // EMBEDDED))  # where words find too little
        near = list(dict.fromkeys((*order, *spread)))[:EMBEDDED]
        order = await rank_by_meaning(search, found, near, query) or order
    handle = message_handle(message.seq)
    if not order:
        return budget.cut(
            f"Nothing in {handle} ({len(found.parts):,} passages) matches. Try other words,"
            f' or context_expand("{handle}", grep="...").'
        )
    return await asyncio.to_thread(_render, [found.parts[row] for row in order], message, budget, offset)


def _find(text: str, query: str) -> tuple[OutputParts, Sequence[int]]:
    """Return the passages of a text, and the indexes of those that match the query, best first."""
    from perdure.search.output import count_words

    output_parts = count_words(chunks(Document(name="output", kind="text", text=text), sizes=SIZES), query)
    return output_parts, output_parts.rank() if output_parts.parts else ()


async def rank_by_meaning(search: Search, found: OutputParts, near: Sequence[int], query: str) -> Sequence[int] | None:
    """Return the passages ranked by words, and by vectors of those in `near`; None: there are no vectors in time."""
    import numpy as np

    wanted = await search.embed([query], purpose="query", timeout_s=QUERY_TIMEOUT_S)
    vectors = await search.embed([found.parts[row].text for row in near])
    if wanted is None or vectors is None:
        return None
    dense = np.full(len(found.parts), np.nan)
    dense[list(near)] = vectors @ wanted[0]
    return await asyncio.to_thread(found.rank, dense)


def _render(parts: Sequence[Chunk], message: Message, budget: Budget, offset: int) -> str:
    """Return as many passages as fit, each with its lines, behind the first `offset`."""
    handle, text = message_handle(message.seq), message.text
    remaining = parts[offset:]
    if not remaining:
        return budget.cut(f"There are {len(parts)} matching passages in {handle}: offset={offset} is behind them.")
    places = _places(text, parts)
    shown = [f"{places[part]}\n{part.text}" for part in remaining]

    def answer(count: int) -> str:
        """Return the answer with the first `count` of the shown passages."""
        behind = offset + count
        more = f"; the next: offset={behind}" if behind < len(parts) else ""
        last = behind if count else offset + 1
        head = f"[passages {offset + 1}-{last} of {len(parts)} that match in {handle}{more}]"
        return "\n\n".join((head, *shown[:count]))

    count = 0
    while count < len(shown) and budget.fits(answer(count + 1)):
        count += 1
    return answer(count) if count else budget.cut(f"{answer(0)}\n\n{shown[0]}")


def _places(text: str, parts: Sequence[Chunk]) -> dict[Chunk, str]:
    """Return passage -> argument of `context_expand`: `lines 12..20`, or `lines 3:500..900` in a long line."""
    places = {part: f"lines {part.first_line}..{part.last_line}" for part in parts}
    long_lines = {part.first_line for part in parts if part.first_line == part.last_line}
    if not long_lines:
        return places
    lines = text.split("\n")
    for part in parts:
        line = lines[part.first_line - 1]
        if part.first_line in long_lines and part.first_line == part.last_line and len(part.text) < len(line):
            start = line.find(part.text) + 1
            places[part] = f"lines {part.first_line}:{start}..{start + len(part.text) - 1}"
    return places
