"""Runs in trouble: two processes, a full disk, lost files, models that answer badly."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput
from perdure.core.messages import Text
from perdure.core.models import Model, ModelReply, ModelRequest
from perdure.features.benchmarks.figures import build_result
from perdure.features.benchmarks.opening import open_benchmark
from perdure.features.benchmarks.page import render_page
from perdure.features.benchmarks.rows import ResultRows
from perdure.features.benchmarks.sets.reading import SAMPLES
from perdure.features.benchmarks.sets.values import Setup
from perdure.testing import ScriptedModel, fails, says
from perdure.testing.http_model import HttpModel, Status
from tests.features.benchmarks.scripted import JUDGE, MODEL, judging, knowing, models_of, setup_of
from tests.support.programs import run_inside


async def run(setup: Setup, models: Mapping[str, Model]) -> dict[str, Any]:
    """Run a benchmark to its end, and return the result."""
    async with open_benchmark(setup, models=models) as benchmark:
        await benchmark.run(lambda step, done, total: None)
        return build_result(benchmark)


def changed(folder: Path, name: str, change: Any) -> str:
    """A copy of a sample after a change."""
    rows = json.loads((SAMPLES / name).read_text("utf-8"))
    change(rows)
    (folder / name).write_text(json.dumps(rows), "utf-8")
    return str(folder / name)


async def test_a_second_process_is_kept_out_of_a_folder(tmp_path: Path) -> None:
    """It would ask everything again, and cut off the row that the first one writes."""
    setup = setup_of("dmr", tmp_path / "out")

    async with open_benchmark(setup, models=models_of(setup)):
        other = await asyncio.to_thread(
            run_inside, tmp_path, "bench", "dmr", "--data", "sample", "--out", str(setup.out)
        )

    assert other.returncode == 1 and "another benchmark is running in" in other.stderr
    assert (await run(setup, models_of(setup)))["systems"][0]["answers"] == 3


def test_a_row_that_does_not_fit_the_disk_leaves_nothing(tmp_path: Path) -> None:
    """The next row would stand behind its first half, and no run could go on."""
    rows = ResultRows(tmp_path)
    rows.add("a", answer="one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (rows.path.stat().st_size + 20, limits[1]))
    try:
        with pytest.raises(InvalidInput, match="can't be written"):
            rows.add("b", answer="two" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    rows.add("c", answer="three")

    assert rows.find("b") is None and [*ResultRows(tmp_path).by_key] == ["a", "c"]


async def test_a_folder_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    """One whose home is a file, and one that has lost the store of its rows."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "home").write_text("x")
    setup = setup_of("dmr", tmp_path / "one")
    with pytest.raises(InvalidInput, match="one/home can't be used"):
        await run(setup, models_of(setup))
    setup = setup_of("dmr", tmp_path / "two")
    await run(setup, models_of(setup))
    shutil.rmtree(tmp_path / "two" / "home")

    with pytest.raises(InvalidInput, match="has lost the store of the rows"):
        await run(setup, models_of(setup))


async def test_a_search_by_other_means_needs_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of words alone would be shown as those of words and vectors."""
    setup = setup_of("dmr", tmp_path, model="")
    async with open_benchmark(setup) as benchmark:
        await benchmark.search(lambda step, done, total: None)
    monkeypatch.setenv("PERDURE_CONTEXT_WINDOW_TOKENS", "5000")

    with pytest.raises(InvalidInput, match=r"context_window_tokens was .* and is 5000"):
        async with open_benchmark(setup):
            pass


async def test_empty_answers_are_wrong_and_do_not_stop_a_run(tmp_path: Path) -> None:
    """Not even a question without an answer is answered by nothing, and they are not asked for again."""
    setup = setup_of("longmemeval", tmp_path)
    model = ScriptedModel(otherwise=says(""))

    result = await run(setup, {MODEL: model})

    kinds = result["systems"][0]["kinds"]
    assert kinds["abstention"]["score"] == kinds["abstention"]["exact"] == kinds["all"]["score"] == 0
    count = len(model.requests)
    await run(setup, {MODEL: model})
    assert count == len(model.requests)


async def test_what_a_model_says_before_it_searches_is_no_answer(tmp_path: Path) -> None:
    setup = setup_of("dmr", tmp_path)
    knows = knowing(setup)

    async def talks(request: ModelRequest) -> ModelReply:
        """Say something with each call."""
        reply = [piece async for piece in knows.respond(request)][-1]
        assert isinstance(reply, ModelReply)
        if request.messages[-1].role == "tool":
            return reply
        return ModelReply(parts=(Text("Let me look at the shop, the city and the country."), *reply.parts))

    class Talking:
        """A model that talks."""

        async def respond(self, request: ModelRequest) -> Any:
            """Answer whole."""
            yield await talks(request)

    result = await run(setup, {MODEL: Talking()})

    assert result["systems"][0]["kinds"]["retrieval"]["f1"] == 1


@pytest.mark.parametrize("name", ["locomo.json", "longmemeval.json"])
async def test_ids_that_stand_twice_are_refused(tmp_path: Path, name: str) -> None:
    """One row would be the answer to two questions."""
    data = changed(tmp_path, name, lambda rows: rows.append({**rows[0]}))

    with pytest.raises(InvalidInput, match="twice, so answers could not be told apart"):
        await run(setup_of(name.removesuffix(".json"), tmp_path / "out", data=data), {MODEL: ScriptedModel()})


async def test_turns_with_one_id_are_all_imported(tmp_path: Path) -> None:
    """A turn that is left out would shift the evidence of all that follow."""
    data = changed(tmp_path, "locomo.json", lambda rows: rows[0]["conversation"]["session_1"][1].update(dia_id="D1:1"))
    setup = setup_of("locomo", tmp_path / "out", data=data, model="")

    async with open_benchmark(setup) as benchmark:
        agent = await benchmark.systems["perdure"].prepare(benchmark.cases[1][0])
        assert await agent.message_count() == len(benchmark.cases[1][0].turns)


async def test_half_characters_reach_no_baseline(tmp_path: Path) -> None:
    """No store takes them."""
    data = changed(tmp_path, "locomo.json", lambda rows: rows[0]["conversation"]["session_1"][0].update(text="\ud800?"))
    setup = setup_of("locomo", tmp_path / "out", data=data, baselines="all", most=2)

    result = await run(setup, models_of(setup))

    assert [one["answers"] for one in result["systems"]] == [2] * 5


async def test_a_grid_has_each_cell_once(tmp_path: Path) -> None:
    setup = setup_of("niah", tmp_path, lengths="300,300", depths="0,100,0")

    result = await run(setup, models_of(setup))

    assert (setup.lengths, setup.depths, result["systems"][0]["answers"]) == ([300], [0, 100], 2)


async def test_an_unknown_price_is_said(tmp_path: Path) -> None:
    """Before and after, in the terminal and on the page."""
    async with HttpModel(otherwise=says("Valencia"), models=["small"]) as server:
        options = [
            "--data",
            "sample",
            "--model",
            "openai/small",
            "--seeds",
            "1",
            "--out",
            str(tmp_path / "out"),
            "--yes",
        ]
        address = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "test-key"}
        done = await asyncio.to_thread(run_inside, tmp_path, "bench", "dmr", *options, **address)

    assert done.returncode == 0, done.stderr
    assert "its price is not known" in done.stdout and "?" in done.stdout
    assert "unknown" in render_page([json.loads((tmp_path / "out" / "result.json").read_text("utf-8"))])


@pytest.mark.slow
async def test_a_judge_behind_openais_api_works_to_the_end(tmp_path: Path) -> None:
    """Its prompt is printed, wrong and right answers measure it, and what it refuses to judge is counted."""

    def judge(body: Mapping[str, Any]) -> Any:
        """Judge by words, with reasons in Markdown, and now and then refuse to."""
        claim = body["messages"][-1]["content"].partition("Question: ")[2]
        question, gold, answer = (line.removeprefix("Right answer: ") for line in claim.split("\n")[:3])
        if "pupil" in question:
            return says("I can't tell.")
        open_ = "can't be answered" in body["messages"][0]["content"]
        is_right = "not said" in answer if open_ else gold in answer
        return says("**CORRECT**" if is_right else f"**WRONG**\n\nThe correct answer is {gold}.")

    async with HttpModel(otherwise=judge, models=["judge"]) as server:
        address = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "test-key"}
        options = ["--data", "sample", "--model", "perdure/extractive", "--judge", "openai/judge", "--seeds", "1"]
        out = tmp_path / "out"
        done = await asyncio.to_thread(
            run_inside, tmp_path, "bench", "locomo", *options, "--out", str(out), "--yes", **address
        )
        page = await asyncio.to_thread(run_inside, tmp_path, "bench", "page", str(out))
        count = len(server.requests)

    assert done.returncode == 0 == page.returncode, done.stderr
    judging_ = json.loads((out / "result.json").read_text("utf-8"))["judging"]
    assert judging_["error_rate"] == 0 and judging_["wrong_answers"] > 12 and judging_["requests"] == count
    assert judging_["right_answers"] == 12 and judging_["refused_rate"] > 0 and judging_["unclear"] > 1
    assert "of 12 right ones for wrong" in done.stdout
    text = (out / "results.html").read_text("utf-8")
    assert (
        "You check answers to questions about conversations" in text and "of 12 right ones, said in a sentence" in text
    )


async def test_what_no_judge_has_seen_counts_neither_as_right_nor_as_wrong(tmp_path: Path) -> None:
    """A run that stops before its judge is through has answers that are missing, and no error rate of nothing."""
    setup = setup_of("locomo", tmp_path, judge=JUDGE, kind="single-hop")
    models = {MODEL: knowing(setup), JUDGE: ScriptedModel(otherwise=fails("down"))}
    async with open_benchmark(setup, models=models) as benchmark:
        with pytest.raises(InvalidInput, match="the run has stopped"):
            await benchmark.run(lambda step, done, total: None)
        stopped = build_result(benchmark)

    assert (stopped["systems"][0]["missing"], stopped["judging"]["error_rate"]) == (3, None)
    assert "<h2" in render_page([stopped])
    result = await run(setup, {MODEL: knowing(setup), JUDGE: judging()})
    assert (result["systems"][0]["missing"], result["judging"]["error_rate"]) == (0, 0)


@pytest.mark.parametrize(
    ("asks", "waits"), [("slow down", [10, 20, 40, 80]), ("slow down (it asks to wait 45 s)", [45, 45, 45, 80])]
)
async def test_a_limited_rate_is_waited_for(tmp_path: Path, asks: str, waits: list[float]) -> None:
    """As long as the provider asks, ever longer else, with a word in the bar; then the run goes on by itself."""
    setup = setup_of("dmr", tmp_path, baselines="none", at_once=1)
    model = ScriptedModel(*[fails(asks, kind="llm_rate_limit")] * 4, otherwise=says("Tea."))
    waited, shown = list[float](), list[str]()

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    async with open_benchmark(setup, models={MODEL: model}) as benchmark:
        benchmark.pause = pause
        await benchmark.run(lambda step, done, total: shown.append(step))
        result = build_result(benchmark)

    assert (waited, result["systems"][0]["missing"]) == (waits, 0)
    assert next(one for one in shown if "waiting" in one) == f"{MODEL} limits the rate: waiting {waits[0]} s"


async def test_a_wait_that_is_too_long_ends_the_run(tmp_path: Path) -> None:
    setup = setup_of("dmr", tmp_path, baselines="none")
    model = ScriptedModel(otherwise=fails("no more (it asks to wait 7200 s)", kind="llm_rate_limit"))
    async with open_benchmark(setup, models={MODEL: model}) as benchmark:
        with pytest.raises(InvalidInput, match=r"gives no answers.*7200 s.*The same command goes on"):
            await benchmark.run(lambda step, done, total: None)


@pytest.mark.parametrize("status", [400, 401])
async def test_a_provider_that_refuses_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    async with HttpModel(otherwise=Status(status, {"error": {"message": "boom"}}), models=["small"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        setup = setup_of("dmr", tmp_path, model="openai/small", baselines="none")

        with pytest.raises(InvalidInput, match=rf"openai/small gives no answers.*{status}: boom"):
            await run(setup, {})

    assert len(server.requests) == 3


async def test_a_provider_gets_the_seed_by_the_name_that_it_knows(tmp_path: Path) -> None:
    """Mistral refuses a field that it does not know."""
    setup = setup_of("dmr", tmp_path, model="mistral/small")
    model = knowing(setup)

    await run(setup, {"mistral/small": model})

    assert {json.dumps(one.options.extra) for one in model.requests} == {'{"random_seed": 1}'}
