"""Adding texts to the queue for embedding, and removing their vectors."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.storage.database.base import Database

QUEUE = "INSERT INTO embedding_queue (number, seq) VALUES (:number, :seq) ON CONFLICT (number, seq)"


def queue_texts(db: Database, number: int, seqs: Sequence[int]) -> None:
    """Queue these texts for embedding. Earlier claims of them end."""
    db.run_many(
        f"{QUEUE} DO UPDATE SET tries = 0, not_before = '', failure = NULL",
        [{"number": number, "seq": seq} for seq in seqs],
    )
    db.queued_texts += len(seqs)


def forget_texts(db: Database, number: int, seqs: Sequence[int]) -> None:
    """Remove the vectors of these texts and their places in the queue."""
    if not seqs:
        return
    # The queue first: a worker that is storing a vector holds a lock on its row, so this waits for it.
    condition, params = db.in_numbers("seq", "seqs", seqs)
    db.run(f"DELETE FROM embedding_queue WHERE number = :number AND {condition}", {"number": number} | params)
    keys, params = db.in_numbers("key", "keys", [number << 32 | seq for seq in seqs])
    there = db.rows(f"SELECT key, generation FROM vectors WHERE {keys} AND vector IS NOT NULL", params)
    if not there:
        return
    scope = db.rows(f"SELECT generation FROM vector_scopes WHERE number = :number{db.for_update}", {"number": number})
    if not scope:
        return
    db.changed_scopes.add(number)
    current = sum(row[1] == scope[0][0] for row in there)
    changed = {"number": number, "current": current}
    db.run(
        "UPDATE vector_scopes SET version = version + 1, row_count = row_count - :current WHERE number = :number",
        changed,
    )
    db.run_many(
        "UPDATE vectors SET vector = NULL, generation = s.generation, version = s.version FROM vector_scopes s"
        " WHERE key = :key AND s.number = :number",
        [{"key": row[0], "number": number} for row in there],
    )
