"""Helpers that fail or cost too much, or whose agent is cancelled or moves to another process: one result each."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from perdure import AsyncAgent, AsyncPerdure, ModelReply, ModelRequest, RunFailed
from perdure.core.errors import LimitReached
from perdure.core.models import Model
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, fails, says
from tests.features.helpers.helper_office import define, helper_call, lead
from tests.features.helpers.test_approvals import MAIL, send_mail, waiting_calls
from tests.support.library import SlowSpeaker
from tests.support.office import ended_runs, results

PRICES = '[[model]]\nmatch = ["test/*"]\nprice = { input = 10_000, output = 10_000 }\n'
STEP = calls("conversation_search", query="x")  # 10 tokens in, 5 out: $0.15
CALL = calls("run_helper", name="one", prompt="Go")


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cent for each token."""
    (tmp_path / "catalog.toml").write_text(PRICES)
    monkeypatch.setenv("PERDURE_CATALOG", str(tmp_path / "catalog.toml"))


@asynccontextmanager
async def process(path: Path, models: Mapping[str, Model]) -> AsyncIterator[tuple[AsyncPerdure, AsyncAgent]]:
    """One process after another on the same store, with its agent `Lead`, whose mails need approval."""
    settings = replace(Settings(), embedding="none", home=str(path), helper_reply_s=30.0)
    named = {f"test/{name}": model for name, model in models.items()}
    async with await AsyncPerdure.open(
        path / "agents.db", models=named, settings=settings, tools=[send_mail]
    ) as perdure:
        if not await perdure.agents():
            agent = await perdure.create_agent("Lead", model="test/lead", tools=["run_helper", "send_mail"])
            await agent.require_approval("send_mail")
        yield perdure, await perdure.agent("Lead")


async def test_each_failure_is_one_typed_result_beside_those_of_the_others(tmp_path: Path, priced: None) -> None:
    """Too late, failed, silent, too dear, gone: the transcript has a result for each call, and the agent goes on."""
    define(tmp_path, "late", model="test/slow")
    define(tmp_path, "bad", model="test/bad")
    define(tmp_path, "silent", model="test/silent")
    define(tmp_path, "dear", model="test/dear", max_cost_usd=0.2, tools="conversation_search")
    define(tmp_path, "gone", model="test/bda")
    define(tmp_path, "keyless", model="anthropic/claude-opus-4-5")
    define(tmp_path, "good", model="test/good")
    names = ("late", "bad", "silent", "dear", "gone", "keyless", "good")
    models: dict[str, Model] = {
        "lead": ScriptedModel(ModelReply(parts=tuple(helper_call(name, "Go", name) for name in names)), says("Done.")),
        "slow": SlowSpeaker("x"),
        "bad": ScriptedModel(fails("no power")),
        "silent": ScriptedModel(otherwise=says("")),
        "dear": ScriptedModel(otherwise=STEP),
        "good": ScriptedModel(says("Found.")),
    }
    async with lead(tmp_path, models, helper_reply_s=2.0) as (_, agent):
        reply = await agent.send("Go")

    found = {result.call_id: result for result in results(reply.messages)}
    assert len(results(reply.messages)) == len(names) and reply.text == "Done."
    assert {name: result.status for name, result in found.items()} == {
        **dict.fromkeys(names, "error"),
        "good": "success",
    }
    for name, why in {
        "late": "helper 'late' took more than 2 s and was stopped; `perdure run show run-",
        "bad": "helper 'bad' failed: no power; `perdure run show run-",
        "silent": "helper 'silent' failed: test/silent answered nothing",
        "dear": "helper 'dear' failed: the run has cost $0.3, and may cost $0.2; `perdure run show run-",
        "gone": "the definition says 'test/bda', and no model that is there is called so; did you mean test/bad",
        "keyless": "the definition says 'anthropic/claude-opus-4-5', and no model that is there",
        "good": "Found.",
    }.items():
        assert why in found[name].text, name


async def test_an_unknown_model_of_the_setting_names_the_setting(tmp_path: Path) -> None:
    define(tmp_path, "one", model="test/one")
    models = {"lead": ScriptedModel(CALL, says("Done.")), "one": ScriptedModel()}
    async with lead(tmp_path, models, subagent_model="test/oen") as (_, agent):
        reply = await agent.send("Go")
        (route,) = [one for one in await agent.helpers.routes() if one.name == "one"]

    assert "PERDURE_SUBAGENT_MODEL says 'test/oen'" in results(reply.messages)[0].text
    assert route.model is None and "did you mean test/one" in route.reason


async def test_helpers_of_a_run_use_up_its_budget_over_several_calls(tmp_path: Path, priced: None) -> None:
    """A helper gets what is left, the next one is refused, and the agent's own run ends: all count together."""
    define(tmp_path, "one", model="test/one", tools="conversation_search")
    models = {"lead": ScriptedModel(CALL, CALL, CALL, says("Done.")), "one": ScriptedModel(otherwise=STEP)}
    for limits, kind in (({"max_cost_usd": 1.0}, "max_cost_exceeded"), ({"max_tokens": 100}, "max_tokens_exceeded")):
        models["lead"] = ScriptedModel(CALL, CALL, CALL, says("Done."))
        path = tmp_path / kind
        path.mkdir()
        (path / "agents").symlink_to(tmp_path / "agents")
        async with lead(path, models) as (perdure, agent):
            with pytest.raises(RunFailed) as failed:
                await agent.send("Go", **limits)
            runs = await ended_runs(perdure)

        assert failed.value.reply.failure is not None and failed.value.reply.failure.kind == kind
        assert sum(run.step_count for run in runs) == 7  # $1.05, 105 tokens
        assert [run.failure.kind for run in runs if run.failure] == [kind] * 2


@pytest.mark.parametrize("memory", ["own", "agent"])
async def test_helpers_count_for_the_day_of_their_agent(tmp_path: Path, priced: None, memory: str) -> None:
    """Each step once: a helper ends where the day's dollars are used up, and the agent begins no other run."""
    define(tmp_path, "outer", model="test/outer", tools="run_helper, conversation_search", memory=memory)
    define(tmp_path, "one", model="test/one", tools="conversation_search", memory=memory)
    models = {
        "lead": ScriptedModel(calls("run_helper", name="outer", prompt="Go"), says("Done.")),
        "outer": ScriptedModel(CALL, says("Outer is done.")),
        "one": ScriptedModel(otherwise=STEP),
    }
    async with lead(tmp_path, models) as (perdure, agent):
        await agent.update(settings={"limits": {"cost_per_day": 1.0}})
        with pytest.raises(RunFailed, match=r"may cost \$1 a day, and has cost \$1.05"):
            await agent.send("Go")
        runs = await ended_runs(perdure)
        with pytest.raises(LimitReached):
            await agent.send("Again")

    assert {run.options.helper: run.step_count for run in runs} == {"": 1, "outer": 1, "one": 5}


async def test_a_call_beyond_the_day_of_the_agent_is_refused(tmp_path: Path, priced: None) -> None:
    """With a typed result; those of the same answer that had begun are done."""
    define(tmp_path, "one", model="test/one")
    models = {"lead": ScriptedModel(CALL, CALL, says("Done.")), "one": ScriptedModel()}
    async with lead(tmp_path, models) as (_, agent):
        await agent.update(settings={"limits": {"tokens_per_day": 20}})
        with pytest.raises(RunFailed, match="may use 20 tokens a day"):
            await agent.send("Go")
        (result,) = results(await agent.messages())

    assert result.text.startswith("OK.")


async def test_a_budget_of_a_definition_is_that_of_each_call(tmp_path: Path, priced: None) -> None:
    """What one call used is not taken from the next."""
    define(tmp_path, "one", model="test/one", max_cost_usd=0.5)
    models = {"lead": ScriptedModel(CALL, CALL, CALL, CALL, says("Done.")), "one": ScriptedModel()}
    async with lead(tmp_path, models) as (_, agent):
        reply = await agent.send("Go")

    assert [result.status for result in results(reply.messages)] == ["success"] * 4


async def test_helpers_of_one_name_at_once_share_what_they_note(tmp_path: Path) -> None:
    """They are one agent, each in a conversation of its own."""
    define(tmp_path, "one", model="test/one", tools="memory_insert")
    note = calls("memory_insert", label="notes", new_string="A note.")
    models = {
        "lead": ScriptedModel(ModelReply(parts=tuple(helper_call("one", "Go", str(n)) for n in range(6)))),
        "one": ScriptedModel(
            otherwise=lambda asked: says("ok") if any(one.role == "tool" for one in asked.messages) else note
        ),
    }
    async with lead(tmp_path, models) as (perdure, agent):
        reply = await agent.send("Go")
        value = (await (await perdure.agent("Lead - one")).blocks.get("notes")).value
        agents = [one.name for one in await perdure.agents()]

    assert [result.status for result in results(reply.messages)] == ["success"] * 6
    assert (value.count("A note."), agents) == (6, ["Lead - one", "Lead"])


async def test_helpers_of_helpers_end_at_a_depth(tmp_path: Path) -> None:
    """The one at the limit is told so; each above it has a result."""
    names = [f"h{number}" for number in range(14)]
    models = {"lead": ScriptedModel(calls("run_helper", name="h0", prompt="Go"), says("Done."))}
    for name, below in itertools.pairwise(names):
        define(tmp_path, name, tools="run_helper, conversation_search", model=f"test/{name}")
        models[name] = ScriptedModel(calls("run_helper", name=below, prompt="Go"), says(f"{name} is done."))
    async with lead(tmp_path, models) as (perdure, agent):
        reply = await agent.send("Go")
        runs = await ended_runs(perdure)

    assert (reply.text, len(runs)) == ("Done.", 11)
    assert "passed this message on 10 times" in models["h9"].requests[-1].messages[-1].text
    assert results(reply.messages)[0].text.startswith("h0 is done.")


async def test_a_helper_that_is_deleted_while_it_works_is_said_to_be(tmp_path: Path) -> None:
    """And the next call makes it anew."""
    define(tmp_path, "one", model="test/slow")
    slow = SlowSpeaker("Fo", "und.")
    models: dict[str, Model] = {"lead": ScriptedModel(CALL, says("Hm."), CALL, says("Done.")), "slow": slow}
    async with lead(tmp_path, models) as (perdure, agent), asyncio.timeout(30):
        task = asyncio.create_task(agent.send("Go"))
        await slow.speaking.wait()
        await (await perdure.agent("Lead - one")).delete()
        first = results((await task).messages)[0]
        slow.go.set()
        second = results((await agent.send("Again")).messages)[0]

    assert "helper 'one' was deleted while it worked" in first.text
    assert second.text.startswith("Found.")


async def test_a_policy_that_breaks_in_between_is_named(tmp_path: Path) -> None:
    """Nothing can be called then; the answer says which file is to blame."""
    define(tmp_path, "one")
    policy = tmp_path / "policy"
    policy.mkdir()

    def breaks(_: ModelRequest) -> ModelReply:
        (policy / "policy.toml").write_text("nonsense = [")
        return CALL

    async with lead(tmp_path, {"lead": ScriptedModel(breaks, says("Done."))}, policy=str(policy)) as (_, agent):
        reply = await agent.send("Go")

    assert "helper 'one' can't be called: " in results(reply.messages)[0].text
    assert "policy.toml" in results(reply.messages)[0].text


async def test_a_family_of_which_nothing_is_there_is_not_proposed(tmp_path: Path) -> None:
    names = ("sonnet", "Sonnet", "sonnet[1m]")
    both = ModelReply(parts=tuple(helper_call("general", "Go", name, model=name) for name in names))
    async with lead(tmp_path, {"lead": ScriptedModel(both, says("Done."))}) as (_, agent):
        found = results((await agent.send("Go")).messages)

    for result in found:
        assert f"the call says '{result.call_id}', and none of that family is there; " in result.text
        assert "did you mean sonnet" not in result.text


@pytest.mark.parametrize("decision", ["approve", "deny", "cancel"])
async def test_an_approval_is_given_in_another_process(tmp_path: Path, decision: str) -> None:
    """The question stands there, too; after the answer, or after the agent's run was cancelled, nothing waits."""
    define(tmp_path, "clerk", model="test/small")
    models = {"lead": ScriptedModel(calls("run_helper", name="clerk", prompt="Go")), "small": ScriptedModel(MAIL)}
    async with process(tmp_path, models) as (_, agent):
        await agent.submit("Go")
        await waiting_calls(agent)
    models = {"lead": ScriptedModel(says("Done.")), "small": ScriptedModel(says("I am through."))}
    async with process(tmp_path, models) as (perdure, agent), asyncio.timeout(30):
        (call,) = await agent.pending()
        if decision == "approve":
            await agent.approve()
        elif decision == "deny":
            await agent.deny(call.call_id, reason="not today")
        else:
            (run,) = [one for one in await agent.runs() if not one.ended]
            await perdure.runs.cancel(run.id)
        runs = await ended_runs(perdure)
        (result,) = results(await agent.messages())
        waiting = await perdure.approvals.list_all()

    assert waiting == [] and call.helper == "clerk"
    if decision == "cancel":
        assert [one.status for one in runs] == ["cancelled", "cancelled"]
        assert result.status == "error"
    else:
        assert [one.status for one in runs] == ["completed"] * 3
        assert result.text.startswith("I am through.")
        told = {"approve": "Sent to Ada.", "deny": "not today"}[decision]
        assert told in models["small"].requests[0].messages[-1].text


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_cancelled_agent_cancels_its_helpers_and_theirs(tmp_path: Path, restarts: bool) -> None:
    """At once, also in a process that has only just taken them over."""
    define(tmp_path, "outer", model="test/outer", tools="run_helper, conversation_search")
    define(tmp_path, "inner", model="test/slow")
    slow = SlowSpeaker("a", "b")
    models: dict[str, Model] = {
        "lead": ScriptedModel(calls("run_helper", name="outer", prompt="Go")),
        "outer": ScriptedModel(calls("run_helper", name="inner", prompt="Go")),
        "slow": slow,
    }
    async with process(tmp_path, models) as (perdure, agent), asyncio.timeout(30):
        await agent.submit("Go")
        await slow.speaking.wait()
        (run,) = [one for one in await agent.runs() if not one.ended]
        if not restarts:
            await perdure.runs.cancel(run.id)
            runs = await ended_runs(perdure)
    if restarts:
        async with process(tmp_path, {**models, "slow": SlowSpeaker("a", "b")}) as (perdure, _), asyncio.timeout(30):
            await perdure.runs.cancel(run.id)
            runs = await ended_runs(perdure)

    assert [(one.options.helper, one.status) for one in runs] == [
        ("", "cancelled"),
        ("outer", "cancelled"),
        ("inner", "cancelled"),
    ]
