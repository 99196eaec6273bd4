"""Forgetting of passages: what a policy would let fade, near-duplicates, and taking a pass back.

A passage keeps its text, tags and words in all states; only its state changes, and why.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from perdure.core.ids import AgentId, ArchiveId
from perdure.core.passages import SEARCHED_STATES, Archive, Passage, PassageFilter, PassageState
from perdure.features.facts.fading import policy as fading
from perdure.features.facts.values.settings import Forgetting
from perdure.storage.tx import Tx

IMPORTANCE = 0.5
"""Of a passage whose metadata name none, as of a fact without a rating."""
COMPARED_MAX, COMPARED_CHARS = 2_000, 2_000
"""The most passages of an archive that are compared with each other, the newest, and the longest text."""

_STATES: Mapping[fading.Reason, PassageState] = {
    "faded": "faded",
    "used": "active",
    "unused": "archived",
    "duplicate": "archived",
}


@dataclass(frozen=True, slots=True)
class _Judged:
    """A passage with what the policy gives for it, and how often it was used."""

    passage: Passage
    worth: float
    uses: int


def fading_archives(tx: Tx, agent_id: AgentId) -> Sequence[Archive]:
    """Return the archives whose passages fade by an agent's policy: those that no other agent has. Raises: NotFound."""
    tx.agents.model(agent_id)
    return [
        archive
        for archive in tx.archives.list_by_agent(agent_id)
        if list(tx.archives.list_agents(archive.id, limit=2)) == [agent_id]
    ]


def plan_passages(
    tx: Tx, archives: Sequence[Archive], policy: Forgetting, *, at: datetime
) -> Sequence[fading.TidyItem]:
    """Return what a pass would change, near-duplicates first, then what matters least. It changes nothing."""
    items: list[fading.TidyItem] = []
    single: list[fading.TidyItem] = []
    youngest = at - timedelta(days=policy.min_age_days)
    for archive in archives:
        newest: deque[_Judged] = deque(maxlen=COMPARED_MAX)
        of_archive: list[fading.TidyItem] = []
        for one in _judge_all(tx, archive, policy, at=at):
            passage = one.passage
            if len(passage.text) <= COMPARED_CHARS:
                newest.append(one)
            is_old = _begin_of(passage) <= youngest
            item = fading.judge(passage, one.worth, one.uses, policy, origin=passage.state_origin, is_old=is_old)
            if item is not None:
                of_archive.append(item)
        same = [
            fading.TidyItem(memory=one.passage, reason="duplicate", score=one.worth, into=kept)
            for one, kept in _find_duplicates(newest)
        ]
        done = {seq for item in same for seq in (_passage_of(item).seq, item.into.seq if item.into else -1)}
        items += same
        single += [item for item in of_archive if _passage_of(item).seq not in done]
    return [*items, *sorted(single, key=lambda item: (item.score, _passage_of(item).seq))][: fading.CHANGES_MAX]


def tidy_passages(tx: Tx, items: Sequence[fading.TidyItem], *, pass_: str, at: datetime) -> Sequence[fading.TidyItem]:
    """Carry out a pass; return what it changed. What has changed since it was planned stays as it is."""
    done: list[fading.TidyItem] = []
    changed: dict[ArchiveId, list[Passage]] = {}
    for item in items:
        planned, into = _passage_of(item), item.into
        read = [one for one in (planned, into) if isinstance(one, Passage)]
        if any(tx.passages.list_by_seqs(one.archive_id, [one.seq]) != [one] for one in read):
            continue
        origin: dict[str, Any] = {"type": "policy", "pass": pass_, "reason": item.reason, "at": at.isoformat()}
        if item.reason == "faded":
            origin["uses"] = item.uses
        if into is not None:
            origin["into"] = into.id
        if item.reason != "used":
            origin["before"] = {"state": planned.state, "origin": dict(planned.state_origin)}
        after = replace(planned, state=_STATES[item.reason], state_origin=origin)
        changed.setdefault(planned.archive_id, []).append(after)
        done.append(item)
    for passages in changed.values():
        tx.passages.put_states(passages)
    return done


def last_pass(tx: Tx, archives: Sequence[Archive]) -> str | None:
    """Return the latest pass of which a passage still is faded or archived."""
    return max((str(passage.state_origin["pass"]) for passage in _of_passes(tx, archives)), default=None)


def restore_passages(
    tx: Tx, archives: Sequence[Archive], pass_: str, *, at: datetime, limit: int = fading.PAGE
) -> Sequence[Passage]:
    """Take back what a pass did and nobody has changed since; return the passages as they are again, at most `limit`.
    Their age counts from now on."""
    restored: dict[ArchiveId, list[Passage]] = {}
    found = [passage for passage in _of_passes(tx, archives) if passage.state_origin["pass"] == pass_][:limit]
    for passage in found:
        before = passage.state_origin["before"]
        after = replace(passage, state=before["state"], state_origin={**before["origin"], "at": at.isoformat()})
        restored.setdefault(passage.archive_id, []).append(after)
    for passages in restored.values():
        tx.passages.put_states(passages)
    return [passage for passages in restored.values() for passage in passages]


def _judge_all(tx: Tx, archive: Archive, policy: Forgetting, *, at: datetime) -> Iterator[_Judged]:
    """Yield the passages of an archive that are not archived, oldest first, with their worth."""
    after, where = -1, PassageFilter(states=SEARCHED_STATES)
    while page := tx.passages.page(archive.id, where=where, limit=fading.PAGE, above=after):
        after = page[-1].seq
        uses = tx.passages.use_counts(archive.id, [passage.seq for passage in page])
        for passage in page:
            used = uses.get(passage.seq, 0)
            days = fading.days_between(_begin_of(passage), at)
            yield _Judged(passage, fading.compute_worth(_importance_of(passage), days, used, policy), used)


def _find_duplicates(judged: Sequence[_Judged]) -> Iterator[tuple[_Judged, Passage]]:
    """Yield near-duplicates, each with the passage that stays: one that has not faded, the most important, then the
    fullest, then the oldest."""
    words = {one.passage.seq: fading.count_words(one.passage.text) for one in judged}
    rarity = Counter(word for of_one in words.values() for word in of_one)
    best = sorted(judged, key=_place_of)
    kept: list[Passage] = []
    places: dict[object, list[int]] = {}  # the kept passages by their rarest words
    for one in best:
        passage, own = one.passage, words[one.passage.seq]
        keys = [(_company_of(passage), word) for word in _rarest(own, rarity)]
        near = sorted({place for key in keys for place in places.get(key, ())})
        same = next((kept[place] for place in near if fading.says_same(words[kept[place].seq], own)), None)
        if same is not None:
            yield one, same
            continue
        for key in keys:
            places.setdefault(key, []).append(len(kept))
        kept.append(passage)


def _place_of(one: _Judged) -> tuple[bool, float, int, int]:
    """Return the place of a passage among near-duplicates, those that stay first."""
    passage = one.passage
    return passage.state != "active", -_importance_of(passage), -len(passage.text), passage.seq


def _rarest(words: Counter[str], rarity: Counter[str]) -> Sequence[tuple[str, int]]:
    """Return the rarest words of a text, the second occurrence of a word as another one: of two near-duplicates both
    have at least one of these, for too few words would be common otherwise."""
    every = [(word, place) for word, count in words.items() for place in range(count)]
    every.sort(key=lambda word: (rarity[word[0]], word))
    return every[: len(every) - math.ceil(fading.NEARLY_ALL * len(every)) + 1]


def _company_of(passage: Passage) -> tuple[object, ...]:
    """Return what near-duplicates have in common beside their words: tags, metadata, kind of source, and the time if it
    is one that somebody named."""
    time = None if passage.occurred_at == passage.created_at else passage.occurred_at
    metadata = json.dumps(dict(passage.metadata), sort_keys=True)
    return frozenset(passage.tags), metadata, passage.source.get("type"), time


def _importance_of(passage: Passage) -> float:
    """Return how much a passage matters, 0 to 1, as its metadata say."""
    value: Any = passage.metadata.get("importance")
    return float(value) if type(value) in (int, float) and 0 <= value <= 1 else IMPORTANCE


def _begin_of(passage: Passage) -> datetime:
    """Return since when a passage is in its state."""
    at = passage.state_origin.get("at")
    return passage.created_at if at is None else datetime.fromisoformat(at)


def _of_passes(tx: Tx, archives: Sequence[Archive]) -> Iterator[Passage]:
    """Yield the passages that passes have let fade or archived."""
    where = PassageFilter(states=("faded", "archived"))
    for archive in archives:
        after = -1
        while page := tx.passages.page(archive.id, where=where, limit=fading.PAGE, above=after):
            after = page[-1].seq
            yield from (passage for passage in page if "pass" in passage.state_origin)


def _passage_of(item: fading.TidyItem) -> Passage:
    """Return the passage of an item of the plan of passages."""
    assert isinstance(item.memory, Passage)
    return item.memory
