"""The search of passages: one archive or several, by words and by vectors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure.core.passages import SEARCHED_STATES, Archive, PassageFilter, PassageTexts
from perdure.core.text.dates import TimeSpan, spans
from perdure.core.text.words import Matches, Query
from perdure.search.ranking.fuse import Ranking, merge_duplicates, rank
from perdure.search.ranking.hints import count_asked, hints_of
from perdure.search.ranking.hits import HITS_MAX, Hits, PassageHit, SearchReport, SearchRequest, Why
from perdure.search.ranking.matching import clause_counts
from perdure.search.ranking.pool import AskedKind, Pool, PoolScope
from perdure.search.ranking.query import VectorMatches, match_vectors, match_words, report_search
from perdure.search.ranking.weights import PASSAGES
from perdure.storage.tx import Tx

CANDIDATES, DENSE_CANDIDATES = 80, 80  # of each archive; fewer than of messages, for passages are longer
POOL_ROWS = 80  # of each archive
SPAN_CANDIDATES = 30
APART = 1_000  # places between rows that are no neighbours


@dataclass(frozen=True, slots=True, eq=False)
class RankedPassages:
    """The ranked rows of a search: row i is passage `texts.passage(i)` in archive number `numbers[i]`."""

    texts: PassageTexts
    ranked: Ranking
    ran: SearchReport
    numbers: NDArray[np.int64]


def newest_passages(tx: Tx, archives: Sequence[Archive], *, where: PassageFilter, limit: int) -> Hits[PassageHit]:
    """Load the newest passages, newest first, with score 0: the hits of a search without a text. Without `states` in
    the filter, those that are not archived."""
    where = _with_states(where)
    pages = [tx.passages.page(archive.id, where=where, newest_first=True, limit=limit) for archive in archives]
    passages = [passage for page in pages for passage in page]
    passages.sort(key=lambda passage: (passage.occurred_at, passage.seq), reverse=True)
    rows = sum(archive.passage_count for archive in archives)
    return Hits([PassageHit(passage, 0.0) for passage in passages[:limit]], SearchReport(rows=rows))


def rank_passages(
    tx: Tx,
    archives: Sequence[Archive],
    request: SearchRequest,
    *,
    where: PassageFilter,
    limit: int = CANDIDATES,
    only: NDArray[np.int64] | None = None,
    more: Sequence[int] = (),
) -> RankedPassages:
    """Rank the passages of these archives that match, best first; scores compare over all archives. Without `states`
    in the filter, those that are not archived.

    The ranking is long enough for `limit` hits, at most 1,000.

    Args:
        only: of a single archive, the sorted numbers of the passages that may be found; None: all.
        more: of a single archive, passages that are candidates whatever their words.
    """
    most = min(limit, HITS_MAX)
    room = POOL_ROWS if most <= CANDIDATES else 2 * most
    search_filter = _with_states(where)
    # Most archives have passages of one state, and need no condition.
    is_plain = [tx.passages.states(archive.id) <= set(search_filter.states) for archive in archives]
    filters = [replace(search_filter, states=()) if plain else search_filter for plain in is_plain]
    within = [
        _filtered_seqs(tx, archive, request, condition) if only is None else only
        for archive, condition in zip(archives, filters, strict=True)
    ]
    query, matched = match_words(
        request.text,
        lambda query: [
            tx.passages.match(
                archive.id,
                query,
                where=condition,
                limit=max(CANDIDATES, most),
                postings=request.archives.postings(archive, condition),
                rows=None if seqs is None else len(seqs),
                only=only,
            )
            for archive, condition, seqs in zip(archives, filters, within, strict=True)
        ],
    )
    nearest_rows = [
        match_vectors(
            tx, archive.number, request, texts=archive.passage_count, only=seqs, limit=max(DENSE_CANDIDATES, most)
        )
        for archive, seqs in zip(archives, within, strict=True)
    ]
    times = spans(request.text, now=request.now, timezone=request.timezone)
    parts: list[PassageTexts] = []
    cosines: list[NDArray[np.float64]] = []
    for archive, condition, matches, nearest in zip(archives, filters, matched, nearest_rows, strict=True):
        candidates = _select_candidates(matches.seqs, nearest.seqs.tolist(), limit=room)
        in_spans = _passages_in_spans(tx, archive, condition, times) if only is None else ()
        seqs = list(dict.fromkeys((*candidates, *in_spans, *more)))
        texts_of_archive = tx.passages.texts(archive.id, seqs)
        parts.append(texts_of_archive)
        cosines.append(nearest.scores_of(np.array(texts_of_archive.seqs, np.int64)))
    texts = PassageTexts.join(parts)
    now = request.now
    hints = hints_of(
        request.text, spans=[(span.start.timestamp(), span.end.timestamp()) for span in times], now=now.timestamp()
    )
    pool = _pool(
        archives, texts, query, matched, nearest_rows, np.concatenate([*cosines, np.zeros(0)]), asked=hints.asked
    )
    rows = sum(archive.passage_count for archive in archives)
    ran = report_search(query, nearest_rows, times, rows=rows, pool=len(texts))
    numbers = np.array([archive.number for archive, part in zip(archives, parts, strict=True) for _ in part.seqs], int)
    return RankedPassages(texts, rank(pool, hints, PASSAGES), ran, numbers)


def read_passages(ranking: RankedPassages, *, limit: int, explain: bool = False) -> Hits[PassageHit]:
    """Build the first `limit` hits, with near-duplicates merged."""
    texts, order = ranking.texts, ranking.ranked.order[: max(2 * limit, limit + 20)].tolist()
    chosen = merge_duplicates([texts.texts[row] for row in order], [texts.seqs[row] for row in order], limit=limit)
    hits = []
    for index, same in chosen:
        passage = texts.passage(order[index])
        # The newest of several equal texts is shown, with the best score of them.
        score = float(ranking.ranked.scores[min((index, *same))])
        others = [texts.passage(order[at]).id for at in same] if explain else []
        hits.append(
            PassageHit(passage, score, why_passage(ranking, order[min((index, *same))], others) if explain else None)
        )
    return Hits(hits, ranking.ran)


def _with_states(where: PassageFilter) -> PassageFilter:
    """Return the filter with the states that a search finds, unless it names others."""
    return where if where.states else replace(where, states=SEARCHED_STATES)


def _select_candidates(by_words: Sequence[int], by_vectors: Sequence[int], *, limit: int) -> list[int]:
    """Select the numbers that both arms found, then the best of each arm in turn; both come best first."""
    twice = set(by_words).intersection(by_vectors)
    by_turns = itertools.chain.from_iterable(itertools.zip_longest(by_words, by_vectors))
    chosen = dict.fromkeys(itertools.chain(filter(twice.__contains__, by_words), by_turns))
    chosen.pop(None, None)
    return list(chosen)[:limit]


def _filtered_seqs(tx: Tx, archive: Archive, request: SearchRequest, where: PassageFilter) -> NDArray[np.int64] | None:
    """Load the sorted numbers of the passages that match a filter; None if all match, or vectors are not searched."""
    if where.matches_all or request.indexes is None or not request.vectors:
        return None
    return request.archives.seqs(tx, archive, where)


def _passages_in_spans(tx: Tx, archive: Archive, where: PassageFilter, times: Sequence[TimeSpan]) -> list[int]:
    """Load the numbers of the latest passages from the times that a query names, whatever their words."""
    seqs: list[int] = []
    for span in times:
        since = span.start if where.since is None else max(span.start, where.since)
        until = span.end if where.until is None else min(span.end, where.until)
        if since <= until:
            condition = replace(where, since=since, until=until)
            seqs += tx.passages.latest(archive.id, where=condition, limit=SPAN_CANDIDATES)
    return seqs


def _pool(
    archives: Sequence[Archive],
    texts: PassageTexts,
    query: Query,
    matched: Sequence[Matches],
    nearest_rows: Sequence[VectorMatches],
    cosines: NDArray[np.float64],
    *,
    asked: AskedKind,
) -> Pool:
    """Build the columns that ranking reads, a row for each text.

    Args:
        matched, nearest_rows: of each archive.
        cosines: (n) of each text to the query, nan: unknown.
        asked: what the query asks for.
    """
    row_texts = texts.texts
    chars = np.array(list(map(len, row_texts)), np.int64)
    with_vectors = sum(nearest.rows for nearest in nearest_rows)
    mean = sum(nearest.mean * nearest.rows for nearest in nearest_rows) / max(1, with_vectors)
    spread = sum((nearest.std**2 + (nearest.mean - mean) ** 2) * nearest.rows for nearest in nearest_rows)
    frequency = np.zeros(len(query.clauses))
    for matches in matched:
        if matches.frequency:
            frequency += np.asarray(matches.frequency, float)
    scope = PoolScope(
        rows=max(len(texts), sum(archive.passage_count for archive in archives)),
        mean_chars=float(chars.mean()) if len(chars) else 150.0,
        dense_mean=mean,
        dense_std=float(np.sqrt(spread / max(1, with_vectors))),
        clause_rows=frequency.tolist() if frequency.any() else None,
    )
    # Passages of one file or conversation are neighbours, in their order; all others have none.
    groups: dict[str | None, int] = {None: 0}
    session = np.array([groups.setdefault(origin, len(groups)) for origin in texts.origins], np.int64)
    seqs = np.array(texts.seqs, np.int64)
    return Pool.of(
        seqs,
        scope,
        session=session,
        place=np.where(session == 0, np.arange(len(texts)) * APART, seqs),
        occurred_at=np.array(texts.occurred_at, np.float64),
        chars=chars,
        asked=np.array([count_asked(asked, text) for text in row_texts]) if asked else None,
        uses=np.array(texts.uses, np.float64),
        counts=clause_counts(query, row_texts),
        dense=cosines,
    )


def why_passage(ranking: RankedPassages, row: int, same: Sequence[str] = ()) -> Why:
    """Explain why row number `row` of the pool was found; `same` are the ids of passages left out for it."""
    return replace(ranking.ranked.explain(row), same=tuple(same))
