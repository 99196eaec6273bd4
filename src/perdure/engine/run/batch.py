"""The requests of a batch are accepted in one transaction, all or none. Their runs begin later, one by one."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from perdure.core.errors import PerdureError, RequestRefused, StoreError
from perdure.core.runs import Batch, Run
from perdure.engine.ports import UnitInputs
from perdure.engine.records.run_request import RunRequest
from perdure.engine.run.accept import accept
from perdure.storage.tx import Tx


@contextlib.contextmanager
def named_request(place: int) -> Iterator[None]:
    """Turn a refusal within the block into one that names the request's place. Raises: RequestRefused, StoreError."""
    try:
        yield
    except StoreError:
        raise
    except PerdureError as error:
        raise RequestRefused(place, error) from error


def digest_of(requests: Sequence[RunRequest]) -> str:
    """Return the SHA-256 of the agents, messages and answers of requests."""
    return hashlib.sha256(json.dumps([[request.agent_id, request.digest] for request in requests]).encode()).hexdigest()


def accept_batch(
    tx: Tx, batch: Batch, requests: Sequence[RunRequest], inputs: UnitInputs
) -> tuple[Batch, Sequence[Run]]:
    """Accept a batch's requests; return it, new or as stored before, and its new runs. Raises: RequestRefused."""
    known = tx.batches.find(batch.id)
    if known is not None:
        return known, ()
    # In the same order everywhere: two batches that lock each other's agents would wait for each other.
    for place, request in sorted(enumerate(requests), key=lambda one: one[1].agent_id):
        with named_request(place):
            tx.agents.lock(request.agent_id)
    tx.batches.add(batch)
    runs: list[Run] = []
    for place, request in enumerate(requests):
        with named_request(place):
            runs.append(accept(tx, replace(request, batch_id=batch.id), inputs).run)
    return tx.batches.get(batch.id), runs
