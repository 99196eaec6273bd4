"""Hooks in a program: where they are called, with what, and what becomes of what they say."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    AsyncPerdure,
    CircularWait,
    HookBlocked,
    InvalidInput,
    Perdure,
    Reply,
    RunFailed,
    Settings,
    Verdict,
    hook,
)
from perdure.context.sections.assemble import canonical
from perdure.core.events import HookAnswered, RunEnded, RunStarted, StoredEvent
from perdure.core.hooks import HOOK_POINTS, payload_to_json
from perdure.core.ids import RunId
from perdure.core.messages import ToolCall
from perdure.testing import ScriptedModel, calls, fails, says
from tests.support.library import MODEL

Hooked = Callable[[Any], Verdict | None]


def open_library(
    path: Path, *script: Any, hooks: tuple[Any, ...], tools: Any = (), **given: Any
) -> tuple[Perdure, ScriptedModel]:
    """A store in `path` with these hooks, and the model that its agents have."""
    model = ScriptedModel(*script, **given)
    settings = Settings(model=MODEL, embedding="none")
    return Perdure(path / "agents.db", models={MODEL: model}, hooks=hooks, tools=tools, settings=settings), model


def at(*points: Any, verdict: Verdict | None = None, **options: Any) -> tuple[Any, list[Any]]:
    """A hook that says `verdict`, and what it was told."""
    payloads: list[Any] = []

    @hook(*points, name="watcher", **options)
    def watcher(payload: Any) -> Verdict | None:
        payloads.append(payload)
        return verdict

    return watcher, payloads


def events_of(perdure: Perdure, run_id: RunId) -> list[Any]:
    async def read() -> list[Any]:
        app = perdure._inner.app
        return [
            stored.event
            for stored in await app.store.read(lambda tx: tx.events.list(tx.runs.get(run_id).key, limit=1_000))
        ]

    return perdure._portal.run(read())


def engine_messages(request: Any, kind: str = "hook") -> list[dict[str, Any]]:
    """The engine's messages of one kind, without the marker."""
    shapes = [json.loads(message.text) for message in request.messages if message.kind == kind]
    return [{name: value for name, value in shape.items() if name != "marker"} for shape in shapes]


def build_call(name: str, **arguments: Any) -> ToolCall:
    """One more call of an answer."""
    return ToolCall("", name, json.dumps(arguments))


def double(number: int) -> int:
    """A number doubled."""
    return number * 2


def test_every_point_of_a_run_is_told_in_order(tmp_path: Path) -> None:
    """With whom it is about, and what is going on there; each can be written as JSON."""
    watcher, payloads = at(*HOOK_POINTS)
    perdure, _ = open_library(tmp_path, calls("double", number="4"), says("It is 8."), hooks=(watcher,), tools=[double])
    with perdure:
        agent = perdure.create_agent()
        reply = agent.send("Double four")
        agent.send("Thanks")
        perdure.delete_agent(agent.id)

    points = [payload.point for payload in payloads]
    assert points == [
        *("conversation_start", "run_start", "next_prompt", "before_model", "after_model", "before_tool", "after_tool"),
        *("next_prompt", "before_model", "after_model", "run_end"),
        *("run_start", "next_prompt", "before_model", "after_model", "run_end", "conversation_end"),
    ]
    by_point = {payload.point: payload for payload in reversed(payloads[:11])}
    assert {payload.agent_id for payload in payloads} == {agent.id}
    assert {payload.run_id for payload in payloads[:11]} == {reply.run_id}
    assert [(said.role, said.text) for said in by_point["run_start"].messages] == [("user", "Double four")]
    assert [(said.role, said.text) for said in payloads[8].new] == [("tool", "8")]
    assert [payload.recent_steps for payload in (payloads[2], payloads[7])] == [(), ("double(4) -> 8",)]
    assert by_point["after_model"].tool_calls[0]["name"] == "double"
    assert (by_point["before_tool"].tool, by_point["before_tool"].arguments) == ("double", {"number": 4})
    assert (by_point["after_tool"].status, by_point["after_tool"].result) == ("success", "8")
    assert (by_point["run_end"].stop_reason, by_point["run_end"].text) == ("end_turn", "It is 8.")
    for payload in payloads:
        assert json.loads(payload_to_json(payload))["point"] == payload.point


@pytest.mark.parametrize("point", ["run_start", "conversation_start"])
def test_a_message_that_is_blocked_is_not_kept(tmp_path: Path, point: str) -> None:
    """It is refused with the reason; nothing of it is in the log, and the model is not asked."""
    watcher, _ = at(point, verdict=Verdict(block="no passwords here"))
    perdure, model = open_library(tmp_path, hooks=(watcher,))
    with perdure:
        agent = perdure.create_agent()
        with pytest.raises(HookBlocked, match="blocked by hook 'watcher': no passwords here") as blocked:
            agent.send("my password is hunter2")
        messages = agent.messages()

    assert (blocked.value.hook, blocked.value.point, blocked.value.reason) == ("watcher", point, "no passwords here")
    assert messages == [] and model.requests == []


@pytest.mark.parametrize("point", ["before_model", "after_model"])
def test_a_blocked_model_call_ends_the_run_with_the_reason(tmp_path: Path, point: str) -> None:
    """The message is kept, the answer is not; the next message is answered."""
    said = iter([Verdict(block="not today"), None])

    @hook(point)  # type: ignore[arg-type]
    async def budget(payload: Any) -> Verdict | None:
        return next(said)

    script = [says("a secret"), says("Hello.")][point == "before_model" :]
    perdure, model = open_library(tmp_path, *script, hooks=(budget,))
    with perdure:
        agent = perdure.create_agent()
        with pytest.raises(RunFailed, match="blocked by hook 'budget': not today") as failed:
            agent.send("hi")
        texts = [message.text for message in agent.messages()]
        again = agent.send("and now?")

    assert failed.value.reply.failure.kind == "hook_blocked"
    assert failed.value.stop_reason == "error"
    assert texts == ["hi"]
    assert again.text == "Hello."
    assert "a secret" not in canonical(model.requests[-1]).decode()


def test_a_blocked_tool_is_not_run(tmp_path: Path) -> None:
    """Its result says who did not let it, and why; other tools are run."""
    done: list[str] = []

    def pay(amount: int) -> str:
        """Pay."""
        done.append("paid")
        return "paid"

    @hook("before_tool", tools=["pay", "memory_*"])
    def limit(call: Any) -> Verdict | None:
        return Verdict(block=f"{call.tool} needs an adult")

    more = [build_call("memory_insert", label="human", new_string="rich"), build_call("double", number=2)]
    perdure, _ = open_library(tmp_path, calls("pay", *more, amount=5), hooks=(limit,), tools=[pay, double])
    with perdure:
        agent = perdure.create_agent()
        reply = agent.send("pay")
        memory = agent.blocks.get("human").value

    results = {result.name: result for message in reply.messages for result in message.results}
    assert done == [] and "rich" not in memory
    assert results["pay"].text == "blocked by hook 'limit': pay needs an adult. The tool was not run."
    assert results["memory_insert"].status == "error"
    assert (results["double"].text, results["double"].status) == ("4", "success")


def test_a_result_can_be_withheld(tmp_path: Path) -> None:
    """The tool was run, but the model does not see what it said."""
    watcher, payloads = at("after_tool", verdict=Verdict(block="it holds a key"))
    perdure, model = open_library(tmp_path, calls("double", number=21), hooks=(watcher,), tools=[double])
    with perdure:
        perdure.create_agent().send("go")

    assert payloads[0].result == "42"
    assert model.requests[1].messages[-1].text == (
        "blocked by hook 'watcher': it holds a key. The tool was run; its result is withheld."
    )


def test_what_hooks_add_is_in_the_next_request_and_stays(tmp_path: Path) -> None:
    """As envelopes of the log, after the results they came with, never between a call and its result; the request can
    be made again from the log."""
    watcher, _ = at(
        "run_start", "before_model", "after_model", "before_tool", "after_tool", verdict=Verdict(context="be brief")
    )
    first = calls("double", build_call("double", number=3), number=2)
    perdure, model = open_library(tmp_path, first, says("done"), hooks=(watcher,), tools=[double])
    with perdure:
        agent = perdure.create_agent()
        reply = agent.send("go")
        steps = agent.steps()
        rebuilt = [agent.request(step.id) for step in steps]
        listed = [message.kind for message in agent.messages()]

    assert [entry["point"] for entry in engine_messages(model.requests[0])] == ["run_start", "before_model"]
    assert engine_messages(model.requests[0])[0] == {
        "type": "hook_context",
        "hook": "watcher",
        "point": "run_start",
        "text": "be brief",
    }
    roles = [message.role for message in model.requests[1].messages]
    assert [entry["point"] for entry in engine_messages(model.requests[1])][2:] == [
        *("after_model", "before_tool", "after_tool", "before_tool", "after_tool", "before_model")
    ]
    assert roles[roles.index("assistant") :] == ["assistant", "tool", "tool", *["system"] * 6]
    assert len(rebuilt) == 2 and reply.text == "done"
    assert listed == ["message"] * len(listed)


def test_a_next_prompt_is_in_the_request_that_is_about_to_be_sent(tmp_path: Path) -> None:
    """Written from the steps so far; a block there blocks nothing."""

    @hook("next_prompt")
    def remind(payload: Any) -> Verdict:
        return Verdict(context=f"So far: {', '.join(payload.recent_steps) or 'nothing'}", block="never")

    perdure, model = open_library(tmp_path, calls("double", number=2), says("4"), hooks=(remind,), tools=[double])
    with perdure:
        reply = perdure.create_agent().send("go")
    texts = [[entry["text"] for entry in engine_messages(request)] for request in model.requests]

    assert reply.text == "4"
    assert texts == [["So far: nothing"], ["So far: nothing", "So far: double(2) -> 4"]]


@pytest.mark.parametrize("points", [("after_model",), ("run_end",), ("after_model", "run_end")])
def test_context_of_the_end_is_for_the_next_message(tmp_path: Path, points: tuple[str, ...]) -> None:
    """Also of an answer without calls: it stands in the log when the next request is made."""
    watcher, _ = at(*points, verdict=Verdict(context="be kind"))
    perdure, model = open_library(tmp_path, hooks=(watcher,))
    with perdure:
        agent = perdure.create_agent()
        agent.send("one")
        agent.send("two")

    assert [entry["point"] for entry in engine_messages(model.requests[1])] == [*points]


@pytest.mark.slow
def test_compaction_is_told(tmp_path: Path) -> None:
    """What has to leave the window leaves it; a hook may have something said right after."""
    watcher, payloads = at("before_compaction", "after_compaction", verdict=Verdict(context="remember"))
    perdure, model = open_library(tmp_path, hooks=(watcher,))
    with perdure:
        agent = perdure.create_agent(settings={"context_window_tokens": 6_600})
        for _ in range(8):
            agent.send("word " * 900)

    assert {payload.point for payload in payloads} == {"before_compaction", "after_compaction"}
    assert payloads[0].by in ("evict", "merge", "stub") and payloads[0].budget_tokens > 0
    assert "after_compaction" in {entry["point"] for request in model.requests for entry in engine_messages(request)}


def test_a_compaction_that_is_blocked_ends_the_run_and_loses_nothing(tmp_path: Path) -> None:
    """Nothing leaves the window and the model is not asked: the error names the hook, its reason, and what helps."""
    watcher, payloads = at("before_compaction", verdict=Verdict(block="keep it all"))
    perdure, model = open_library(tmp_path, hooks=(watcher,))
    with perdure:
        agent = perdure.create_agent(settings={"context_window_tokens": 6_400})
        with pytest.raises(RunFailed, match="blocked by hook 'watcher': keep it all") as failed:
            for _ in range(8):
                agent.send("word " * 900)
        asked = len(model.requests)
        with pytest.raises(RunFailed, match="reset this one"):
            agent.send("and now?")
        kept = agent.messages()
        agent.reset()
        reply = agent.send("and now?")

    stopped = failed.value.reply
    assert isinstance(stopped, Reply)
    assert stopped.failure is not None
    assert (stopped.stop_reason, stopped.failure.kind) == ("error", "hook_blocked")
    assert len(payloads) == 2
    assert [message.text for message in kept if message.role == "user"][-2:] == ["word " * 900, "and now?"]
    assert len(kept) == 2 * asked + 2
    assert reply.text == "OK."


def failing(payload: Any) -> None:
    raise RuntimeError("no disk")


def wordy(payload: Any) -> str:
    return "go on"


async def hanging(payload: Any) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (failing, "RuntimeError: no disk"),
        (wordy, "TypeError: a hook returns a Verdict or None, not str"),
        (hanging, "it took more than 0.05 s"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_hook_that_fails_is_told_and_counts_as_was_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, function: Any, why: str
) -> None:
    """Open, the run goes on; closed, it is as if the hook had blocked. Log and events say so."""
    for if_it_fails in ("go_on", "block"):
        marked = hook("before_tool", name="broken", timeout_s=0.05, if_it_fails=if_it_fails)(function)
        perdure, _ = open_library(tmp_path / if_it_fails, calls("double", number=2), hooks=(marked,), tools=[double])
        with perdure, caplog.at_level(logging.WARNING):
            reply = perdure.create_agent().send("go")
            events = [event for event in events_of(perdure, reply.run_id) if isinstance(event, HookAnswered)]
        (result,) = (result for message in reply.messages for result in message.results)

        assert (events[0].hook, events[0].outcome, events[0].text) == ("broken", "failed", why)
        assert result.text == ("4" if if_it_fails == "go_on" else result.text)
        assert (why in result.text) == (if_it_fails == "block")
        assert f"hook 'broken' failed at before_tool: {why}" in caplog.text


def test_the_first_that_blocks_is_the_last_that_is_asked(tmp_path: Path) -> None:
    """In the order in which they were given."""
    first, told_first = at("before_tool", verdict=Verdict(context="first"))
    second, told_second = at("before_tool", verdict=Verdict(block="second"))
    third, told_third = at("before_tool", verdict=Verdict(block="third"))
    perdure, _ = open_library(tmp_path, calls("double", number=2), hooks=(first, second, third), tools=[double])
    with perdure:
        reply = perdure.create_agent().send("go")
        events = [event for event in events_of(perdure, reply.run_id) if isinstance(event, HookAnswered)]

    assert [len(payloads) for payloads in (told_first, told_second, told_third)] == [1, 1, 0]
    assert [(event.outcome, event.text) for event in events] == [("context", "first"), ("blocked", "second")]


def test_the_same_message_again_is_not_looked_at_again(tmp_path: Path) -> None:
    """Under its idempotency key it is the run that was accepted, whatever a hook adds or would say now."""
    verdicts = iter([Verdict(context="once"), Verdict(block="never again")])

    @hook("run_start")
    def once(payload: Any) -> Verdict:
        return next(verdicts)

    perdure, model = open_library(tmp_path, hooks=(once,))
    with perdure:
        agent = perdure.create_agent()
        replies = [agent.send("hi", idempotency_key="k") for _ in range(2)]

    assert replies[0].run_id == replies[1].run_id
    assert len(model.requests) == 1


def test_a_failed_run_is_told_at_its_end(tmp_path: Path) -> None:
    """With why; and a cancelled one too."""
    watcher, payloads = at("run_end")
    perdure, _ = open_library(tmp_path, fails("the provider is down"), hooks=(watcher,))
    with perdure, pytest.raises(RunFailed):
        perdure.create_agent().send("hi")

    assert [(payload.stop_reason, payload.error) for payload in payloads] == [("llm_api_error", "the provider is down")]


@pytest.mark.parametrize("to", ["boss", "ann"])
async def test_a_hook_at_the_end_of_a_cancelled_run_sends_a_message(tmp_path: Path, to: str) -> None:
    """Of another agent it gets the answer; its own could begin only after the hook."""
    got: list[Any] = []
    over = asyncio.Event()

    @hook("next_prompt", "run_end")
    async def watcher(payload: Any) -> None:
        if payload.agent_id != agents["ann"].id:
            return
        if payload.point == "next_prompt":
            await agents["ann"].cancel(payload.run_id)
        else:
            got.extend(await asyncio.gather(agents[to].send("she was stopped"), return_exceptions=True))
            over.set()

    models = {MODEL: ScriptedModel(says("I see."))}
    async with await AsyncPerdure.open(tmp_path / "agents.db", models=models, hooks=[watcher]) as perdure:
        agents = {name: await perdure.create_agent(name, model=MODEL) for name in ("ann", "boss")}
        async with asyncio.timeout(30):
            reply = await agents["ann"].send("go")
            await over.wait()
    assert reply.stop_reason == "cancelled"
    assert isinstance(got[0], CircularWait) if to == "ann" else got[0].text == "I see."


def test_a_hook_that_waits_can_be_cancelled(tmp_path: Path) -> None:
    """Its run ends as cancelled, without the hook's word."""

    @hook("before_model", timeout_s=600)
    async def waits(payload: Any) -> None:
        await asyncio.Event().wait()

    perdure, model = open_library(tmp_path, hooks=(waits,))
    with perdure:
        agent = perdure.create_agent()
        for event in agent.stream("hi"):
            if isinstance(event, StoredEvent) and isinstance(event.event, RunStarted):
                agent.cancel(event.event.run_id)
            last = event

    assert isinstance(last, StoredEvent) and isinstance(last.event, RunEnded)
    assert last.event.stop_reason == "cancelled"
    assert model.requests == []


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: hook(), "a hook needs a point"),
        (
            lambda: hook("before_lunch"),  # type: ignore[arg-type]
            "'before_lunch' is not a point: there are conversation_start, run_start",
        ),
        (
            lambda: hook("run_end", if_it_fails="maybe"),  # type: ignore[arg-type]
            "'go_on' or 'block' is needed",
        ),
        (lambda: hook("run_end", timeout_s=0), "at most 600 seconds"),
        (lambda: Perdure(hooks=[double]), "double is not a hook: mark it with @hook"),
    ],
)
def test_what_can_not_be_a_hook_is_refused(make: Callable[[], Any], why: str) -> None:
    """When it is made, or the store is opened."""
    with pytest.raises(InvalidInput, match=why):
        make()
