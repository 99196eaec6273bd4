"""Model calls that nobody waits for: in silence, put back when a person writes, seldom in place of a conversation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.errors import InvalidInput
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.domain.agents.profile import check_profile
from perdure.engine.workers.background import APART_S, IDLE_S, LOOK_S, QUIET_S, Background
from perdure.features.facts.extraction.worker import Extractions
from perdure.settings import Settings
from perdure.testing import Hanging, InlineStore, LocalServer, ScriptedModel, calls, says
from tests.support.passing_time import time_passes

MODEL = "test/slot"
FACTS = {
    "entities": [{"name": "Ada", "type": "Person"}, {"name": "Bern", "type": "Location"}],
    "facts": [
        {"subject": "Ada", "relation": "LIVES_IN", "object": "Bern", "text": "Ada lives in Bern.", "turns": [1]}
        | {"decision": "ADD"}
    ],
    "certain": True,
}


class OneSlot:
    """A model of a server that answers one request at a time; nobody waits for its calls in the background.

    Attributes:
        begun, cut: how many background calls were begun, and given up by us.
        seen: what a person's request found in the slot.
        open: whether background calls are answered.
    """

    def __init__(self) -> None:
        self._script = ScriptedModel(
            otherwise=lambda request: (
                calls("memory_finish_edits", reason="Nothing.") if _is_pass(request) else says("OK.")
            ),
            summarises=says("They said word after word, and nothing else."),
            extracts=says(json.dumps(FACTS)),
        )
        self.begun = self.cut = 0
        self.seen: list[str] = []
        self.in_slot = ""
        self.open = asyncio.Event()
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        self.requests.append(request)
        kind = "pass" if _is_pass(request) else request.purpose
        self.seen.append(self.in_slot)
        if kind == "reply":
            async for piece in self._script.respond(request):
                yield piece
            return
        self.in_slot, self.begun = kind, self.begun + 1
        try:
            await self.open.wait()
            async for piece in self._script.respond(request):
                yield piece
        except asyncio.CancelledError:
            self.cut += 1
            raise
        finally:
            self.in_slot = ""


def _is_pass(request: ModelRequest) -> bool:
    return "You are a background agent" in request.system


@asynccontextmanager
async def opened(model: OneSlot, *, local: bool = True, **settings: Any) -> AsyncIterator[AsyncPerdure]:
    """A library over a model of a local server."""
    changed = replace(Settings(model=MODEL, embedding="none"), **settings)
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=changed) as perdure:
        perdure.app.models.learn(MODEL, local=local)
        yield perdure


async def steps() -> None:
    """Let everything go on that can."""
    for _ in range(60):
        await asyncio.sleep(0)


async def silence(seconds: float = QUIET_S) -> None:
    """Let nobody write for so long."""
    for _ in range(3):  # some look again only after a pause of their own
        time_passes(seconds)
        await steps()


async def extracting(perdure: AsyncPerdure, model: OneSlot) -> AsyncAgent:
    """An agent whose facts a model is extracting, after a message."""
    agent = await perdure.create_agent("a", settings={"facts": {"batch_turns": 2}})
    await agent.send("I'm Ada, and I live in Bern.")
    await steps()
    assert not model.begun
    await silence()
    assert model.in_slot == "extraction"
    return agent


async def test_a_person_who_writes_takes_the_slot_from_extraction() -> None:
    """The call is made again in the next silence, and counts as no failure."""
    model = OneSlot()
    async with opened(model, facts="model") as perdure:
        agent = await extracting(perdure, model)
        await agent.send("And you?")

        assert (model.begun, model.cut) == (1, 1)
        assert not any(model.seen)
        assert [backlog.tries for backlog in perdure.app.service(Extractions).ports.waiting.backlogs.values()] == [0]

        model.open.set()
        await silence(IDLE_S)
        assert model.begun > 1
        assert model.cut == 1
        assert [hit.fact.text for hit in await agent.facts.list()] == ["Ada lives in Bern."]


async def test_what_was_put_back_is_made_again_by_itself() -> None:
    """Nothing has to happen in the conversation for that."""
    model = OneSlot()
    async with opened(model, facts="model") as perdure:
        agent = await extracting(perdure, model)
        with perdure.app.ports.background.foreground.person():
            await silence(IDLE_S)
            assert (model.begun, model.cut) == (1, 1)
        model.open.set()
        await silence(IDLE_S)

        assert [hit.fact.text for hit in await agent.facts.list()] == ["Ada lives in Bern."]


async def test_calls_of_hosted_models_wait_for_nothing() -> None:
    model = OneSlot()
    async with opened(model, local=False, facts="model") as perdure:
        agent = await perdure.create_agent("a", settings={"facts": {"batch_turns": 2}})
        await agent.send("I'm Ada, and I live in Bern.")
        await silence(0.3)

        assert model.in_slot == "extraction"
        model.open.set()


async def test_somebody_who_asks_for_facts_does_not_wait_for_silence() -> None:
    """What goes on in the background makes room for it."""
    model = OneSlot()
    async with opened(model, facts="model") as perdure:
        agent = await extracting(perdure, model)
        asked = asyncio.create_task(agent.facts.extract())
        await steps()

        assert (model.begun, model.cut) == (2, 1)
        model.open.set()
        await asked


@pytest.mark.uses("groups")
async def test_a_companion_lets_people_go_first() -> None:
    """Its call is put back, not failed; the pass ends in a later silence."""
    model = OneSlot()
    async with opened(model, facts="off") as perdure:
        agent = await perdure.create_agent("a", sleeptime=True)
        await agent.companion.update(frequency=1)
        await agent.send("I'm Ada.")
        await silence()
        assert model.in_slot == "pass"
        await agent.send("I live in Bern.")

        assert (model.begun, model.cut) == (1, 1)
        assert not any(model.seen)

        model.open.set()
        await silence(IDLE_S)
        await silence()
        outcomes = [(one.outcome, one.cause) for one in await agent.companion.passes()]
        assert outcomes and set(outcomes) == {("finished", "turns")}


@pytest.mark.uses("groups")
async def test_a_pass_that_a_person_asks_for_waits_for_no_silence() -> None:
    """Also where another one has just taken the conversation's place; what goes on in the background makes room."""
    model = OneSlot()
    model.open.set()
    async with opened(model, facts="off") as perdure:
        agent = await perdure.create_agent("a", sleeptime=True)
        await agent.companion.update(frequency=1)
        await agent.send("I'm Ada.")
        await silence()
        await agent.send("I live in Bern.")
        asked = asyncio.create_task(agent.companion.wake())
        await silence(LOOK_S)

        assert asked.done()
        assert [(one.outcome, one.cause) for one in await agent.companion.passes()] == [
            ("finished", "request"),
            ("finished", "turns"),
        ]


@pytest.mark.uses("groups")
async def test_a_pass_that_waits_for_silence_goes_on_when_a_person_asks_for_it() -> None:
    """One that was put back may wait for an hour; no second pass begins."""
    model = OneSlot()
    async with opened(model, facts="off") as perdure:
        agent = await perdure.create_agent("a", sleeptime=True)
        await agent.companion.update(frequency=1)
        await agent.send("I'm Ada.")
        await silence()
        assert model.in_slot == "pass"
        await agent.send("I live in Bern.")
        model.open.set()
        assert model.cut == 1
        asked = asyncio.create_task(agent.companion.wake())
        await silence(LOOK_S)

        assert asked.done()
        assert [(one.outcome, one.cause) for one in await agent.companion.passes()] == [("finished", "request")]


async def test_nobody_waits_for_a_summary_of_a_local_model() -> None:
    """A full window takes what code makes of the messages; the model writes it later."""
    model = OneSlot()
    async with opened(model, facts="off") as perdure:
        agent = await perdure.create_agent("a", settings={"context_window_tokens": 8_000})
        nodes = await fill(perdure, agent)

        assert [node.made_by for node in nodes] == ["extract"]
        assert not model.begun

        await silence()
        assert model.in_slot == "summary"
        with perdure.app.ports.background.foreground.person():
            await steps()
        model.open.set()
        await silence(IDLE_S)
        assert model.cut == 1
        assert {node.made_by for node in await nodes_of(perdure, agent)} == {"model"}


async def fill(perdure: AsyncPerdure, agent: AsyncAgent) -> Any:
    """Send messages until some leave the view; return the summaries."""
    for number in range(60):
        await agent.send(f"message {number} {'word ' * 150}")
        if nodes := await nodes_of(perdure, agent):
            return nodes
    raise AssertionError("nothing left the view")


async def nodes_of(perdure: AsyncPerdure, agent: AsyncAgent) -> Any:
    return await perdure.app.ports.store.read(lambda tx: tx.nodes.list_newest(agent.id, 0))


@pytest.mark.uses("groups")
async def test_everything_together_takes_the_conversations_place_once() -> None:
    """Facts by model, a companion and summaries, in ten minutes of a talk with pauses: all of it in one pause."""
    model = OneSlot()
    model.open.set()
    async with opened(model, facts="model") as perdure:
        settings = {"context_window_tokens": 8_000, "facts": {"batch_turns": 2}}
        agent = await perdure.create_agent("a", sleeptime=True, settings=settings)
        await agent.companion.update(frequency=1)
        pauses_with_calls = 0
        for number in range(20):
            before = model.begun
            await agent.send(f"message {number} {'word ' * 150}")
            assert model.begun == before
            await silence()
            pauses_with_calls += model.begun > before

        assert pauses_with_calls == 1
        assert not any(model.seen)
        assert [one.outcome for one in await agent.companion.passes()][-1] == "finished"
        await silence(IDLE_S)
        assert {request.purpose for request in model.requests} == {"reply", "extraction", "summary"}


async def test_a_server_with_one_slot_is_free_as_soon_as_somebody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP: the connection of the call is closed. A server at an address of this machine is local, key or not."""

    def answer(request: Mapping[str, Any]) -> Any:
        return Hanging() if "response_format" in request else says("OK.")

    async with LocalServer(otherwise=answer, window_tokens=16_000) as server, asyncio.timeout(20):
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-my-own")
        settings = Settings(model="openai/local", embedding="none", facts="model")
        async with await AsyncPerdure.open(store=InlineStore(), settings=settings) as perdure:
            perdure.app.ports.background.quiet_s = 0.0
            agent = await perdure.create_agent("a", settings={"facts": {"batch_turns": 2}})
            await agent.send("I'm Ada, and I live in Bern.")
            await server.hanging.wait()
            perdure.app.ports.background.quiet_s = QUIET_S
            await agent.send("And you?")

        assert [row.is_done for row in server.served] == [True, False, True]
        assert server.served[1].request["max_tokens"] > 0


@pytest.mark.uses("groups")
async def test_never_means_no_call_at_all() -> None:
    """Patterns find facts, and code writes summaries; a companion works when somebody asks for it."""
    model = OneSlot()
    model.open.set()
    async with opened(model, facts="model", background="never") as perdure:
        agent = await perdure.create_agent("a", sleeptime=True, settings={"context_window_tokens": 8_000})
        await agent.companion.update(frequency=1)
        await agent.send("My name is Ada, and I live in Bern.")
        await fill(perdure, agent)
        for _ in range(3):
            await silence(IDLE_S)

        assert model.begun == 0
        assert any("Bern" in hit.fact.text for hit in await agent.facts.list())
        assert await agent.companion.passes() == []


@pytest.mark.uses("groups")
@pytest.mark.parametrize("settings", [{}, {"profile": "full"}, {"companion_passes": "due"}])
async def test_a_companion_on_a_small_model_works_when_it_is_asked_to(settings: dict[str, str]) -> None:
    """Such a model keeps no blocks in order. The agent's own settings win over the profile of the model."""
    model = OneSlot()
    model.open.set()
    async with opened(model, facts="off") as perdure:
        perdure.app.models.learn(MODEL, parameters=1_500_000_000)
        agent = await perdure.create_agent("a", sleeptime=True, settings=settings)
        await agent.companion.update(frequency=1)
        await agent.send("I'm Ada.")
        await silence(IDLE_S)
        causes = [one.cause for one in await agent.companion.passes()]
        await agent.send("I live in Bern.")
        asked = asyncio.create_task(agent.companion.wake())
        await silence(LOOK_S)

        assert causes == (["turns"] if settings else [])
        assert asked.done()
        assert [one.outcome for one in await agent.companion.passes()] == ["finished"] * (len(causes) + 1)


@pytest.mark.uses("groups")
async def test_the_model_of_the_companion_decides_not_that_of_its_agent() -> None:
    """A companion with a large model of its own makes its passes; one that is given the small profile does not."""
    for profile, causes in ((None, ["turns"]), ("small", [])):
        model = OneSlot()
        model.open.set()
        store, models = InlineStore(), {MODEL: model, "test/large": model}
        settings = Settings(model=MODEL, embedding="none", facts="off")
        async with await AsyncPerdure.open(store=store, models=models, settings=settings) as perdure:
            perdure.app.models.learn(MODEL, local=True, parameters=1_500_000_000)
            agent = await perdure.create_agent("a", sleeptime=True)
            companion = await perdure.agent((await agent.companion.update(frequency=1)).companion.id)
            own = companion.info.settings if profile is None else {**companion.info.settings, "profile": profile}
            await companion.update(model="test/large", settings=own)
            await agent.send("I'm Ada.")
            await silence(IDLE_S)

            assert [one.cause for one in await agent.companion.passes()] == causes


def test_a_word_that_says_no_passes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="companion_passes is 'never': give due or asked"):
        check_profile({"companion_passes": "never"})


async def test_closing_waits_for_no_silence() -> None:
    model = OneSlot()
    async with opened(model, facts="model") as perdure:
        agent = await perdure.create_agent("a", settings={"facts": {"batch_turns": 2}})
        await agent.send("I'm Ada, and I live in Bern.")
        await steps()
        before = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - before < QUIET_S / 2
    assert not model.begun


def test_a_word_that_is_no_mode_is_refused() -> None:
    with pytest.raises(InvalidInput, match="PERDURE_BACKGROUND is 'sometimes': idle, always or never is"):
        Settings(background="sometimes")


class Stage:
    """A process that answers people when a test says so, and calls of one model in its background."""

    def __init__(self, mode: str = "") -> None:
        self.background, self.done, self.in_slot = Background(mode), 0, 0
        self._tasks: list[asyncio.Task[None]] = []

    def call(self, model: str = MODEL, *, local: bool = True, ends: asyncio.Event | None = None) -> None:
        self._tasks.append(asyncio.create_task(self._call(model, local, ends)))

    async def _call(self, model: str, local: bool, ends: asyncio.Event | None) -> None:
        async with self.background.slot(model, local=local):
            self.in_slot += 1
            if ends is not None:
                await ends.wait()
            self.in_slot -= 1
        self.done += 1

    async def person(self) -> None:
        """A person writes, and is answered."""
        with self.background.foreground.person():
            await steps()


async def test_a_call_begins_after_some_seconds_of_silence() -> None:
    stage = Stage()
    await stage.person()
    stage.call()
    await steps()
    time_passes(QUIET_S - 1)
    await stage.person()
    time_passes(QUIET_S - 1)
    await steps()

    assert stage.done == 0
    await silence()
    assert stage.done == 1


async def test_a_server_that_answers_many_at_a_time_waits_for_nobody() -> None:
    """It is local, and its calls begin at once, side by side."""
    stage, ends = Stage("always"), asyncio.Event()
    with stage.background.foreground.person():
        stage.call(ends=ends)
        stage.call(ends=ends)
        await steps()

        assert stage.in_slot == 2
    ends.set()
    await steps()
    assert stage.done == 2


async def test_calls_come_one_after_the_other() -> None:
    """Also those of several models: they share a machine."""
    stage, ends = Stage(), asyncio.Event()
    stage.call(ends=ends)
    stage.call("test/other", ends=ends)
    await silence()

    assert stage.in_slot == 1
    ends.set()
    await silence()
    assert stage.done == 2


async def test_a_conversation_loses_its_place_in_the_cache_once_an_hour() -> None:
    """As long as the person goes on; calls that follow one another take it once."""
    stage = Stage()
    await stage.person()
    for _ in range(2):
        stage.call()
        await silence()
    assert stage.done == 2
    waited_s = 0.0
    stage.call()
    while stage.done == 2:
        await stage.person()
        time_passes(IDLE_S / 2)
        waited_s += IDLE_S / 2
        await steps()

    assert APART_S - IDLE_S <= waited_s <= APART_S + IDLE_S


async def test_a_call_that_follows_another_does_not_put_the_next_one_off() -> None:
    """The place in the cache was taken once, at the first of them; the hour counts from there."""
    stage = Stage()
    await stage.person()
    stage.call()
    await silence()
    time_passes(APART_S / 2)
    stage.call()
    await silence()
    assert stage.done == 2
    stage.call()
    waited_s = 0.0
    while stage.done == 2 and waited_s < 2 * APART_S:
        await stage.person()
        time_passes(IDLE_S / 2)
        waited_s += IDLE_S / 2
        await steps()

    assert waited_s <= APART_S / 2 + IDLE_S / 2


async def test_who_has_been_silent_for_long_loses_it_before() -> None:
    stage = Stage()
    for _ in range(2):
        await stage.person()
        stage.call()
        await silence(QUIET_S * 2)
    assert stage.done == 1
    await silence(IDLE_S)

    assert stage.done == 2


async def test_a_mode_holds_for_all_models() -> None:
    stage = Stage("idle")
    await stage.person()
    stage.call(local=False)
    await steps()

    assert stage.done == 0
    await silence()
    assert stage.done == 1
