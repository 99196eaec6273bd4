"""What the ranking finds of LoCoMo's evidence, and whether its weights hold on conversations they were not set on.

    python -m benchmarks.ranking_weights locomo.json[.gz] [--vectors FOLDER]

Each turn is a row, each question with evidence a query; the ranking sees what a search would hand it: the turns in
which a word of the query stands, the 200 nearest by cosine, and two neighbours of each. With MiniLM's weights
installed it measures the hybrid too; the vectors are kept in FOLDER for the next time.

Printed: recall of the evidence among the first 10 (R@10), the mean reciprocal rank of the first (MRR), recall within
4,000 characters; the same for weights chosen on two conversations and measured on the rest, and for weights chosen on
all but one and measured on that one. The data (CC BY-NC 4.0) is no part of this repository.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from perdure.core.text.dates import spans
from perdure.core.text.words import parse_query
from perdure.search.ranking.fuse import add_late, rank
from perdure.search.ranking.hints import count_asked, hints_of, kind_asked
from perdure.search.ranking.late import LATE_ROWS, late_scores, pack_signs
from perdure.search.ranking.matching import clause_counts
from perdure.search.ranking.pool import Column, Pool, PoolScope, QueryHints
from perdure.search.ranking.query import without_names
from perdure.search.ranking.related import FIRST_PERSON, related_degrees, related_words
from perdure.search.ranking.weights import HYBRID, LEXICAL, Weights

__all__ = ["main"]

NEAREST, REACH, DEPTH, BUDGET_CHARS = 200, 2, 50, 4000
METRICS = ("R@10", "MRR", "R@4kc")
MULTI_HOP = 1

# The weights that are tried one at a time around the preset; round numbers on purpose.
TRIED: Mapping[str, Sequence[float]] = {
    "session": (0.3, 0.5, 0.8),
    "related": (0.03, 0.05, 0.07),
    "speaker": (1.2, 1.6, 2.0),
    "length": (0.2, 0.4, 0.6),
    "asks": (-0.4, -0.7, -1.0),
    "answers": (0.2, 0.5, 0.8),
    "first_person": (0.2, 0.4, 0.6),
    "when": (0.3, 0.6, 1.0),
    "name": (0.2, 0.4, 0.7),
    "span": (2.0, 3.0, 4.0),
    "dense": (0.4, 0.5, 0.6),
    "late": (0.6, 0.8, 1.0),
}


@dataclass(frozen=True)
class Talk:
    """One conversation. `pools` holds a query's rows (numbers of turns) and their columns."""

    id: str
    chars: Column
    evidence: Sequence[frozenset[int]]
    kinds: Column
    hints: Sequence[QueryHints]
    pools: Sequence[tuple[Column, Pool]]
    query_words: Sequence[Column]
    turn_words: Sequence[bytes]


@dataclass(frozen=True)
class Vectors:
    turns: Column
    queries: Column
    turn_words: Sequence[Column]
    query_words: Sequence[Column]


@dataclass(frozen=True)
class Turn:
    """What somebody said, as `adapters` take it."""

    id: str
    conversation: str
    speaker: str
    when: str
    body: str


@dataclass(frozen=True)
class Question:
    """A question, its category, and the ids of the turns that answer it."""

    text: str
    kind: int
    evidence: frozenset[str]


def load(path: Path, folder: Path | None) -> Iterator[Talk]:
    """The conversations of a LoCoMo file, ready to be ranked."""
    for sample in _samples(path):
        yield _talk(sample, folder)


def conversations(path: Path) -> Iterator[tuple[Sequence[Turn], Sequence[Question]]]:
    """(turns, questions that have evidence) of each conversation of a LoCoMo file."""
    for sample in _samples(path):
        turns = [
            Turn(
                name,
                sample["sample_id"],
                speaker,
                datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(),
                text,
            )
            for _, name, speaker, at, text in _turns(sample)
        ]
        yield turns, list(_questions(sample))


def _samples(path: Path) -> Sequence[Mapping[str, Any]]:
    content = path.read_bytes()
    samples: Sequence[Mapping[str, Any]] = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    return samples


def _turns(sample: Mapping[str, Any]) -> list[tuple[int, str, str, float, str]]:
    """(session, id, speaker, time, text) of each turn."""
    said = sample["conversation"]
    turns: list[tuple[int, str, str, float, str]] = []
    for number in sorted(int(match[1]) for key in said if (match := re.fullmatch(r"session_(\d+)", key))):
        at = (
            datetime.strptime(said[f"session_{number}_date_time"].strip(), "%I:%M %p on %d %B, %Y")
            .replace(tzinfo=UTC)
            .timestamp()
        )
        for turn in said[f"session_{number}"]:
            caption = f" [shares an image: {turn['blip_caption'].strip()}]" if turn.get("blip_caption") else ""
            turns.append((number, turn["dia_id"], turn["speaker"], at, f"{turn['text'].strip()}{caption}".strip()))
    return turns


def _questions(sample: Mapping[str, Any]) -> Iterator[Question]:
    """The questions whose evidence is in the conversation."""
    turns = {turn[1] for turn in _turns(sample)}
    for question in sample["qa"]:
        labels = re.findall(r"D:?(\d+):(\d+)", " ".join(question.get("evidence") or []))
        evidence = frozenset(f"D{int(session)}:{int(turn)}" for session, turn in labels) & turns
        if evidence:
            yield Question(question["question"], question["category"], evidence)


def _talk(sample: Mapping[str, Any], folder: Path | None) -> Talk:
    turns = _turns(sample)
    numbers = {turn[1]: index for index, turn in enumerate(turns)}
    asked = [
        (question.text, question.kind, frozenset(numbers[turn] for turn in question.evidence))
        for question in _questions(sample)
    ]
    names = sorted({turn[2] for turn in turns})
    texts = [turn[4] for turn in turns]
    queries = [query for query, _, _ in asked]
    vectors = None
    if folder:
        cut = [[without_names(text, names) for text in some] for some in (texts, queries)]
        vectors = _vectors(folder / f"{sample['sample_id']}.npz", *cut)
    rows = _Rows(turns, names)
    hints = [_hints(query, names, datetime.fromtimestamp(turns[-1][3], UTC)) for query in queries]
    return Talk(
        id=sample["sample_id"],
        chars=np.array([len(f"{t[2]} ({datetime.fromtimestamp(t[3], UTC):%d %B %Y}): {t[4]}") for t in turns]),
        evidence=[evidence for _, _, evidence in asked],
        kinds=np.array([kind for _, kind, _ in asked]),
        hints=hints,
        pools=[
            rows.pool(query, None if vectors is None else vectors.turns @ vectors.queries[number])
            for number, query in enumerate(queries)
        ],
        query_words=vectors.query_words if vectors else (),
        turn_words=[pack_signs(words) for words in vectors.turn_words] if vectors else (),
    )


def _hints(query: str, names: Sequence[str], now: datetime) -> QueryHints:
    named = [(span.start.timestamp(), span.end.timestamp()) for span in spans(query, now=now)]
    return hints_of(query, names=names, spans=named)


class _Rows:
    """The turns of a conversation as columns."""

    def __init__(self, turns: Sequence[tuple[int, str, str, float, str]], names: Sequence[str]) -> None:
        self.texts, self.names = [turn[4] for turn in turns], names
        sessions = np.unique([turn[0] for turn in turns], return_inverse=True)[1]
        asks = np.array(["?" in text for text in self.texts])
        per_session = np.bincount(sessions)
        self.columns = {
            "session": sessions,
            "place": np.arange(len(turns)),
            "speaker": np.array([names.index(turn[2]) for turn in turns]),
            "occurred_at": np.array([turn[3] for turn in turns]),
            "chars": np.array([float(len(text)) for text in self.texts]),
            "asks": asks,
            "answers": np.r_[False, asks[:-1] & (sessions[1:] == sessions[:-1])],
            "first_person": related_degrees([FIRST_PERSON], self.texts)[0] > 0,
        }
        self.scope = PoolScope(
            rows=len(turns),
            sessions=len(per_session),
            session_rows=per_session,
            mean_chars=float(self.columns["chars"].mean()),
        )

    def pool(self, query: str, cosines: Column | None) -> tuple[Column, Pool]:
        parsed = parse_query(without_names(query, self.names))
        counts = clause_counts(parsed, self.texts)
        related = related_degrees(related_words(parsed), self.texts)
        found = np.asarray(counts.any(axis=0), bool)
        if cosines is None and found.any():
            found |= related.any(axis=0)
        scope = self.scope
        if cosines is not None:
            found[np.argsort(-cosines)[:NEAREST]] = True
            scope = replace(scope, dense_mean=float(cosines.mean()), dense_std=float(cosines.std()))
        kept, sessions = found.copy(), self.columns["session"]
        for step in range(1, REACH + 1):
            together = sessions[step:] == sessions[:-step]
            kept[step:] |= found[:-step] & together
            kept[:-step] |= found[step:] & together
        rows = np.flatnonzero(kept)
        columns = {name: values[rows] for name, values in self.columns.items()}
        if cosines is not None:
            columns["dense"] = cosines[rows].astype(float)
        else:
            columns["related"] = related[:, rows]
        if asked := kind_asked(query):
            columns["asked"] = np.array([count_asked(asked, self.texts[row]) for row in rows])
        return rows, Pool.of(rows, scope, counts=counts[:, rows], **columns)


def _vectors(path: Path, texts: Sequence[str], queries: Sequence[str]) -> Vectors:
    """Of a file that an earlier run left, or computed now and left there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        whole, words = asyncio.run(_embedded(texts, queries))
        np.savez(path, whole=whole, words=np.concatenate(words).astype(np.float16), sizes=[len(one) for one in words])
    with np.load(path) as kept:
        words = np.split(kept["words"].astype(np.float32), np.cumsum(kept["sizes"])[:-1])
        whole = kept["whole"]
    count = len(texts)
    return Vectors(whole[:count], whole[count:], words[:count], words[count:])


async def _embedded(texts: Sequence[str], queries: Sequence[str]) -> tuple[Column, list[Column]]:
    from perdure.providers.embeddings.minilm import MiniLM
    from perdure.providers.embeddings.weights import open_folder
    from tests.providers.embeddings.models import minilm_folder

    if (folder := minilm_folder()) is None:
        raise SystemExit("no weights of MiniLM: `make setup` gets them; or leave out --vectors")
    model = MiniLM(open_folder(folder))
    try:
        rows, words = await model.embed_with_words(texts)
        query_rows, query_words = await model.embed_with_words(queries, purpose="query")
        return np.concatenate([rows, query_rows]), [*words, *query_words]
    finally:
        await model.close()


def measured(talk: Talk, weights: Weights) -> tuple[Column, float]:
    """((queries, metrics), CPU milliseconds of a query's ranking, the median)."""
    table = np.zeros((len(talk.pools), len(METRICS)))
    spent = []
    for number, (rows, pool) in enumerate(talk.pools):
        start = time.thread_time()
        ranked = rank(pool, talk.hints[number], weights)
        if weights.late and talk.turn_words:
            top = ranked.order[:LATE_ROWS]
            scores = late_scores(talk.query_words[number], [talk.turn_words[row] for row in rows[top]])
            ranked = add_late(ranked, top, scores)
        spent.append(time.thread_time() - start)
        found = rows[ranked.order[:DEPTH]]
        evidence = talk.evidence[number]
        hits = np.isin(found, list(evidence))
        within = np.cumsum(talk.chars[found] + 1) <= BUDGET_CHARS
        table[number] = (
            hits[:10].sum() / len(evidence),
            1 / (hits.argmax() + 1) if hits.any() else 0.0,
            (hits & within).sum() / len(evidence),
        )
    return table, float(np.median(spent)) * 1000


def chosen(talks: Sequence[Talk], start: Weights) -> Weights:
    """The best weights on these conversations: each in turn set to the best of a few values, twice around."""
    best, quality = start, _quality(talks, start)
    for name, values in [*TRIED.items()] * 2:
        if not getattr(start, name):
            continue
        for value in values:
            changes: dict[str, Any] = {name: value}
            tried = replace(best, **changes)
            if (now := _quality(talks, tried)) > quality:
                best, quality = tried, now
    return best


def _quality(talks: Sequence[Talk], weights: Weights) -> float:
    """R@10 and MRR, half and half, each conversation counting alike."""
    return float(np.mean([measured(talk, weights)[0][:, :2].mean() for talk in talks]))


def _line(name: str, talks: Sequence[Talk], weights: Weights) -> str:
    tables, spent = zip(*(measured(talk, weights) for talk in talks), strict=True)
    whole = np.concatenate(tables)
    kinds = np.concatenate([talk.kinds for talk in talks])
    figures = "  ".join(f"{metric} {100 * value:5.1f}" for metric, value in zip(METRICS, whole.mean(0), strict=True))
    multi = 100 * whole[kinds == MULTI_HOP, 0].mean() if (kinds == MULTI_HOP).any() else float("nan")
    return f"{name:<34} {figures}  multi-hop {multi:5.1f}  {np.median(spent):5.2f} ms"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--vectors", type=Path, help="measure the hybrid too; vectors are kept in this folder")
    parser.add_argument("--split", action="store_true", help="choose weights on parts of the data (minutes)")
    arguments = parser.parse_args()
    kinds: list[tuple[str, Weights, Path | None]] = [("lexical", LEXICAL, None)]
    if arguments.vectors:
        kinds += [("hybrid", replace(HYBRID, late=0.0), arguments.vectors), ("hybrid, late", HYBRID, arguments.vectors)]
    for name, weights, folder in kinds:
        talks = list(load(arguments.data, folder))
        print(_line(name, talks, weights), flush=True)
        if not arguments.split:
            continue
        for pair in itertools.combinations(talks, 2):
            others = [talk for talk in talks if talk not in pair]
            tuned = chosen(pair, weights)
            print(_line(f"  set on {', '.join(talk.id for talk in pair)}", others, tuned), flush=True)
        for talk in talks:
            tuned = chosen([other for other in talks if other is not talk], weights)
            print(_line(f"  set on all but, measured on {talk.id}", [talk], tuned), flush=True)


if __name__ == "__main__":
    main()
