"""`tx.events`: the event verbs of one transaction.

A row holds the events of one `add`, under the number of the last: most transactions of the loop tell several things.
Previews of an answer have rows of their own, since they go one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.events import DeltaStreamed, Event, MessageAdded, StoredEvent, events_from_text, events_to_text
from perdure.core.ids import OrgId
from perdure.core.runs import RunKey
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import OWN_AGENT, Database, from_iso, iso
from perdure.storage.tables.messages import read_messages


class Events:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(self, key: RunKey, events: Sequence[Event], *, at: datetime) -> Sequence[StoredEvent]:
        """Store the events, and return them with their numbers, consecutive within the run. Raises: NotFound."""
        params = {"agent_id": key.agent_id, "run_seq": key.seq}
        # The run is locked, so no other transaction adds events before this one ends.
        if self._db.for_update:  # a statement of its own: one that waited would still see the numbers of before
            self._db.rows(
                f"SELECT 1 FROM runs WHERE agent_id = :agent_id AND seq = :run_seq{self._db.for_update}", params
            )
        newest = self._db.rows(
            "SELECT COALESCE((SELECT MAX(e.seq) FROM events e WHERE e.agent_id = :agent_id"
            " AND e.run_seq = :run_seq), 0) FROM runs"
            f" WHERE agent_id = :agent_id AND seq = :run_seq AND {OWN_AGENT}",
            params | {"org_id": self._org_id},
        )
        if not newest:
            raise NotFound("run", f"{key.seq} of {key.agent_id}")
        first, at_text = 1 + int(newest[0][0]), iso(at)
        rows: list[dict[str, Any]] = []
        upto = first - 1
        for together in _together(events):
            upto += len(together)
            kinds, body = events_to_text(together)
            rows.append(
                {
                    "agent_id": key.agent_id,
                    "run_seq": key.seq,
                    "seq": upto,
                    "type": kinds,
                    "body": storable(body),
                    "at": at_text,
                }
            )
        self._db.run_many(
            "INSERT INTO events (agent_id, run_seq, seq, type, body, created_at)"
            " VALUES (:agent_id, :run_seq, :seq, :type, :body, :at)",
            rows,
        )
        return [
            StoredEvent(agent_id=key.agent_id, run_seq=key.seq, seq=first + index, event=event, created_at=at)
            for index, event in enumerate(events)
        ]

    def list(self, key: RunKey, *, after: int = 0, limit: int = 1000) -> Sequence[StoredEvent]:
        """Events in order. That of an added message holds the message, even if a reset took it out of view."""
        rows = self._db.rows(
            "SELECT seq, type, body, created_at FROM events"
            f" WHERE agent_id = :agent_id AND run_seq = :run_seq AND seq > :after AND {OWN_AGENT}"
            " ORDER BY seq LIMIT :limit",
            {
                "agent_id": key.agent_id,
                "run_seq": key.seq,
                "after": after,
                "limit": limit,
                "org_id": self._org_id,
            },
        )
        events: list[tuple[int, Event, datetime]] = []
        for upto, kinds, body, created_at in rows:
            together, at = events_from_text(kinds, restore(body)), from_iso(created_at)
            first = upto - len(together) + 1
            events += [(first + index, event, at) for index, event in enumerate(together) if first + index > after]
        del events[limit:]
        named = [event.message_seq for _, event, _ in events if isinstance(event, MessageAdded)]
        # Also what a reset took out of view: whoever knows the run gets the same answer however late they ask.
        messages = read_messages(self._db, self._org_id, key.agent_id, named, reset=True)
        return [
            StoredEvent(
                agent_id=key.agent_id,
                run_seq=key.seq,
                seq=seq,
                event=MessageAdded(event.message_seq, messages.get(event.message_seq))
                if isinstance(event, MessageAdded)
                else event,
                created_at=at,
            )
            for seq, event, at in events
        ]

    def trim_deltas(self, key: RunKey, *, keep: int, since: datetime) -> int:
        """Remove stored previews that are older than `since` or not among the newest `keep`; return how many. A run's
        newest event always stays."""
        return self._db.run(
            "DELETE FROM events WHERE agent_id = :agent_id AND run_seq = :run_seq AND type = 'delta.streamed'"
            " AND (created_at < :since OR seq <= (SELECT d.seq FROM events d WHERE d.agent_id = :agent_id"
            " AND d.run_seq = :run_seq AND d.type = 'delta.streamed' ORDER BY d.seq DESC LIMIT 1 OFFSET :keep))"
            # The newest event stays: the next one is numbered after it.
            " AND seq < (SELECT MAX(n.seq) FROM events n WHERE n.agent_id = :agent_id AND n.run_seq = :run_seq)"
            f" AND {OWN_AGENT}",
            {
                "agent_id": key.agent_id,
                "run_seq": key.seq,
                "keep": keep,
                "since": iso(since),
                "org_id": self._org_id,
            },
        )


def _together(events: Sequence[Event]) -> Sequence[Sequence[Event]]:
    """The events in order, those that are stored in one row together."""
    if not any(isinstance(event, DeltaStreamed) for event in events):
        return (events,) if events else ()
    parts: list[list[Event]] = []
    for event in events:
        if not parts or isinstance(event, DeltaStreamed) or isinstance(parts[-1][-1], DeltaStreamed):
            parts.append([event])
        else:
            parts[-1].append(event)
    return parts
