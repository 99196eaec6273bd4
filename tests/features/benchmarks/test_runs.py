"""Runs of all benchmarks on the shipped samples, with a scripted model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, InvalidInput
from perdure.core.models import Model
from perdure.features.benchmarks.figures import build_result
from perdure.features.benchmarks.opening import open_benchmark
from perdure.features.benchmarks.page import render_page
from perdure.features.benchmarks.rows import ResultRows
from perdure.features.benchmarks.sets.values import Setup
from perdure.testing import ScriptedModel, fails, says
from perdure.testing.http_model import HttpModel
from tests.features.benchmarks.scripted import (
    JUDGE,
    MODEL,
    judging,
    knowing,
    last_text,
    models_of,
    questions_of,
    setup_of,
)

GRID = {"lengths": "300,600", "depths": "0,100"}


async def run(setup: Setup, models: Mapping[str, Model]) -> dict[str, Any]:
    """Run a benchmark to its end, and return the result."""
    async with open_benchmark(setup, models=models) as benchmark:
        await benchmark.run(lambda step, done, total: None)
        return build_result(benchmark)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["niah", "dmr", "longmemeval", "locomo"])
async def test_a_model_that_knows_everything_is_right_in_every_system(tmp_path: Path, name: str) -> None:
    """Perdure and all baselines are asked each question once, and the judge is checked with wrong answers."""
    setup = setup_of(name, tmp_path, judge=JUDGE, baselines="all", **(GRID if name == "niah" else {}))
    models = models_of(setup)

    result = await run(setup, models)

    count = len(questions_of(setup))
    assert [system["name"] for system in result["systems"]] == ["perdure", "full", "bm25", "files", "none"]
    for system in result["systems"]:
        assert system["answers"] == count and not system["failed"] and not system["missing"]
        blind = name == "niah" and system["name"] == "none"  # the answer stands in the history only
        assert {figures["score"] for figures in system["kinds"].values()} == {0.0 if blind else 1.0}
        assert system["requests"] == count * (2 if system["name"] in ("perdure", "files") else 1)
    assert result["judging"]["error_rate"] == 0 and result["judging"]["wrong_answers"] >= 2
    assert "<svg" in render_page([result]) if name == "niah" else result["systems"][0]["grid"] == []


@pytest.mark.slow
async def test_a_run_that_is_repeated_asks_nothing(tmp_path: Path) -> None:
    """Also where the page and other baselines are made later: only these are asked."""
    setup = setup_of("locomo", tmp_path, judge=JUDGE)
    first = await run(setup, models_of(setup))
    model, judge = knowing(setup), judging()

    again = await run(setup, {MODEL: model, JUDGE: judge})

    assert model.requests == judge.requests == []
    assert {**again, "made_at": ""} == {**first, "made_at": ""}
    more = await run(setup_of("locomo", tmp_path, judge=JUDGE, baselines="none"), {MODEL: model, JUDGE: judge})
    assert len(model.requests) == len(questions_of(setup)) and judge.requests == []
    assert more["systems"][1]["kinds"]["all"]["score"] == 1


@pytest.mark.slow
async def test_no_question_is_a_memory_for_the_next_one(tmp_path: Path) -> None:
    """Neither recall nor the search finds what was asked before, and each request can be built again."""
    setup = setup_of("locomo", tmp_path, seeds=2)
    model = knowing(setup)

    await run(setup, {MODEL: model})

    texts = [one.text for one in questions_of(setup)]
    for request in model.requests:
        asked = last_text(request)
        seen = "\n".join([request.system, request.opening, request.tail, *(one.text for one in request.messages)])
        assert [text for text in dict.fromkeys(texts) if text in seen and text not in asked] == []
    rows = ResultRows(tmp_path)
    runs = [row["run"] for row in rows.by_key.values() if "run" in row]
    async with await AsyncPerdure.open(tmp_path / "home" / "perdure.db", models={MODEL: model}) as perdure:
        exported = [await perdure.runs.export_run(run) for run in runs]
    assert len(runs) == 2 * len(set(texts))
    assert all(step["request"] for one in exported for step in one["steps"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "day"), [("longmemeval", "2023-05-30"), ("locomo", "2023-09-02")])
async def test_a_question_is_asked_at_its_time(tmp_path: Path, name: str, day: str) -> None:
    """Not today: what was said days ago would be years ago, and each day would have other requests."""
    setup = setup_of(name, tmp_path, baselines="full", at_once=3, judge=JUDGE)
    models = {MODEL: knowing(setup), JUDGE: judging()}

    await run(setup, models)

    for request in (one for model in models.values() for one in model.requests):
        text = request.tail + request.opening + "".join(row.text for row in request.messages)
        days = {*re.findall(r"\d{4}-\d\d-\d\d", text)}
        assert day in days and max(days) == day
        assert all(int(count) < 150 for count in re.findall(r"(\d+) days ago", text))


@pytest.mark.slow
async def test_the_whole_history_is_cut_to_the_window(tmp_path: Path) -> None:
    """The newest turns stay."""
    setup = setup_of("niah", tmp_path, baselines="full", lengths="160000", depths="0")
    model = knowing(setup)

    await run(setup, {MODEL: model})

    (full,) = [text for one in model.requests if (text := last_text(one)).startswith("What was said")]
    assert questions_of(setup)[0].answer not in full and full.count("\n") > 400


async def test_answers_that_failed_are_asked_again(tmp_path: Path) -> None:
    """A provider that is down three times ends the run; the same command goes on."""
    setup = setup_of("longmemeval", tmp_path)
    broken = ScriptedModel(otherwise=fails("the provider is down"))
    with pytest.raises(InvalidInput, match=r"the run has stopped.*The same command goes on"):
        await run(setup, {MODEL: broken})

    result = await run(setup, {MODEL: knowing(setup)})

    assert result["systems"][0]["failed"] == 0
    assert {figures["score"] for figures in result["systems"][0]["kinds"].values()} == {1.0}


@pytest.mark.slow
async def test_a_judge_that_takes_everything_is_found_out(tmp_path: Path) -> None:
    """Its error rate is that of the wrong answers that it took for right."""
    setup = setup_of("locomo", tmp_path, judge=JUDGE)

    result = await run(setup, {MODEL: knowing(setup), JUDGE: ScriptedModel(otherwise=says("It is CORRECT."))})

    assert result["judging"]["error_rate"] == 1
    assert "took 100.0 % for right" in render_page([result])


async def test_a_folder_takes_the_rows_of_one_run(tmp_path: Path) -> None:
    """Other data or another model is refused, with what differs."""
    setup = setup_of("dmr", tmp_path)
    await run(setup, models_of(setup))

    with pytest.raises(InvalidInput, match="has the rows of another run: model was 'test/model'"):
        await run(setup_of("dmr", tmp_path, model=JUDGE), models_of(setup))
    with pytest.raises(InvalidInput, match="name was 'dmr' and is 'locomo'"):
        await run(setup_of("locomo", tmp_path), models_of(setup))


async def test_kinds_and_numbers_of_questions_can_be_chosen(tmp_path: Path) -> None:
    """What is left of nothing is an error that says which kinds there are."""
    setup = setup_of("locomo", tmp_path / "one", kind="single-hop", most=2)

    result = await run(setup, models_of(setup))

    assert {kind: one["questions"] for kind, one in result["systems"][0]["kinds"].items()} == {"single-hop": 2}
    with pytest.raises(InvalidInput, match="--kind can be abstention, event summary, multi-hop"):
        await run(setup_of("locomo", tmp_path / "two", kind="hard"), models_of(setup))


@pytest.mark.slow
async def test_what_is_left_to_ask_is_estimated(tmp_path: Path) -> None:
    """Tokens of all systems and of the judge; nothing once everything is answered."""
    setup = setup_of("locomo", tmp_path, judge=JUDGE, baselines="full")
    async with open_benchmark(setup, models=models_of(setup)) as benchmark:
        before = benchmark.estimate()
        await benchmark.run(lambda step, done, total: None)
        after = benchmark.estimate()

    count = len(questions_of(setup))
    assert before.questions >= 3 * count and before.input_tokens > 5_000 * count and before.price is None
    assert (after.questions, after.input_tokens, after.price) == (0, 0, 0)


async def test_the_search_is_measured_without_a_model(tmp_path: Path) -> None:
    """By turns and by sessions, for Perdure and for BM25, and kept."""
    setup = setup_of("locomo", tmp_path, model="")
    async with open_benchmark(setup) as benchmark:
        await benchmark.search(lambda step, done, total: None)
        result = build_result(benchmark)

    perdure, words = result["search"]
    assert perdure["kinds"]["all"]["questions"] == words["kinds"]["all"]["questions"] == 7
    found = perdure["kinds"]["single-hop"]  # one of the three questions shares no word with its evidence
    assert found["turn R@5"] == found["session R@5"] == pytest.approx(2 / 3)
    assert words["kinds"]["single-hop"]["turn any@10"] >= 2 / 3
    assert "Evidence found" in render_page([result])


def test_the_last_line_of_a_killed_run_is_cut_off(tmp_path: Path) -> None:
    """Whole lines stay; one that is none is named."""
    rows = ResultRows(tmp_path)
    rows.add("a", answer="one")
    with rows.path.open("ab") as file:
        file.write(b'{"key": "b", "ans')

    again = ResultRows(tmp_path)
    again.add("c", answer="two")

    assert [*ResultRows(tmp_path).by_key] == ["a", "c"]
    rows.path.write_bytes(b"{}\n")
    with pytest.raises(InvalidInput, match=r"rows\.jsonl line 1 is no row"):
        ResultRows(tmp_path)


async def test_prices_are_counted_by_what_the_provider_reports(tmp_path: Path) -> None:
    """Of a model with known prices: estimated before, and afterwards for each right answer."""
    handle = "openai/gpt-4.1-mini"
    setup = setup_of("dmr", tmp_path, model=handle, judge="exact")
    models = {handle: knowing(setup)}
    async with open_benchmark(setup, models=models) as benchmark:
        estimate = benchmark.estimate()
    result = await run(setup, models)

    system = result["systems"][0]
    assert estimate.price is not None and estimate.price > 0
    assert system["price"] == pytest.approx(3 * (110 * 0.4 + 10 * 1.6) / 1e6)  # a search and an answer each
    assert system["price_per_right"] == pytest.approx(system["price"] / 3)


async def test_a_server_with_openais_api_gets_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And temperature 0; the second seed is another request."""
    async with HttpModel(otherwise=says("Valencia"), models=["small"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        setup = setup_of("dmr", tmp_path, model="openai/small", seeds=2, baselines="none", judge="exact")

        result = await run(setup, {})

        sent = [(one["seed"], one["temperature"]) for one in server.requests]
    assert sorted(sent) == [(1, 0.0)] * 6 + [(2, 0.0)] * 6
    assert result["systems"][0]["kinds"]["retrieval"]["seeds"] == [pytest.approx(1 / 3)] * 2


@pytest.mark.slow
async def test_several_histories_at_once_have_the_same_figures(tmp_path: Path) -> None:
    """Each question is asked once."""
    results = []
    for at_once in (1, 4):
        setup = setup_of("longmemeval", tmp_path / str(at_once), at_once=at_once, baselines="bm25", judge=JUDGE)
        models = models_of(setup)
        results.append(await run(setup, models))

    first, second = ([{**one, "latency_s": None} for one in result["systems"]] for result in results)
    assert first == second and results[0]["judging"] == results[1]["judging"]
