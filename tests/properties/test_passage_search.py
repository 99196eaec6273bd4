"""A search of passages gives what one gives that remembers nothing: after any history, whatever is remembered."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.passages import SEARCHED_STATES, Archive, Passage, PassageFilter
from perdure.engine.search.search import Search
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, ScriptedEmbedder
from tests.contracts.base import Contract
from tests.support.strategies import effort

units = Contract()
WORDS = ("walrus", "penguin", "gull", "seal", "tern", "auk", "猫")
STATES = ("active", "faded", "archived")
RED = PassageFilter(tags=("red",))
EVERYTHING = PassageFilter()
ARCHIVED = PassageFilter(states=("archived",))
ROUNDING = 1e-5


@dataclass
class Step:
    kind: str
    seq: int
    texts: list[str]


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["add", "add", "put", "tag", "delete", "use", "use", *STATES, "search", "search", "search"]),
        st.integers(0, 14),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
    ),
    max_size=25,
)


@pytest.mark.slow
@effort(12, 1_000)
@given(STEPS)
async def test_what_is_remembered_changes_no_search(steps: list[Step]) -> None:
    store, embedder, clock = InlineStore(), ScriptedEmbedder(dimensions=16), FakeClock()
    archive = await store.write(units.add_archive)
    await store.write(lambda tx: tx.vectors.open(archive.number, "archive", archive.id, embedder.handle))
    lasting = Search(store, clock, embedder=embedder)

    async def search_hits(search: Search, text: str, where: PassageFilter) -> tuple[list[Passage], list[float]]:
        hits = await search.passages([archive.id], text, where=where, limit=4)
        assert {hit.passage.state for hit in hits} <= set(where.states or SEARCHED_STATES)
        return [hit.passage for hit in hits], [hit.score for hit in hits]

    for step in [Step("add", 0, ["walrus", "gull"])] * 3 + steps:
        text = " ".join(step.texts)
        if step.kind != "search":
            await store.write(_changed, archive, step, text, embedder.handle)
        for where in (RED, EVERYTHING, ARCHIVED):
            expected, expected_scores = await search_hits(Search(store, clock, embedder=embedder), text, where)
            hits, scores = await search_hits(lasting, text, where)
            # A product is rounded by where its row lies, so hits of equal scores may change places.
            assert scores == pytest.approx(expected_scores, abs=ROUNDING)
            for hit, score in zip(hits, scores, strict=True):
                equals = [
                    p for p, other in zip(expected, expected_scores, strict=True) if abs(other - score) < ROUNDING
                ]
                assert hit in equals or abs(score - expected_scores[-1]) < ROUNDING
    await store.close()


def _changed(tx: Tx, archive: Archive, step: Step, text: str, model: str) -> None:
    if step.kind == "add":
        added = units.add_passage(tx, archive.id, text, *(["red"] if step.seq % 3 else []))
        vector = np.random.default_rng(added.seq).standard_normal(16)
        blob = (vector / np.linalg.norm(vector)).astype(np.float16).tobytes()
        tx.vectors.put(archive.number, [(added.seq, blob)], model=model, dimensions=16)
        return
    for there in tx.passages.list_by_seqs(archive.id, [step.seq]):
        if step.kind == "put":
            tx.passages.put(replace(there, text=text, metadata={"said": step.texts}))
        elif step.kind == "tag":
            tx.passages.put(replace(there, tags=() if there.tags else ("red",)))
        elif step.kind in STATES:
            tx.passages.put_states([replace(there, state=step.kind)])  # type: ignore[arg-type]
        elif step.kind == "delete":
            tx.passages.delete(archive.id, [there.seq])
        else:
            tx.passages.count(archive.id, [there.seq], "uses")
