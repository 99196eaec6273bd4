"""`--facts`: facts are read from each history first, once, and what that takes is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput, Usage
from perdure.core.models import ModelReply
from perdure.features.benchmarks.figures import build_result
from perdure.features.benchmarks.opening import open_benchmark
from perdure.features.benchmarks.page import render_page
from perdure.features.benchmarks.sets.values import Setup
from perdure.features.benchmarks.setups import make_setup
from perdure.features.benchmarks.views import result_view
from perdure.testing import ScriptedModel, fails, says
from tests.features.benchmarks.scripted import JUDGE, MODEL, judging, knowing, questions_of, setup_of


def one_fact() -> ModelReply:
    """An extraction with a fact of the first turn."""
    entities = [{"name": "Noor", "type": "Person"}, {"name": "studio", "type": "Concept"}]
    fact = {"subject": "Noor", "relation": "OWNS", "object": "studio", "decision": "ADD"}
    facts = [{**fact, "text": "Noor has a studio.", "turns": [1]}]
    answer = {"entities": entities, "facts": facts, "certain": True}
    return says(json.dumps(answer), usage=Usage(input_tokens=1_000, output_tokens=50))


async def run(setup: Setup, model: ScriptedModel) -> dict[str, Any]:
    """Run a benchmark to its end with a judge, and return the result."""
    async with open_benchmark(setup, models={MODEL: model, JUDGE: judging()}) as benchmark:
        await benchmark.run(lambda step, done, total: None)
        return build_result(benchmark)


@pytest.mark.slow
async def test_facts_are_read_once_and_counted(tmp_path: Path) -> None:
    """Of histories alone: no question, no baseline and no verdict becomes a fact. A run that goes on reads none."""
    setup = setup_of("locomo", tmp_path, facts=True, judge=JUDGE, baselines="none,full", seeds=2)
    model, again = knowing(setup, extracts=one_fact()), knowing(setup, extracts=one_fact())

    result = await run(setup, model)
    await run(setup, again)

    asked = {one.text for one in questions_of(setup)}
    read = [one.messages[-1].text for one in model.extraction_requests]
    assert read and not any(text in one for text in asked for one in read)
    took = result["facts"]
    assert (took["facts"], took["requests"], took["tokens"]) == (1, len(read), 1_050 * len(read))
    without = (await run(setup_of("locomo", tmp_path / "other", judge=JUDGE, seeds=2), knowing(setup)))["systems"][0]
    assert result["systems"][0]["requests"] == without["requests"] + took["requests"]
    assert result["systems"][0]["tokens"] == without["tokens"] + took["tokens"]
    assert again.extraction_requests == again.requests == []
    assert "to read 1 facts from the histories" in render_page([result]) and [*result_view(result)]


async def test_what_reading_takes_is_estimated(tmp_path: Path) -> None:
    """Until it is done."""
    tokens = []
    for facts in (False, True):
        setup = setup_of("longmemeval", tmp_path / str(facts), facts=facts)
        async with open_benchmark(setup, models={MODEL: knowing(setup, extracts=one_fact())}) as benchmark:
            tokens.append(benchmark.estimate().input_tokens)
            await benchmark.run(lambda step, done, total: None)
            assert benchmark.estimate().input_tokens == 0

    assert tokens[1] > tokens[0] + 6 * 4_000


async def test_a_model_that_reads_no_facts_stops_the_run(tmp_path: Path) -> None:
    """And the same command goes on; the folder takes no run without facts."""
    setup = setup_of("dmr", tmp_path, facts=True)
    with pytest.raises(InvalidInput, match=r"reads no facts from dmr-1.*The same command goes on"):
        await run(setup, knowing(setup, extracts=fails("down")))

    assert (await run(setup, knowing(setup, extracts=one_fact())))["systems"][0]["answers"] == 3
    with pytest.raises(InvalidInput, match="facts was True and is False"):
        await run(setup_of("dmr", tmp_path), knowing(setup))
    with pytest.raises(InvalidInput, match="--facts needs --model"):
        make_setup("dmr", data="sample", facts=True)
