"""Which context engines there are, by name; and the setting that chooses one."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest

from perdure import AsyncPerdure, InvalidInput
from perdure.context.engines import ContextEngine
from perdure.context.engines.sliding_window import SlidingWindow
from perdure.engine import context_engines as calls
from perdure.testing import InlineStore, ScriptedModel

MODEL = "test/scripted"


class Named(ContextEngine):
    def __init__(self, *, depth: int = 1) -> None:
        if depth < 0:
            raise ValueError("depth is below 0")
        self.depth = depth


class Wordy(ContextEngine):
    system_prompt_addition = 7  # type: ignore[assignment]


@pytest.fixture
async def library() -> Any:
    engines = {"named": Named, "wordy": Wordy, "list": list}
    models = {MODEL: ScriptedModel()}
    async with await AsyncPerdure.open(store=InlineStore(), models=models, context_engines=engines) as perdure:
        yield perdure


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that brings an engine, and one that can't be loaded."""
    points = [
        metadata.EntryPoint("packaged", f"{__name__}:Named", calls.ENTRY_POINT_GROUP),
        metadata.EntryPoint("broken", "no_such_module:Engine", calls.ENTRY_POINT_GROUP),
        metadata.EntryPoint("paged", f"{__name__}:Named", calls.ENTRY_POINT_GROUP),
    ]
    calls._package_engines.cache_clear()
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == calls.ENTRY_POINT_GROUP else [])
    yield
    calls._package_engines.cache_clear()


REFUSED: dict[str, tuple[Any, str]] = {
    "unknown": (
        "pagged",
        "no context engine 'pagged': there are paged, sliding_window, recursive_summary, message_buffer, named, wordy,"
        " list, composition",
    ),
    "a number": (7, "context_engine is 7: give a name"),
    "another field": ({"name": "paged", "share": 1}, "no field share"),
    "no name": ({"options": {}}, "context_engine.name is None"),
    "options of another type": ({"name": "named", "options": [1]}, r"context_engine.options is \[1\]"),
    "unknown option": ({"name": "named", "options": {"dept": 1}}, "its options are depth"),
    "option out of range": ({"name": "named", "options": {"depth": -1}}, "ValueError: depth is below 0"),
    "share out of range": (
        {"name": "recursive_summary", "options": {"partial_evict_summarizer_percentage": 1.5}},
        "partial_evict_summarizer_percentage is 1.5: give a number above 0, up to 1",
    ),
    "buffer out of range": (
        {"name": "message_buffer", "options": {"message_buffer_limit": 3}},
        "message_buffer_limit is 3 and message_buffer_min 3",
    ),
    "a composition of nothing": ("composition", "give assembler and compressor"),
    "an unknown compressor": (
        {"name": "composition", "options": {"assembler": "paged", "compressor": "zip"}},
        "there is no compressor 'zip': there are stubs, extract",
    ),
    "an addition that is not text": ("wordy", "system_prompt_addition of context engine 'wordy' is 7"),
    "what is no engine": ("list", "is a list: derive it from ContextEngine"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_an_engine_that_is_not_there_is_refused(library: AsyncPerdure, case: str) -> None:
    """When an agent is made, and when it is changed; nothing is stored."""
    setting, why = REFUSED[case]

    with pytest.raises(InvalidInput, match=why):
        await library.create_agent("a", model=MODEL, settings={"context_engine": setting})
    agent = await library.create_agent("b", model=MODEL)
    with pytest.raises(InvalidInput, match=why):
        await agent.update(settings={"context_engine": setting})
    assert [one.name for one in await library.agents()] == ["b"]


async def test_engines_with_the_same_options_are_one_object(library: AsyncPerdure) -> None:
    """Its conversations share it; other options make another."""
    for depth in (1, 1, 2):
        settings = {"context_engine": {"name": "named", "options": {"depth": depth}}}
        await library.create_agent(f"a{len(await library.agents())}", model=MODEL, settings=settings)

    made = [used.engine for used in library.app.ports.engine_calls.engines.in_use]
    assert [engine.depth for engine in made if isinstance(engine, Named)] == [1, 2]


@pytest.mark.usefixtures("package")
async def test_a_package_brings_engines() -> None:
    """By the names of its entry points; none of them takes the name of a shipped one."""
    engines = calls.ContextEngines()

    engines.check({"context_engine": {"name": "packaged", "options": {"depth": 3}}})
    (used,) = engines.in_use
    assert isinstance(used.engine, Named)
    assert used.engine.depth == 3
    assert used.is_foreign
    engines.check({"context_engine": "paged"})
    assert not isinstance(engines.in_use[-1].engine, Named)
    with pytest.raises(InvalidInput, match="No module named 'no_such_module'"):
        engines.check({"context_engine": "broken"})


def test_shipped_engines_run_inside_of_transactions_and_others_do_not() -> None:
    """A class that is derived from a shipped one is somebody else's code."""

    class Mine(SlidingWindow):
        pass

    engines = calls.ContextEngines({"mine": Mine})
    parts = {"assembler": "recursive_summary", "compressor": "extract"}
    foreign = {"assembler": "mine", "compressor": "extract"}
    for setting in ("sliding_window", "mine", *({"name": "composition", "options": one} for one in (parts, foreign))):
        engines.check({"context_engine": setting})

    kinds = [(used.name, used.is_foreign) for used in engines.in_use]
    assert kinds == [
        ("sliding_window", False),
        ("mine", True),
        ("recursive_summary", False),
        ("composition", False),
        ("composition", True),
    ]
