"""`PerdureStore` against LangGraph's `BaseStore`: what its own store in memory answers, this one answers too."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("langgraph.store.base", reason="langgraph-checkpoint is installed by `make setup`")

from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, ListNamespacesOp, Op, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from perdure.adapters.langgraph import PerdureStore
from perdure.testing import InlineStore

ITEMS: dict[tuple[tuple[str, ...], str], dict[str, Any]] = {
    (("users", "ada"), "home"): {"city": "Turin", "n": 3, "tags": ["a", "b"], "deep": {"x": 1}},
    (("users", "ada"), "work"): {"city": "Milan", "n": 5},
    (("users", "ada", "pets"), "cat"): {"name": "Tom", "n": 7, "none": None},
    (("users", "adam"), "home"): {"city": "Turin", "n": "3"},
    (("docs", "v1"), "home"): {"text": "The key is under the mat."},
    (("docs", "ada"), " k "): {"text": "The boat is in the harbour."},
}

_Form = Literal["NFC", "NFD"]


@pytest.fixture
def store() -> Iterator[PerdureStore]:
    with PerdureStore(store=InlineStore()) as store:
        yield store


@pytest.fixture
def stores(store: PerdureStore) -> tuple[PerdureStore, InMemoryStore]:
    """This store and LangGraph's own, with the same items."""
    both = (store, InMemoryStore())
    for one in both:
        for (namespace, key), value in ITEMS.items():
            one.put(namespace, key, value)
    return both


def plain(item: Any) -> Any:
    """What of an answer must be equal: all but times and scores."""
    if isinstance(item, list):
        return [plain(one) for one in item]
    return item if item is None or isinstance(item, tuple) else (item.namespace, item.key, item.value)


def test_it_is_a_store_of_langgraph(store: PerdureStore) -> None:
    """With every method of the interface, and without times to live."""
    assert isinstance(store, BaseStore)
    assert not PerdureStore.__abstractmethods__
    assert not store.supports_ttl
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(("users",), "a", {"x": 1}, ttl=5)


@pytest.mark.parametrize(
    "op",
    [
        *(GetOp(namespace, key) for namespace, key in ITEMS),
        GetOp(("users", "ada"), "none"),
        GetOp(("users",), "home"),
        GetOp(("docs", "ada"), "k"),
        SearchOp(()),
        SearchOp(("users",), limit=2),
        SearchOp(("users",), limit=2, offset=1),
        SearchOp(("users",), limit=5, offset=9),
        SearchOp(("users", "ada")),
        SearchOp(("user",)),
        SearchOp((), {"city": "Turin"}),
        SearchOp((), {"city": {"$ne": "Turin"}}, limit=2, offset=1),
        SearchOp(("users", "ada"), {"n": {"$gt": 3, "$lte": 7}}),
        SearchOp((), {"n": {"$eq": 3}}),
        SearchOp((), {"tags": ["a", "b"]}),
        SearchOp((), {"tags": ["a"]}),
        SearchOp((), {"deep": {"x": 1}}),
        SearchOp((), {"none": None}),
        ListNamespacesOp(),
        ListNamespacesOp(max_depth=1),
        ListNamespacesOp(limit=2, offset=1),
    ],
    ids=repr,
)
def test_an_operation_answers_as_langgraphs_own_store(stores: tuple[PerdureStore, InMemoryStore], op: Any) -> None:
    """Item by item, in the same order."""
    answers = [plain(store.batch([op])[0]) for store in stores]

    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [(("users",), None), (("*", "ada"), None), (None, ("ada",)), (None, ("*", "pets")), (("users",), ("ada",))],
)
def test_namespaces_are_listed_by_their_ends(
    stores: tuple[PerdureStore, InMemoryStore], prefix: Any, suffix: Any
) -> None:
    """With `*` for any label."""
    answers = [store.list_namespaces(prefix=prefix, suffix=suffix) for store in stores]

    assert answers[0] == answers[1] != []


def test_items_change_and_go(stores: tuple[PerdureStore, InMemoryStore]) -> None:
    """A put of a key replaces its value and keeps its creation; a deletion also empties its namespace."""
    store = stores[0]
    before = store.get(("users", "ada"), "home")
    for one in stores:
        one.put(("users", "ada"), "home", {"city": "Oslo"})
        one.delete(("docs", "v1"), "home")
        one.delete(("docs", "v1"), "none")
    after = store.get(("users", "ada"), "home")

    assert before is not None
    assert after is not None
    assert (after.value, after.created_at) == ({"city": "Oslo"}, before.created_at)
    assert after.updated_at >= after.created_at
    assert ("docs", "v1") not in store.list_namespaces()
    assert plain(store.search((), limit=99)) == plain(stores[1].search((), limit=99))


def test_a_batch_reads_what_was_there_before(stores: tuple[PerdureStore, InMemoryStore]) -> None:
    """And of several puts of one key the last counts."""
    key = (("users", "eve"), "home")
    ops: list[Op] = [PutOp(*key, {"n": 1}), GetOp(*key), PutOp(*key, {"n": 2}), SearchOp(("users", "eve"))]

    answers = [([plain(one) for one in store.batch(ops)], plain(store.get(*key))) for store in stores]

    assert answers[0] == answers[1] == ([None, None, None, []], (*key, {"n": 2}))


def test_a_query_finds_by_words(stores: tuple[PerdureStore, InMemoryStore]) -> None:
    """Below a namespace, with filters, best first and with a score; an item that is not indexed is not found."""
    store = stores[0]
    store.put(("docs", "v2"), "hidden", {"text": "The key is in the safe."}, index=False)
    store.put(("docs", "v2"), "title", {"title": "Harbour key", "text": "Boats."}, index=["text"])
    found = store.search(("docs",), query="where is the key")

    assert (found[0].key, found[0].value) == ("home", {"text": "The key is under the mat."})
    assert found[0].score is not None
    assert "hidden" not in [item.key for item in found]
    assert [item.key for item in store.search(("docs",), query="harbour")][:1] == [" k "]
    assert store.search(("docs",), query="boats", filter={"text": "Boats."})[0].key == "title"
    assert store.search(("docs",), query="boats", filter={"text": "Cars."}) == []
    assert store.search(("users",), query="key under the mat") == []
    assert store.get(("docs", "v2"), "hidden") is not None


def test_many_items_are_listed_page_by_page(store: PerdureStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an offset, and a filter that few meet."""
    monkeypatch.setattr("perdure.adapters.opening.PAGE", 2)
    store.batch([PutOp(("n",), str(number), {"n": number}) for number in range(7)])

    assert [item.key for item in store.search(("n",), limit=3, offset=3)] == ["3", "4", "5"]
    assert [item.key for item in store.search(("n",), filter={"n": {"$gte": 5}})] == ["5", "6"]


async def test_a_program_with_a_loop_uses_it_too(store: PerdureStore) -> None:
    """The asynchronous methods do the same."""
    await store.aput(("users", "ada"), "home", {"city": "Turin"})

    item = await store.aget(("users", "ada"), "home")

    assert item is not None
    assert item.value == {"city": "Turin"}
    assert await store.alist_namespaces() == [("users", "ada")]


def test_what_the_interface_refuses_is_refused(store: PerdureStore) -> None:
    """Labels with periods, unknown operators and operations."""
    with pytest.raises(InvalidNamespaceError):
        store.batch([GetOp(("a.b",), "x")])
    store.put(("a",), "x", {"n": 1})
    with pytest.raises(ValueError, match=r"\$about"):
        store.search(("a",), filter={"n": {"$about": 1}})
    with pytest.raises(ValueError, match="operation"):
        store.batch(["get"])  # type: ignore[list-item]


def test_items_outlive_the_process(tmp_path: Path) -> None:
    """They are in the file."""
    with PerdureStore(tmp_path / "store.db") as store:
        store.put(("users",), "ada", {"city": "Turin"})
    with PerdureStore(tmp_path / "store.db") as store:
        item = store.get(("users",), "ada")

    assert item is not None
    assert item.value == {"city": "Turin"}


@pytest.mark.slow
def test_without_the_package_the_extra_is_named() -> None:
    """And only the module that needs it fails."""
    program = "import sys; sys.modules['langgraph'] = None; import perdure.adapters.mem0, perdure.adapters.langgraph"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert "install 'perdure[langgraph]'" in done.stderr


def test_namespaces_and_keys_are_one_in_every_form(store: PerdureStore) -> None:
    """An item is got, searched, listed, changed and deleted whether its marks are written apart or not."""
    pairs: tuple[tuple[_Form, _Form], ...] = (("NFC", "NFD"), ("NFD", "NFC"))
    for form, other in pairs:
        place, label = unicodedata.normalize(form, "việt-café"), unicodedata.normalize(other, "việt-café")
        store.put(("a", place), place, {"n": 1, "text": place})
        store.put(("a", label), label, {"n": 2, "text": place})

        item = store.get(("a", label), label)
        assert item is not None and item.value == {"n": 2, "text": place}
        assert item.namespace == ("a", unicodedata.normalize("NFC", label)) and item.key == item.namespace[1]
        assert len(store.search(("a", label))) == 1
        assert store.list_namespaces(prefix=("a", label)) == [item.namespace]
        store.delete(("a", label), label)
        assert store.get(("a", place), place) is None
