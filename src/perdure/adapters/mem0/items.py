"""Facts in the shapes of mem0's results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any

from perdure import Fact, FactHit
from perdure.adapters.mem0.fields import METADATA
from perdure.features.facts.views import local

Result = dict[str, Any]
SHOWN = ("user_id", "agent_id", "run_id", "actor_id", "role")
EVIDENCE_HITS = 5


def item(fact: Fact, created_at: datetime, score: float | None = None, *, home: tzinfo) -> Result:
    """Return a fact as a memory. `created_at` is the time of its first version; `home` the zone of its last day."""
    result: Result = {
        "id": fact.id,
        "memory": fact.text,
        "hash": hashlib.md5(fact.text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest(),
        "metadata": metadata_of(fact) or None,
        "created_at": created_at.isoformat(),
        "updated_at": fact.created_at.isoformat(),
    }
    if score is not None:
        result["score"] = score
    return {**result, **_scope_fields(fact, home)}


def metadata_of(fact: Fact) -> Mapping[str, Any]:
    """Return the metadata in a fact's scope."""
    try:
        metadata = json.loads(fact.scope.get(METADATA, "{}"))
    except ValueError:  # another program wrote it
        return {}
    return metadata if isinstance(metadata, dict) else {}


def fields_of(fact: Fact, created_at: datetime, home: tzinfo) -> Mapping[str, Any]:
    """Return the fields with which filters are compared: metadata, ids and times, in the form of `item`."""
    times = {"created_at": created_at.isoformat(), "updated_at": fact.created_at.isoformat()}
    return {**metadata_of(fact), **_scope_fields(fact, home), **times}


def scale_scores(hits: Sequence[FactHit]) -> Sequence[tuple[FactHit, float]]:
    """Return (hit, score) with scores from 0 to 1 that compare between searches: the part of the query that the best
    hits contain, times the hit's share of the best score."""
    if not hits:
        return ()
    shares = [0.0 if hit.why is None else min(1.0, max(hit.why.words, hit.why.cosine or 0.0)) for hit in hits]
    evidence, best = max(shares[:EVIDENCE_HITS]), hits[0].score
    if best <= 0:  # the hits are alike: nothing tells one from the others
        return list(zip(hits, shares, strict=True))
    return [(hit, round(evidence * max(0.0, min(1.0, hit.score / best)), 4)) for hit in hits]


def history_items(versions: Sequence[Fact]) -> list[Result]:
    """Return the versions of a fact as changes: added, updated, deleted, and added again when it was restored."""
    items: list[Result] = []
    before: Fact | None = None
    for version in versions:
        if version.is_deletion:  # the version before says until when it was believed
            continue
        if before is None:
            items.append(_change(version, "ADD", None, version.text, version.created_at))
        elif version.change == "restore":
            items.append(_change(before, "DELETE", before.text, None, before.expired_at))
            items.append(_change(version, "ADD", None, version.text, version.created_at))
        else:
            items.append(_change(version, "UPDATE", before.text, version.text, version.created_at))
        before = version
    if before is not None and before.expired_at is not None:
        items.append(_change(before, "DELETE", before.text, None, before.expired_at))
    return [{**item, "created_at": versions[0].created_at.isoformat()} for item in items]


def _scope_fields(fact: Fact, home: tzinfo) -> Mapping[str, Any]:
    """Return the ids of a memory's scope and, if it has one, its last day in the time zone `home`."""
    shown: dict[str, Any] = {name: fact.scope[name] for name in SHOWN if name in fact.scope}
    if fact.invalid_at is not None:
        shown["expiration_date"] = local(fact.invalid_at - timedelta(microseconds=1), home).date().isoformat()
    return shown


def _change(version: Fact, event: str, old: str | None, new: str | None, at: datetime | None) -> Result:
    """Return a change from the text `old` to `new` at the time `at` for mem0's history, without its `created_at`."""
    return {
        "id": f"{version.id}:{version.seq}:{event.lower()}",
        "memory_id": version.id,
        "old_memory": old,
        "new_memory": new,
        "event": event,
        "created_at": None,
        "updated_at": None if at is None else at.isoformat(),
        "is_deleted": event == "DELETE",
        "actor_id": version.scope.get("actor_id"),
        "role": version.scope.get("role"),
    }
