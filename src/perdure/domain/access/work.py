"""Whether an organisation has work that nobody waits for."""

from __future__ import annotations

from datetime import datetime

from perdure.storage.tx import Tx


def has_work(tx: Tx, embedding: str | None, *, at: datetime) -> bool:
    """Whether something has to be done that a running engine would do by itself: runs, turns of groups, passes of
    companions, schedules and reports that are due, files, texts to embed with this model, or removals."""
    return bool(
        tx.runs.list_oldest(limit=1)
        or tx.group_turns.list_oldest(limit=1)
        or tx.passes.list_unended(limit=1)
        or tx.schedules.list_due(at=at, limit=1)
        or tx.callbacks.list_due(at=at, limit=1)
        or tx.files.has_work()
        or tx.upkeep.unfinished_deletes()
        or tx.resets.list_agents(limit=1)
        or (embedding is not None and tx.vectors.has_work(embedding, at=at))
    )
