"""The search of messages: the whole history of an agent, by words and by vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from perdure.core.agents import Agent
from perdure.core.errors import NotFound
from perdure.core.features import Point
from perdure.core.ids import GraphId
from perdure.core.messages import MessageFilter, MessageScope
from perdure.core.text.dates import TimeSpan, spans
from perdure.core.text.words import Matches, Query
from perdure.search.ranking.fuse import Ranking, merge_duplicates, rank
from perdure.search.ranking.hints import count_asked, hints_of
from perdure.search.ranking.history import LogColumns
from perdure.search.ranking.hits import HITS_MAX, AlternativeText, Hits, MessageHit, SearchReport, SearchRequest, Why
from perdure.search.ranking.matching import clause_counts
from perdure.search.ranking.pool import AskedKind, Pool, PoolScope
from perdure.search.ranking.query import VectorMatches, match_vectors, match_words, report_search, without_names
from perdure.search.ranking.related import FIRST_PERSON, Related, related_degrees, related_query, related_words
from perdure.search.ranking.weights import HYBRID, LEXICAL
from perdure.storage.tx import Tx

FEWEST_CANDIDATES, MOST_CANDIDATES, WORDS_CANDIDATES = 50, 120, 100
CANDIDATE_OF = 10
"""Where all rows have vectors, each arm gives one candidate for so many rows.

Measured: in five histories of 370 to 690 rows, 50 to 69 candidates find more than 120 (R@10 86.3, not 85.8). In all
five together, 2,960 rows, 120 find more than 60 (82.7, not 82.1)."""
NEIGHBOURS = 2
"""How far apart in a session rows may share their words, in places."""
NEIGHBOUR_SHARE = 0.4
"""A row that matches only by its neighbours is a hit from this share of the best score on."""
NEIGHBOURED_OF, WORDS_NEIGHBOURED = 3, 12
"""The first third of the candidates bring their neighbours into the pool; without vectors, so many. More find nothing
more."""
SPAN_CANDIDATES = 60
RELATED_CANDIDATES = 40
"""Without vectors, so many rows that have related words only join the candidates."""


@dataclass(frozen=True, slots=True, eq=False)
class RankedMessages:
    """The rows of a search in order, before its hits are loaded.

    Args:
        history: of the agent.
        seqs: (n) the number of each row of the pool.
        texts: number -> text, as far as the search read them.
        wordings: number -> other words that count for the message.
    """

    agent: Agent
    history: LogColumns
    seqs: NDArray[np.int64]
    ranked: Ranking
    texts: dict[int, str]
    wordings: Mapping[int, Sequence[AlternativeText]]
    ran: SearchReport

    @property
    def numbers(self) -> NDArray[np.int64]:
        """(n) the number of the agent, which is that of each row's vector scope."""
        return np.full(len(self.seqs), self.agent.number)


def newest_messages(tx: Tx, agent: Agent, *, where: MessageFilter, limit: int) -> Hits[MessageHit]:
    """Load the newest messages, newest first, with score 0: the hits of a search without a text."""
    messages = tx.messages.newest(agent.id, where=where, limit=limit)
    return Hits([MessageHit(message, 0.0) for message in messages], SearchReport(rows=tx.messages.count(agent.id)))


def rank_messages(
    tx: Tx,
    agent: Agent,
    request: SearchRequest,
    *,
    where: MessageFilter,
    limit: int = 0,
    scope: MessageScope | None = None,
) -> RankedMessages:
    """Rank the messages that match, and their neighbours, best first.

    Args:
        where: the messages to search.
        limit: the ranking is long enough for so many hits, at most 1,000.
        scope: what `tx.messages.scopes` gave for the agent and `where`; None: it is loaded.

    Raises: NotFound: no such agent.
    """
    scope = scope or tx.messages.scopes([agent.id], where=where).get(agent.id)
    if scope is None:
        raise NotFound("agent", agent.id)
    history = request.histories.load(tx, agent.id, scope.next_seq)
    candidate_count = max(FEWEST_CANDIDATES, min(history.rows // CANDIDATE_OF, MOST_CANDIDATES))
    out_of_view = tx.resets.get_pending_seqs(agent.id) if scope.is_resetting else {}
    mask = history.mask(where, out_of_view=out_of_view)
    # The newest rows, where they alone are left out, are few: the search skips them one by one.
    only_newest = where == MessageFilter(before_seq=where.before_seq) and not out_of_view
    only = None if mask is None or only_newest else history.seq[mask]
    by_vectors = match_vectors(
        tx, agent.number, request, texts=history.rows, only=only, limit=max(candidate_count, min(limit, HITS_MAX))
    )
    nearest = _select_masked(history, mask, by_vectors.seqs)
    # A text without a vector is found by its words alone.
    words_max = candidate_count if by_vectors.rows and not by_vectors.left_out else WORDS_CANDIDATES
    # A name in the query matches the speaker: as a word it would find the messages to that person.
    query, (matches,) = match_words(
        without_names(request.text, history.names),
        lambda query: [
            tx.messages.match(agent.id, query, where=where, limit=max(words_max, min(limit, HITS_MAX)), known=scope)
        ],
    )
    by_related: list[int] = []
    related: Related = ()
    if matches.seqs and not by_vectors.rows:
        related = related_words(query)
        by_related = _find_related(tx, agent, related_query(query), matches.seqs, where=where, scope=scope)
    now = _history_clock(history, request.now)
    times = spans(request.text, now=now, timezone=request.timezone)
    in_spans = history.seq[:0]
    if times:  # a cached history still has the rows of a reset, and they must not take the places of others
        in_spans = _rows_in_spans(history, history.mask(where, out_of_view=tx.resets.get_last_seqs(agent.id)), times)
    wordings = find_wordings(tx, agent, request, query, scope.graph_id)
    by_wordings = _select_masked(history, mask, np.array(list(wordings), np.int64))
    found = np.array([*matches.seqs, *by_related], np.int64)
    candidates = np.concatenate([found, nearest, in_spans, by_wordings])
    seqs, indexes = _with_neighbours(
        history, mask, candidates, candidate_count // NEIGHBOURED_OF if by_vectors.rows else WORDS_NEIGHBOURED
    )
    texts = tx.messages.texts(agent.id, seqs.tolist()) if len(seqs) else {}
    if len(texts) < len(seqs):
        present = [seq in texts for seq in seqs.tolist()]
        seqs, indexes = seqs[present], indexes[present]
    hints = hints_of(
        request.text,
        names=history.names,
        spans=[(span.start.timestamp(), span.end.timestamp()) for span in times],
        now=now.timestamp(),
    )
    pool = _pool(history, indexes, seqs, texts, query, matches, by_vectors, wordings, related, asked=hints.asked)
    ranked = rank(pool, hints, HYBRID if by_vectors.rows else LEXICAL)
    ran = report_search(query, [by_vectors], times, rows=scope.count, pool=len(seqs))
    return RankedMessages(agent, history, seqs, ranked, texts, wordings, ran)


def read_messages(tx: Tx, ranking: RankedMessages, *, limit: int, explain: bool = False) -> Hits[MessageHit]:
    """Load the first `limit` hits, with near-duplicates merged."""
    scores = ranking.ranked.scores
    relevant = ranking.ranked.relevant | (scores >= NEIGHBOUR_SHARE * scores[0]) if len(scores) else scores > 0
    order = ranking.ranked.order[relevant][: max(2 * limit, limit + 20)]
    best = scores[relevant].tolist()
    seqs = ranking.seqs[order].tolist()
    chosen = merge_duplicates([ranking.texts[seq] for seq in seqs], seqs, limit=limit)
    found = tx.messages.list_by_seqs(ranking.agent.id, [seqs[index] for index, _ in chosen]) if chosen else ()
    messages = {message.seq: message for message in found}
    hits = []
    for index, same in chosen:
        message = messages.get(seqs[index])
        if message is None:
            continue
        # The newest of several equal texts is shown, with the best score of them.
        at = min((index, *same))
        why = why_message(tx, ranking, int(order[at]), [seqs[other] for other in same]) if explain else None
        hits.append(MessageHit(message, best[at], why))
    return Hits(hits, ranking.ran)


def why_message(tx: Tx, ranking: RankedMessages, row: int, same: Sequence[int] = ()) -> Why:
    """Explain why row number `row` of the pool was found; `same` are the numbers of messages left out for it."""
    explanation = ranking.ranked.explain(row)
    pool = ranking.ranked.pool
    # Rows of other sessions are farther away than any place.
    beside = np.flatnonzero((np.abs(pool.spot - pool.spot[row]) <= NEIGHBOURS) & (pool.seq != pool.seq[row]))
    near = ranking.seqs[beside].tolist() if {"neighbour_words", "neighbour_dense"} & explanation.parts.keys() else []
    ids = {message.seq: message.id for message in tx.messages.list_by_seqs(ranking.agent.id, [*near, *same])}
    return replace(
        explanation,
        neighbours=tuple(ids[seq] for seq in near if seq in ids),
        same=tuple(ids[seq] for seq in same if seq in ids),
        facts=tuple(wording.id for wording in ranking.wordings.get(int(ranking.seqs[row]), ())),
    )


def _find_related(
    tx: Tx, agent: Agent, query: Query, known: Sequence[int], *, where: MessageFilter, scope: MessageScope
) -> list[int]:
    """Return the numbers of the newest rows that the query for related words finds, without the known ones."""
    hidden = set(known)
    found = tx.messages.match(agent.id, query, where=where, limit=RELATED_CANDIDATES + len(hidden), known=scope).seqs
    return [seq for seq in found if seq not in hidden][:RELATED_CANDIDATES]


def _select_masked(history: LogColumns, mask: NDArray[np.bool_] | None, seqs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers whose rows in the history the mask lets through; None lets all through."""
    if mask is None:
        return seqs
    indexes = history.indexes(seqs)
    return seqs[(indexes >= 0) & mask[indexes]] if history.rows else seqs[:0]


def _with_neighbours(
    history: LogColumns, mask: NDArray[np.bool_] | None, candidates: NDArray[np.int64], first: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (numbers, indexes) of the candidates and of rows up to `NEIGHBOURS` beside the first `first`, in order. An
    index is -1 for a number that the history does not have."""
    indexes = history.indexes(candidates)
    in_history = indexes[indexes >= 0]
    if mask is None and len(in_history) == len(indexes):
        indexes = history.with_neighbours(indexes, first=first)
        return history.seq[indexes], indexes
    near = history.with_neighbours(in_history[:first], first=first)
    seqs = np.unique(np.concatenate([candidates, history.seq[near if mask is None else near[mask[near]]]]))
    return seqs, history.indexes(seqs)


def _rows_in_spans(history: LogColumns, mask: NDArray[np.bool_] | None, times: Sequence[TimeSpan]) -> NDArray[np.int64]:
    """Return the newest rows from the times that a query names, whatever their words: "what did we do in March?"."""
    then = np.zeros(history.rows, np.bool_)
    for span in times:
        then |= (history.occurred_at >= span.start.timestamp()) & (history.occurred_at < span.end.timestamp())
    if mask is not None:
        then &= mask
    return history.seq[then][-SPAN_CANDIDATES:]


def _history_clock(history: LogColumns, now: datetime) -> datetime:
    """Return the time of the newest message: "last week" in an imported history is a week of that time."""
    if not history.rows:
        return now
    # Not the time of the last row: an old history may have been imported today.
    return min(now, datetime.fromtimestamp(history.latest_at, UTC))


def _pool(
    history: LogColumns,
    indexes: NDArray[np.int64],
    seqs: NDArray[np.int64],
    texts: dict[int, str],
    query: Query,
    matches: Matches,
    by_vectors: VectorMatches,
    wordings: Mapping[int, Sequence[AlternativeText]],
    related: Related,
    *,
    asked: AskedKind,
) -> Pool:
    """Build the columns that ranking reads, a row for each number of `seqs`.

    Args:
        indexes: (n) the row of each number in `history`; -1: none.
        asked: what the query asks for.
    """
    row_texts = list(map(texts.__getitem__, seqs.tolist()))
    degrees = related_degrees([*related, FIRST_PERSON], row_texts)
    spot, occurred_at, traits = history.columns(indexes)
    return Pool(
        seq=seqs,
        spot=spot,
        traits=traits,
        chars=np.array(list(map(len, row_texts)), np.float64),
        occurred_at=occurred_at,
        counts=add_words(clause_counts(query, row_texts), query, seqs, wordings),
        dense=by_vectors.scores_of(seqs),
        asked=np.array([count_asked(asked, text) for text in row_texts]) if asked else None,
        related=degrees[:-1] if any(related) else None,
        first_person=degrees[-1] > 0,
        scope=PoolScope(
            rows=max(history.rows, len(seqs)),
            sessions=max(1, len(history.sizes)),
            session_rows=history.sizes,
            mean_chars=history.mean_chars,
            dense_mean=by_vectors.mean,
            dense_std=by_vectors.std,
            clause_rows=matches.frequency or None,
        ),
    )


WORDINGS: Point[[Tx, Agent, SearchRequest, Query, GraphId], Mapping[int, Sequence[AlternativeText]]] = Point("wordings")
"""The numbers of messages that a query finds by other words than their own; asked where the agent has a graph."""


def find_wordings(
    tx: Tx, agent: Agent, request: SearchRequest, query: Query, graph_id: GraphId | None
) -> Mapping[int, Sequence[AlternativeText]]:
    """Return number of a message -> other words for it that the query finds."""
    found: dict[int, list[AlternativeText]] = {}
    if graph_id is not None and query.clauses:
        for wordings in WORDINGS(tx, agent, request, query, graph_id):
            for seq, some in wordings.items():
                found.setdefault(seq, []).extend(some)
    return found


def add_words(
    counts: NDArray[np.float64],
    query: Query,
    seqs: NDArray[np.int64],
    wordings: Mapping[int, Sequence[AlternativeText]],
) -> NDArray[np.float64]:
    """Count a clause once where it stands only in other wordings of a message; return the counts, (clauses, rows)."""
    rows = [row for row, seq in enumerate(seqs.tolist()) if seq in wordings]
    if rows:
        texts = [" ".join(wording.text for wording in wordings[seq]) for seq in seqs[rows].tolist()]
        counts[:, rows] = np.maximum(counts[:, rows], np.minimum(clause_counts(query, texts), 1.0))
    return counts
