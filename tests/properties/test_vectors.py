"""A search by meaning sees exactly the committed vectors: after any history, in any transaction, whatever is cached."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.passages import Archive
from perdure.search.vectors import index as vector_index
from perdure.search.vectors import rows as vector_rows
from perdure.search.vectors.index import VectorIndexes
from perdure.storage.tx import Tx
from perdure.testing import InlineStore
from tests.contracts.base import Contract
from tests.support.strategies import effort

T = TypeVar("T")

units = Contract()
DIMENSIONS = 70  # one word of signs and a bit of the next
MODEL = "test/model"
NUMBERS = st.lists(st.integers(0, 60), min_size=1, max_size=12, unique=True)


@dataclass
class Step:
    kind: str
    seqs: list[int]
    seed: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["put", "put", "put", "remove", "search", "search", "undone", "behind", "restart", "reopen"]),
        NUMBERS,
        st.integers(0, 1 << 30),
    ),
    min_size=1,
    max_size=20,
)
# Bytes of floats and of halves that are kept: all of them, halves from a few rows on, signs from a few more on.
FORMS = st.sampled_from([(1 << 20, 1 << 20), (2_800, 1 << 20), (1_400, 1_400), (0, 0)])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything that happens with many rows happens with a few."""
    monkeypatch.setattr(vector_rows, "SEGMENT_BITS", 3)
    monkeypatch.setattr(vector_rows, "SEGMENT_ROWS", 8)
    monkeypatch.setattr(vector_rows, "FIRST_ROWS", 2)
    monkeypatch.setattr(vector_rows, "DEAD_ROWS", 4)
    monkeypatch.setattr(vector_rows, "LOG_ROWS", 6)
    monkeypatch.setattr(vector_rows, "SAMPLE_ROWS", 4)
    monkeypatch.setattr(vector_index, "PAGE", 5)
    monkeypatch.setattr(vector_index, "BLOCK", 5)
    yield


def vectors_of(seqs: list[int], seed: int) -> list[tuple[int, bytes]]:
    rows = np.stack([np.random.default_rng([seed, seq]).standard_normal(DIMENSIONS) for seq in seqs])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return [(seq, row.astype(np.float16).tobytes()) for seq, row in zip(seqs, rows, strict=True)]


def check(tx: Tx, indexes: VectorIndexes, number: int, seed: int, only: list[int] | None) -> None:
    """The index gives what the rows of this transaction give, one by one."""
    query = np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
    query /= np.linalg.norm(query)
    scope = tx.vectors.scope(number)
    assert scope is not None
    allowed = range(1_000) if only is None else only
    there = {
        seq: float(np.frombuffer(vector, np.float16).astype(np.float32) @ query)
        for seq, _, vector in tx.vectors.list_changes(scope, after_version=-1)
        if vector is not None
    }
    expected = {seq: score for seq, score in there.items() if seq in allowed}
    assert scope.row_count == len(there)
    within = None if only is None else np.array(sorted(only))
    asked = list(range(70))
    wanted = [there.get(seq, np.nan) for seq in asked]
    dense = indexes.search(tx, scope, query, limit=1_000, only=within)
    assert dense.seqs.tolist() == sorted(expected, key=lambda seq: -expected[seq])
    assert np.allclose(dense.scores, [expected[seq] for seq in dense.seqs.tolist()], atol=1e-5)
    assert dense.rows == len(expected)
    assert np.allclose(dense.scores_of(asked), wanted, atol=1e-5, equal_nan=True)
    few = indexes.search(tx, scope, query, limit=2)
    assert set(few.seqs.tolist()) <= set(there) and len(few.seqs) == min(2, len(there))


def run_without_waiting(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine that never waits returns: for a write while another transaction is open."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


@effort(12, 2000)
@given(STEPS, FORMS)
def test_a_search_sees_exactly_what_its_transaction_sees(steps: list[Step], forms: tuple[int, int]) -> None:
    """After puts, removals, other models, crashes and rollbacks; in a write that is not committed; in a snapshot that
    is older than what another search has cached."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(vector_rows, "EXACT_BYTES", forms[0])
        patched.setattr(vector_rows, "HALVES_BYTES", forms[1])
        path = Path(folder) / "perdure.db"
        store, other = InlineStore(path), InlineStore(path)
        indexes = VectorIndexes()

        def make(tx: Tx) -> Archive:
            archive = units.add_archive(tx)
            tx.vectors.open(archive.number, "archive", archive.id, MODEL)
            return archive

        number = run_without_waiting(store.write(make)).number

        def put(tx: Tx, step: Step) -> None:
            rows = vectors_of(step.seqs, step.seed)
            tx.vectors.put(number, rows, model=MODEL, dimensions=DIMENSIONS)

        def remove(tx: Tx, seqs: list[int]) -> None:
            tx.vectors.remove(number, seqs)

        def put_and_search(tx: Tx, step: Step) -> None:
            tx.vectors.remove(number, step.seqs[:2])
            put(tx, Step("put", step.seqs[1:] or [61], step.seed))
            check(tx, indexes, number, step.seed, None)
            check(tx, indexes, number, step.seed, step.seqs)
            raise Undone

        def search_behind(tx: Tx, step: Step) -> None:
            check(tx, indexes, number, step.seed, None)
            run_without_waiting(other.write(put, step))
            run_without_waiting(other.write(remove, step.seqs[:2]))
            run_without_waiting(other.read(check, indexes, number, step.seed, None))
            run_without_waiting(other.write(put, Step("put", [step.seqs[-1], 62], step.seed + 1)))
            run_without_waiting(other.read(check, indexes, number, step.seed, step.seqs))
            if step.seed % 3 == 0:
                run_without_waiting(other.write(lambda tx: tx.vectors.restart(number, MODEL)))
                run_without_waiting(other.read(check, indexes, number, step.seed, None))
            check(tx, indexes, number, step.seed, None)
            check(tx, indexes, number, step.seed, step.seqs)

        for step in steps:
            match step.kind:
                case "put":
                    run_without_waiting(store.write(put, step))
                case "remove":
                    run_without_waiting(store.write(remove, step.seqs))
                case "search":
                    run_without_waiting(
                        store.read(check, indexes, number, step.seed, step.seqs if step.seed % 2 else None)
                    )
                case "undone":
                    with pytest.raises(Undone):
                        run_without_waiting(store.write(put_and_search, step))
                case "behind":
                    run_without_waiting(store.read(search_behind, step))
                case "restart":
                    run_without_waiting(store.write(lambda tx: tx.vectors.restart(number, MODEL)))
                case "reopen":
                    store.crash()
                    store, indexes = InlineStore(path), indexes if step.seed % 2 else VectorIndexes()
        run_without_waiting(store.read(check, indexes, number, 1, None))
        store.crash()
        other.crash()


class Undone(Exception):
    """Ends a unit so that nothing of it is written."""
