"""An agent has helpers work: what they know, what they get, how long, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import ModelReply, ModelRequest
from perdure.core.messages import Text, ToolCall
from perdure.core.models import ModelDelta
from perdure.testing import ScriptedModel, calls, fails, says
from tests.features.helpers.helper_office import define, helper_call, lead
from tests.support.library import SlowSpeaker
from tests.support.office import ended_runs, results


async def test_the_result_of_a_helper_comes_back(tmp_path: Path) -> None:
    """The helper has the prompt and its definition only; the result names model and log."""
    define(tmp_path, "reader", "You read books.")
    model = ScriptedModel(
        says("Hello."), calls("run_helper", name="reader", prompt="Read it."), says("It is a novel."), says("A novel!")
    )
    async with lead(tmp_path, {"lead": model}) as (perdure, agent):
        await agent.send("My name is Ada")
        reply = await agent.send("What is it?")
        runs = await ended_runs(perdure)
        agents = await perdure.agents()

    (result,) = results(reply.messages)
    helper_run = runs[-1]
    log = f"Log: {helper_run.id}; `perdure run show {helper_run.id}` shows it."
    assert result.text == f"It is a novel.\n\n[Helper reader on test/lead. {log}]"
    asked = model.requests[2]
    assert asked.system.startswith("You read books.")
    assert [message.role for message in asked.messages] == ["user"]
    assert "Ada" not in str(asked.messages)
    assert asked.messages[-1].text.endswith("\n\nRead it.")
    assert reply.text == "A novel!"
    assert (helper_run.options.helper, helper_run.options.caller) == ("reader", runs[1].id)
    assert helper_run.options.model_reason == "nothing names another one: the model of the agent that calls"
    assert [(one.name, one.info.hidden) for one in agents] == [("Lead - reader", True), ("Lead", False)]


async def test_an_unknown_helper_is_refused_with_the_nearest_names(tmp_path: Path) -> None:
    """Names are exact; nothing is begun."""
    define(tmp_path, "code-reviewer")
    model = ScriptedModel(
        ModelReply(
            parts=(
                helper_call("code_reviewer", "x", "a"),
                helper_call("zzz", "x", "b"),
                helper_call("general", " ", "c"),
            )
        )
    )
    async with lead(tmp_path, {"lead": model}) as (perdure, agent):
        reply = await agent.send("Go")
        runs = await ended_runs(perdure)

    found = {result.call_id: result.text for result in results(reply.messages)}
    near, unknown, empty = (found[call_id] for call_id in "abc")
    assert near.endswith(
        "helper 'code_reviewer' can't be called: there is none of this name; did you mean code-reviewer?"
    )
    assert unknown.endswith("there are code-reviewer, explore, fork, general, plan, recall, reflect")
    assert empty.endswith("the prompt is empty: say what the helper shall do")
    assert len(runs) == 1


async def test_a_helper_that_fails_says_where_its_log_is(tmp_path: Path) -> None:
    """The result is an error with the run, and the agent goes on."""
    model = ScriptedModel(calls("run_helper", name="general", prompt="Go"), fails("no power"), says("Sorry."))
    async with lead(tmp_path, {"lead": model}) as (perdure, agent):
        reply = await agent.send("Go")
        _, run = await ended_runs(perdure)

    (result,) = results(reply.messages)
    assert (result.status, reply.text) == ("error", "Sorry.")
    assert f"helper 'general' failed: no power; `perdure run show {run.id}` shows its log" in result.text


async def test_a_helper_stops_after_its_turns(tmp_path: Path) -> None:
    """The result says so, and has what the helper said last."""
    define(tmp_path, "busy", max_turns=2, tools="conversation_search")
    search = ModelReply(parts=(Text("Looking."), ToolCall("", "conversation_search", '{"query": "x"}')))
    model = ScriptedModel(calls("run_helper", name="busy", prompt="Go"), search, search, says("Done."))
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        reply = await agent.send("Go")

    (result, *_) = [one for one in results(reply.messages) if one.name == "run_helper"]
    assert result.text.startswith(
        "Looking.\n\n[Helper busy on test/lead. It was stopped after 2 steps, its `max_turns`."
    )


async def test_a_helper_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    """Its run is cancelled, and the agent goes on."""
    slow = SlowSpeaker("Too late.")
    define(tmp_path, "slow", model="test/slow")
    model = ScriptedModel(calls("run_helper", name="slow", prompt="Go"), says("Then without."))
    async with lead(tmp_path, {"lead": model, "slow": slow}, helper_reply_s=0.2) as (perdure, agent):
        reply = await agent.send("Go")
        _, run = await ended_runs(perdure)

    (result,) = results(reply.messages)
    assert "helper 'slow' took more than 0.2 s and was stopped" in result.text
    assert (run.status, reply.text) == ("cancelled", "Then without.")


async def test_the_models_of_calls_and_definitions_are_used(tmp_path: Path) -> None:
    """The call wins over the definition, the setting over both; the reason is stored with the run."""
    define(tmp_path, "one", model="test/small")
    both = ModelReply(parts=(helper_call("one", "Go"), helper_call("one", "Go", model="test/large")))
    models = {name: ScriptedModel() for name in ("small", "large")}
    async with lead(tmp_path, {"lead": ScriptedModel(both), **models}) as (perdure, agent):
        await agent.send("Go")
        runs = await ended_runs(perdure)
        steps = [
            step.model for run in runs[1:] for step in await perdure.agent_of(run.key.agent_id).steps(run_id=run.id)
        ]
    assert sorted((run.options.model, run.options.model_reason) for run in runs[1:]) == [
        ("test/large", "the call says test/large"),
        ("test/small", "the definition says test/small"),
    ]
    assert sorted(steps) == ["test/large", "test/small"]


async def test_the_setting_wins_over_call_and_definition(tmp_path: Path) -> None:
    """`PERDURE_SUBAGENT_MODEL` is the model of all helpers."""
    define(tmp_path, "one", model="test/small")
    models = {name: ScriptedModel() for name in ("small", "large")}
    model = ScriptedModel(calls("run_helper", name="one", prompt="Go", model="test/small"))
    async with lead(tmp_path, {"lead": model, **models}, subagent_model="test/large") as (perdure, agent):
        await agent.send("Go")
        _, run = await ended_runs(perdure)

    assert (run.options.model, run.options.model_reason) == ("test/large", "PERDURE_SUBAGENT_MODEL says test/large")
    assert (len(models["large"].requests), len(models["small"].requests)) == (1, 0)


async def test_a_helper_that_calls_itself_is_refused(tmp_path: Path) -> None:
    """Also by way of another helper: the last one of the circle is told who waits."""
    define(tmp_path, "a", tools="run_helper", model="test/a")
    define(tmp_path, "b", tools="run_helper", model="test/b")
    models = {
        "lead": ScriptedModel(calls("run_helper", name="a", prompt="Go"), says("Done.")),
        "a": ScriptedModel(calls("run_helper", name="b", prompt="Go"), says("a is done.")),
        "b": ScriptedModel(
            calls("run_helper", name="a", prompt="Go"), calls("run_helper", name="b", prompt="Go"), says("b is done.")
        ),
    }
    async with lead(tmp_path, models) as (perdure, agent):
        reply = await agent.send("Go")
        runs = await ended_runs(perdure)

    told = [message.text for message in models["b"].requests[-1].messages if message.role == "tool"]
    assert "helper 'a' waits for your own answer (a → b → a)" in told[0]
    assert "helper 'b' waits for your own answer (a → b → b)" in told[1]
    assert (reply.text, len(runs)) == ("Done.", 3)


class Counting:
    """A model that notes how many it answers at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.05)
        self.now -= 1
        yield says("Done.")


async def test_so_many_helpers_of_a_run_work_at_once(tmp_path: Path) -> None:
    """The others wait for a place."""
    define(tmp_path, "one", model="test/count")
    counting = Counting()
    models = {"lead": ScriptedModel(ModelReply(parts=tuple(helper_call("one", "Go", str(n)) for n in range(9))))}
    async with lead(tmp_path, {**models, "count": counting}, agent_sends_at_once=3) as (_, agent):
        reply = await agent.send("Go")

    assert len(results(reply.messages)) == 9
    assert 1 < counting.most <= 3


@pytest.mark.slow
async def test_five_hundred_helpers_at_once_end_at_the_limit(tmp_path: Path) -> None:
    """So many runs as the limit allows bring results, the other calls a typed error."""
    flood = ModelReply(parts=tuple(helper_call("general", f"Task {number}", f"c{number}") for number in range(500)))
    model = ScriptedModel(flood, otherwise=says("Done."))
    async with lead(tmp_path, {"lead": model}, helpers_per_run=40, agent_sends_at_once=8) as (perdure, agent):
        reply = await agent.send("Go")
        runs = await ended_runs(perdure)

    found = results(reply.messages)
    assert len(found) == 500
    assert len(runs) - 1 == 40
    assert sum(result.text.startswith("Done.") for result in found) == 40
    assert sum("are too many, the limit is 40" in result.text for result in found) == 460


async def test_the_last_words_come_back_however_much_was_said_before(tmp_path: Path) -> None:
    """What a helper says between its calls does not take their room."""
    define(tmp_path, "talker", tools="conversation_search")
    talk = ModelReply(parts=(Text("x" * 60_000), ToolCall("", "conversation_search", '{"query": "x"}')))
    model = ScriptedModel(calls("run_helper", name="talker", prompt="Go"), talk, says("Here it is."), says("Done."))
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        reply = await agent.send("Go")

    (result,) = results(reply.messages)
    assert result.text.startswith("Here it is.")
