"""`tx.events`: the events of one transaction.

A row holds the events of one `add`, under the number of the last. Previews of an answer have rows of their own, because
they are removed one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from perdure.core.events import DeltaStreamed, Event, MessageAdded, StoredEvent, events_from_text, events_to_text
from perdure.core.ids import AgentId
from perdure.core.runs import RunKey
from perdure.storage.database.row_format import from_iso, iso, restore, storable
from perdure.storage.tables.messages import read_messages
from perdure.storage.tables.table import OWN_AGENT, Table, first

_OWN_RUN = f"agent_id = :agent_id AND run_seq = :run_seq AND {OWN_AGENT}"
_COLUMNS = "agent_id, run_seq, seq, type, body, created_at"
_INSERT = (
    f"INSERT INTO events ({_COLUMNS}) SELECT :agent_id, :run_seq, :count + COALESCE((SELECT MAX(e.seq) FROM events e"
    " WHERE e.agent_id = :agent_id AND e.run_seq = :run_seq), 0), :type, :body, :created_at FROM runs"
    f" WHERE agent_id = :agent_id AND seq = :run_seq AND {OWN_AGENT} RETURNING seq"
)


class Events(Table):
    def add(self, key: RunKey, events: Sequence[Event], *, at: datetime) -> Sequence[StoredEvent]:
        """Add events, and return them with their numbers, consecutive within the run. Raises: NotFound."""
        batches: list[list[Event]] = []
        for event in events:
            if batches and not (isinstance(event, DeltaStreamed) or isinstance(batches[-1][-1], DeltaStreamed)):
                batches[-1].append(event)
            else:
                batches.append([event])
        # The run is locked, so no other transaction adds events before this one ends.
        if self._db.for_update:  # a statement of its own: one that waited would still see the numbers of before
            lock = f"SELECT 1 FROM runs WHERE agent_id = :agent_id AND seq = :run_seq{self._db.for_update}"
            self._run(lock, agent_id=key.agent_id, run_seq=key.seq)
        self._db.signal(f"run {key.agent_id} {key.seq}")
        first_number = 1
        for batch in batches:
            kinds, body = events_to_text(batch)
            rows = self._rows(
                _INSERT,
                agent_id=key.agent_id,
                run_seq=key.seq,
                count=len(batch),
                type=kinds,
                body=storable(body),
                created_at=iso(at),
            )
            last = int(first(rows, "agent", key.agent_id)[0])
            if batch is batches[0]:
                first_number = last - len(batch) + 1
        return [
            StoredEvent(agent_id=key.agent_id, run_seq=key.seq, seq=first_number + index, event=event, created_at=at)
            for index, event in enumerate(events)
        ]

    def list(self, key: RunKey, *, after: int = 0, limit: int = 1000) -> Sequence[StoredEvent]:
        """Return a run's events with numbers above `after`, in order, with the messages that were added."""
        rows = self._rows(
            f"SELECT seq, type, body, created_at FROM events WHERE {_OWN_RUN} AND seq > :after"
            " ORDER BY seq LIMIT :limit",
            agent_id=key.agent_id,
            run_seq=key.seq,
            after=after,
            limit=limit,
        )
        events: list[tuple[int, Event, datetime]] = []
        for last, kinds, body, created_at in rows:
            batch, at = events_from_text(kinds, restore(body)), from_iso(created_at)
            numbered = enumerate(batch, last - len(batch) + 1)
            events += [(number, event, at) for number, event in numbered if number > after]
        del events[limit:]
        message_seqs = [event.message_seq for _, event, _ in events if isinstance(event, MessageAdded)]
        # With those that a reset took out of view: readers of a run get the same answer, however late they ask.
        messages = read_messages(self._db, self._org_id, key.agent_id, message_seqs, reset=True)
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

    def kinds(self, agent_id: AgentId, run_seqs: Sequence[int]) -> Mapping[int, Sequence[str]]:
        """Number of a run -> kinds of its events, in order, without previews; a run without any is left out."""
        sql = (
            f"SELECT run_seq, type FROM events WHERE agent_id = :agent_id AND {OWN_AGENT} AND {{keys}}"
            " AND type <> 'delta.streamed' ORDER BY run_seq, seq"
        )
        found = self._rows_of_each(sql, "run_seq", run_seqs, agent_id=agent_id)
        return {seq: [kind for row in rows for kind in row[0].split(",")] for seq, rows in found.items() if rows}

    def trim_deltas(self, key: RunKey, *, keep: int, since: datetime) -> int:
        """Remove previews older than `since` or beyond the newest `keep`, never a run's newest; return the count."""
        return self._run_counted(
            f"DELETE FROM events WHERE {_OWN_RUN} AND type = 'delta.streamed'"
            " AND (created_at < :since OR seq <= (SELECT d.seq FROM events d WHERE d.agent_id = :agent_id"
            " AND d.run_seq = :run_seq AND d.type = 'delta.streamed' ORDER BY d.seq DESC LIMIT 1 OFFSET :keep))"
            # The newest event stays: the next one is numbered after it.
            " AND seq < (SELECT MAX(n.seq) FROM events n WHERE n.agent_id = :agent_id AND n.run_seq = :run_seq)",
            agent_id=key.agent_id,
            run_seq=key.seq,
            keep=keep,
            since=iso(since),
        )
