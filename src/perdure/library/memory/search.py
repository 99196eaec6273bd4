"""Search of passages and messages, and recall: finding what is remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypedDict, get_args

from perdure.core.agents import Agent, AgentFilter
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, ConversationId
from perdure.core.incoming.zones import check_zone
from perdure.core.messages import MessageFilter, Role
from perdure.core.passages import PassageFilter
from perdure.domain.archives.units import archives_of
from perdure.domain.values import check_range
from perdure.engine.search.search import Search
from perdure.library.parts.checks import check_choice, check_limit, check_number, check_text, utc
from perdure.library.parts.part import AsyncAgentPart, find_conversation
from perdure.search.ranking.hits import HITS_MAX, Hits, MessageHit, PassageHit, Recalled, RecallScope, SearchReport
from perdure.search.ranking.query import parse_time
from perdure.storage.tx import Tx

BUDGET_TOKENS = 2_000
BUDGET_MAX_TOKENS = 200_000

OWNERS_MAX = 100
"""The most agents or archives that one search covers, if the caller names none: those used last, the newest."""

SearchMode = Literal["vector", "fts", "hybrid"]
"""By vectors only, by words only, by both."""

Moment = datetime | str | None
"""A time with a zone, or an ISO date or time as text: without an offset where the agent lives, else in UTC."""


class RecallOptions(TypedDict, total=False):
    """How a recall builds its text; see `AsyncAgent.recall`."""

    budget_tokens: int
    blocks: bool
    messages: bool
    floor: float
    explain: bool


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Hits in the histories of several agents. `conversations`: (agent, number) -> id of each with a hit."""

    hits: Hits[MessageHit]
    conversations: Mapping[tuple[AgentId, int], ConversationId]


class AsyncSearch(AsyncAgentPart):
    """Search and recall, of an agent or of all; `AsyncAgent` has these methods. `explain`: each hit says `why` it was
    found; `ran` of the hits says what the search did."""

    _words_only: Search | None = None  # one for all calls: it remembers what it has read of each history

    async def search(
        self,
        text: str,
        *,
        roles: Sequence[Role] = (),
        since: Moment = None,
        until: Moment = None,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
    ) -> Hits[MessageHit]:
        """The messages of the history that best match, best first; for an empty text the newest. `ran` says how.

        Args:
            roles: only messages of these roles; empty: of all.
            since, until: only messages of this time; times with a zone, or ISO dates or times where the agent
                lives; both included.
            limit, offset: how many hits to return, and how many to skip before them; a search finds at most 1,000.
            explain: whether each hit says `why` it was found.
        Raises: InvalidInput: a time without a zone, an unknown role, a limit below 1 or above 10,000.
        """
        _check_search(text, limit, offset)
        for role in roles:
            check_choice("a role", role, get_args(Role))
        zone = "UTC"
        if isinstance(since, str) or isinstance(until, str):
            zone = (await self._ports.store.read(lambda tx: tx.agents.get(self.id))).timezone
        first, last = period(since, until, zone)
        where = MessageFilter(roles=tuple(roles), since=first, until=last)
        return await self._ports.search.messages(
            self.id, text, where=where, limit=limit, offset=offset, explain=explain
        )

    async def recall(
        self,
        query: str,
        *,
        conversation: ConversationId | None = None,
        without: ConversationId | None = None,
        archives: Sequence[ArchiveId] | None = None,
        budget_tokens: int = BUDGET_TOKENS,
        blocks: bool = True,
        messages: bool = True,
        floor: float = 0.0,
        explain: bool = False,
        timezone: str = "UTC",
    ) -> Recalled:
        """What the agent remembers about a query, as one text for any model, with its sources. Nothing is changed.

        Args:
            conversation, archives: only messages of this one, and passages of these; by default of all.
            without: no messages of this conversation.
            budget_tokens: the most tokens of the text.
            blocks, messages: whether the text may contain blocks, and messages.
            floor: leave out passages and messages with a score below this, 0 to 1.
            timezone: of dates in the text, if there is no agent.
            explain: whether each source says `why` it was found.
        Raises: InvalidInput: an empty query, a budget below 1 or above 200,000, a floor outside 0 to 1; NotFound.
        """
        check_text("query", query)
        if not query.strip():
            raise InvalidInput("query is empty: say what is looked for")
        check_budget(budget_tokens)
        check_range("floor", floor, 0, 1, whole=False)
        if archives is not None and not isinstance(archives, list | tuple | set | frozenset):
            raise InvalidInput(f"archives is {archives!r:.80}: give a list of ids")
        for archive_id in archives or ():
            check_text("an archive's id", archive_id)
        if self._agent_id is None and not archives:
            raise InvalidInput("there is nothing to recall from: name an agent, archives, or both")
        check_zone(timezone)
        seq: int | None = None
        if self._agent_id is not None and conversation is not None:
            seq = (await self._ports.store.read(find_conversation, self._agent_id, conversation)).seq
        scope = RecallScope(
            agent_id=self._agent_id,
            archives=None if archives is None else tuple(archives),
            conversation_seq=seq,
            in_view=None if without is None else (await self._seq_of(without), 0),
            messages=messages,
            blocks=blocks,
            features=None if self._agent_id is None or archives is not None else {},
            budget_tokens=budget_tokens,
            floor=floor,
            explain=explain,
            timezone=timezone,
        )
        return await self._ports.search.recall(scope, query, count=self._app.ports.counter.count)

    async def search_passages(
        self,
        text: str,
        where: PassageFilter,
        *,
        archive_id: ArchiveId | None = None,
        files: bool = True,
        since: str | None = None,
        until: str | None = None,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
    ) -> Hits[PassageHit]:
        """The passages of an agent, of an archive, or of all archives that best match; for an empty text the newest.

        Args:
            files: search also what the files of the agent's folders say.
            since, until: ISO dates or times in place of those in `where`; without an offset where the agent lives,
                else in UTC.
        Raises: NotFound; InvalidInput: a value that can't be used.
        """
        _check_search(text, limit, offset)
        if self._agent_id is None and archive_id is not None:
            archives, zone = [archive_id], "UTC"
        else:
            archives, zone = await self._ports.store.read(_archives_to_search, self._agent_id, archive_id, files)
        if since is not None or until is not None:
            first, last = period(since, until, zone)
            where = replace(where, since=first, until=last)
        return await self._ports.search.passages(
            archives,
            text,
            where=where,
            limit=limit,
            offset=offset,
            explain=explain,
            timezone=zone,
            skip_deleted=archive_id is None,
        )

    async def search_messages(
        self,
        text: str,
        *,
        mode: SearchMode = "hybrid",
        agent_id: AgentId | None = None,
        conversation_id: str | None = None,
        roles: Sequence[Role] = (),
        since: Moment = None,
        until: Moment = None,
        limit: int = 10,
        explain: bool = False,
    ) -> FoundMessages:
        """The messages of an agent, of a conversation ("default": the agent's first), or of all agents that best match.
        Raises: NotFound; InvalidInput: a value that can't be used, no vectors here."""
        agents, seq = await self._ports.store.read(_agents_to_search, agent_id, conversation_id)
        zone = agents[0].timezone if len(agents) == 1 else "UTC"
        first, last = period(since, until, zone)
        where = MessageFilter(conversation_seq=seq, roles=tuple(roles), since=first, until=last)
        by_vector = mode == "vector"
        search, most = self._search(mode), HITS_MAX if by_vector else limit
        scopes = await self._ports.store.read(lambda tx: tx.messages.scopes([one.id for one in agents], where=where))
        found = [
            await search.messages(
                agent.id, text, where=where, limit=most, explain=explain or by_vector, known=(agent, scopes[agent.id])
            )
            for agent in agents
            if agent.id in scopes
        ]
        hits = _by_cosine(found) if by_vector else _by_score(found)
        del hits[limit:]
        keys = sorted({(hit.message.agent_id, hit.message.conversation_seq) for hit in hits})
        conversations = await self._ports.store.read(lambda tx: tx.conversations.list_by_keys(keys))
        return FoundMessages(hits, {conversation.key: conversation.id for conversation in conversations})

    def _search(self, mode: SearchMode) -> Search:
        """The search of this mode. Raises: InvalidInput: there are no vectors here."""
        app = self._app
        if mode == "vector" and app.embedder is None:
            raise InvalidInput(
                f"search_mode 'vector' needs an embedder, and there is none here: {app.embedding_reason}"
            )
        if mode != "fts":
            return self._ports.search
        if self._words_only is None:
            reason, limits = "search_mode is 'fts'", self._ports.search.limits
            self._words_only = Search(app.store, app.ports.clock, reason=reason, limits=limits)
        return self._words_only


def _check_search(text: Any, limit: Any, offset: Any) -> None:
    """Check the arguments of a search. Raises: InvalidInput."""
    check_limit(limit)
    check_number("offset", offset)
    check_text("text", text)


def period(since: Moment, until: Moment, zone: str) -> tuple[datetime | None, datetime | None]:
    """(since, until) in UTC; None: no bound. `zone` is that of texts without an offset, and a date alone as `until` is
    the whole day. Raises: InvalidInput."""
    return _moment("since", since, zone), _moment("until", until, zone, end=True)


def _moment(name: str, value: Moment, zone: str, *, end: bool = False) -> datetime | None:
    """A moment in UTC; a date alone is its first moment, or with `end` its last. Raises: InvalidInput, by this name."""
    return parse_time(name, value, timezone=zone, end=end) if isinstance(value, str) else utc(name, value)


def _archives_to_search(
    tx: Tx, agent_id: AgentId | None, archive_id: ArchiveId | None, files: bool
) -> tuple[list[ArchiveId], str]:
    """(archives, time zone) of an agent, with those of its files if `files`; only one archive, if it is given; without
    an agent the newest archives of all. Raises: NotFound."""
    if agent_id is None:
        return [archive.id for archive in tx.archives.list(newest_first=True, limit=OWNERS_MAX)], "UTC"
    own = [archive.id for archive in archives_of(tx, agent_id, files=files)]
    if archive_id is not None and archive_id not in own:
        raise NotFound("archive", archive_id, hint="the agent has no such archive")
    return own if archive_id is None else [archive_id], tx.agents.get(agent_id).timezone


def _agents_to_search(
    tx: Tx, agent_id: AgentId | None, conversation_id: str | None
) -> tuple[Sequence[Agent], int | None]:
    """Return (agents, number of the conversation): the agent, if it or a conversation is given, else those used last;
    None: all conversations. Raises: NotFound, InvalidInput."""
    seq: int | None = None
    if conversation_id is not None:
        first = conversation_id == "default"
        conversation = find_conversation(tx, agent_id, None if first else ConversationId(conversation_id))
        agent_id, seq = conversation.agent_id, conversation.seq
    if agent_id is not None:
        return [tx.agents.get(agent_id)], seq
    return tx.agents.page(where=AgentFilter(hidden=False), order="used", limit=OWNERS_MAX), None


def _by_score(found: Sequence[Hits[MessageHit]]) -> Hits[MessageHit]:
    """The hits of several agents as one list, best first."""
    if len(found) == 1:
        return found[0]
    hits = sorted((hit for hits in found for hit in hits), key=lambda hit: -hit.score)
    return Hits(hits, _sum_reports(hits.ran for hits in found))


def _by_cosine(found: Sequence[Hits[MessageHit]]) -> Hits[MessageHit]:
    """The hits that have a vector, those nearest to the vector of the query first."""
    near = [
        (hit.why.cosine, hit) for hits in found for hit in hits if hit.why is not None and hit.why.cosine is not None
    ]
    near.sort(key=lambda pair: -pair[0])
    return Hits([replace(hit, score=cosine) for cosine, hit in near], _sum_reports(hits.ran for hits in found))


def _sum_reports(reports: Iterable[SearchReport]) -> SearchReport:
    """One report for several searches: their counts added up."""
    every = list(reports)
    if not every:
        return SearchReport()
    return replace(
        every[0],
        left_out={arm: why for report in every for arm, why in report.left_out.items()},
        rows=sum(report.rows for report in every),
        pool=sum(report.pool for report in every),
    )


def check_budget(budget_tokens: int) -> None:
    """Check that a budget is a whole number of tokens that an answer may have. Raises: InvalidInput."""
    if type(budget_tokens) is not int or not 1 <= budget_tokens <= BUDGET_MAX_TOKENS:
        raise InvalidInput(f"budget_tokens is {budget_tokens!r:.80}: give a number from 1 to {BUDGET_MAX_TOKENS:,}")
