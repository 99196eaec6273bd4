"""`tx.vectors`: the vectors of texts, and the queue of texts that wait for one, of one transaction.

Vectors are stored as 16-bit floats. Each is written together with its scope's new version, so a scope's version tells
exactly which vectors exist.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from perdure.core.errors import EmbeddingMismatch, NotFound
from perdure.core.ids import OrgId
from perdure.core.text.words import restore, storable
from perdure.core.vectors import Claim, OwnerKind, Scope, ScopeCounts, VectorBlock, VectorRow
from perdure.storage.database.base import Database, Row, iso
from perdure.storage.tables.vector_queue import QUEUE, forget_texts, queue_texts

NEVER = "9"
"""The `not_before` of a text that is not tried again; it sorts after every time."""

CACHE_SLOTS = 8_192
"""The slots of the cache of vectors by content: 7 MB at 384 dimensions. Each hash has one slot, so nothing is evicted
by age or count."""

_MASK = (1 << 32) - 1
_SEQ = f"key & {_MASK}"
_SCOPE = "number, owner_kind, owner_id, model, dimensions, generation, version, row_count, fill_from"
_OWN_SCOPE = "EXISTS (SELECT 1 FROM vector_scopes s WHERE s.number = :number AND s.org_id = :org_id)"
_TEXTS = {
    "archive": "SELECT seq FROM passages WHERE archive_id = :owner AND seq >= :from ORDER BY seq LIMIT :limit",
    "agent": (
        "SELECT seq FROM messages WHERE agent_id = :owner AND seq >= :from AND kind = 'message'"
        " AND role IN ('user', 'assistant') AND removed = 0 ORDER BY seq LIMIT :limit"
    ),
}


def open_scope_of(db: Database, org_id: OrgId, number: int, owner_kind: OwnerKind, owner_id: str) -> None:
    """Open the scope of a new agent or archive, if new ones are embedded."""
    if db.embedding is not None:
        Vectors(db, org_id).open(number, owner_kind, owner_id, db.embedding)


class Vectors:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    @property
    def queued(self) -> int:
        """How many texts were queued through this connection so far."""
        return self._db.queued_texts

    @contextlib.contextmanager
    def embedding_new(self, model: str) -> Iterator[None]:
        """Inside the context, new agents and archives get a scope with this model."""
        self._db.embedding = model
        try:
            yield
        finally:
            self._db.embedding = None

    def scope(self, number: int) -> Scope | None:
        rows = self._db.rows(
            f"SELECT {_SCOPE} FROM vector_scopes WHERE number = :number AND org_id = :org_id", self._own(number)
        )
        return self._scope(rows[0]) if rows else None

    def open(self, number: int, owner_kind: OwnerKind, owner_id: str, model: str) -> Scope:
        """Open a scope, so that new texts are embedded by `model` and `fill` queues existing ones. An open scope stays
        as it is. Raises: NotFound."""
        params = self._own(number) | {"kind": owner_kind, "owner": owner_id, "model": storable(model)}
        table, counter = ("agents", "message_seq") if owner_kind == "agent" else ("archives", "passage_seq")
        opened = self._db.run(
            "INSERT INTO vector_scopes (number, org_id, owner_kind, owner_id, model, fill_from)"
            f" SELECT number, org_id, :kind, id, :model, CASE WHEN {counter} = 0 THEN NULL ELSE 0 END FROM {table}"
            " WHERE number = :number AND id = :owner AND org_id = :org_id ON CONFLICT (number) DO NOTHING",
            params,
        )
        if opened:
            self._mark(owner_kind, params)
        scope = self.scope(number)
        if scope is None or scope.owner_id != owner_id:
            raise NotFound(owner_kind, owner_id)
        return scope

    def restart(self, number: int, model: str) -> Scope:
        """Start over with `model`: discard all vectors, and let `fill` queue every text again. Raises: NotFound."""
        params = self._own(number) | {"model": storable(model)}
        self._db.changed_scopes.add(number)
        self._db.run(
            "UPDATE vector_scopes SET model = :model, dimensions = NULL, generation = generation + 1,"
            " version = version + 1, row_count = 0, fill_from = 0 WHERE number = :number AND org_id = :org_id",
            params,
        )
        scope = self._get_scope(number)
        self._mark(scope.owner_kind, params | {"owner": scope.owner_id})
        self._db.run("DELETE FROM embedding_queue WHERE number = :number", params)
        return scope

    def refill(self, number: int) -> Scope:
        """Let `fill` queue every text without a vector again, also those that failed for good. Raises: NotFound."""
        params = self._own(number) | {"never": NEVER}
        self._db.run("UPDATE vector_scopes SET fill_from = 0 WHERE number = :number AND org_id = :org_id", params)
        scope = self._get_scope(number)
        self._db.run(
            "UPDATE embedding_queue SET tries = 0, not_before = '', failure = NULL"
            " WHERE number = :number AND not_before = :never",
            params,
        )
        return scope

    def close(self, number: int, *, limit: int | None = None) -> bool:
        """Remove the scope with its vectors and its queue; with `limit`, that many rows, and the scope after the last
        one. Returns whether all is removed."""
        params = self._own(number) | {"first": number << 32, "last": number << 32 | _MASK, "limit": limit}
        if not self._db.rows("SELECT 1 FROM vector_scopes WHERE number = :number AND org_id = :org_id", params):
            return True
        self._db.changed_scopes.add(number)
        some = "" if limit is None else " LIMIT :limit"
        keys = f"SELECT key FROM vectors WHERE key BETWEEN :first AND :last ORDER BY key{some}"
        gone = self._db.run(f"DELETE FROM vectors WHERE key IN ({keys})", params)
        seqs = f"SELECT seq FROM embedding_queue WHERE number = :number ORDER BY seq{some}"
        gone += self._db.run(f"DELETE FROM embedding_queue WHERE number = :number AND seq IN ({seqs})", params)
        if limit is not None and gone:
            return False
        self._db.run("DELETE FROM vector_scopes WHERE number = :number", params)
        self._db.run("UPDATE agents SET embedded = 0 WHERE number = :number", params)
        self._db.run("UPDATE archives SET embedding = NULL WHERE number = :number", params)
        return True

    def fill(self, model: str, *, limit: int) -> bool:
        """Queue those of the next `limit` texts that have no vector, in a scope of this model that is not filled yet.
        False: every scope is filled."""
        rows = self._db.rows(
            f"SELECT {_SCOPE} FROM vector_scopes WHERE fill_from IS NOT NULL AND model = :model AND org_id = :org_id"
            f" ORDER BY number LIMIT 1{self._db.for_update}",
            {"model": storable(model), "org_id": self._org_id},
        )
        if not rows:
            return False
        scope = self._scope(rows[0])
        texts = self._db.rows(
            _TEXTS[scope.owner_kind], {"owner": scope.owner_id, "from": scope.fill_from, "limit": limit}
        )
        seqs = [row[0] for row in texts]
        if seqs:
            have = self._db.rows(
                "SELECT key FROM vectors WHERE key BETWEEN :first AND :last AND generation = :generation"
                " AND vector IS NOT NULL",
                self._between(scope, seqs[0], seqs[-1]),
            )
            done = {row[0] & _MASK for row in have}
            missing = [{"number": scope.number, "seq": seq} for seq in seqs if seq not in done]
            self._db.run_many(f"{QUEUE} DO NOTHING", missing)
            self._db.queued_texts += len(missing)
        self._db.run(
            "UPDATE vector_scopes SET fill_from = :from WHERE number = :number",
            {"from": seqs[-1] + 1 if len(seqs) == limit else None, "number": scope.number},
        )
        return True

    def enqueue(self, number: int, seqs: Sequence[int]) -> None:
        """Queue these texts for embedding."""
        if self._is_own(number):
            queue_texts(self._db, number, seqs)

    def put(
        self,
        number: int,
        rows: Sequence[tuple[int, bytes]],
        *,
        model: str,
        dimensions: int,
        claimed: datetime | None = None,
    ) -> Sequence[int]:
        """Store vectors of 16-bit floats and take their texts from the queue; the numbers of those that were stored.

        Args:
            claimed: store only those whose text is still claimed until then: it has not changed meanwhile.

        Raises: NotFound: no such scope; EmbeddingMismatch: it holds vectors of another model or length.
        """
        vectors = dict(rows)
        condition, listed = self._db.in_numbers("seq", "seqs", list(vectors))
        queued = {"number": number} | listed
        if claimed is not None:
            held = self._db.rows(
                f"SELECT seq FROM embedding_queue WHERE number = :number AND not_before = :claimed AND {condition}"
                f"{self._db.for_update}",
                queued | {"claimed": iso(claimed)},
            )
            vectors = {row[0]: vectors[row[0]] for row in held}
            condition, listed = self._db.in_numbers("seq", "seqs", list(vectors))
            queued = {"number": number} | listed
        if not vectors:
            return []
        self._db.changed_scopes.add(number)
        scope = self._get_scope(number, lock=True)
        if scope.model != model or scope.dimensions not in (None, dimensions):
            raise EmbeddingMismatch(
                scope.owner_id,
                stored_model=scope.model,
                stored_dimensions=scope.dimensions,
                model=model,
                dimensions=dimensions,
            )
        if wrong := [len(vector) for vector in vectors.values() if len(vector) != 2 * dimensions]:
            raise ValueError(f"a vector of {dimensions} 16-bit floats has {wrong[0]} bytes")
        keys, params = self._db.in_numbers("key", "keys", [number << 32 | seq for seq in vectors])
        have = self._db.rows(
            f"SELECT COUNT(*) FROM vectors WHERE {keys} AND generation = :generation AND vector IS NOT NULL",
            params | {"generation": scope.generation},
        )[0][0]
        self._db.run(
            "UPDATE vector_scopes SET version = :version, dimensions = :dimensions, row_count = row_count + :added"
            " WHERE number = :number",
            {
                "version": scope.version + 1,
                "dimensions": dimensions,
                "added": len(vectors) - have,
                "number": number,
            },
        )
        self._db.run_many(
            "INSERT INTO vectors (key, number, generation, version, vector)"
            " VALUES (:key, :number, :generation, :version, :vector) ON CONFLICT (key) DO UPDATE SET"
            " generation = excluded.generation, version = excluded.version, vector = excluded.vector",
            [
                {
                    "key": number << 32 | seq,
                    "number": number,
                    "generation": scope.generation,
                    "version": scope.version + 1,
                    "vector": vector,
                }
                for seq, vector in vectors.items()
            ],
        )
        self._db.run(f"DELETE FROM embedding_queue WHERE number = :number AND {condition}", queued)
        return list(vectors)

    def remove(self, number: int, seqs: Sequence[int]) -> None:
        """Remove these texts' vectors and their places in the queue."""
        if self._is_own(number):
            forget_texts(self._db, number, seqs)

    # One row with all vectors: the database joins them in half the time that Python takes for as many objects, and in a
    # third less without a subquery.
    def block(self, scope: Scope, *, after_seq: int = -1, limit: int = 1_024) -> VectorBlock:
        """The next rows of the scope's generation behind a number: at most `limit`, fewer if numbers are missing."""
        db, size = self._db, 2 * (scope.dimensions or 0)
        wanted = "vectors WHERE key BETWEEN :first AND :last AND generation = :generation"
        params = self._between(scope, after_seq + 1, _MASK)
        found = db.rows(f"SELECT key FROM {wanted} ORDER BY key LIMIT 1", params)
        if not found or not self._is_own(scope.number):
            return VectorBlock()
        first = found[0][0] & _MASK
        params = self._between(scope, first, min(first + limit - 1, _MASK)) | {"size": size}
        count, right, last, seqs, versions, vectors = db.rows(
            f"SELECT COUNT(*), SUM(CASE WHEN LENGTH(vector) = :size THEN 1 ELSE 0 END), MAX({_SEQ}),"
            f" {db.concat(_SEQ, 'key')}, {db.concat('version', 'key')}, {db.concat_bytes('vector', 'key')}"
            f" FROM {wanted}",
            params,
        )[0]
        if count == right:
            return VectorBlock(seqs=_numbers(seqs), versions=_numbers(versions), vectors=vectors, last=last)
        rows = db.rows(f"SELECT {_SEQ}, version, vector FROM {wanted} ORDER BY key", params)
        there = [row for row in rows if row[2] is not None and len(row[2]) == size]
        return VectorBlock(
            seqs=[row[0] for row in there],
            versions=[row[1] for row in there],
            vectors=b"".join(row[2] for row in there),
            gone=[(row[0], row[1]) for row in rows if row[2] is None],
            last=last,
        )

    def changed(
        self, scope: Scope, *, after_version: int, after_seq: int = 1 << 32, limit: int = 8_192
    ) -> Sequence[VectorRow]:
        """The rows that changed after (version, number), in this order, with removed ones."""
        if not self._is_own(scope.number):
            return ()
        return self._db.rows(  # type: ignore[return-value]
            f"SELECT {_SEQ}, version, vector FROM vectors WHERE number = :number AND version >= :version"
            " AND (version > :version OR key > :after) AND generation = :generation"
            " ORDER BY version, key LIMIT :limit",
            {
                "number": scope.number,
                "version": after_version,
                "after": (scope.number << 32) + after_seq,
                "generation": scope.generation,
                "limit": limit,
            },
        )

    def read(self, scope: Scope, seqs: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        """(number, vector) of the texts that have one, in any order."""
        if not self._is_own(scope.number):
            return ()
        keys, params = self._db.in_numbers("key", "keys", [scope.number << 32 | seq for seq in seqs])
        rows = self._db.rows(
            f"SELECT key, vector FROM vectors WHERE {keys} AND generation = :generation AND vector IS NOT NULL",
            params | {"generation": scope.generation},
        )
        return [(row[0] & _MASK, row[1]) for row in rows]

    def claim(self, model: str, *, at: datetime, until: datetime, limit: int) -> Sequence[Claim]:
        """Claim queued texts for this model until `until`."""
        lock = f"{self._db.for_update} OF q SKIP LOCKED" if self._db.for_update else ""
        rows = self._db.rows(
            "SELECT q.number, s.owner_kind, s.owner_id, q.seq, q.tries + 1 FROM embedding_queue q"
            " JOIN vector_scopes s ON s.number = q.number WHERE q.not_before <= :at AND s.model = :model"
            f" AND s.org_id = :org_id ORDER BY q.not_before, q.number, q.seq LIMIT :limit{lock}",
            {"at": iso(at), "model": storable(model), "org_id": self._org_id, "limit": limit},
        )
        claims = [Claim(number=row[0], owner_kind=row[1], owner_id=row[2], seq=row[3], tries=row[4]) for row in rows]
        self._db.run_many(
            "UPDATE embedding_queue SET tries = :tries, not_before = :until WHERE number = :number AND seq = :seq",
            [self._claimed(claim) | {"until": iso(until)} for claim in claims],
        )
        return claims

    def waits(self, model: str, *, at: datetime) -> bool:
        """Whether `claim` or `fill` has work."""
        params = {"at": iso(at), "model": storable(model), "org_id": self._org_id}
        return bool(
            self._db.rows(
                "SELECT 1 FROM embedding_queue q JOIN vector_scopes s ON s.number = q.number"
                " WHERE q.not_before <= :at AND s.model = :model AND s.org_id = :org_id LIMIT 1",
                params,
            )
            or self._db.rows(
                "SELECT 1 FROM vector_scopes WHERE fill_from IS NOT NULL AND model = :model AND org_id = :org_id"
                " LIMIT 1",
                params,
            )
        )

    def renew(self, claims: Sequence[Claim], *, claimed: datetime, until: datetime) -> None:
        """Extend claims that end at `claimed` to `until`."""
        self._db.run_many(
            "UPDATE embedding_queue SET not_before = :until"
            f" WHERE number = :number AND seq = :seq AND not_before = :claimed AND {_OWN_SCOPE}",
            [self._claimed(claim) | {"claimed": iso(claimed), "until": iso(until)} for claim in claims],
        )

    def release(self, claims: Sequence[Claim], *, claimed: datetime, at: datetime | None = None) -> None:
        """Release claims that end at `claimed`, to be claimed again at once or from `at` on; the try is not counted."""
        again = "" if at is None else iso(at)
        self._db.run_many(
            "UPDATE embedding_queue SET tries = :tries - 1, not_before = :again"
            f" WHERE number = :number AND seq = :seq AND not_before = :claimed AND {_OWN_SCOPE}",
            [self._claimed(claim) | {"claimed": iso(claimed), "again": again} for claim in claims],
        )

    def fail(self, claim: Claim, reason: str, *, claimed: datetime, again: datetime | None) -> None:
        """Record that the embedder refused a text: try again at `again`; None: only after `refill`."""
        self._db.run(
            "UPDATE embedding_queue SET not_before = :again, failure = :reason"
            f" WHERE number = :number AND seq = :seq AND not_before = :claimed AND {_OWN_SCOPE}",
            self._claimed(claim)
            | {
                "again": NEVER if again is None else iso(again),
                "reason": storable(reason),
                "claimed": iso(claimed),
            },
        )

    def drop(self, claims: Sequence[Claim], *, claimed: datetime) -> None:
        """Remove claimed texts that need no vector from the queue."""
        self._db.run_many(
            "DELETE FROM embedding_queue"
            f" WHERE number = :number AND seq = :seq AND not_before = :claimed AND {_OWN_SCOPE}",
            [self._claimed(claim) | {"claimed": iso(claimed)} for claim in claims],
        )

    def counts(self, *, after: int = -1, limit: int = 1_000) -> Sequence[ScopeCounts]:
        """Scopes in order of their numbers, with the sizes of their queues. It counts rows, so it is slow."""
        rows = self._db.rows(
            f"SELECT {_SCOPE} FROM vector_scopes WHERE number > :after AND org_id = :org_id ORDER BY number"
            " LIMIT :limit",
            {"after": after, "org_id": self._org_id, "limit": limit},
        )
        found: list[ScopeCounts] = []
        for scope in map(self._scope, rows):
            queue = {"number": scope.number, "never": NEVER}
            waiting, failed = self._db.rows(
                "SELECT COUNT(CASE WHEN not_before < :never THEN 1 END), COUNT(CASE WHEN not_before = :never THEN 1"
                " END) FROM embedding_queue WHERE number = :number",
                queue,
            )[0]
            why = failed and self._db.rows(
                "SELECT failure FROM embedding_queue WHERE number = :number AND not_before = :never ORDER BY seq"
                " LIMIT 1",
                queue,
            )
            found.append(
                ScopeCounts(
                    scope=scope, waiting=waiting, failed=failed, failure=restore(why[0][0] or "") if why else None
                )
            )
        return found

    def cached(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Hash -> vector of recently embedded texts."""
        slots, params = self._db.in_numbers("slot", "slots", [_slot(digest) for digest in hashes])
        wanted = set(hashes)
        rows = self._db.rows(
            f"SELECT hash, vector FROM embedding_cache WHERE {slots} AND model = :model",
            params | {"model": storable(model)},
        )
        return {row[0]: row[1] for row in rows if row[0] in wanted}

    def cache(self, model: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Store (hash, vector) rows; each replaces the vector in its slot."""
        self._db.run_many(
            "INSERT INTO embedding_cache (slot, model, hash, vector) VALUES (:slot, :model, :hash, :vector)"
            " ON CONFLICT (slot) DO UPDATE SET model = excluded.model, hash = excluded.hash, vector = excluded.vector",
            [
                {"slot": _slot(digest), "model": storable(model), "hash": digest, "vector": vector}
                for digest, vector in rows
            ],
        )

    def _claimed(self, claim: Claim) -> dict[str, Any]:
        return self._own(claim.number) | {"seq": claim.seq, "tries": claim.tries}

    def _is_own(self, number: int) -> bool:
        return bool(self._db.rows(f"SELECT 1 WHERE {_OWN_SCOPE}", self._own(number)))

    def _own(self, number: int) -> dict[str, Any]:
        return {"number": number, "org_id": self._org_id}

    def _between(self, scope: Scope, first: int, last: int) -> dict[str, Any]:
        base = scope.number << 32
        return {"first": base + first, "last": base + last, "generation": scope.generation}

    def _get_scope(self, number: int, *, lock: bool = False) -> Scope:
        rows = self._db.rows(
            f"SELECT {_SCOPE} FROM vector_scopes WHERE number = :number AND org_id = :org_id"
            f"{self._db.for_update if lock else ''}",
            self._own(number),
        )
        if not rows:
            raise NotFound("vector scope", str(number))
        return self._scope(rows[0])

    def _mark(self, owner_kind: OwnerKind, params: dict[str, Any]) -> None:
        """Mark the owner, so that each insert of a text queues it."""
        if owner_kind == "agent":
            self._db.run("UPDATE agents SET embedded = 1 WHERE id = :owner", params)
        else:
            self._db.run("UPDATE archives SET embedding = :model WHERE id = :owner", params)

    def _scope(self, row: Row) -> Scope:
        return Scope(
            number=row[0],
            owner_kind=row[1],
            owner_id=row[2],
            model=restore(row[3]),
            dimensions=row[4],
            generation=row[5],
            version=row[6],
            row_count=row[7],
            fill_from=row[8],
            settled=self._db.is_settled(row[0]),
        )


def _numbers(joined: str) -> list[int]:
    import numpy as np

    found: list[int] = np.fromstring(joined, np.int64, sep=",").tolist()  # three times faster than `int`
    return found


def _slot(digest: bytes) -> int:
    return int.from_bytes(digest[:8]) % CACHE_SLOTS
