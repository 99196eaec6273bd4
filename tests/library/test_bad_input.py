"""Arguments that can't be meant: each is refused with its name, its value and what would do; nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, AsyncPerdure, InvalidInput, NotFound, Perdure
from tests.support.library import open_sync

HUGE = 10**30


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "error_text"),
    [
        (lambda agent: agent.messages(before_seq=HUGE), "before_seq is 1000"),
        (lambda agent: agent.messages(after_seq="x"), "after_seq is 'x'"),
        (lambda agent: agent.passages(after_seq=HUGE), "after_seq is 1000"),
        (lambda agent: agent.conversations(after_seq=1.5), "after_seq is 1.5"),
        (lambda agent: agent.send(5), "text is 5"),
        (lambda agent: agent.send("a", max_steps=1.5), "max_steps is 1.5: give a whole number"),
        (lambda agent: agent.send("a", conversation=5), "conversation is 5"),
        (lambda agent: agent.send("a", idempotency_key=""), "idempotency_key is ''"),
        (lambda agent: agent.send("a", idempotency_key=5), "idempotency_key is 5"),
        (lambda agent: agent.send("a", idempotency_key="k" * 10_000_000), "1 to 255 characters"),
        (lambda agent: list(agent.follow(None)), "run_id is None"),
        (lambda agent: agent.cancel(5), "run_id is 5"),
        (lambda agent: agent.search(5), "text is 5"),
        (lambda agent: agent.search("a", since="today"), "since is 'today'"),
        (lambda agent: agent.archive(5), "text is 5"),
        (lambda agent: agent.archive("a", tags="abc"), "tags are 'abc'"),
        (lambda agent: agent.search_archive("a", tags="abc"), "tags are 'abc'"),
        (lambda agent: agent.delete_passage(None), "passage_id is None"),
        (lambda agent: agent.recall("x", archives=False), "archives is False: give a list"),
        pytest.param(
            lambda agent: agent.files.open("a/b.txt", first_line=10, last_line=5),
            "last_line is 5, before first_line",
            marks=pytest.mark.uses("files"),
        ),
        (lambda agent: agent.tools.attach(None), "a tool is None"),
        (lambda agent: agent.update(settings={"temperatur": 1}), "is it 'temperature'"),
        pytest.param(
            lambda agent: agent.facts.update("fact-1", foo=1), "no field foo to change", marks=pytest.mark.uses("facts")
        ),
        pytest.param(lambda agent: agent.why(" "), "of is empty", marks=pytest.mark.uses("origins")),
    ],
)
def test_what_an_agent_can_not_be_asked_is_refused(
    tmp_path: Path, call: Callable[[Agent], Any], error_text: str
) -> None:
    """The error names the argument, also where the database or the engine would have stumbled over it."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        with pytest.raises(InvalidInput, match=error_text):
            call(agent)

        assert (agent.message_count(), agent.passages()) == (0, ())


@pytest.mark.parametrize(
    ("field", "value", "error_text"),
    [
        ("value", 5, "value of a block is 5: give a text"),
        ("label", None, "label of a block is None: give a text"),
        ("description", 5, "description of a block is 5: give a text"),
        ("limit_chars", "x", "limit_chars of a block is 'x': give a whole number from 1 to"),
        ("limit_chars", -1, "limit_chars of a block is -1: give a whole number from 1 to"),
        ("limit_chars", True, "limit_chars of a block is True"),
        ("limit_chars", HUGE, "limit_chars of a block is 1000"),
        ("read_only", None, "read_only of a block is None: give True or False"),
        ("metadata", {1}, r"metadata is \{1\}: give names with JSON values"),
        ("metadata", {"a": object()}, "metadata is {'a'"),
        ("tags", "abc", "tags are 'abc': give a list of texts"),
        ("tags", [1], r"tags are \[1\]"),
    ],
)
def test_a_value_that_a_block_field_can_not_have_is_refused(
    tmp_path: Path, field: str, value: Any, error_text: str
) -> None:
    """In a new block and in a changed one alike; the block stays as it was."""
    with open_sync(tmp_path / "agents.db") as perdure:
        blocks = perdure.create_agent().blocks
        before = blocks.get("human")
        with pytest.raises(InvalidInput, match=error_text):
            blocks.change("human", **{field: value})
        with pytest.raises(InvalidInput, match=error_text):
            perdure.blocks.create(**{"label": "notes", field: value})

        assert blocks.get("human") == before
        assert perdure.blocks.list(label="notes") == []


@pytest.mark.parametrize("method", ["get", "history", "detach"])
def test_a_block_is_asked_for_by_a_text(tmp_path: Path, method: str) -> None:
    """Anything else is no label."""
    with open_sync(tmp_path / "agents.db") as perdure:
        blocks = perdure.create_agent().blocks
        with pytest.raises(InvalidInput, match="label is None: give a text"):
            getattr(blocks, method)(None)
        with pytest.raises(InvalidInput, match="version is 'x'"):
            blocks.restore("human", "x")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="block_id is None"):
            perdure.blocks.get(None)  # type: ignore[arg-type]


def test_a_page_begins_after_something_that_is_there(tmp_path: Path) -> None:
    """An id that is not there is an error and no empty page: a reader would take that for the end of the list."""
    with open_sync(tmp_path / "agents.db") as perdure:
        one, two = perdure.create_agent("one"), perdure.create_agent("two")

        assert [agent.id for agent in perdure.agents(after=two.id)] == [one.id]
        with pytest.raises(NotFound, match="'agent-nope' not found"):
            perdure.agents(after="agent-nope")  # type: ignore[arg-type]
        with pytest.raises(NotFound, match="'block-nope' not found"):
            perdure.blocks.list(after="block-nope")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "error_text"),
    [
        ({"a": float("nan")}, "metadata is {'a': nan}"),
        ({"a": float("-inf")}, "metadata is {'a': -inf}"),
        ({"a": 10**5_000}, "metadata is a dict"),
        (deep(100_000), "metadata is a dict .it is nested too deep"),
        ({"a": {1, 2}}, "not JSON serializable"),
        ("abc", "metadata is 'abc'"),
    ],
)
def test_what_is_no_json_is_refused_in_short(tmp_path: Path, value: Any, error_text: str) -> None:
    """Also what the store could not read again, and what has no repr."""
    with open_sync(tmp_path / "agents.db") as perdure:
        archive = perdure.archives.create("notes")
        with pytest.raises(InvalidInput, match=error_text) as refused:
            archive.insert("a", metadata=value)

        assert len(str(refused.value)) < 400
        assert list(archive.passages()) == []


def test_names_of_tools_are_a_list(tmp_path: Path) -> None:
    """One name alone was taken for a list of its letters."""
    with open_sync(tmp_path / "agents.db") as perdure:
        with pytest.raises(InvalidInput, match=r"tools is 'memory_insert': give a list, such as \['memory_insert'\]"):
            perdure.create_agent(tools="memory_insert")

        assert perdure.agents() == []


def test_a_store_is_opened_by_what_can_open_it(tmp_path: Path) -> None:
    """The error names the call that does, and the class that settings are."""
    wrong: Any = {"embedding": "none"}
    with pytest.raises(InvalidInput, match=r"settings is \{'embedding': 'none'\}: give a perdure.Settings"):
        Perdure(tmp_path / "agents.db", settings=wrong)
    with pytest.raises(TypeError, match=r"await AsyncPerdure\.open\("):
        AsyncPerdure(str(tmp_path / "agents.db"))  # type: ignore[arg-type]
