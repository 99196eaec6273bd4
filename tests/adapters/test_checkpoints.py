"""`PerdureSaver` in LangGraph's own conformance tests, and under graphs."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast
from uuid import uuid4

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="langgraph-checkpoint is installed by `make setup`")

from langgraph.checkpoint.base import empty_checkpoint

from perdure.adapters.langgraph import PerdureSaver
from perdure.adapters.langgraph.checkpoints import PART_CHARS
from perdure.testing import InlineStore

pytestmark = pytest.mark.usefixtures("frameworks")

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class State(TypedDict):
    """The state of the graph of these tests."""

    log: Annotated[list[str], operator.add]


@pytest.fixture
def saver() -> Iterator[PerdureSaver]:
    with PerdureSaver(store=InlineStore()) as saver:
        yield saver


def graph(saver: PerdureSaver) -> Any:
    """A graph that asks a person after its first step."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

    made = StateGraph(State)
    made.add_node("first", lambda state: {"log": ["first"]})
    made.add_node("second", lambda state: {"log": [f"second: {interrupt('go on?')}"]})
    made.add_edge(START, "first")
    made.add_edge("first", "second")
    made.add_edge("second", END)
    return made.compile(checkpointer=saver)


async def test_it_passes_the_conformance_tests_of_langgraph() -> None:
    """All eight capabilities, of which three are optional."""
    from langgraph.checkpoint.conformance.initializer import checkpointer_test
    from langgraph.checkpoint.conformance.validate import validate

    @checkpointer_test(name="perdure")  # type: ignore[untyped-decorator]
    async def savers() -> AsyncIterator[PerdureSaver]:
        with PerdureSaver(store=InlineStore()) as saver:
            yield saver

    report = await validate(savers)

    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
    assert len(report.results) == 8


@pytest.mark.slow
def test_a_graph_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Where a person was asked; its history is there, and a branch from it."""
    from langgraph.types import Command

    with PerdureSaver(tmp_path / "a.db") as saver:
        graph(saver).invoke({"log": ["said"]}, THREAD)
    with PerdureSaver(tmp_path / "a.db") as saver:
        again = graph(saver)

        assert again.invoke(Command(resume="yes"), THREAD)["log"] == ["said", "first", "second: yes"]
        history = list(again.get_state_history(THREAD))
        assert [one.next for one in history] == [(), ("second",), ("first",), ("__start__",)]
        branch = again.update_state(history[2].config, {"log": ["branch"]})
        assert again.get_state(branch).values["log"] == ["said", "branch"]


def test_large_values_are_kept_whole(saver: PerdureSaver) -> None:
    """In several passages; also those of a write, and copied to another thread."""
    text = "ü" * (PART_CHARS * 2)
    saved = saver.put(THREAD, _checkpoint(text), {"source": "input"}, {"big": "1"})
    saver.put_writes(saved, [("big", text)], "task")
    saver.copy_thread("t", "copy")

    for thread in ("t", "copy"):
        found = saver.get_tuple({"configurable": {"thread_id": thread}})
        assert found is not None
        assert found.checkpoint["channel_values"]["big"] == text
        assert found.pending_writes == [("task", "big", text)]


def test_pruning_keeps_what_changes_are_built_from(saver: PerdureSaver) -> None:
    """A channel of changes has no value at the newest checkpoint; the one that has it stays, with those between."""
    config = THREAD
    for step in range(4):
        values = {"delta": ["snapshot"]} if step == 1 else {}
        checkpoint: Any = {**_checkpoint("x"), "channel_values": values, "channel_versions": {"delta": str(step)}}
        counters: Any = {"source": "loop", "step": step, "counters_since_delta_snapshot": {"delta": (step, step)}}
        config = saver.put(config, checkpoint, counters, {"delta": str(step)})
    saver.prune(["t"])

    assert [one.metadata["step"] for one in saver.list({"configurable": {"thread_id": "t"}})] == [3, 2, 1]


def test_what_a_run_left_is_removed_with_it(saver: PerdureSaver) -> None:
    """Its large values and writes, in all their parts, but not those that another run's checkpoint has."""
    text = "x" * (PART_CHARS * 2)
    for run, versions in (("one", {"big": "1"}), ("two", {"big": "1", "own": "2"})):
        checkpoint: Any = {**_checkpoint(text), "channel_versions": versions}
        checkpoint["channel_values"]["own"] = text
        saved = saver.put(THREAD, checkpoint, {"run_id": run}, {name: versions[name] for name in list(versions)[-1:]})
        saver.put_writes(saved, [("big", text)], "task")
    saver.delete_for_runs(["two"])

    (left,) = saver.list(None)
    assert left.checkpoint["channel_values"] == {"big": text}
    kinds = [one.metadata["name"][2] for one in saver._store.run(_passages(saver))]
    assert {kind: kinds.count(kind) for kind in kinds} == {"value": 3, "checkpoint": 1, "write": 3}


def test_pruning_removes_values_that_nothing_names(saver: PerdureSaver) -> None:
    for version in ("1", "2"):
        checkpoint: Any = {**_checkpoint(version), "channel_versions": {"big": version}}
        saver.put(THREAD, checkpoint, {}, {"big": version})
    saver.prune(["t"])

    (left,) = saver.list(None)
    assert left.checkpoint["channel_values"] == {"big": "2"}
    kinds = [one.metadata["name"][2] for one in saver._store.run(_passages(saver))]
    assert sorted(kinds) == ["checkpoint", "value"]
    with pytest.raises(ValueError, match="keep_latest"):
        saver.prune(["t"], strategy="all")


def test_ids_may_be_numbers_and_uuids(saver: PerdureSaver) -> None:
    """What is removed by such an id is gone."""
    run, number = uuid4(), cast(str, 1)
    config: Any = {"configurable": {"thread_id": number, "checkpoint_ns": ""}}
    for _ in range(2):
        saver.put(config, _checkpoint("x"), {"run_id": str(run)}, {"big": "1"})

    saver.copy_thread(number, cast(str, 2))
    assert len([*saver.list({"configurable": {"thread_id": 2}})]) == 2
    saver.prune([number])
    assert len([*saver.list(config)]) == 1
    saver.delete_thread(number)
    assert saver.get_tuple(config) is None
    saver.delete_for_runs([cast(str, run)])
    assert not [*saver.list(None)]


async def _passages(saver: PerdureSaver) -> list[Any]:
    return [one async for one in saver._store.passages(['thread:["t"]'])]


def _checkpoint(value: str) -> Any:
    """A new checkpoint with one channel."""
    return {**empty_checkpoint(), "channel_values": {"big": value}, "channel_versions": {"big": "1"}}
