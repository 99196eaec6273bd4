"""`PerdureChatStore` against LlamaIndex's own store in memory, and `PerdureMemory`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.library.parts.checks import Page
from perdure.testing import InlineStore

pytestmark = pytest.mark.usefixtures("frameworks")

_KEYS = st.sampled_from(["a", "b 🐈"])
_TEXTS = st.sampled_from(["", "hello", "two\nlines"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add_message"), _KEYS, _TEXTS),
        st.tuples(st.just("set_messages"), _KEYS, st.lists(_TEXTS, max_size=3)),
        st.tuples(st.just("get_messages"), _KEYS),
        st.tuples(st.just("delete_message"), _KEYS, st.integers(0, 3)),
    ),
    max_size=12,
)


@pytest.fixture
def store() -> Iterator[Any]:
    from perdure.adapters.llama_index import PerdureChatStore

    with PerdureChatStore(store=InlineStore()) as store:
        yield store


def message(text: str) -> Any:
    """A message of the user with a picture's address beside its text."""
    from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock

    blocks = [TextBlock(text=text), ImageBlock(url="https://example.org/a.png")]
    return ChatMessage(role="user", blocks=blocks, additional_kwargs={"n": [1]})


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(operations=OPERATIONS)
def test_each_operation_answers_as_llama_indexs_own_store(operations: list[tuple[Any, ...]]) -> None:
    from llama_index.core.storage.chat_store import SimpleChatStore

    from perdure.adapters.llama_index import PerdureChatStore

    own = SimpleChatStore()
    with PerdureChatStore(store=InlineStore()) as store:
        for name, key, *arguments in operations:
            if name == "add_message":
                arguments = [message(arguments[0])]
            elif name == "set_messages":
                arguments = [[message(text) for text in arguments[0]]]

            assert getattr(store, name)(key, *arguments) == getattr(own, name)(key, *arguments)
        # A key without messages is none here.
        assert store.get_keys() == sorted(key for key in own.get_keys() if own.get_messages(key))


def test_what_is_deleted_is_returned(store: Any) -> None:
    for text in ("one", "two"):
        store.add_message("a", message(text))

    assert store.delete_last_message("a") == message("two")
    assert store.delete_messages("a") == [message("one")]
    assert store.delete_messages("a") is None
    assert store.delete_last_message("a") is None
    assert store.delete_message("a", -1) is None


def test_of_two_that_set_at_once_one_counts(tmp_path: Path) -> None:
    """Nothing is doubled, and a large message leaves no parts."""
    from perdure.adapters.llama_index import PerdureChatStore

    texts = [[message(f"{name} {number}" + "x" * 300_000 * (number == 0)) for number in range(3)] for name in "abc"]
    with PerdureChatStore(tmp_path / "a.db") as store, ThreadPoolExecutor(3) as pool:
        store.set_messages("k", texts[0])
        list(pool.map(lambda messages: store.set_messages("k", messages), texts))

        assert store.get_messages("k") in texts
        archive = store._store.run(store._store.archive())
        assert len(store._store.run(archive.list_passages(Page(50, ascending=True)))) == 5


def test_llama_indexs_own_memory_runs_over_the_store(store: Any) -> None:
    from llama_index.core.memory import ChatMemoryBuffer

    memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="a", token_limit=1_000)
    memory.put(message("hello"))

    assert memory.get() == [message("hello")]


async def test_a_memory_recalls_what_is_out_of_the_window(store: Any) -> None:
    from perdure.adapters.llama_index import PerdureMemory

    memory = PerdureMemory.from_defaults(store, key="a", recent=2, recalled=1)
    said = ["The spare key is in the blue drawer.", "It rains.", "The boat is red.", "Good night."]
    for text in said:
        await memory.aput(message(text))

    assert [one.content for one in await memory.aget("where is the spare key?")] == [said[0], *said[2:]]
    assert [one.content for one in memory.get()] == said[2:]
    assert [one.content for one in memory.get_all()] == said
    memory.reset()
    assert memory.get_all() == []


def test_no_result_of_a_tool_comes_without_its_call(store: Any) -> None:
    """Neither as the first message of the window, nor among those that are recalled."""
    from llama_index.core.llms import ChatMessage

    from perdure.adapters.llama_index import PerdureMemory

    memory = PerdureMemory.from_defaults(store, key="a", recent=2, recalled=3)
    for role, text, more in (
        ("user", "Where is the key?", {}),
        ("assistant", "", {"tool_calls": [{"id": "1", "function": {"name": "find", "arguments": '{"what": "key"}'}}]}),
        ("tool", "The key is in the drawer.", {"tool_call_id": "1"}),
        ("assistant", "In the drawer.", {}),
    ):
        memory.put(ChatMessage(role=role, content=text, additional_kwargs=more))

    assert [one.content for one in memory.get("where is the key?")] == ["Where is the key?", "In the drawer."]


def test_messages_outlive_the_program(tmp_path: Path) -> None:
    from perdure.adapters.llama_index import PerdureChatStore

    with PerdureChatStore(tmp_path / "a.db") as store:
        store.set_messages("a", [message("one"), message("two")])
    with PerdureChatStore(tmp_path / "a.db") as again:
        assert again.get_messages("a") == [message("one"), message("two")]
        written = again.to_dict()
    with PerdureChatStore.from_dict(written) as restored:
        assert restored.get_messages("a") == [message("one"), message("two")]
