"""Whatever a provider does, the run ends with a reason, the log stays legal, and the next message is answered."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from perdure import AsyncPerdure, RunFailed, tool
from perdure.context.sections.assemble import check_legal
from perdure.core.errors import ModelError
from perdure.core.messages import Message, Text, ToolCall
from perdure.core.models import ModelReply, ModelRequest
from perdure.library.agent import AsyncAgent
from perdure.library.messages.reply import Reply
from perdure.providers.openai_chat.model import SilenceLimits
from perdure.providers.openai_endpoint import HttpClients
from perdure.providers.retrying import Retrying, RetryPolicy
from perdure.testing import (
    CutOff,
    Hanging,
    HttpModel,
    InlineStore,
    Malformed,
    Refusal,
    Status,
    Unanswered,
    says,
    thinks,
)
from perdure.testing.http_model import HttpLine
from tests.support.openai_chats import openai_chat
from tests.support.passing_time import when_it_hangs

pytestmark = pytest.mark.faults

MODEL = "openai/test"
TRIES = 2
TIMEOUT_S = 10.0
SILENCE = SilenceLimits(first_s=TIMEOUT_S, next_s=TIMEOUT_S)
POLICY = RetryPolicy(retries=TRIES - 1, first_delay_s=0.001, max_delay_s=0.002, deadline_s=30)

FLOOR = "context_window_overflow_in_system_prompt"
OVERFLOW = {"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 9 tokens."}}
ANSWER = thinks("hm", ModelReply(parts=(Text("one two"), ToolCall("c9", "look", '{"at": 9}'))))
"""Streamed: role, thought, two words, call, two halves of its arguments, finish, usage."""
FIRST_DELTA, FINISH, CHUNKS = 1, 7, 9


@dataclass(frozen=True)
class Fault:
    """What the server does, and the wire's error type the run then ends with. `retried` when nothing was streamed."""

    name: str
    line: HttpLine
    kind: str
    stop_reason: str = "llm_api_error"
    retried: bool = True

    def __str__(self) -> str:
        return self.name


RETRIED = (
    Fault("429 with Retry-After", Status(429, headers={"Retry-After": "0.01"}), "llm_rate_limit"),
    Fault("429 without", Status(429, {"error": {"message": "slow down"}}), "llm_rate_limit"),
    Fault("500", Status(500, {"error": "boom"}), "llm_error"),
    Fault("503", Status(503, "<html>unavailable</html>"), "llm_error"),
    Fault("529", Status(529), "llm_error"),
    Fault("connection closed", Unanswered(), "llm_error"),
    Fault("time-out", Hanging(), "llm_timeout"),
    Fault("empty reply", ModelReply(parts=(Text(" "),)), "llm_empty_response", "invalid_llm_response"),
)
FINAL = (
    Fault("429 with a long Retry-After", Status(429, headers={"Retry-After": "3600"}), "llm_rate_limit", retried=False),
    Fault("401", Status(401), "llm_authentication", retried=False),
    Fault("402", Status(402), "llm_insufficient_credits", "insufficient_credits", retried=False),
    Fault("404", Status(404, {"error": "model not found"}), "llm_bad_request", retried=False),
    # Nothing is left that could leave the view, so the run ends before a second call.
    Fault("overflow", Status(400, OVERFLOW), "context_window_exceeded", FLOOR, retried=False),
    Fault("refusal", Refusal("I can't"), "llm_refusal", "invalid_llm_response", retried=False),
    Fault(
        "malformed",
        Malformed(says("one two"), text='{"choices": [}'),
        "llm_error",
        "invalid_llm_response",
        retried=False,
    ),
)

BROKEN_CALLS: Mapping[str, tuple[ToolCall, ...]] = {
    "malformed arguments": (ToolCall("c9", "look", '{"at": }'),),
    "truncated arguments": (ToolCall("c9", "look", '{"at": 9'),),
    "empty arguments": (ToolCall("c9", "look", ""),),
    "arguments of a wrong type": (ToolCall("c9", "look", '{"at": "here"}'),),
    "arguments that are no object": (ToolCall("c9", "look", "[9]"),),
    "arguments with half a character": (ToolCall("c9", "look", '{"at": "\\ud800"}'),),
    "an unknown tool": (ToolCall("c9", "no such/tool", "{}"),),
    "one broken call among good ones": (ToolCall("c9", "look", '{"at": 9}'), ToolCall("c10", "look", "{")),
    "duplicate ids": (ToolCall("same", "look", '{"at": 9}'), ToolCall("same", "look", '{"at": 10}')),
    "no ids": (ToolCall("", "look", '{"at": 9}'), ToolCall("", "look", '{"at": 10}')),
    "a very long id": (ToolCall("c" * 100, "look", '{"at": 9}'),),
}

both = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
FULL = os.environ.get("PERDURE_FAULTS") == "full"
# One call before is between none and several: the long form has it too. Of tests with many cases the short form has
# only those after several.
after_calls = pytest.mark.parametrize("before", [0, 1, 3] if FULL else [0, 3])
some_after_calls = pytest.mark.parametrize("before", [0, 1, 3] if FULL else [3])
# Of the places where an answer breaks, the short form has one of each kind: before anything, the first word, the call's
# arguments, the finish, the usage.
cuts = range(CHUNKS) if FULL else [0, FIRST_DELTA, 4, FINISH, CHUNKS - 1]


def in_both(name: str, cases: Iterable[Any]) -> pytest.MarkDecorator:
    """Each case streamed and whole; in the short form in one of them, by turns."""
    ways = (True, False)
    return pytest.mark.parametrize(
        (name, "stream"),
        [
            pytest.param(case, stream, id=f"{case}-{'stream' if stream else 'whole'}")
            for number, case in enumerate(cases)
            for stream in (ways if FULL else ways[number % 2 :][:1])
        ],
    )


def before_lines(count: int) -> list[HttpLine]:
    """An answer with this many tool calls, at once."""
    parts = tuple(ToolCall(f"b{number}", "look", f'{{"at": {number}}}') for number in range(count))
    return [ModelReply(parts=parts)] if parts else []


@dataclass
class AgentWithProvider:
    """An agent whose model is behind a server that can be broken."""

    agent: AsyncAgent
    server: HttpModel
    looked: list[int]
    outcome: dict[str, Any]

    async def send(self, text: str) -> Reply | RunFailed:
        try:
            return await self.agent.send(text)
        except RunFailed as failed:
            return failed

    async def check(self, *, looked: int) -> None:
        """The log is legal, each call has one result, no call ran that was not whole, and the agent still answers."""
        messages = await self.agent.messages()
        check_legal(messages)
        assert results_of(messages) == Counter(call.call_id for message in messages for call in message.calls)
        assert len(self.looked) == looked
        self.outcome["broken"] = False
        asked = len(self.server.requests)
        assert (await self.agent.send("again")).text == "OK."
        assert_legal_body(self.server.requests[asked])
        check_legal(await self.agent.messages())


def results_of(messages: Sequence[Message]) -> Counter[str]:
    return Counter(result.call_id for message in messages for result in message.results)


def assert_legal_body(body: Mapping[str, Any]) -> None:
    """What a strict server asks for: results right behind their calls, arguments that are JSON objects."""
    waiting: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        for call in message.get("tool_calls", ()):
            assert call["id"] not in waiting
            waiting.add(call["id"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert not waiting


@asynccontextmanager
async def agent_with_provider(
    *lines: HttpLine, then: HttpLine | None = None, stream: bool
) -> AsyncIterator[AgentWithProvider]:
    """A server that says these lines and `then`, as long as it is broken; else "OK."."""
    looked: list[int] = []
    outcome: dict[str, Any] = {"broken": then is not None}

    @tool
    def look(at: int) -> str:
        """Look.

        Args:
            at: where.
        """
        looked.append(at)
        return f"seen {at}"

    def line(asked: Mapping[str, Any]) -> HttpLine:
        assert_legal_body(asked)
        return then if outcome["broken"] and then is not None else says("OK.")

    async with (
        HttpModel(*lines, otherwise=line) as server,
        aclosing(HttpClients()) as connections,
        when_it_hangs(server, seconds=TIMEOUT_S),
    ):
        chat = openai_chat(model="test", base_url=server.url, stream=stream, silence=SILENCE, connections=connections)
        model = Retrying(chat, policy=POLICY, random=lambda: 0.5)
        async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, tools=[look]) as perdure:
            agent = await perdure.create_agent("a", model=MODEL, tools=["look"])
            yield AgentWithProvider(agent, server, looked, outcome)


@pytest.mark.slow
@some_after_calls
@in_both("fault", [*RETRIED, *FINAL])
async def test_a_fault_that_lasts_ends_the_run_with_its_reason(fault: Fault, stream: bool, before: int) -> None:
    """After a bounded number of tries; the message is kept."""
    if before and fault.name == "empty reply":
        pytest.skip("after calls that succeeded it ends the turn")
    # A reply of white space is text that was handed out already.
    tries = TRIES if fault.retried and not (stream and fault.name == "empty reply") else 1
    async with agent_with_provider(*before_lines(before), then=fault.line, stream=stream) as it:
        failed = await it.send("go")

        assert isinstance(failed, RunFailed)
        assert isinstance(failed.reply, Reply)
        assert failed.reply.failure is not None
        assert (failed.stop_reason, failed.reply.failure.kind) == (fault.stop_reason, fault.kind)
        assert len(it.server.requests) == bool(before) + tries
        assert (await it.agent.messages())[0].text == "go"
        await it.check(looked=before)


@some_after_calls
@in_both("fault", RETRIED[:-1])
async def test_a_fault_that_passes_is_not_noticed(fault: Fault, stream: bool, before: int) -> None:
    """The next try succeeds, and the run goes on as if nothing had been."""
    async with agent_with_provider(*before_lines(before), fault.line, stream=stream) as it:
        reply = await it.send("go")

        assert isinstance(reply, Reply)
        assert (reply.text, reply.stop_reason) == ("OK.", "end_turn")
        assert len(it.server.requests) == bool(before) + 2
        await it.check(looked=before)


@pytest.mark.slow
@some_after_calls
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "broken"])
@pytest.mark.parametrize("after", cuts)
async def test_a_stream_may_be_cut_at_every_chunk(after: int, clean: bool, before: int) -> None:
    """Before the first words it is tried again; then the run fails, unless the answer was whole but for its usage. The
    call in it runs only if the answer was whole."""
    cut = CutOff(ANSWER, after=after, clean=clean)
    async with agent_with_provider(
        *before_lines(before), *[cut] * (TRIES if after <= FIRST_DELTA else 1), stream=True
    ) as it:
        outcome = await it.send("go")

        if after > FINISH:
            assert isinstance(outcome, Reply)
            assert outcome.stop_reason == "end_turn"
            await it.check(looked=before + 1)
        else:
            assert isinstance(outcome, RunFailed)
            assert isinstance(outcome.reply, Reply)
            assert outcome.reply.failure is not None
            assert outcome.reply.failure.kind == "stream_incomplete"
            await it.check(looked=before)


@some_after_calls
@pytest.mark.parametrize("after", range(8) if FULL else [0, 4, 7])
async def test_an_answer_in_one_piece_may_be_cut_anywhere(after: int, before: int) -> None:
    """Nothing of it was handed out, so it is tried again."""
    async with agent_with_provider(*before_lines(before), CutOff(ANSWER, after=after), stream=False) as it:
        reply = await it.send("go")

        assert isinstance(reply, Reply)
        assert reply.text == "OK."
        await it.check(looked=before)


@some_after_calls
@pytest.mark.parametrize("at", cuts)
async def test_every_chunk_may_be_malformed(at: int, before: int) -> None:
    """An answer with a hole is no answer; nothing of it is run."""
    async with agent_with_provider(
        *before_lines(before), Malformed(ANSWER, at=at, text='{"choices": [}'), stream=True
    ) as it:
        failed = await it.send("go")

        assert isinstance(failed, RunFailed)
        assert failed.stop_reason == "invalid_llm_response"
        await it.check(looked=before)


@pytest.mark.slow
@some_after_calls
@in_both("name", BROKEN_CALLS)
async def test_a_call_that_can_not_be_run_is_answered_to_the_model(name: str, stream: bool, before: int) -> None:
    """It is not run, has one result that says so, and the run goes on to an answer; the good ones do run."""
    broken = BROKEN_CALLS[name]
    good = sum(call.name == "look" and call.arguments in ('{"at": 9}', '{"at": 10}') for call in broken)
    async with agent_with_provider(*before_lines(before), ModelReply(parts=broken), stream=stream) as it:
        reply = await it.send("go")

        assert isinstance(reply, Reply)
        assert (reply.text, reply.stop_reason) == ("OK.", "end_turn")
        results = [result for message in reply.messages for result in message.results][before:]
        assert len(results) == len(broken)
        assert sum(result.status == "success" for result in results) == good
        await it.check(looked=before + good)


@after_calls
@both
async def test_an_answer_that_grew_too_long_never_runs_its_last_call(stream: bool, before: int) -> None:
    """Without its arguments it would do something else."""
    long = replace(
        ANSWER, parts=(*ANSWER.parts[:2], ToolCall("c9", "look", '{"at": ')), stop_reason="max_tokens_exceeded"
    )
    async with agent_with_provider(*before_lines(before), long, stream=stream) as it:
        outcome = await it.send("go")

        assert outcome.stop_reason == "max_tokens_exceeded"
        await it.check(looked=before)


@both
async def test_the_same_id_in_every_answer_is_no_confusion(stream: bool) -> None:
    """Some servers number their calls anew each time; all have their own result."""
    same = ModelReply(parts=(ToolCall("call_0", "look", '{"at": 1}'),))
    async with agent_with_provider(same, same, same, stream=stream) as it:
        reply = await it.send("go")

        assert isinstance(reply, Reply)
        assert reply.text == "OK."
        await it.check(looked=3)


@after_calls
@both
async def test_a_server_that_is_not_there_fails_the_run_until_it_is_back(stream: bool, before: int) -> None:
    """A refused connection, also right after calls; the message names the address. When a server listens there again,
    the next message is answered."""
    looked: list[int] = []
    server = HttpModel(*before_lines(before))

    @tool
    async def look(at: int) -> str:
        """Look, and see the server go with the last call.

        Args:
            at: where.
        """
        looked.append(at)
        if len(looked) == before:
            await server.__aexit__(None, None, None)
        return f"seen {at}"

    async with server, aclosing(HttpClients()) as connections:
        port = int(server.url.rpartition(":")[2])
        if not before:
            await server.__aexit__(None, None, None)
        chat = openai_chat(model="test", base_url=server.url, stream=stream, silence=SILENCE, connections=connections)
        model = Retrying(chat, policy=POLICY, random=lambda: 0.5)
        async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, tools=[look]) as perdure:
            it = AgentWithProvider(await perdure.create_agent("a", model=MODEL, tools=["look"]), server, looked, {})
            for _ in range(2):
                failed = await it.send("go")
                assert isinstance(failed, RunFailed)
                assert failed.stop_reason == "llm_api_error"
                assert f"127.0.0.1:{port}" in str(failed)
                assert f"tried {TRIES} times" in str(failed)
            assert len(server.requests) == bool(before)
            async with HttpModel(port=port) as it.server:
                await it.check(looked=before)


async def test_the_adapter_raises_nothing_untyped() -> None:
    """An option that JSON can't hold included."""
    chat = openai_chat(model="test", base_url="http://127.0.0.1:9")
    request = ModelRequest(model=MODEL, system="", messages=())
    odd = replace(request, options=replace(request.options, extra={"seed": float("inf")}))

    with pytest.raises(ModelError, match="seed"):
        async for _ in chat.respond(odd):
            pass
