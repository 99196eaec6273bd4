"""`PerdureChatMessageHistory`, as LangChain's base class says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("langchain_core", reason="langgraph-checkpoint brings it; `make setup` installs that")

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from perdure import Perdure
from perdure.adapters.langchain import PerdureChatMessageHistory
from perdure.library.parts.checks import Page
from perdure.testing import InlineStore

MESSAGES: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage([{"type": "text", "text": "Look 🐈"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]),
    AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1}, "id": "call-1"}], usage_metadata=None),
    ToolMessage("2", tool_call_id="call-1", status="error", artifact={"deep": [1]}),
    AIMessage("Two.", response_metadata={"model": "m"}, additional_kwargs={"k": None}),
]


@pytest.fixture
def history() -> Iterator[PerdureChatMessageHistory]:
    with PerdureChatMessageHistory("s1", store=InlineStore()) as history:
        yield history


def test_messages_come_back_as_they_were(history: PerdureChatMessageHistory) -> None:
    history.add_messages(MESSAGES)
    history.add_user_message("And now?")

    assert isinstance(history, BaseChatMessageHistory)
    assert history.messages == [*MESSAGES, HumanMessage("And now?")]


async def test_the_coroutines_do_the_same(history: PerdureChatMessageHistory) -> None:
    await history.aadd_messages(MESSAGES)
    assert await history.aget_messages() == MESSAGES
    await history.aclear()

    assert history.messages == []


def test_a_session_outlives_the_program_and_sees_no_other(tmp_path: Path) -> None:
    with PerdureChatMessageHistory("s1", tmp_path / "a.db") as history:
        history.add_messages(MESSAGES)
    with PerdureChatMessageHistory("s2", tmp_path / "a.db") as other:
        other.add_user_message("Another one.")
        other.clear()

    with PerdureChatMessageHistory("s1", tmp_path / "a.db") as again:
        assert again.messages == MESSAGES


def test_agents_find_what_was_said_in_the_archive(tmp_path: Path) -> None:
    with PerdureChatMessageHistory("s1", tmp_path / "a.db") as history:
        history.add_user_message("The spare key is in the blue drawer.")

    with Perdure(tmp_path / "a.db") as perdure:
        (hit,) = perdure.archives.get("langchain").search("where is the spare key")
        assert hit.passage.text == "The spare key is in the blue drawer."


@pytest.mark.slow
def test_large_messages_are_kept_whole(history: PerdureChatMessageHistory) -> None:
    """A picture of 1 MB, a text of 2 MB; nothing of them is left when they are removed."""
    picture = HumanMessage([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}])
    large = [picture, AIMessage("ü" * 2_000_000)]
    history.add_messages([*large, HumanMessage("And now?")])

    assert history.messages == [*large, HumanMessage("And now?")]
    history.clear()
    archive = history._store.run(history._store.archive())
    assert history._store.run(archive.list_passages(Page(10, ascending=True))) == []
