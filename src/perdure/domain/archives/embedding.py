"""Texts that wait for their vectors: taking some of them, and storing what came of them. Units of work."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.core.errors import EmbeddingMismatch
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.messages import is_embedded
from perdure.core.vectors import Claim
from perdure.storage.tx import Tx

__all__ = ["Waiting", "reindex", "store_vectors", "take_texts"]

HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class Waiting:
    """A text that was taken to be embedded, and the digest that its vector is remembered by."""

    claim: Claim
    text: str
    digest: bytes


def take_texts(tx: Tx, model: str, *, at: datetime, until: datetime, limit: int) -> tuple[int, list[Waiting]]:
    """How many texts were taken until then, and those of them that have to be embedded: the others are gone, or have
    the vector of an equal text that was embedded lately."""
    claims = tx.vectors.claim(model, at=at, until=until, limit=limit)
    texts = _texts(tx, claims)
    waiting = [
        Waiting(claim, text, hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest())
        for claim in claims
        if (text := texts.get((claim.number, claim.seq))) is not None
    ]
    tx.vectors.drop([claim for claim in claims if (claim.number, claim.seq) not in texts], claimed=until)
    known = tx.vectors.cached(model, [one.digest for one in waiting]) if waiting else {}
    store_vectors(
        tx,
        model,
        [(one, known[one.digest]) for one in waiting if one.digest in known],
        claimed=until,
        remembered=True,
    )
    return len(claims), [one for one in waiting if one.digest not in known]


def store_vectors(
    tx: Tx,
    model: str,
    rows: Sequence[tuple[Waiting, bytes]],
    *,
    claimed: datetime,
    remembered: bool = False,
) -> None:
    """Store the vectors of texts that are still as they were when they were taken.

    Args:
        rows: texts with their vectors, 16-bit floats.
        remembered: they come from what was embedded lately.
    """
    by_scope: defaultdict[tuple[int, int], list[tuple[Waiting, bytes]]] = defaultdict(list)
    for waiting, vector in rows:
        by_scope[waiting.claim.number, len(vector) // 2].append((waiting, vector))
    for (number, dimensions), found in by_scope.items():
        vectors = [(waiting.claim.seq, vector) for waiting, vector in found]
        try:
            tx.vectors.put(number, vectors, model=model, dimensions=dimensions, claimed=claimed)
        except EmbeddingMismatch as error:  # an endpoint that has another model under the same name by now
            for waiting, _ in found:
                tx.vectors.fail(waiting.claim, str(error), claimed=claimed, again=None)
    if not remembered:
        tx.vectors.cache(model, [(waiting.digest, vector) for waiting, vector in rows])


def reindex(tx: Tx, numbers: Iterable[tuple[int, str, str]], model: str, *, again: bool = False) -> int:
    """Have every text of these scopes get a vector of `model`; how many scopes began anew.

    What has one already is left alone unless `again`. The work itself is the worker's, and goes on in any process.

    Args:
        numbers: number, kind ("agent" or "archive") and id of each.
    """
    begun = 0
    for number, kind, owner_id in numbers:
        scope = tx.vectors.open(number, "agent" if kind == "agent" else "archive", owner_id, model)
        if again or scope.model != model:
            tx.vectors.restart(number, model)
            begun += 1
        else:
            tx.vectors.refill(number)
    return begun


def _texts(tx: Tx, claims: Sequence[Claim]) -> dict[tuple[int, int], str]:
    """(scope, number) -> text of those that are still there and are to be embedded."""
    by_owner: defaultdict[tuple[int, str, str], list[int]] = defaultdict(list)
    for claim in claims:
        by_owner[claim.number, claim.owner_kind, claim.owner_id].append(claim.seq)
    texts: dict[tuple[int, int], str] = {}
    for (number, kind, owner_id), seqs in by_owner.items():
        if kind == "archive":
            passages = tx.passages.by_seqs(ArchiveId(owner_id), seqs)
            texts |= {(number, passage.seq): passage.text for passage in passages}
        else:
            messages = tx.messages.by_seqs(AgentId(owner_id), seqs)
            texts |= {(number, message.seq): message.text for message in messages if is_embedded(message)}
    return texts
