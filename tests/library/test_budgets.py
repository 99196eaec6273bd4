"""Budgets of runs, agents and keys: a run ends between two steps, with a typed reason, and what it did stays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, InvalidInput, RunFailed, Settings
from perdure.core.conversations import CompactionSettings
from perdure.core.errors import LimitReached, MessageTooLarge, ModelError
from perdure.core.ids import KeyId
from perdure.core.incoming.principals import PeriodUsage, Principal, UseLimits, current_principal
from perdure.core.messages import Text
from perdure.core.runs import RunOptions, Usage
from perdure.engine.budget import remaining_limits
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.features.groups.values import GroupKind
from perdure.features.schedules.worker import ScheduleWorker
from perdure.testing import FakeClock, InlineStore, ScriptedModel, calls, says

MODEL = "test/scripted"
STEP = calls("memory_insert", label="human", new_string="Ada")
STEP_TOKENS = 15
"""What a step of the script uses: 10 in and 5 out."""
KINDS: tuple[GroupKind, ...] = ("supervisor", "dynamic")
KEY = KeyId("key-11111111-1111-4111-8111-111111111111")
PRICES = '[[model]]\nmatch = ["test/scripted"]\nprice = { input = 10_000, output = 10_000 }\n'


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cent for each token of the scripted model."""
    (tmp_path / "catalog.toml").write_text(PRICES)
    monkeypatch.setenv("PERDURE_CATALOG", str(tmp_path / "catalog.toml"))


@contextlib.asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[tuple[AsyncPerdure, FakeClock]]:
    """A store in memory whose model calls a tool again and again."""
    clock, model = FakeClock(), ScriptedModel(otherwise=STEP, summarises=says("Ada says: go on and on."))
    chosen = Settings(model=MODEL, embedding="none", **settings)
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, settings=chosen, clock=clock
    ) as perdure:
        yield perdure, clock


async def ending(agent: AsyncAgent, **options: Any) -> tuple[str, str, int]:
    """Stop reason, kind of failure and number of steps of a run that has to end by a budget."""
    with pytest.raises(RunFailed) as failed:
        await agent.send("Go on and on.", **options)
    reply = failed.value.reply
    assert reply is not None and reply.failure is not None
    assert reply.messages[-1].role == "tool"  # between two steps: each call has its result
    return reply.stop_reason, reply.failure.kind, reply.step_count


@contextlib.contextmanager
def acting_for(**limits: Any) -> Iterator[None]:
    """What a request with a key of these limits does."""
    token = current_principal.set(Principal(key_id=KEY, scope="user", limits=UseLimits(**limits)))
    try:
        yield
    finally:
        current_principal.reset(token)


async def test_a_runs_own_budget_ends_it_between_steps(priced: None) -> None:
    """Of tokens and of money; the step that goes beyond is whole, no other one begins."""
    async with opened() as (perdure, _):
        agent = await perdure.create_agent("ann")

        assert await ending(agent, max_tokens=2 * STEP_TOKENS + 1) == ("max_tokens_exceeded", "max_tokens_exceeded", 3)
        assert await ending(agent, max_cost_usd=0.16) == ("insufficient_credits", "max_cost_exceeded", 2)
        for bad in ({"max_tokens": 0}, {"max_tokens": 1.5}, {"max_cost_usd": 0}, {"max_cost_usd": "much"}):
            with pytest.raises(InvalidInput, match=next(iter(bad))):
                await agent.send("Go on.", **bad)


async def test_summaries_count_for_the_run_that_needs_them(priced: None) -> None:
    """For its budget, and for its usage as long as it goes on."""
    seen: list[int] = []

    async def look() -> str:
        """Look at the usage of the run."""
        (run,) = await agent.runs(statuses=["running"])
        seen.append((await agent.usage_of_run(run.id)).total_tokens)
        return "looked"

    summary = says("They said word again and again.", usage=Usage(input_tokens=1_000))
    model = ScriptedModel(*[says("word " * 1_500)] * 3, otherwise=calls("look"), summarises=summary)
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, settings=Settings(model=MODEL, embedding="none"), tools=[look]
    ) as perdure:
        agent = await perdure.create_agent("ann", settings={"context_window_tokens": 8_000})
        await agent.tools.attach("look")
        for _ in range(3):
            await agent.send("word " * 100)
        assert await ending(agent, max_tokens=1_000 + STEP_TOKENS) == (*["max_tokens_exceeded"] * 2, 1)
        assert seen == [1_000 + STEP_TOKENS]


async def test_settings_agent_and_key_bound_each_run(priced: None) -> None:
    """The lowest of them counts."""
    async with opened(max_tokens=5 * STEP_TOKENS, max_cost_usd=9.0) as (perdure, _):
        agent = await perdure.create_agent("ann")
        assert (await ending(agent))[2] == 5
        assert (await ending(agent, max_tokens=9 * STEP_TOKENS))[2] == 5
        await agent.update(settings={"limits": {"cost_per_run": 0.6}})
        assert await ending(agent) == ("insufficient_credits", "max_cost_exceeded", 4)
        with acting_for(tokens_per_run=3 * STEP_TOKENS):
            assert (await ending(agent))[2] == 3
        with acting_for(cost_per_run=0.3):
            assert (await ending(agent))[2] == 2


async def test_a_day_of_an_agent_ends_its_run_and_refuses_the_next(priced: None) -> None:
    """Counted with each step; the next day, by UTC, there is room again."""
    async with opened() as (perdure, clock):
        for limits, reason in (
            ({"tokens_per_day": 3 * STEP_TOKENS}, "max_tokens_exceeded"),
            ({"cost_per_day": 0.45}, "insufficient_credits"),
        ):
            agent = await perdure.create_agent(reason, settings={"limits": limits})
            assert (await ending(agent))[::2] == (reason, 3)
            with pytest.raises(LimitReached, match="a day, and has") as refused:
                await agent.send("Go on.")
            assert 0 < refused.value.retry_after_s <= 86_400
            clock.advance(86_400)
            assert (await ending(agent))[::2] == (reason, 3)


async def test_a_day_of_a_key_counts_all_its_runs(priced: None) -> None:
    """Over its agents; runs of others don't count for it."""
    async with opened() as (perdure, _):
        ann, bob = await perdure.create_agent("ann"), await perdure.create_agent("bob")
        await ending(ann, max_tokens=STEP_TOKENS)
        with acting_for(tokens_per_day=4 * STEP_TOKENS):
            assert (await ending(ann, max_tokens=3 * STEP_TOKENS))[2] == 3
            assert (await ending(bob))[2] == 1
            with pytest.raises(LimitReached, match=f"{KEY} may use 60 tokens a day") as refused:
                await bob.send("Go on.")
            assert 0 < refused.value.retry_after_s <= 86_400
        said = len(await bob.messages())
        with acting_for(cost_per_day=0.61):
            assert (await ending(bob)) == ("insufficient_credits", "max_cost_exceeded", 1)  # $0.60 of it are used
        assert len(await bob.messages()) == said + 3  # a message that is refused is not stored
        assert (await ending(bob, max_tokens=2 * STEP_TOKENS))[2] == 2


@pytest.mark.parametrize("limits", [{"tokens_per_day": 1}, {"cost_per_day": 0.01}])
@pytest.mark.parametrize("whose", ["agent", "key"])
async def test_model_calls_outside_runs_count_for_the_day(priced: None, whose: str, limits: dict[str, Any]) -> None:
    """Prompts, replays and summaries on request: of the agent and of the key, and none is made beyond."""
    async with opened() as (perdure, clock):
        agent = await perdure.create_agent("ann")
        await ending(agent, max_tokens=2 * STEP_TOKENS)
        [run] = await agent.runs()
        if whose == "agent":
            await agent.update(settings={"limits": limits})
        everything: list[Callable[[], Awaitable[Any]]] = [
            lambda: perdure.prompts.generate(agent.id, "Write a poem."),
            lambda: agent.replay(run.id),
            lambda: agent.compact(settings=CompactionSettings(mode="all")),
        ]
        with acting_for(**(limits if whose == "key" else {})):
            for place, call in enumerate(everything):
                clock.advance(86_400)
                await call()
                for refused in everything[: 3 if place == 0 else 2]:  # after it nothing is left to compact
                    with pytest.raises(LimitReached, match="a day, and has") as error:
                        await refused()
                    assert 0 < error.value.retry_after_s <= 86_400


async def test_a_replay_ends_where_the_day_does() -> None:
    """With the answers until then, which are paid for."""
    async with opened() as (perdure, _):
        agent = await perdure.create_agent("ann")
        await ending(agent, max_tokens=3 * STEP_TOKENS)
        [run] = await agent.runs()
        with acting_for(tokens_per_day=2 * STEP_TOKENS):
            replay = await agent.replay(run.id)

        assert (len(replay.steps), "a day, and has" in replay.end) == (2, True)


async def test_answers_that_can_not_be_used_count_too() -> None:
    """The provider bills them."""
    async with opened() as (perdure, _):
        agent = await perdure.create_agent("ann", settings={"limits": {"tokens_per_day": 1}})
        model = perdure.app.models.find(MODEL)
        assert isinstance(model, ScriptedModel)
        model._otherwise = says("")
        with pytest.raises(RunFailed, match="answered nothing"):
            await agent.send("Go on.")
        with pytest.raises(LimitReached):
            await agent.send("Go on.")


async def test_an_agent_begins_so_many_runs_a_minute(priced: None) -> None:
    """In a window that slides."""
    async with opened() as (perdure, clock):
        agent = await perdure.create_agent("ann", settings={"limits": {"requests_per_minute": 2}})
        for _ in range(2):
            await ending(agent, max_tokens=1)
            clock.advance(20)
        with pytest.raises(LimitReached, match="2 runs a minute") as refused:
            await agent.send("Go on.")
        assert refused.value.retry_after_s in (20, 21)
        clock.advance(refused.value.retry_after_s)
        await ending(agent, max_tokens=1)


async def test_longer_messages_than_agent_or_key_allows_are_refused() -> None:
    """Before anything is stored."""
    async with opened() as (perdure, _):
        agent = await perdure.create_agent("ann", settings={"limits": {"message_chars": 20}})
        with pytest.raises(MessageTooLarge):
            await agent.send("x" * 21)
        with acting_for(message_chars=10), pytest.raises(MessageTooLarge):
            await agent.send("x" * 11)

        assert await agent.messages() == []
        for bad in ({"tokens": 1}, {"tokens_per_day": 0}, {"cost_per_day": -1.0}, {"message_chars": 1.5}, 7):
            with pytest.raises(InvalidInput):
                await agent.update(settings={"limits": bad})


async def test_a_message_is_all_that_a_caller_says() -> None:
    """Also a prompt alone, and a system text in place of the agent's; the error says whose limit it is."""
    async with opened() as (perdure, _):
        agent = await perdure.create_agent("ann")
        for whose, helps in (("key", "ask an administrator"), (agent.id, "setting limits")):
            if whose == agent.id:
                await agent.update(settings={"limits": {"message_chars": 20}})
            with acting_for(**({"message_chars": 20} if whose == "key" else {})):
                for call in (
                    agent.send("x" * 21),
                    agent.send_request(
                        RunRequest(
                            agent_id=agent.id,
                            messages=(NewMessage((Text("x" * 5),)),),
                            options=RunOptions(system="y" * 16),
                        )
                    ),
                    perdure.prompts.generate(agent.id, "x" * 5, system="y" * 16),
                    agent.schedules.create("x" * 21, every="1h"),
                ):
                    with pytest.raises(MessageTooLarge, match=f"has 21 .*limit of .*{whose} is 20.*{helps}"):
                        await call

        assert await agent.messages() == []


async def test_a_schedules_message_is_measured_when_it_is_made() -> None:
    """As it was given: the envelope in which it is sent does not count."""
    async with opened(schedules="off") as (perdure, clock):
        agent = await perdure.create_agent("ann", settings={"limits": {"message_chars": 20}})
        made = await agent.schedules.create("x" * 20, every="1h")
        clock.advance(3_601)
        await perdure.app.service(ScheduleWorker).fire_due()

        assert [one.outcome for one in await agent.schedules.firings(made.id)] == ["fired"]


async def test_a_group_is_bound_by_the_key_that_writes_to_it() -> None:
    """By what its user says, not by what agents and engine make of that; and by its day, before anything is stored."""
    async with opened() as (perdure, _):
        ann, bob = await perdure.create_agent("ann"), await perdure.create_agent("bob")
        model = perdure.app.models.find(MODEL)
        assert isinstance(model, ScriptedModel)
        model._otherwise = says("Hello.")
        ask = calls("send_message_to_agent_async", message="y" * 50, other_agent_id=bob.id)
        model._script = [ask]
        await ann.tools.attach("send_message_to_agent_async")
        group = await perdure.groups.create("round_robin", agents=[ann])
        with acting_for(message_chars=20, tokens_per_day=50):
            with pytest.raises(MessageTooLarge, match="this key"):
                await group.send("x" * 21)
            assert (await group.send("x" * 20)).text == "ann: Hello."
            while drivers := list(perdure.app.runner._drivers.values()):  # of Bob's run, for which nobody waits
                await asyncio.wait(drivers)
            await group.send("Again.")
            with pytest.raises(LimitReached):
                await group.send("Once more.")

        assert "y" * 50 in (await bob.messages())[0].text
        assert len(await group.messages()) == 4


async def test_a_managed_group_needs_its_manager() -> None:
    """One who may not speak refuses the message, whatever the others may."""
    async with opened() as (perdure, _):
        ann, mia = await perdure.create_agent("ann"), await perdure.create_agent("mia")
        await mia.update(settings={"limits": {"tokens_per_day": 1}})
        await perdure.prompts.generate(mia.id, "Think.")
        for kind in KINDS:
            group = await perdure.groups.create(kind, agents=[ann], manager=mia)
            with pytest.raises(LimitReached):
                await group.send("Hello.")
            assert await group.messages() == []


async def test_a_run_that_goes_on_after_an_approval_has_what_is_left(priced: None) -> None:
    """As with its steps."""

    def order() -> str:
        """Order something."""
        return "ordered"

    model = ScriptedModel(STEP, calls("order"), otherwise=STEP)
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, settings=Settings(model=MODEL, embedding="none"), tools=[order]
    ) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.tools.attach("order")
        await agent.require_approval("order")
        reply = await agent.send("Go on.", max_tokens=3 * STEP_TOKENS)
        assert (reply.stop_reason, reply.step_count) == ("requires_approval", 2)
        with pytest.raises(RunFailed) as failed:
            await agent.approve()

        assert failed.value.reply is not None
        assert (failed.value.reply.stop_reason, failed.value.reply.step_count) == ("max_tokens_exceeded", 1)


async def test_counts_go_with_their_agent(priced: None) -> None:
    """And those of days before are not kept."""
    async with opened() as (perdure, clock):
        agent = await perdure.create_agent("ann", settings={"limits": {"tokens_per_day": 99_999}})
        for _ in range(3):
            await ending(agent, max_tokens=1)
            clock.advance(86_400)

        def periods(tx: Any) -> list[str]:
            return [row[0] for row in tx.used._db.rows("SELECT period FROM used ORDER BY period", {})]

        assert len(await perdure.app.store.read(periods)) == 2
        await perdure.delete_agent(agent.id)
        while await perdure.app.store.write(lambda tx: tx.upkeep.remove_some()):
            pass
        assert await perdure.app.store.read(periods) == []


async def test_a_call_that_fails_counts_what_it_took() -> None:
    """Of a prompt that no run makes: the provider has counted the tokens of an answer that can't be used."""
    clock, error = FakeClock(), ModelError("cut off", usage=Usage(input_tokens=10, output_tokens=5))
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: ScriptedModel(error)}, settings=settings, clock=clock
    ) as perdure:
        agent = await perdure.create_agent("ann", settings={"limits": {"tokens_per_day": 15}})
        with pytest.raises(ModelError, match="cut off"):
            await perdure.prompts.generate(agent.id, "Write a poem.")

        with pytest.raises(LimitReached, match="15 tokens a day"):
            await perdure.prompts.generate(agent.id, "Write a poem.")


def test_what_is_left_of_a_budget_is_never_nothing() -> None:
    """A run that goes on with more than was allowed still has a limit, and ends at its first step."""
    options = RunOptions(max_tokens=STEP_TOKENS, max_cost_usd=0.5)

    assert remaining_limits(options, PeriodUsage(tokens=STEP_TOKENS, cost=0.7)) == UseLimits(
        tokens_per_run=1, cost_per_run=1e-9
    )
