"""Forgetting of passages: what they are worth to a policy, carrying out a pass, and taking it back.

A passage keeps its text, tags and words in all states; only its state changes, and why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.ids import AgentId, ArchiveId
from perdure.core.passages import SEARCHED_STATES, Archive, Passage, PassageFilter
from perdure.features.facts.fading.policy import PAGE, STATES, Judged, TidyItem, compute_worth, days_between, plan_pass
from perdure.features.facts.values.settings import Forgetting
from perdure.storage.tx import Tx

IMPORTANCE = 0.5
"""The importance, 0 to 1, of a passage whose metadata name none; it is that of a fact without a rating."""
COMPARED_MAX, COMPARED_CHARS = 2_000, 2_000
"""The most passages of an archive that are compared with each other, the newest, and the longest text."""


def fading_archives(tx: Tx, agent_id: AgentId) -> Sequence[Archive]:
    """Return the archives whose passages an agent's policy lets fade: those of no other agent. Raises: NotFound."""
    tx.agents.model(agent_id)
    return [
        archive
        for archive in tx.archives.list_by_agent(agent_id)
        if list(tx.archives.list_agents(archive.id, limit=2)) == [agent_id]
    ]


def plan_passages(tx: Tx, archives: Sequence[Archive], policy: Forgetting, *, at: datetime) -> Sequence[TidyItem]:
    """Return what a pass would change of the passages of these archives at the time `at`; it changes nothing."""
    judged = (passage for archive in archives for passage in _judge_all(tx, archive, policy, at=at))
    return plan_pass(judged, policy, at=at, compared_max=COMPARED_MAX)


def tidy_passages(tx: Tx, items: Sequence[TidyItem], *, pass_: str, at: datetime) -> Sequence[TidyItem]:
    """Carry out the planned changes of a pass; return those carried out. A passage that has changed since is skipped.
    `pass_`: the id of the pass, for the `state_origin` of changed passages."""
    done: list[TidyItem] = []
    changed: dict[ArchiveId, list[Passage]] = {}
    for item in items:
        planned, into = item.memory, item.into
        assert isinstance(planned, Passage)
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
        after = replace(planned, state=STATES[item.reason], state_origin=origin)
        changed.setdefault(planned.archive_id, []).append(after)
        done.append(item)
    for passages in changed.values():
        tx.passages.put_states(passages)
    return done


def restore_passages(tx: Tx, archives: Sequence[Archive], pass_: str, *, at: datetime, limit: int) -> Sequence[Passage]:
    """Take back what a pass did to at most `limit` passages that are still so; return them. Their age begins anew."""
    restored: dict[ArchiveId, list[Passage]] = {}
    found = [passage for passage in passages_of_passes(tx, archives) if passage.state_origin["pass"] == pass_][:limit]
    for passage in found:
        before = passage.state_origin["before"]
        after = replace(passage, state=before["state"], state_origin={**before["origin"], "at": at.isoformat()})
        restored.setdefault(passage.archive_id, []).append(after)
    for passages in restored.values():
        tx.passages.put_states(passages)
    return [passage for passages in restored.values() for passage in passages]


def _judge_all(tx: Tx, archive: Archive, policy: Forgetting, *, at: datetime) -> Iterator[Judged]:
    """Yield the passages of an archive that are not archived with what they are worth to a policy, oldest first."""
    after, where = -1, PassageFilter(states=SEARCHED_STATES)
    while page := tx.passages.page(archive.id, where=where, limit=PAGE, above=after):
        after = page[-1].seq
        uses = tx.passages.use_counts(archive.id, [passage.seq for passage in page])
        yield from (_judge(passage, uses.get(passage.seq, 0), policy, at=at) for passage in page)


def _judge(passage: Passage, uses: int, policy: Forgetting, *, at: datetime) -> Judged:
    """What a passage that was used so often is worth to a policy, by the importance in its metadata. Near-duplicates
    have the same tags, metadata and kind of source, and the same time unless it is when they were stored."""
    value: Any = passage.metadata.get("importance")
    importance = float(value) if type(value) in (int, float) and 0 <= value <= 1 else IMPORTANCE
    begin = passage.state_origin.get("at")
    since = passage.created_at if begin is None else datetime.fromisoformat(begin)
    time = None if passage.occurred_at == passage.created_at else passage.occurred_at
    metadata = json.dumps(dict(passage.metadata), sort_keys=True)
    return Judged(
        memory=passage,
        worth=compute_worth(importance, days_between(since, at), uses, policy),
        uses=uses,
        since=since,
        origin=passage.state_origin,
        importance=importance,
        group=passage.archive_id if len(passage.text) <= COMPARED_CHARS else None,
        company=(frozenset(passage.tags), metadata, passage.source.get("type"), time),
    )


def passages_of_passes(tx: Tx, archives: Sequence[Archive]) -> Iterator[Passage]:
    """Yield the passages that passes have let fade or archived, and that are still so."""
    where = PassageFilter(states=("faded", "archived"))
    for archive in archives:
        after = -1
        while page := tx.passages.page(archive.id, where=where, limit=PAGE, above=after):
            after = page[-1].seq
            yield from (passage for passage in page if "pass" in passage.state_origin)
