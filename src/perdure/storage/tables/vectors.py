"""`tx.vectors`: the vectors of texts, and the queue of texts that wait for one, of one transaction.

Vectors are stored as 16-bit floats, those of a text's words by their signs. Each is written together with its scope's
new version, so a scope's version tells exactly which vectors exist.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import EmbeddingMismatch, NotFound
from perdure.core.ids import OrgId
from perdure.core.vectors import EmbeddingClaim, OwnerKind, ScopeCounts, VectorBlock, VectorRow, VectorScope
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import RowFormat, insert_into, iso, restore, storable
from perdure.storage.tables.table import Table, first

NEVER = "9"
"""The `not_before` of a text that is not tried again; it sorts after every time."""

CACHE_SLOTS = 8_192
"""The slots of the cache of vectors by content: 16 MB at 384 dimensions, with the signs of short texts. Each hash has
one slot, so nothing is evicted by age or count."""

_QUEUE = "INSERT INTO embedding_queue (number, seq) VALUES (:number, :seq) ON CONFLICT (number, seq)"
_MASK = (1 << 32) - 1
_SEQ = f"key & {_MASK}"
_SCOPE = RowFormat(
    VectorScope,
    columns="number, owner_kind, owner_id, model, dimensions, generation, version, row_count, fill_from",
    build=lambda **columns: VectorScope(**columns, settled=False),
)
_CLAIM = RowFormat(EmbeddingClaim)
_CLAIMED = "number = :number AND seq = :seq AND not_before = :claimed"
_OWN_SCOPE = "EXISTS (SELECT 1 FROM vector_scopes s WHERE s.number = :number AND s.org_id = :org_id)"
_TEXTS = {
    "archive": "SELECT seq FROM passages WHERE archive_id = :owner AND seq >= :first ORDER BY seq LIMIT :limit",
    "agent": (
        "SELECT seq FROM messages WHERE agent_id = :owner AND seq >= :first AND kind = 'message'"
        " AND role IN ('user', 'assistant') AND removed = 0 ORDER BY seq LIMIT :limit"
    ),
}


SHARED_TEXTS = 64
"""So many new texts are worth the work of other processes."""


def queue_texts(db: Database, number: int, seqs: Sequence[int]) -> None:
    """Queue texts of the scope `number` for embedding. Earlier claims of them end."""
    db.run_many(
        f"{_QUEUE} DO UPDATE SET tries = 0, not_before = '', failure = NULL",
        [{"number": number, "seq": seq} for seq in seqs],
    )
    db.queued_texts += len(seqs)
    if len(seqs) >= SHARED_TEXTS:
        db.signal("embedding")


def forget_texts(db: Database, number: int, seqs: Sequence[int]) -> None:
    """Remove the vectors of texts of the scope `number`, and their places in the queue."""
    if not seqs:
        return
    # The queue first: a worker that is storing a vector holds a lock on its row, so this waits for it.
    condition, params = db.in_numbers("seq", "seqs", seqs)
    db.run(f"DELETE FROM embedding_queue WHERE number = :number AND {condition}", {"number": number} | params)
    keys, params = db.in_numbers("key", "keys", [number << 32 | seq for seq in seqs])
    rows = db.rows(f"SELECT key, generation FROM vectors WHERE {keys} AND vector IS NOT NULL", params)
    if not rows:
        return
    scope = db.rows(f"SELECT generation FROM vector_scopes WHERE number = :number{db.for_update}", {"number": number})
    if not scope:
        return
    db.changed_scopes.add(number)
    current = sum(row[1] == scope[0][0] for row in rows)
    changed = {"number": number, "current": current}
    db.run(
        "UPDATE vector_scopes SET version = version + 1, row_count = row_count - :current WHERE number = :number",
        changed,
    )
    db.run_many(
        "UPDATE vectors SET vector = NULL, words = NULL, generation = s.generation, version = s.version"
        " FROM vector_scopes s WHERE key = :key AND s.number = :number",
        [{"key": row[0], "number": number} for row in rows],
    )


def open_scope_of(db: Database, org_id: OrgId, number: int, owner_kind: OwnerKind, owner_id: str) -> None:
    """Open the scope of a new agent or archive, whose number it has, if new ones are embedded."""
    if db.embedding is not None:
        Vectors(db, org_id).open(number, owner_kind, owner_id, db.embedding)


class Vectors(Table):
    @property
    def queue_count(self) -> int:
        """How many texts were queued through this connection so far."""
        return self._db.queued_texts

    @contextlib.contextmanager
    def use_embedding(self, model: str) -> Iterator[None]:
        """Inside the context, new agents and archives get a scope with this model."""
        self._db.embedding = model
        try:
            yield
        finally:
            self._db.embedding = None

    def scope(self, number: int) -> VectorScope | None:
        """The scope with this number, which is that of its agent or archive; None: it is not embedded."""
        scopes = self._scopes("number = :number", number=number)
        return scopes[0] if scopes else None

    def open(self, number: int, owner_kind: OwnerKind, owner_id: str, model: str) -> VectorScope:
        """Open a scope whose texts `model` embeds (`fill`: existing ones too) unless it is open. Raises: NotFound."""
        params = {"number": number, "owner": owner_id, "model": storable(model)}
        table, counter = ("agents", "message_seq") if owner_kind == "agent" else ("archives", "passage_seq")
        if self._run_counted(
            "INSERT INTO vector_scopes (number, org_id, owner_kind, owner_id, model, fill_from)"
            f" SELECT number, org_id, :kind, id, :model, CASE WHEN {counter} = 0 THEN NULL ELSE 0 END FROM {table}"
            " WHERE number = :number AND id = :owner AND org_id = :org_id ON CONFLICT (number) DO NOTHING",
            kind=owner_kind,
            **params,
        ):
            self._mark(owner_kind, params)
        scope = self.scope(number)
        if scope is None or scope.owner_id != owner_id:
            raise NotFound(owner_kind, owner_id)
        return scope

    def restart(self, number: int, model: str) -> VectorScope:
        """Start over with `model`: discard all vectors, and let `fill` queue every text again. Raises: NotFound."""
        self._db.changed_scopes.add(number)
        self._run(
            "UPDATE vector_scopes SET model = :model, dimensions = NULL, generation = generation + 1,"
            " version = version + 1, row_count = 0, fill_from = 0 WHERE number = :number AND org_id = :org_id",
            number=number,
            model=storable(model),
        )
        scope = self._get_scope(number)
        self._mark(scope.owner_kind, {"owner": scope.owner_id, "model": storable(model)})
        self._run("DELETE FROM embedding_queue WHERE number = :number", number=number)
        return scope

    def refill(self, number: int) -> None:
        """Let `fill` queue every text without a vector again, also those that failed for good. Raises: NotFound."""
        own_scope = "WHERE number = :number AND org_id = :org_id"
        self._run(f"UPDATE vector_scopes SET fill_from = 0 {own_scope}", number=number)
        self._get_scope(number)
        self._run(
            "UPDATE embedding_queue SET tries = 0, not_before = '', failure = NULL"
            " WHERE number = :number AND not_before = :never",
            number=number,
            never=NEVER,
        )

    def close(self, number: int, *, limit: int | None = None) -> bool:
        """Remove the scope with its vectors and its queue; with `limit`, that many rows, and the scope after the last
        one. Returns whether all is removed."""
        if not self._is_own(number):
            return True
        self._db.changed_scopes.add(number)
        params = {"number": number, "first": number << 32, "last": number << 32 | _MASK, "limit": limit}
        limit_sql = "" if limit is None else " LIMIT :limit"
        keys = f"SELECT key FROM vectors WHERE key BETWEEN :first AND :last ORDER BY key{limit_sql}"
        removed = self._run_counted(f"DELETE FROM vectors WHERE key IN ({keys})", **params)
        seqs = f"SELECT seq FROM embedding_queue WHERE number = :number ORDER BY seq{limit_sql}"
        removed += self._run_counted(
            f"DELETE FROM embedding_queue WHERE number = :number AND seq IN ({seqs})", **params
        )
        if limit is not None and removed:
            return False
        self._run("DELETE FROM vector_scopes WHERE number = :number", number=number)
        self._run("UPDATE agents SET embedded = 0 WHERE number = :number", number=number)
        self._run("UPDATE archives SET embedding = NULL WHERE number = :number", number=number)
        return True

    def fill(self, model: str, *, limit: int) -> bool:
        """Queue the texts without a vector among the next `limit` ones, in scopes of this model that are not complete
        yet; return False if all are complete."""
        scopes = self._scopes(
            f"fill_from IS NOT NULL AND model = :model ORDER BY number LIMIT 1{self._db.for_update}",
            model=storable(model),
        )
        if not scopes:
            return False
        scope = scopes[0]
        texts = self._rows(_TEXTS[scope.owner_kind], owner=scope.owner_id, first=scope.fill_from, limit=limit)
        seqs = [row[0] for row in texts]
        if seqs:
            vectors = self._rows(
                "SELECT key FROM vectors WHERE key BETWEEN :first AND :last AND generation = :generation"
                " AND vector IS NOT NULL",
                **_keys(scope, seqs[0], seqs[-1]),
            )
            done = {row[0] & _MASK for row in vectors}
            missing = [{"number": scope.number, "seq": seq} for seq in seqs if seq not in done]
            self._db.run_many(f"{_QUEUE} DO NOTHING", missing)
            self._db.queued_texts += len(missing)
            if len(missing) >= SHARED_TEXTS:
                self._db.signal("embedding")
        self._run(
            "UPDATE vector_scopes SET fill_from = :next WHERE number = :number",
            next=seqs[-1] + 1 if len(seqs) == limit else None,
            number=scope.number,
        )
        return True

    def put(
        self,
        number: int,
        rows: Sequence[tuple[int, bytes]],
        *,
        model: str,
        dimensions: int,
        words: Mapping[int, bytes | None] | None = None,
        claimed: datetime | None = None,
    ) -> Sequence[int]:
        """Store vectors of texts of the scope `number`, and take the texts from the queue; return the numbers of the
        texts whose vectors were stored.

        Args:
            rows: (number of a text, its vector: `dimensions` 16-bit floats).
            words: number of a text -> the signs of its words, `dimensions` bits for each; missing: there are none.
            claimed: store only those whose text is still claimed until then: it has not changed meanwhile.

        Raises: NotFound: no such scope; EmbeddingMismatch: it holds vectors of another model or length.
        """
        vectors = dict(rows)
        if claimed is not None:
            condition, listed = self._db.in_numbers("seq", "seqs", list(vectors))
            still_claimed = self._rows(
                f"SELECT seq FROM embedding_queue WHERE number = :number AND not_before = :claimed AND {condition}"
                f"{self._db.for_update}",
                number=number,
                claimed=iso(claimed),
                **listed,
            )
            vectors = {row[0]: vectors[row[0]] for row in still_claimed}
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
        keys, listed = self._db.in_numbers("key", "keys", [number << 32 | seq for seq in vectors])
        replaced = self._rows(
            f"SELECT COUNT(*) FROM vectors WHERE {keys} AND generation = :generation AND vector IS NOT NULL",
            generation=scope.generation,
            **listed,
        )[0][0]
        self._run(
            "UPDATE vector_scopes SET version = :version, dimensions = :dimensions, row_count = row_count + :added"
            " WHERE number = :number",
            version=scope.version + 1,
            dimensions=dimensions,
            added=len(vectors) - replaced,
            number=number,
        )
        self._db.run_many(
            f"{insert_into('vectors', 'key, number, generation, version, vector, words')}"
            f" {self._db.on_conflict('vectors', 'key')} DO UPDATE SET generation = excluded.generation,"
            " version = excluded.version, vector = excluded.vector, words = excluded.words",
            [
                {
                    "key": number << 32 | seq,
                    "number": number,
                    "generation": scope.generation,
                    "version": scope.version + 1,
                    "vector": vector,
                    "words": (words or {}).get(seq),
                }
                for seq, vector in vectors.items()
            ],
        )
        condition, listed = self._db.in_numbers("seq", "seqs", list(vectors))
        self._run(f"DELETE FROM embedding_queue WHERE number = :number AND {condition}", number=number, **listed)
        return list(vectors)

    def remove(self, number: int, seqs: Sequence[int]) -> None:
        """Remove the vectors of texts of the scope `number`, and their places in the queue."""
        if self._is_own(number):
            forget_texts(self._db, number, seqs)

    # One row with all vectors: the database joins them in half the time that Python takes for as many objects, and in a
    # third less without a subquery.
    def block(self, scope: VectorScope, *, after_seq: int = -1, limit: int = 1_024) -> VectorBlock:
        """The scope's vectors behind the text `after_seq`: of the next `limit` numbers, fewer if some are missing."""
        db, size = self._db, 2 * (scope.dimensions or 0)
        source = "vectors WHERE key BETWEEN :first AND :last AND generation = :generation"
        keys = self._rows(f"SELECT key FROM {source} ORDER BY key LIMIT 1", **_keys(scope, after_seq + 1, _MASK))
        if not keys or not self._is_own(scope.number):
            return VectorBlock()
        first_seq = keys[0][0] & _MASK
        params = _keys(scope, first_seq, min(first_seq + limit - 1, _MASK))
        count, whole_count, last, seqs, versions, vectors = db.rows_of_bytes(
            f"SELECT COUNT(*), SUM(CASE WHEN LENGTH(vector) = :size THEN 1 ELSE 0 END), MAX({_SEQ}),"
            f" {db.concat(_SEQ, 'key')}, {db.concat('version', 'key')}, {db.concat_bytes('vector', 'key')}"
            f" FROM {source}",
            params | {"size": size},
        )[0]
        if count == whole_count:
            return VectorBlock(seqs=_numbers(seqs), versions=_numbers(versions), vectors=vectors, last=last)
        rows = self._rows(f"SELECT {_SEQ}, version, vector FROM {source} ORDER BY key", **params)
        whole = [row for row in rows if row[2] is not None and len(row[2]) == size]
        return VectorBlock(
            seqs=[row[0] for row in whole],
            versions=[row[1] for row in whole],
            vectors=b"".join(row[2] for row in whole),
            removed=[(row[0], row[1]) for row in rows if row[2] is None],
            last=last,
        )

    def list_changes(
        self, scope: VectorScope, *, after_version: int, after_seq: int = 1 << 32, limit: int = 8_192
    ) -> Sequence[VectorRow]:
        """Rows that changed behind (after_version, after_seq), in order of version and number, removed ones too."""
        if not self._is_own(scope.number):
            return ()
        return self._rows(  # type: ignore[return-value]
            f"SELECT {_SEQ}, version, vector FROM vectors WHERE number = :number AND version >= :version"
            " AND (version > :version OR key > :after) AND generation = :generation"
            " ORDER BY version, key LIMIT :limit",
            number=scope.number,
            version=after_version,
            after=(scope.number << 32) + after_seq,
            generation=scope.generation,
            limit=limit,
        )

    def read(self, scope: VectorScope, seqs: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        """(number, vector) of these texts, in no order; a text without a vector is left out."""
        if not self._is_own(scope.number):
            return ()
        keys, listed = self._db.in_numbers("key", "keys", [scope.number << 32 | seq for seq in seqs])
        rows = self._rows(
            f"SELECT key, vector FROM vectors WHERE {keys} AND generation = :generation AND vector IS NOT NULL",
            generation=scope.generation,
            **listed,
        )
        return [(row[0] & _MASK, row[1]) for row in rows]

    def words(self, model: str, texts: Sequence[tuple[int, int]]) -> dict[tuple[int, int], bytes | None]:
        """The signs of the words of texts, each (number of its scope, its number), that have a vector of this model."""
        keys, listed = self._db.in_numbers("v.key", "keys", [number << 32 | seq for number, seq in texts])
        rows = self._rows(
            "SELECT v.key, v.words FROM vectors v JOIN vector_scopes s ON s.number = v.number AND s.org_id = :org_id"
            f" AND s.generation = v.generation AND s.model = :model WHERE {keys} AND v.vector IS NOT NULL",
            model=storable(model),
            **listed,
        )
        return {(row[0] >> 32, row[0] & _MASK): row[1] for row in rows}

    def claim(self, model: str, *, at: datetime, until: datetime, limit: int) -> Sequence[EmbeddingClaim]:
        """Claim up to `limit` texts for this model that are due at `at`; return the claims, due again at `until`."""
        lock = f"{self._db.for_update} OF q SKIP LOCKED" if self._db.for_update else ""
        rows = self._rows(
            "SELECT q.number, s.owner_kind, s.owner_id, q.seq, q.tries + 1 FROM embedding_queue q"
            " JOIN vector_scopes s ON s.number = q.number WHERE q.not_before <= :at AND s.model = :model"
            f" AND s.org_id = :org_id ORDER BY q.not_before, q.number, q.seq LIMIT :limit{lock}",
            at=iso(at),
            model=storable(model),
            limit=limit,
        )
        claims = [_CLAIM.read(row) for row in rows]
        self._db.run_many(
            "UPDATE embedding_queue SET tries = :tries, not_before = :until WHERE number = :number AND seq = :seq",
            [_CLAIM.params(claim) | {"until": iso(until)} for claim in claims],
        )
        return claims

    def has_work(self, model: str, *, at: datetime) -> bool:
        """Whether `claim` or `fill` finds something at this time."""
        queued = (
            "SELECT 1 FROM embedding_queue q JOIN vector_scopes s ON s.number = q.number"
            " WHERE q.not_before <= :at AND s.model = :model AND s.org_id = :org_id LIMIT 1"
        )
        unfilled = (
            "SELECT 1 FROM vector_scopes WHERE fill_from IS NOT NULL AND model = :model AND org_id = :org_id LIMIT 1"
        )
        return any(self._rows(sql, at=iso(at), model=storable(model)) for sql in (queued, unfilled))

    def renew(self, claims: Sequence[EmbeddingClaim], *, claimed: datetime, until: datetime) -> None:
        """Extend claims that end at `claimed` to `until`."""
        self._change(claims, claimed, "UPDATE embedding_queue SET not_before = :until", until=iso(until))

    def release(self, claims: Sequence[EmbeddingClaim], *, claimed: datetime, at: datetime | None = None) -> None:
        """Release claims that end at `claimed`, to be claimed again at once or from `at` on; the try is not counted."""
        again = "" if at is None else iso(at)
        self._change(claims, claimed, "UPDATE embedding_queue SET tries = :tries - 1, not_before = :again", again=again)

    def fail(self, claim: EmbeddingClaim, reason: str, *, claimed: datetime, again: datetime | None) -> None:
        """Store that the embedder refused a text: try again at `again`; None: only after `refill`."""
        self._change(
            [claim],
            claimed,
            "UPDATE embedding_queue SET not_before = :again, failure = :reason",
            again=NEVER if again is None else iso(again),
            reason=storable(reason),
        )

    def drop(self, claims: Sequence[EmbeddingClaim], *, claimed: datetime) -> None:
        """Remove claimed texts that need no vector from the queue."""
        self._change(claims, claimed, "DELETE FROM embedding_queue")

    def _change(self, claims: Sequence[EmbeddingClaim], claimed: datetime, statement: str, **params: str) -> None:
        """Run a statement without WHERE, with these values in it, on the places in the queue of claims that still end
        at `claimed`: others have been claimed again."""
        common = params | {"claimed": iso(claimed), "org_id": self._org_id}
        self._db.run_many(
            f"{statement} WHERE {_CLAIMED} AND {_OWN_SCOPE}", [_CLAIM.params(claim) | common for claim in claims]
        )

    def counts(self, *, after: int = -1, limit: int = 1_000) -> Sequence[ScopeCounts]:
        """Scopes in order of their numbers, with the sizes of their queues. It counts rows, so it is slow."""
        found: list[ScopeCounts] = []
        for scope in self._scopes("number > :after ORDER BY number LIMIT :limit", after=after, limit=limit):
            waiting, failed, failure = self._rows(
                "SELECT COUNT(CASE WHEN not_before < :never THEN 1 END), COUNT(CASE WHEN not_before = :never THEN 1"
                " END), (SELECT failure FROM embedding_queue WHERE number = :number AND not_before = :never"
                " ORDER BY seq LIMIT 1) FROM embedding_queue WHERE number = :number",
                number=scope.number,
                never=NEVER,
            )[0]
            failure = restore(failure or "") if failed else None
            found.append(ScopeCounts(scope=scope, waiting=waiting, failed=failed, failure=failure))
        return found

    def load_cache(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, tuple[bytes, bytes | None]]:
        """Hash of a text -> its vector and the signs of its words, if the text was embedded by this model lately."""
        slots, listed = self._db.in_numbers("slot", "slots", [_slot(digest) for digest in hashes])
        sql = f"SELECT hash, vector, words FROM embedding_cache WHERE {slots} AND model = :model"
        rows = self._rows(sql, model=storable(model), **listed)
        return {row[0]: (row[1], row[2]) for row in rows if row[0] in hashes}

    def store_cache(self, model: str, rows: Sequence[tuple[bytes, bytes, bytes | None]]) -> None:
        """Store rows (hash of a text, vector, signs of its words) of a model; each replaces what is in its slot."""
        self._db.run_many(
            f"{insert_into('embedding_cache', 'slot, model, hash, vector, words')} ON CONFLICT (slot) DO UPDATE SET"
            " model = excluded.model, hash = excluded.hash, vector = excluded.vector, words = excluded.words",
            [
                {"slot": _slot(digest), "model": storable(model), "hash": digest, "vector": vector, "words": words}
                for digest, vector, words in rows
            ],
        )

    def _is_own(self, number: int) -> bool:
        """Whether the organisation has a scope with this number."""
        return bool(self._rows(f"SELECT 1 WHERE {_OWN_SCOPE}", number=number))

    def _get_scope(self, number: int, *, lock: bool = False) -> VectorScope:
        """The scope with this number; `lock` locks it. Raises: NotFound."""
        scopes = self._scopes(f"number = :number{self._db.for_update if lock else ''}", number=number)
        return first(scopes, "vector scope", str(number))

    def _mark(self, owner_kind: OwnerKind, params: dict[str, Any]) -> None:
        """Note on an agent or archive that its texts are embedded; `params` are its id as `owner`, and the `model`."""
        if owner_kind == "agent":
            self._run("UPDATE agents SET embedded = 1 WHERE id = :owner", **params)
        else:
            self._run("UPDATE archives SET embedding = :model WHERE id = :owner", **params)

    def _scopes(self, where: str, **params: Any) -> Sequence[VectorScope]:
        """The scopes for which `where` is true: SQL, with any ORDER BY and LIMIT, and these values in it."""
        rows = self._rows(f"SELECT {_SCOPE.columns} FROM vector_scopes WHERE org_id = :org_id AND {where}", **params)
        return [replace(_SCOPE.read(row), settled=self._db.is_settled(row[0])) for row in rows]


def _keys(scope: VectorScope, first_seq: int, last_seq: int) -> dict[str, Any]:
    """The parameters of a statement about the vectors of a scope's texts from `first_seq` to `last_seq`."""
    base = scope.number << 32
    return {"first": base + first_seq, "last": base + last_seq, "generation": scope.generation}


def _numbers(joined: str) -> list[int]:
    """The numbers in a text that separates them by commas."""
    import numpy as np

    found: list[int] = np.fromstring(joined, np.int64, sep=",").tolist()  # three times faster than `int`
    return found


def _slot(digest: bytes) -> int:
    """The slot of the cache for the text with this hash."""
    return int.from_bytes(digest[:8]) % CACHE_SLOTS
