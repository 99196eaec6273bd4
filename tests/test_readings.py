"""Where a model is asked between a read and a write: each place checks that what it read still holds, by one mechanism,
or says here why it need not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure

SRC = Path(perdure.__file__).parent

ASKS = frozenset({"respond", "extract", "summarize", "embed", "embed_with_words", "summarise"})
"""The verbs of models, extractors and embedders, and the engine's own that leads to one."""

BY_READING = frozenset(
    {
        "features/facts/extraction/extract.py",
        "features/facts/extraction/communities.py",
        "engine/compaction/compact_view.py",
        "engine/compaction/revise.py",
        "engine/run/loop.py",
    }
)
"""What they store is checked in the same transaction by a `ModelInput` of all that the model was shown."""

OTHERWISE = {
    "engine/run/model_call.py": "while a run goes on, what it shows is not edited: that is refused; a pass of a"
    " companion shows what another agent said, and the edit itself ends it",
    "engine/budget.py": "an answer to a prompt, or to a step that is replayed, is stored nowhere",
    "features/facts/extraction/model_extractor.py": "the extractor itself, which `extract.py` beside it asks",
    "features/facts/extraction/nearness.py": "what it finds goes into the plan that `extract.py` beside it checks",
    "engine/compaction/summarise.py": "the writer of summaries itself, which those above ask",
    "engine/search/search.py": "a search stores nothing",
    "engine/search/tools.py": "a search stores nothing; the run stores its answer",
    "engine/workers/embedding.py": "a vector is stored for a claim, which ends when its text changes",
    "features/origins/sources.py": "a list of sources is summarised by the store, not by a model",
    "context/engines/port.py": "a compressor is code",
    "context/window/summary.py": "extracts by code",
    "context/engines/chat.py": "the caller's own, without a store",
    "cli/commands/doctor.py": "a text of its own",
    "features/mcp_server/memory.py": "asks the library's `extract`, which checks by itself",
    "features/connect/capture.py": "the same",
    "features/imports/commands.py": "the same",
    "features/benchmarks/running.py": "the same",
    "features/openai_front/port.py": "answers another program, whose chat is imported as it says it",
}

OUTSIDE = ("providers/", "testing/", "telemetry/", "library/sync/", "features/local/")
"""They are models and embedders, or watch them."""


def asking() -> Iterator[str]:
    """The files that ask."""
    for path in sorted(SRC.rglob("*.py")):
        place = path.relative_to(SRC).as_posix()
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        names = {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls}
        if names & ASKS and not place.startswith(OUTSIDE) and not path.name.startswith("sync_"):
            yield place


@pytest.mark.slow
def test_each_place_that_asks_a_model_says_how_it_checks_what_it_read() -> None:
    """Meanwhile people edit, forget, erase and forbid: what is stored behind an answer may come from what is gone."""
    known = BY_READING | OTHERWISE.keys()
    found = set(asking())

    assert found - known == set(), "check what was read by `engine/reading.py`, or say why that is not needed"
    assert known - found == set(), "nobody is asked there any more"


def test_what_is_checked_by_a_reading_asks_it_in_the_transaction_that_stores() -> None:
    """Itself, or by what it hands its loaded batch to."""
    for place in BY_READING - {"features/facts/extraction/extract.py"}:
        text = (SRC / place).read_text()

        assert ".holds(tx)" in text, place
    assert "_reading(loaded).holds(tx)" in (SRC / "features/facts/extraction/store.py").read_text()
    assert "store_plan" in (SRC / "features/facts/extraction/extract.py").read_text()
