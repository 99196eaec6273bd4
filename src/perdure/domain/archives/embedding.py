"""Units of work on texts that wait for their vectors: claim texts, store vectors, restart an index."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.core.errors import EmbeddingMismatch
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.messages import is_embedded
from perdure.core.vectors import EmbeddingClaim
from perdure.storage.tx import Tx

HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class ClaimedText:
    """A text to embed, the worker's claim on it, and the digest under which its vector is cached."""

    claim: EmbeddingClaim
    text: str
    digest: bytes


def claim_texts(tx: Tx, model: str, *, at: datetime, until: datetime, limit: int) -> tuple[int, list[ClaimedText]]:
    """Claim at most `limit` texts that wait for a vector of `model`, until the time `until`.

    Texts that no longer exist are dropped. Texts equal to one embedded lately get its cached vector.
    Returns: (how many were claimed, those of them that are still to embed).
    """
    claims = tx.vectors.claim(model, at=at, until=until, limit=limit)
    texts = _texts(tx, claims)
    texts_to_embed = [
        ClaimedText(
            claim, text, hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()
        )
        for claim in claims
        if (text := texts.get((claim.number, claim.seq))) is not None
    ]
    tx.vectors.drop([claim for claim in claims if (claim.number, claim.seq) not in texts], claimed=until)
    cached = tx.vectors.load_cache(model, [one.digest for one in texts_to_embed]) if texts_to_embed else {}
    store_vectors(
        tx,
        model,
        [(one, *cached[one.digest]) for one in texts_to_embed if one.digest in cached],
        claimed_until=until,
        from_cache=True,
    )
    return len(claims), [one for one in texts_to_embed if one.digest not in cached]


def store_vectors(
    tx: Tx,
    model: str,
    rows: Sequence[tuple[ClaimedText, bytes, bytes | None]],
    *,
    claimed_until: datetime,
    from_cache: bool = False,
) -> None:
    """Store the vectors of texts that have not changed since they were claimed.

    Args:
        rows: texts with their vectors, 16-bit floats, and the signs of their words; None: the embedder makes none.
        from_cache: the vectors come from the cache and are not cached again.
    """
    by_scope: defaultdict[tuple[int, int], list[tuple[ClaimedText, bytes, bytes | None]]] = defaultdict(list)
    for row in rows:
        by_scope[row[0].claim.number, len(row[1]) // 2].append(row)
    stored: set[tuple[int, int]] = set()
    for (number, dimensions), items in by_scope.items():
        vectors = [(text.claim.seq, vector) for text, vector, _ in items]
        words = {text.claim.seq: signs for text, _, signs in items}
        try:
            seqs = tx.vectors.put(
                number, vectors, model=model, dimensions=dimensions, words=words, claimed=claimed_until
            )
            stored.update((number, seq) for seq in seqs)
        except EmbeddingMismatch as error:  # the endpoint now serves another model under the same name
            for text, *_ in items:
                tx.vectors.fail(text.claim, str(error), claimed=claimed_until, again=None)
    if not from_cache:
        to_cache = [
            (text.digest, vector, words)
            for text, vector, words in rows
            if (text.claim.number, text.claim.seq) in stored
        ]
        tx.vectors.store_cache(model, to_cache)  # none of a text that was erased meanwhile


def reindex(tx: Tx, scopes: Iterable[tuple[int, str, str]], model: str, *, force: bool = False) -> int:
    """Queue every text of these scopes without a vector of `model`; return how many scopes start from nothing.

    The embedding worker of any process does the work.

    Args:
        scopes: (number, "agent" or "archive", id of the agent or archive) of each scope.
        force: also queue texts that have a vector of the model already.
    """
    restarted = 0
    for number, kind, owner_id in scopes:
        scope = tx.vectors.open(number, "agent" if kind == "agent" else "archive", owner_id, model)
        if force or scope.model != model:
            tx.vectors.restart(number, model)
            restarted += 1
        else:
            tx.vectors.refill(number)
    return restarted


def _texts(tx: Tx, claims: Sequence[EmbeddingClaim]) -> dict[tuple[int, int], str]:
    """Return (number of its scope, own number) -> text, for claimed texts that exist and can be embedded."""
    by_owner: defaultdict[tuple[int, str, str], list[int]] = defaultdict(list)
    for claim in claims:
        by_owner[claim.number, claim.owner_kind, claim.owner_id].append(claim.seq)
    texts: dict[tuple[int, int], str] = {}
    for (number, kind, owner_id), seqs in by_owner.items():
        if kind == "archive":
            passages = tx.passages.list_by_seqs(ArchiveId(owner_id), seqs)
            texts |= {(number, passage.seq): passage.text for passage in passages}
        else:
            messages = tx.messages.list_by_seqs(AgentId(owner_id), seqs)
            texts |= {(number, message.seq): message.text for message in messages if is_embedded(message)}
    return texts
