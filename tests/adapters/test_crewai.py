"""`PerdureStorage` as CrewAI's protocol of storages says, with its own records."""

from __future__ import annotations

import importlib
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import ModuleType
from typing import Any

import pytest

from perdure import NewPassage
from perdure.testing import InlineStore
from tests.adapters.packages import FOLDER, need


@pytest.fixture(scope="module", autouse=True)
def crewai() -> Iterator[None]:
    """CrewAI's modules of memory; the package itself imports a hundred others, so its empty parents stand in."""
    need("crewai")
    for name in ("crewai", "crewai.memory", "crewai.memory.storage"):
        parent = ModuleType(name)
        parent.__path__ = [str(FOLDER / name.replace(".", "/"))]
        sys.modules[name] = parent
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "crewai"]:
        del sys.modules[name]


@pytest.fixture
def storage() -> Iterator[Any]:
    from perdure.adapters.crewai import PerdureStorage

    with PerdureStorage(store=InlineStore()) as storage:
        yield storage


def record(number: int, scope: str = "/team/ada", **fields: Any) -> Any:
    """A record with a vector that lies nearer to (1, 0) the larger its number is."""
    types = importlib.import_module("crewai.memory.types")
    values = {"content": f"fact {number}", "categories": ["odd" if number % 2 else "even"], "metadata": {"n": number}}
    at = datetime(2026, 1, 1 + number, 12)
    return types.MemoryRecord(
        **{**values, "embedding": [float(number), 1.0], "created_at": at, "scope": scope, "source": "ada", **fields}
    )


def test_it_is_a_storage_of_crewai(storage: Any) -> None:
    backend = importlib.import_module("crewai.memory.storage.backend")
    assert isinstance(storage, backend.StorageBackend)


def test_records_come_back_as_they_were(storage: Any) -> None:
    records = [record(number) for number in range(3)]
    storage.save(records)

    assert [storage.get_record(one.id) for one in records] == records
    assert storage.list_records() == records[::-1]
    assert storage.list_records(limit=1, offset=1) == [records[1]]
    assert storage.get_record("none") is None


async def test_the_nearest_are_found_within_scope_categories_and_metadata(storage: Any) -> None:
    records = [record(number, scope="/team/ada" if number < 3 else "/team/adam") for number in range(5)]
    await storage.asave(records)

    found = await storage.asearch([1.0, 0.0], limit=2)
    assert [one for one, _ in found] == [records[4], records[3]]
    assert 1 > found[0][1] > found[1][1] > 0.9
    assert [one for one, _ in storage.search([1.0, 0.0], scope_prefix="/team/ada/")] == records[2::-1]
    assert [one for one, _ in storage.search([1.0, 0.0], categories=["odd"])] == [records[3], records[1]]
    assert [one for one, _ in storage.search([1.0, 0.0], metadata_filter={"n": 2})] == [records[2]]
    assert storage.search([-1.0, 0.0], min_score=0.1) == []
    assert storage.search([0.0, 0.0]) == []


def test_vectors_of_another_model_are_refused(storage: Any) -> None:
    backend = importlib.import_module("crewai.memory.storage.backend")
    storage.save([record(1), record(2, embedding=None)])

    with pytest.raises(backend.EmbeddingDimensionMismatchError, match="2-dimensional"):
        storage.search([1.0, 0.0, 0.0])
    with pytest.raises(backend.EmbeddingDimensionMismatchError, match="3-dimensional"):
        storage.save([record(3), record(4, embedding=[1.0, 0.0, 0.0])])
    assert storage.count() == 2


def test_what_was_recalled_says_so(storage: Any) -> None:
    one = record(1)
    storage.save([one])
    storage.touch_records([one.id, "none"])

    touched = storage.get_record(one.id)
    assert touched.last_accessed > one.last_accessed
    assert touched == one.model_copy(update={"last_accessed": touched.last_accessed})


def test_a_recall_undoes_nothing_that_happens_at_once(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is deleted meanwhile stays so, and one that is changed keeps the change."""
    gone, changed = record(1), record(2)
    storage.save([gone, changed.model_copy(update={"content": "new"})])
    archive = storage._store.run(storage._store.archive())
    changed_passage = storage._store.run(archive.find_named((changed.id,)))
    storage.save([changed])
    store, work = storage._store.perdure.app.ports.store, ["once"]
    write = store.write

    async def write_behind_others(*args: Any, **kwargs: Any) -> Any:
        if work:
            work.clear()
            await archive.delete_named((gone.id,))
            await archive.put_named((changed.id,), NewPassage(text="new", metadata=changed_passage.metadata))
        return await write(*args, **kwargs)

    monkeypatch.setattr(store, "write", write_behind_others)
    storage.touch_records([gone.id, changed.id])

    assert not work and storage.get_record(gone.id) is None
    assert storage.get_record(changed.id).content == "new"


def test_records_are_deleted_by_their_ids_in_a_scope(storage: Any) -> None:
    one = record(1)
    storage.save([one])

    assert storage.delete("/elsewhere", record_ids=[one.id]) == 0
    assert storage.delete("/team", record_ids=[one.id, one.id, "none"]) == 1
    assert storage.count() == 0


def test_a_search_holds_a_page_of_the_records(storage: Any) -> None:
    """Of 400 with vectors as long as those of OpenAI, which have 20 MB as lists of numbers."""
    storage.save(
        [record(number % 20, embedding=[float(number + place) for place in range(1536)]) for number in range(400)]
    )
    tracemalloc.start()
    found = storage.search([1.0] * 1536, limit=3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [one.embedding[0] for one, _ in found] == [399.0, 398.0, 397.0]
    assert peak < 8_000_000


def test_two_threads_save_and_search_at_once(storage: Any) -> None:
    def work(start: int) -> int:
        for number in range(start, start + 5):
            storage.save([record(number)])
            storage.search([1.0, 0.0])
        return int(storage.count())

    with ThreadPoolExecutor(2) as pool:
        assert max(pool.map(work, (0, 10))) == 10


def test_scopes_and_categories_are_counted(storage: Any) -> None:
    storage.save([record(1), record(2, "/team//bob/notes"), record(3, "/")])

    assert storage.list_scopes() == ["/team"]
    assert storage.list_scopes("/team") == ["/team/ada", "/team/bob"]
    assert (storage.count(), storage.count("/team"), storage.count("/tea")) == (3, 2, 0)
    assert storage.list_categories("/team") == {"odd": 1, "even": 1}
    info = storage.get_scope_info("/team")
    assert (info.record_count, info.categories, info.child_scopes) == (2, ["even", "odd"], ["/team/ada", "/team/bob"])
    assert (info.oldest_record, info.newest_record) == (datetime(2026, 1, 2, 12), datetime(2026, 1, 3, 12))


async def test_records_are_updated_and_deleted(storage: Any) -> None:
    records = [record(number) for number in range(6)]
    storage.save(records)
    storage.update(records[0].model_copy(update={"scope": "/moved"}))

    assert storage.count("/moved") == 1
    assert storage.count("/team/ada") == 5
    assert await storage.adelete(record_ids=[records[2].id]) == 1
    assert storage.delete(older_than=datetime(2026, 1, 3)) == 2
    assert storage.delete(categories=["odd"], metadata_filter={"n": 5}) == 1
    storage.reset("/team")
    assert storage.count() == 0
