"""Recall: for a query and a budget, the best of blocks, passages and turns, in one unit of work.

Messages and passages are searched as always; what they find is put on one scale (`recalled.Recalled`), turns get their
neighbours, and `search.packing.packing` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.core.agents import Agent
from perdure.core.ids import ArchiveId, ConversationId
from perdure.core.messages import MessageFilter
from perdure.core.passages import CAPTURED, Archive, Passage, PassageFilter
from perdure.core.text.words import query_of
from perdure.domain.archives.units import archives_of
from perdure.search.hits import SearchReport
from perdure.search.messages import RankedMessages, rank_messages, why_message
from perdure.search.packing.packing import Candidate, Packed, pack
from perdure.search.passages import RankedPassages, rank_passages, why_passage
from perdure.search.ranking.fuse import Ranked
from perdure.search.ranking.matching import clause_counts
from perdure.search.recalled import Recalled, RecallScope, Source
from perdure.search.request import SearchRequest
from perdure.storage.tx import Tx

__all__ = ["recall"]

TOKENS_A_HIT = 25  # so many hits of each kind are looked at as would fill the budget if they were that short
LOOKED_AT_MIN, LOOKED_AT_MAX = 12, 150
READ_AHEAD = 2  # passages read for each that is wanted: some are captured turns, which are searched as such
NEIGHBOURED = 24
"""The best turns, whose neighbours may come along."""
NEIGHBOUR_SHARES = (0.5, 0.25)
"""What turns 1, 2 places before and after a hit have of its score."""
EVIDENCE_HITS = 5
"""How plainly a search answers is that of the plainest of its first hits."""
SCORE_DIGITS = 4


@dataclass(slots=True)
class _Candidates:
    """Candidates, and what is known of each beside what packing needs."""

    candidates: list[Candidate] = field(default_factory=list)
    facts: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    ran: dict[str, SearchReport] = field(default_factory=dict)

    def add(self, candidate: Candidate, **facts: Any) -> None:
        self.candidates.append(candidate)
        self.facts.setdefault((candidate.kind, candidate.id), facts)


def recall(
    tx: Tx,
    scope: RecallScope,
    turns: SearchRequest | None,
    passages: SearchRequest,
    *,
    budget_tokens: int,
    count: Callable[[str], int],
    floor: float = 0.0,
    explain: bool = False,
    timezone: str = "UTC",
) -> Recalled:
    """The best of the scope that fits. Raises: NotFound: no such agent or archive.

    Args:
        turns, passages: the query, as it is asked of each; without `turns` no message is looked for.
        floor: passages and turns below this score are left out.
        timezone: of dates in the text; an agent's own one comes first.
    """
    limit = max(LOOKED_AT_MIN, min(LOOKED_AT_MAX, budget_tokens // TOKENS_A_HIT))
    found = _Candidates()
    agent = None if scope.agent_id is None else tx.agents.get(scope.agent_id)
    if agent is not None and scope.blocks:
        _add_blocks(tx, agent, passages.text, found)
    archives = _archives(tx, scope)
    if archives:
        ranked = rank_passages(tx, archives, passages, where=PassageFilter())
        _add_passages(tx, ranked, archives, scope, found, limit=limit, floor=floor, explain=explain)
    if agent is not None and scope.messages and turns is not None:
        where = _message_filter(tx, agent, turns, scope)
        ranked_messages = rank_messages(tx, agent, turns, where=where)
        _add_turns(tx, ranked_messages, turns, scope, found, limit=limit, floor=floor, explain=explain)
    packed = pack(
        found.candidates,
        budget=budget_tokens,
        count=count,
        query=passages.text,
        timezone=timezone if agent is None else agent.timezone,
    )
    return Recalled(
        text=packed.text,
        tokens=packed.tokens if packed.text else 0,
        budget_tokens=budget_tokens,
        sources=tuple(_sources(packed, found)),
        left_out=packed.left_out,
        ran=found.ran,
    )


def _archives(tx: Tx, scope: RecallScope) -> Sequence[Archive]:
    if scope.archives is not None:
        return [tx.archives.get(archive_id) for archive_id in dict.fromkeys(scope.archives)]
    return () if scope.agent_id is None else archives_of(tx, scope.agent_id, files=True)


def _add_blocks(tx: Tx, agent: Agent, text: str, found: _Candidates) -> None:
    """All blocks; those that hold more of the query's words come first where there is not room for all."""
    blocks = tx.blocks.of_agent(agent.id)
    query = query_of(text)
    counts = clause_counts(query, [block.value for block in blocks])
    held = (counts > 0).sum(0) / max(1, len(query.clauses))
    for position, block in enumerate(blocks):
        found.add(
            Candidate(
                kind="block",
                id=block.id,
                text=block.value,
                score=float(held[position]),
                label=block.label,
                description=block.description or "",
                position=position,
            ),
            label=block.label,
        )


def _scale_scores(ranked: Ranked) -> NDArray[np.float64]:
    """The scores in order, from 0 to 1, as `Recalled` says; rounded as they are shown, so that a floor which was read
    off a hit lets that hit through."""
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


def _select_hits(
    ranked: Ranked, *, limit: int, floor: float, usable: Callable[[int], bool]
) -> Iterator[tuple[int, float]]:
    """(row of the pool, its score) of the first that are hits by themselves."""
    taken = 0
    for row, score, relevant in zip(
        ranked.order.tolist(), _scale_scores(ranked).tolist(), ranked.relevant, strict=True
    ):
        if taken == limit or score < floor:
            return
        if relevant and usable(row):
            taken += 1
            yield row, score


def _add_passages(
    tx: Tx,
    ranked: RankedPassages,
    archives: Iterable[Archive],
    scope: RecallScope,
    found: _Candidates,
    *,
    limit: int,
    floor: float,
    explain: bool,
) -> None:
    names = {archive.id: archive.name for archive in archives}
    found.ran["passages"] = ranked.ran

    order = ranked.ranked.order[: READ_AHEAD * limit].tolist()
    passages = {row: ranked.texts.whole(row) for row in order}

    def usable(row: int) -> bool:
        return row in passages and not _is_found_as_turns(passages[row], scope)

    folders: dict[ArchiveId, str] = {}

    def path_of(passage: Passage) -> str | None:
        name, archive_id = passage.source.get("file_name"), passage.archive_id
        if not name or "folder_id" not in passage.source:
            return name and str(name)
        if archive_id not in folders:
            folder = tx.folders.of_archive(archive_id)
            folders[archive_id] = "" if folder is None else f"{folder.name}/"
        return f"{folders[archive_id]}{name}"

    for row, score in _select_hits(ranked.ranked, limit=limit, floor=floor, usable=usable):
        passage = passages[row]
        lines, path = _lines(passage), path_of(passage)
        found.add(
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
            why=why_passage(ranked, row) if explain else None,
            archive_id=passage.archive_id,
            archive_name=names[passage.archive_id],
            source=dict(passage.source),
            path=path,
            lines=lines,
            occurred_at=passage.occurred_at,
        )


def _is_found_as_turns(passage: Passage, scope: RecallScope) -> bool:
    """Whether it was captured from messages that are themselves searched here, turn by turn."""
    source = passage.source
    return scope.messages and source.get("type") == CAPTURED and source.get("agent_id") == scope.agent_id


def _lines(passage: Passage) -> tuple[int, int] | None:
    first, last = passage.source.get("first_line"), passage.source.get("last_line")
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None


def _message_filter(tx: Tx, agent: Agent, request: SearchRequest, scope: RecallScope) -> MessageFilter:
    """What the searches can leave out by themselves: of an agent with one conversation all that is in view."""
    if scope.in_view is not None:
        seq, first = scope.in_view
        history = request.histories.of(tx, agent.id)
        beside = (history.conversation != seq) & (history.seq >= first)
        if not beside.any():
            return MessageFilter(conversation_seq=scope.conversation_seq, before_seq=first)
    return MessageFilter(conversation_seq=scope.conversation_seq)


def _add_turns(
    tx: Tx,
    ranked: RankedMessages,
    request: SearchRequest,
    scope: RecallScope,
    found: _Candidates,
    *,
    limit: int,
    floor: float,
    explain: bool,
) -> None:
    """The turns that were found, and those beside the best of them. Tool results are no turns."""
    found.ran["messages"] = ranked.ran
    history = request.histories.of(tx, ranked.agent.id)
    at = history.indexes(ranked.seqs)

    def shown_anyway(index: int) -> bool:
        seq = int(history.seq[index])
        if scope.in_view is None:
            return False
        return seq in scope.pinned or (int(history.conversation[index]) == scope.in_view[0] and seq >= scope.in_view[1])

    def usable(row: int) -> bool:
        return at[row] >= 0 and not shown_anyway(int(at[row]))

    chosen = list(_select_hits(ranked.ranked, limit=limit, floor=floor, usable=usable))
    scores = {int(at[row]): score for row, score in chosen}
    rows = {int(at[row]): row for row, _ in chosen}
    beside: dict[int, dict[int, float]] = {}  # index -> hit that it stands next to -> its share of that one's score
    for hit in list(scores)[:NEIGHBOURED]:
        two_before, before, after, two_after = history.near[hit].tolist()
        for side in ((before, two_before), (after, two_after)):
            for near, share in zip(side, NEIGHBOUR_SHARES, strict=True):
                if near < 0 or near in scores:
                    break
                if not shown_anyway(near):
                    beside.setdefault(near, {})[hit] = share * scores[hit]
    numbers = {index: int(history.seq[index]) for index in (*scores, *beside)}
    messages = {message.seq: message for message in tx.messages.by_seqs(ranked.agent.id, list(numbers.values()))}
    conversations: dict[int, ConversationId] = {}
    for index, seq in numbers.items():
        message = messages.get(seq)
        hits = tuple(messages[numbers[hit]].id for hit in beside.get(index, ()) if numbers[hit] in messages)
        if message is None or not (index in scores or hits):
            continue
        line = message.conversation_seq
        if line not in conversations:
            conversations[line] = tx.conversations.at(ranked.agent.id, line).id
        found.add(
            Candidate(
                kind="turn",
                id=message.id,
                text=message.text,
                score=scores[index] if index in scores else max(beside[index].values()),
                conversation=f"conversation {line + 1}",
                # Tool results stand between turns too, but nothing is left out where only they are.
                seq=int(history.spot[index]),
                role=message.role,
                name=message.name or "",
                occurred_at=message.occurred_at,
                neighbours_of=hits,
            ),
            why=why_message(tx, ranked, rows[index]) if explain and index in rows else None,
            conversation_id=conversations[line],
            seq=message.seq,
            role=message.role,
            name=message.name,
            occurred_at=message.occurred_at,
            beside=hits,
        )


def _sources(packed: Packed, found: _Candidates) -> Iterator[Source]:
    for piece in packed.pieces:
        yield Source(
            number=piece.number,
            kind=piece.kind,
            id=piece.id,
            score=round(piece.score, SCORE_DIGITS),
            tokens=piece.tokens,
            first=piece.first,
            last=piece.last,
            chars=piece.chars,
            **found.facts[piece.kind, piece.id],
        )
