"""Agents write to agents by tools: replies, partial results, circles, limits, cancelling and repeated calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, ModelReply, ModelRequest
from perdure.core.errors import CircularWait, TooManyHops
from perdure.core.models import Model
from perdure.features.groups.tools import ALL_TAGS_TOOL, ASYNC_TOOL, HOPS_MAX, TAGS_TOOL, WAIT_TOOL
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, fails, says
from tests.support.library import SlowSpeaker
from tests.support.office import Agents, ended_runs, office, open_office, results, writes

NOBODY = "agent-00000000-0000-4000-8000-000000000009"


async def test_an_agent_gets_the_reply_of_another_one(tmp_path: Path) -> None:
    """The other agent is told who writes; its words are the result of the call."""
    agents: Agents = {}
    ann = ScriptedModel(writes(agents, WAIT_TOOL, "bob", "Which colour?"), says("It is blue."))
    async with office(tmp_path, agents, ann=ann, bob=ScriptedModel(says("Blue."))):
        reply = await agents["ann"].send("Ask Bob")
        (message, *_) = await agents["bob"].messages()

    (result,) = results(reply.messages)
    assert (reply.text, result.status) == ("It is blue.", "success")
    assert json.loads(result.text) == {"agent_id": agents["bob"].id, "response": ["Blue."]}
    assert message.text.startswith(f"[Incoming message from agent with ID '{agents['ann'].id}' - ")
    assert message.text.endswith("\n\nWhich colour?")
    assert (message.role, message.sender_id) == ("user", agents["ann"].id)


async def test_an_agent_goes_on_without_waiting(tmp_path: Path) -> None:
    """The message is stored when the call has its result; the other agent answers in a run of its own."""
    agents: Agents = {}
    bob = SlowSpeaker("Later.")
    ann = ScriptedModel(writes(agents, ASYNC_TOOL, "bob", "Have a look"))
    async with office(tmp_path, agents, ann=ann, bob=bob) as perdure:
        reply = await agents["ann"].send("Tell Bob")
        (message, *_) = await agents["bob"].messages()
        bob.go.set()
        runs = await ended_runs(perdure)

    assert [result.text for result in results(reply.messages)] == ["Successfully sent message"]
    assert message.text.endswith("\n\nHave a look")
    assert [run.stop_reason for run in runs] == ["end_turn", "end_turn"]


async def test_each_of_several_agents_has_its_reply_or_error(tmp_path: Path) -> None:
    """One that fails or is too late does not take the others' replies."""
    agents: Agents = {}
    slow = SlowSpeaker("Too late.")
    lead = ScriptedModel(calls(TAGS_TOOL, message="Report", match_all=[], match_some=["w", "s"]), says("Thanks"))
    models: dict[str, Model] = {"lead": lead, "x": ScriptedModel(), "w1": ScriptedModel(says("One."))}
    models |= {"w2": ScriptedModel(fails("no power")), "slow": slow}
    async with open_office(tmp_path, agents, models, agent_reply_s=0.2):
        reply = await agents["lead"].send("Ask all")
        slow.go.set()

    (result,) = results(reply.messages)
    first, second, third = json.loads(result.text)
    assert (result.status, reply.text) == ("success", "Thanks")
    assert first == {"agent_id": agents["w1"].id, "name": "w1", "response": ["One."]}
    assert (second["agent_id"], third["agent_id"]) == (agents["w2"].id, agents["slow"].id)
    assert (second["type"], third["type"]) == ("AgentFailed", "ReplyTimeout")
    assert "no power" in second["error"]
    assert third["error"].endswith(f"did not reply within 0.2 s; it goes on in {third['run_id']}")


@pytest.mark.parametrize(
    ("tool", "arguments", "found"),
    [
        (TAGS_TOOL, {"match_all": ["a", "b"], "match_some": []}, ["both"]),
        (TAGS_TOOL, {"match_all": [], "match_some": ["a", "x"]}, ["both", "one"]),
        (TAGS_TOOL, {"match_all": ["a"], "match_some": ["b", "x"]}, ["both"]),
        (ALL_TAGS_TOOL, {"tags": ["a", "b"]}, ["both"]),
    ],
)
async def test_both_conditions_on_tags_hold(
    tmp_path: Path, tool: str, arguments: dict[str, Any], found: list[str]
) -> None:
    """The sender itself and hidden agents are left out."""
    agents: Agents = {}
    lead = ScriptedModel(calls(tool, message="Report", **arguments))
    workers = {"both": ["a", "b"], "one": ["a"], "hidden": ["a", "b"], "lead": ["a", "b", "x"]}
    async with office(tmp_path, agents, lead=lead, **{name: ScriptedModel() for name in workers if name != "lead"}):
        for name, tags in workers.items():
            await agents[name].update(tags=tags, hidden=name == "hidden")
        reply = await agents["lead"].send("Ask")

    (result,) = results(reply.messages)
    assert [one["agent_id"] for one in json.loads(result.text)] == [agents[name].id for name in found]


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        (WAIT_TOOL, {"message": "Hello", "other_agent_id": "bob"}, "other_agent_id is 'bob': give the id of an agent"),
        (WAIT_TOOL, {"message": "Hello", "other_agent_id": NOBODY}, "not found"),
        (ASYNC_TOOL, {"message": "Hello", "other_agent_id": "ann"}, "write to another agent"),
        (ASYNC_TOOL, {"message": " ", "other_agent_id": "bob"}, "the message is empty"),
        (TAGS_TOOL, {"message": "Hello", "match_all": [], "match_some": []}, "no tags: name at least one"),
        (ALL_TAGS_TOOL, {"message": "Hello", "tags": ["nobody"]}, "no other agent has these tags: nobody"),
    ],
)
async def test_what_can_not_be_sent_is_refused(
    tmp_path: Path, tool: str, arguments: dict[str, Any], problem: str
) -> None:
    """The result says why, and the run goes on."""
    agents: Agents = {}

    def call(request: ModelRequest) -> ModelReply:
        other = arguments.get("other_agent_id")
        named = {"other_agent_id": agents[other].id} if other in agents and problem[:5] != "other" else {}
        return calls(tool, **{**arguments, **named})

    bob = ScriptedModel()
    async with office(tmp_path, agents, ann=ScriptedModel(call), bob=bob):
        reply = await agents["ann"].send("Go")

    (result,) = results(reply.messages)
    assert (result.status, reply.stop_reason, bob.requests) == ("error", "end_turn", [])
    assert result.text.startswith(f"Error executing function {tool}: ")
    assert problem in result.text


async def test_a_circle_of_waiting_agents_is_refused(tmp_path: Path) -> None:
    """The last one of it is told so, and all of them end."""
    agents: Agents = {}
    ann = ScriptedModel(writes(agents, WAIT_TOOL, "bob"), says("ann is done."))
    bob = ScriptedModel(writes(agents, WAIT_TOOL, "cid"), says("bob is done."))
    cid = ScriptedModel(writes(agents, WAIT_TOOL, "ann"), says("cid is done."))
    async with office(tmp_path, agents, ann=ann, bob=bob, cid=cid):
        async with asyncio.timeout(10):
            reply = await agents["ann"].send("Find out")

    assert reply.text == "ann is done."
    assert str(CircularWait(agents["ann"].id)) in cid.requests[-1].messages[-1].text
    assert '"response": ["bob is done."]' in ann.requests[-1].messages[-1].text


class Meeting:
    """A model whose first answer comes when all at the table are being asked; it writes to the other agent."""

    def __init__(self, agents: Agents, other: str, table: asyncio.Barrier) -> None:
        self._answers = [writes(agents, WAIT_TOOL, other)]
        self._table = table

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelReply]:
        if self._answers:
            await self._table.wait()
            yield replace(self._answers.pop()(request))
        else:
            yield says("Done.")


async def test_two_runs_may_not_wait_for_each_other(tmp_path: Path) -> None:
    """Neither began because of the other, but the message to each would wait behind its run."""
    agents: Agents = {}
    table = asyncio.Barrier(2)
    async with office(tmp_path, agents, ann=Meeting(agents, "bob", table), bob=Meeting(agents, "ann", table)):
        async with asyncio.timeout(10):
            replies = await asyncio.gather(agents["ann"].send("Go"), agents["bob"].send("Go"))

    texts = [result.text for reply in replies for result in results(reply.messages)]
    assert [reply.stop_reason for reply in replies] == ["end_turn", "end_turn"]
    assert sum("waits for your own answer" in text for text in texts) == 1


async def test_a_message_is_passed_on_a_limited_number_of_times(tmp_path: Path) -> None:
    """Two agents that answer each message with another one come to an end."""
    agents: Agents = {}
    ann = ScriptedModel(otherwise=lambda request: _pass_on(request, agents, "bob"))
    bob = ScriptedModel(otherwise=lambda request: _pass_on(request, agents, "ann"))
    async with office(tmp_path, agents, ann=ann, bob=bob) as perdure:
        await agents["ann"].send("Start")
        runs = await ended_runs(perdure)
        last = (await agents["ann" if len(runs) % 2 else "bob"].messages())[-2]

    assert [run.options.hops for run in runs] == list(range(HOPS_MAX + 1))
    assert str(TooManyHops(HOPS_MAX)) in last.text


def _pass_on(request: ModelRequest, agents: Agents, other: str) -> ModelReply:
    """One message for each that comes."""
    if request.messages[-1].role == "tool":
        return says("Passed on.")
    return writes(agents, ASYNC_TOOL, other)(request)


async def test_cancelling_a_run_cancels_those_that_it_waits_for(tmp_path: Path) -> None:
    """Nobody would read their replies."""
    agents: Agents = {}
    bob = SlowSpeaker("Slow.")
    async with office(tmp_path, agents, ann=ScriptedModel(writes(agents, WAIT_TOOL, "bob")), bob=bob) as perdure:
        run = await agents["ann"].submit("Ask Bob")
        await bob.speaking.wait()
        await agents["ann"].cancel(run.run.id)
        runs = await ended_runs(perdure)

    assert [run.stop_reason for run in runs] == ["cancelled", "cancelled"]


async def test_a_call_that_is_repeated_after_a_crash_sends_its_message_once(tmp_path: Path) -> None:
    """The next process finds the run that the call began, and waits for its reply."""
    agents: Agents = {}
    slow = SlowSpeaker("Bob is here.")
    async with office(tmp_path, agents, ann=ScriptedModel(writes(agents, WAIT_TOOL, "bob")), bob=slow):
        run = await agents["ann"].submit("Ask Bob")
        await slow.speaking.wait()  # closing now is as a crash for the run: its call has no result

    ann = ScriptedModel(says("He is here."))
    named: dict[str, Model] = {"test/ann": ann, "test/bob": ScriptedModel(says("Bob is here."))}
    settings = replace(Settings(), embedding="none")
    async with await AsyncPerdure.open(tmp_path / "agents.db", models=named, settings=settings) as perdure:
        ann_again = await perdure.agent(agents["ann"].id)
        events = [one async for one in ann_again.follow(run.run.id)]
        incoming = [one for one in await (await perdure.agent(agents["bob"].id)).messages() if one.role == "user"]

    assert events
    assert len(incoming) == 1
    assert '"response": ["Bob is here."]' in ann.requests[-1].messages[-1].text
