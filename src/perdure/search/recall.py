"""Recall: the best blocks, facts, passages and turns for a query within a budget, in one unit of work.

The searches of messages and passages find hits. Their scores are put on one scale (`recalled.Recalled`), turns get
their neighbours, and `search.packing.packing` selects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.core.agents import Agent
from perdure.core.features import Point
from perdure.core.ids import ArchiveId
from perdure.core.messages import Message, MessageFilter
from perdure.core.models import without_notice
from perdure.core.passages import CAPTURED, RECALLED_STATES, Archive, Passage, PassageFilter
from perdure.core.text.words import parse_query
from perdure.domain.archives.units import archives_of
from perdure.search.messages import RankedMessages, rank_messages, why_message
from perdure.search.packing.packing import Candidate, PackedText, pack
from perdure.search.passages import RankedPassages, rank_passages, why_passage
from perdure.search.ranking.fuse import Ranking
from perdure.search.ranking.history import LogColumns
from perdure.search.ranking.hits import Recalled, RecallScope, RecallSource, SearchReport, SearchRequest
from perdure.search.ranking.matching import clause_counts
from perdure.storage.tx import Tx

TOKENS_A_HIT = 25  # the number of candidates of each kind is the budget divided by this
CANDIDATES_MIN, CANDIDATES_MAX = 12, 150
READ_AHEAD = 2  # passages to read for each candidate: some are captured turns, and the search of messages finds those
COPIES_MAX = 500
"""Rows in view that are compared with what is recalled."""
FILL_TURNS = 80
"""The newest turns out of view that may fill the budget."""
NEIGHBOUR_HITS = 24
"""How many of the best turns bring their neighbours."""
NEIGHBOUR_SHARES = (0.5, 0.25)
"""The score of turns 1 and 2 places before and after a hit, as a share of the hit's score."""
EVIDENCE_HITS = 5
"""The evidence of a search is the largest evidence of so many first hits."""
SCORE_DIGITS = 4


@dataclass(slots=True)
class Candidates:
    """The candidates of a recall and their sources' reports. `conversations`: message id -> conversation number."""

    candidates: list[Candidate] = field(default_factory=list)
    facts: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    ran: dict[str, SearchReport] = field(default_factory=dict)
    conversations: dict[str, int] = field(default_factory=dict)

    def add(self, candidate: Candidate, **facts: Any) -> None:
        """Add a candidate; `facts` are fields of the `RecallSource` that it gets if it is selected."""
        self.candidates.append(candidate)
        self.facts.setdefault((candidate.kind, candidate.id), facts)


RECALL_HITS: Point[[Tx, Agent, SearchRequest, RecallScope, Candidates], None] = Point("recall_hits")
"""A feature adds what it finds for the request."""
RECALL_FILLS: Point[[Tx, Agent, SearchRequest, RecallScope, Candidates, Callable[[str], int]], None] = Point(
    "recall_fills"
)
"""A feature adds what may fill the budget, with tokens counted like this."""


def recall(
    tx: Tx, scope: RecallScope, turns: SearchRequest | None, passages: SearchRequest, *, count: Callable[[str], int]
) -> Recalled:
    """Recall the best of the scope that fits. Raises: NotFound: no such agent or archive.

    Args:
        turns, passages: the query for each search, in any time zone; without `turns` no messages are searched.
    """
    collection = Candidates()
    agent = None if scope.agent_id is None else tx.agents.get(scope.agent_id)
    timezone = scope.timezone if agent is None else agent.timezone
    turns, passages = turns and replace(turns, timezone=timezone), replace(passages, timezone=timezone)
    if agent is not None and scope.blocks:
        _add_blocks(tx, agent, scope.conversation_seq or 0, passages.text, collection)
    if agent is not None and scope.features is not None:
        RECALL_HITS(tx, agent, passages, scope, collection)
    archives = _archives(tx, scope)
    if archives:
        ranked = rank_passages(tx, archives, passages, where=PassageFilter(states=RECALLED_STATES))
        _add_passages(tx, ranked, archives, scope, collection)
    if agent is not None and scope.messages and turns is not None:
        where = _message_filter(tx, agent, turns, scope)
        _add_turns(tx, rank_messages(tx, agent, turns, where=where), scope, collection)
    if agent is not None and scope.fills:
        if scope.features is not None:
            RECALL_FILLS(tx, agent, passages, scope, collection, count)
        if turns is not None:
            _add_newest(tx, agent, turns, scope, collection)
    packed = pack(
        collection.candidates,
        budget=scope.budget_tokens,
        count=count,
        query=passages.text,
        timezone=timezone,
        in_words=scope.in_words,
    )
    return Recalled(
        text=packed.text,
        tokens=packed.tokens if packed.text else 0,
        budget_tokens=scope.budget_tokens,
        sources=tuple(_sources(tx, agent, packed, collection)),
        left_out=packed.left_out,
        ran=collection.ran,
    )


def _archives(tx: Tx, scope: RecallScope) -> Sequence[Archive]:
    """Load the archives to search: those that the scope names, else all of the agent's. Raises: NotFound."""
    if scope.archives is not None:
        return [tx.archives.get(archive_id) for archive_id in dict.fromkeys(scope.archives)]
    return () if scope.agent_id is None else archives_of(tx, scope.agent_id, files=True)


def _add_blocks(tx: Tx, agent: Agent, conversation_seq: int, text: str, collection: Candidates) -> None:
    """Add all blocks of the conversation, scored by the share of the query's words in them."""
    blocks = tx.blocks.list_by_agent(agent.id, conversation_seq)
    query = parse_query(text)
    counts = clause_counts(query, [block.value for block in blocks])
    word_shares = (counts > 0).sum(0) / max(1, len(query.clauses))
    for position, block in enumerate(blocks):
        collection.add(
            Candidate(
                kind="block",
                id=block.id,
                text=block.value,
                score=float(word_shares[position]),
                label=block.label,
                description=block.description or "",
                position=position,
            ),
            label=block.label,
        )


def _scale_scores(ranked: Ranking) -> NDArray[np.float64]:
    """Return the scores in order on the scale of `Recalled`, 0 to 1. They are rounded as they are shown, so that a
    floor equal to a hit's shown score lets that hit through."""
    scores, relevant = ranked.scores, ranked.relevant
    if not relevant.any():
        return np.zeros(len(scores))
    best = float(scores[relevant][0])
    plain = float(ranked.evidence()[relevant][:EVIDENCE_HITS].max())
    if best <= 0:
        scaled: NDArray[np.float64] = np.where(relevant, plain, 0.0)
    else:
        scaled = plain * np.clip(scores / best, 0.0, 1.0)
    return scaled.round(SCORE_DIGITS)


def _candidate_limit(scope: RecallScope) -> int:
    """Return how many candidates of one kind the budget has room for, within bounds."""
    return max(CANDIDATES_MIN, min(CANDIDATES_MAX, scope.budget_tokens // TOKENS_A_HIT))


def _select_hits(ranked: Ranking, scope: RecallScope, usable: Callable[[int], bool]) -> Iterator[tuple[int, float]]:
    """Yield (row of the pool, score) of the first rows that are hits themselves, within the limits of a recall."""
    count = 0
    for row, score, relevant in zip(
        ranked.order.tolist(), _scale_scores(ranked).tolist(), ranked.relevant, strict=True
    ):
        if count == _candidate_limit(scope) or score < scope.floor:
            return
        if relevant and usable(row):
            count += 1
            yield row, score


def _add_passages(
    tx: Tx, ranked: RankedPassages, archives: Iterable[Archive], scope: RecallScope, collection: Candidates
) -> None:
    """Add the hits among the passages, but captured turns that the search of messages finds."""
    names = {archive.id: archive.name for archive in archives}
    collection.ran["passages"] = ranked.ran

    order = ranked.ranked.order[: READ_AHEAD * _candidate_limit(scope)].tolist()
    passages = {row: ranked.texts.passage(row) for row in order}

    def usable(row: int) -> bool:
        """Return whether a row may be a hit."""
        return row in passages and not _is_searched_turn(passages[row], scope)

    folders: dict[ArchiveId, str] = {}

    def path_of(passage: Passage) -> str | None:
        """Return the path of a passage's file: `folder/name`; None without a file."""
        name, archive_id = passage.source.get("file_name"), passage.archive_id
        if not name or "folder_id" not in passage.source:
            return name and str(name)
        if archive_id not in folders:
            owner = tx.archives.find_owner(archive_id)
            folders[archive_id] = "" if owner is None else f"{owner.name}/"
        return f"{folders[archive_id]}{name}"

    for row, score in _select_hits(ranked.ranked, scope, usable):
        passage = passages[row]
        lines, path = _lines(passage), path_of(passage)
        collection.add(
            Candidate(
                kind="passage",
                id=passage.id,
                text=passage.text,
                score=score,
                source=path or names[passage.archive_id],
                position=passage.seq,
                lines=lines,
                page=page if isinstance(page := passage.source.get("page"), int) else None,
                occurred_at=passage.occurred_at,
            ),
            why=why_passage(ranked, row) if scope.explain else None,
            archive_id=passage.archive_id,
            archive_name=names[passage.archive_id],
            source=dict(passage.source),
            tags=passage.tags,
            path=path,
            lines=lines,
            occurred_at=passage.occurred_at,
        )


def _is_searched_turn(passage: Passage, scope: RecallScope) -> bool:
    """Return whether the passage was captured from messages that this recall searches too."""
    source = passage.source
    return scope.messages and source.get("type") == CAPTURED and source.get("agent_id") == scope.agent_id


def _lines(passage: Passage) -> tuple[int, int] | None:
    """Return the first and last line of a file's passage; None: the passage is of no file."""
    first, last = passage.source.get("first_line"), passage.source.get("last_line")
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None


def _message_filter(tx: Tx, agent: Agent, request: SearchRequest, scope: RecallScope) -> MessageFilter:
    """Return a filter for the search of messages; with a single conversation it excludes the rows in view."""
    if scope.in_view is not None:
        seq, first = scope.in_view
        history = request.histories.load(tx, agent.id)
        if (history.conversation[history.seq.searchsorted(first) :] == seq).all():
            return MessageFilter(conversation_seq=scope.conversation_seq, before_seq=first)
    return MessageFilter(conversation_seq=scope.conversation_seq)


def _add_turns(tx: Tx, ranked: RankedMessages, scope: RecallScope, collection: Candidates) -> None:
    """Add the hits among the turns, and the neighbours of the best. Tool results are no turns."""
    collection.ran["messages"] = ranked.ran
    history = ranked.history
    indexes = history.indexes(ranked.seqs)

    def is_in_view(index: int) -> bool:
        """Return whether the context window shows this turn already."""
        seq = int(history.seq[index])
        if scope.in_view is None:
            return False
        return seq in scope.pinned or (int(history.conversation[index]) == scope.in_view[0] and seq >= scope.in_view[1])

    def usable(row: int) -> bool:
        """Return whether a row may be a hit."""
        return indexes[row] >= 0 and not is_in_view(int(indexes[row]))

    best_rows = list(_select_hits(ranked.ranked, scope, usable))
    scores = {int(indexes[row]): score for row, score in best_rows}
    rows = {int(indexes[row]): row for row, _ in best_rows}
    neighbours: dict[int, dict[int, float]] = {}  # index -> hit next to it -> share of the hit's score
    for hit in list(scores)[:NEIGHBOUR_HITS]:
        two_before, before, after, two_after = history.near[hit].tolist()
        for side in ((before, two_before), (after, two_after)):
            for near, share in zip(side, NEIGHBOUR_SHARES, strict=True):
                if near < 0 or near in scores:
                    break
                if not is_in_view(near):
                    neighbours.setdefault(near, {})[hit] = share * scores[hit]
    numbers = {index: int(history.seq[index]) for index in (*scores, *neighbours)}
    found = tx.messages.list_by_seqs(ranked.agent.id, list(numbers.values()))
    messages = {message.seq: message for message in _without_copies(tx, history, scope, found)}
    for index, seq in numbers.items():
        message = messages.get(seq)
        if message is not None and scope.fills and message.role == "assistant" and index not in scores:
            continue  # it fills, if there is room: what the person said comes first
        hits = tuple(messages[numbers[hit]].id for hit in neighbours.get(index, ()) if numbers[hit] in messages)
        if message is None or not (index in scores or hits):
            continue
        score = scores[index] if index in scores else max(neighbours[index].values())
        why = why_message(tx, ranked, rows[index]) if scope.explain and index in rows else None
        turn = _turn(message, history, index, score, neighbours_of=hits)
        _add_turn(message, turn, collection, why=why, beside=hits)


def _turn(message: Message, history: LogColumns, index: int, score: float, **fields: Any) -> Candidate:
    """Return a message, row `index` of the history, as a candidate; `fields` are further fields of it."""
    return Candidate(
        kind="turn",
        id=message.id,
        text=without_notice(message.text),
        score=score,
        conversation=f"conversation {message.conversation_seq + 1}",
        # The place among turns: `seq` also counts tool results between them.
        seq=int(history.spot[index]),
        role=message.role,
        name=message.name or "",
        occurred_at=message.occurred_at,
        **fields,
    )


def _add_turn(message: Message, turn: Candidate, collection: Candidates, **facts: Any) -> None:
    """Add a turn with what its source says beside it."""
    collection.conversations[message.id] = message.conversation_seq
    collection.add(
        turn, seq=message.seq, role=message.role, name=message.name, occurred_at=message.occurred_at, **facts
    )


def _add_newest(tx: Tx, agent: Agent, request: SearchRequest, scope: RecallScope, collection: Candidates) -> None:
    """Add the newest turns out of view, the person's before the agent's, until the budget is full. Messages from
    outside, and answers to them, are left out: all that the agent writes after reading them would count as from
    outside."""
    history = request.histories.load(tx, agent.id)
    hidden = np.ones(history.rows, bool)
    if scope.in_view is not None:
        conversation, first = scope.in_view
        hidden &= ~((history.conversation == conversation) & (history.seq >= first))
    indexes = {int(history.seq[index]): int(index) for index in np.flatnonzero(hidden)[-FILL_TURNS:]}
    newest = [seq for seq in reversed(indexes) if seq not in scope.pinned]
    from_outside: dict[int, Collection[int]] = {}
    messages = _without_copies(tx, history, scope, tx.messages.list_by_seqs(agent.id, newest))
    for place, message in enumerate(messages):
        line = message.conversation_seq
        if line not in from_outside:
            since = min(one.seq for one in messages if one.conversation_seq == line)
            entered = tx.sources.list_by_conversation(agent.id, line, from_seq=since, before_seq=message.seq + 1)
            earlier = tx.sources.list_by_conversation(agent.id, line, before_seq=since, limit=1)
            from_outside[line] = {one.seq for one in (*earlier, *entered)}
        seqs = from_outside[line]
        if message.seq in seqs or (message.role == "assistant" and any(seq < message.seq for seq in seqs)):
            continue
        score = (1 if message.role == "user" else 0) - rank_cost(place)
        turn = _turn(message, history, indexes[message.seq], score, fills=True)
        _add_turn(message, turn, collection)


def _without_copies(tx: Tx, history: LogColumns, scope: RecallScope, messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages without those that stand in view as copies: a fork begins with copies of its origin's."""
    if scope.in_view is None or not messages:
        return messages
    conversation, first = scope.in_view
    times = [message.occurred_at.timestamp() for message in messages]
    newer = slice(int(history.seq.searchsorted(first)), None)
    same = (history.conversation[newer] == conversation) & np.isin(history.occurred_at[newer], times)
    seqs = history.seq[newer][same][-COPIES_MAX:].tolist()
    shown = {(row.role, row.text) for row in tx.messages.list_by_seqs(messages[0].agent_id, seqs)} if seqs else ()
    return [message for message in messages if (message.role, message.text) not in shown]


def rank_cost(place: int) -> float:
    """Return what to take off the score at a place of a list, so that equal scores keep the order of the list."""
    return place / 10_000


def _sources(tx: Tx, agent: Agent | None, packed: PackedText, collection: Candidates) -> Iterator[RecallSource]:
    """Yield the source of each part of the packed text, in its order."""
    lines = {part.candidate.id: collection.conversations.get(part.candidate.id) for part in packed.parts}
    keys = [] if agent is None else [(agent.id, line) for line in dict.fromkeys(lines.values()) if line is not None]
    conversations = {conversation.seq: conversation.id for conversation in tx.conversations.list_by_keys(keys)}
    for number, part in enumerate(packed.parts, 1):
        candidate = part.candidate
        line = lines[candidate.id]
        yield RecallSource(
            number=number,
            kind=candidate.kind,
            id=candidate.id,
            score=round(candidate.score, SCORE_DIGITS),
            tokens=part.tokens,
            first=part.excerpt.first,
            last=part.excerpt.last,
            chars=len(candidate.text),
            conversation_id=None if line is None else conversations[line],
            **collection.facts[candidate.kind, candidate.id],
        )
