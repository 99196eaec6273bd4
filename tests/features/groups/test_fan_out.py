"""One agent writes to many by their tags: partial results, limits, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, ModelReply, ModelRequest, Reply
from perdure.core.models import Model
from perdure.features.groups import tools as toolbox
from perdure.features.groups.tools import ALL_TAGS_TOOL, REPLY_MAX_CHARS, WAIT_TOOL
from perdure.testing import ScriptedModel, calls, fails, says
from tests.support.library import SlowSpeaker
from tests.support.office import Agents, ended_runs, office, open_office, results, writes

# Of how many agents the answers come in time, and what the others are waited for: all is slower on a busy machine.
GOOD, TIMEOUT_S = (45, 3.0) if os.environ.get("PERDURE_FAULTS") == "full" else (10, 0.5)


def asks_all(tag: str = "w") -> ModelReply:
    """The call that writes to all agents with the tag."""
    return calls(ALL_TAGS_TOOL, message="Report", tags=[tag])


def answers(reply: Reply) -> list[dict[str, Any]]:
    """What the lead heard of each agent."""
    (result,) = results(reply.messages)
    return list(json.loads(result.text))


async def hire(perdure: AsyncPerdure, count: int, *, model: str = "test/w") -> None:
    """So many more workers."""
    for number in range(count):
        await perdure.create_agent(f"{model[5:]}-{number}", model=model, tags=["w"])


@dataclass
class Worker:
    """A model that answers when so many are being asked."""

    table: asyncio.Barrier
    text: str = "Done."

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelReply]:
        async with asyncio.timeout(20):
            await self.table.wait()
        yield says(self.text)


@dataclass
class Counting:
    """A model that knows how many requests it answers at the same time."""

    now: int = 0
    most: int = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelReply]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.005)
        self.now -= 1
        yield says("Done.")


async def test_fifty_agents_answer_at_once(tmp_path: Path) -> None:
    """Each begins before the first has replied."""
    agents: Agents = {}
    lead = ScriptedModel(asks_all())
    async with office(tmp_path, agents, lead=lead, w=Worker(asyncio.Barrier(50))) as perdure:
        await hire(perdure, 49)
        reply = await agents["lead"].send("Ask all")

    assert [one["response"] for one in answers(reply)] == [["Done."]] * 50


async def test_some_that_are_slow_or_fail_do_not_keep_the_others_answers(tmp_path: Path) -> None:
    """Of fifty (in the short form fewer), three are late and two fail: the call returns at the time-out, names the five
    and says why; the late ones go on, and when they have ended nothing is left of the call."""
    agents: Agents = {}
    slow, lead = SlowSpeaker("Late."), ScriptedModel(asks_all(), says("Thanks."))
    models: dict[str, Model] = {"lead": lead, "w": Worker(asyncio.Barrier(GOOD)), "late": slow}
    models["down"] = ScriptedModel(otherwise=fails("no power"))
    async with open_office(tmp_path, agents, models, agent_reply_s=TIMEOUT_S) as perdure:
        await hire(perdure, GOOD - 1)
        await hire(perdure, 3, model="test/late")
        await hire(perdure, 2, model="test/down")
        runner = perdure.app.runner
        tasks, began = set(asyncio.all_tasks()), asyncio.get_running_loop().time()
        reply = await agents["lead"].send("Ask all")
        took_s = asyncio.get_running_loop().time() - began
        still_read = dict(runner._readers)
        slow.go.set()
        runs = await ended_runs(perdure)
        left = {task for task in asyncio.all_tasks() - tasks if not task.done()}

    heard = answers(reply)
    assert [one.get("type", "reply") for one in heard] == ["reply"] * GOOD + ["ReplyTimeout"] * 3 + ["AgentFailed"] * 2
    assert all(f"within {TIMEOUT_S:g} s" in one["error"] for one in heard[GOOD:][:3])
    assert all("no power" in one["error"] for one in heard[GOOD + 3 :])
    assert took_s < TIMEOUT_S + 5, "a late answer would never have come"
    assert {run.id for run in runs} >= {one["run_id"] for one in heard[GOOD:]}
    shown = lead.requests[-1].messages[-1].text
    assert shown.count("ReplyTimeout") >= 3
    assert shown.count("no power") >= 2, "the model sees each failure, whatever is left out of the replies"
    assert (still_read, left) == ({}, set())


async def test_a_call_waits_for_some_agents_at_a_time(tmp_path: Path) -> None:
    """`agent_sends_at_once` of them; the others follow."""
    agents: Agents = {}
    counting = Counting()
    models: dict[str, Model] = {"lead": ScriptedModel(asks_all()), "w": counting}
    async with open_office(tmp_path, agents, models, agent_sends_at_once=3) as perdure:
        await hire(perdure, 11)
        reply = await agents["lead"].send("Ask all")

    assert [one["response"] for one in answers(reply)] == [["Done."]] * 12
    assert 1 < counting.most <= 3


async def test_a_long_reply_is_cut(tmp_path: Path) -> None:
    """What many agents say must not fill the memory; the entry says where the rest stands."""
    agents: Agents = {}
    lead = ScriptedModel(asks_all())
    async with office(tmp_path, agents, lead=lead, w=ScriptedModel(says("x" * 200_000))) as perdure:
        reply = await agents["lead"].send("Ask all")
        (run, *_) = [run for run in await ended_runs(perdure) if run.options.caller]

    (answer,) = answers(reply)
    assert answer["response"][0] == "x" * REPLY_MAX_CHARS + f"… [150,000 more characters in {run.id}]"


async def test_more_agents_than_a_call_may_write_to_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody gets the message; those that a second condition leaves out do not count."""
    monkeypatch.setattr(toolbox, "AGENTS_MAX", 4)
    agents: Agents = {}
    both = calls("send_message_to_agents_matching_tags", message="Report", match_all=["w"], match_some=["last"])
    async with office(tmp_path, agents, lead=ScriptedModel(asks_all(), both), w=ScriptedModel()) as perdure:
        await hire(perdure, 9)
        last = await perdure.create_agent("last", model="test/w", tags=["w", "last"])
        reply = await agents["lead"].send("Ask all")

    refused, heard = results(reply.messages)
    assert "more than 4 agents have these tags" in refused.text
    assert [one["agent_id"] for one in json.loads(heard.text)] == [last.id]


async def test_an_agent_that_is_deleted_while_it_speaks_has_no_reply(tmp_path: Path) -> None:
    """The others' replies are there, and the entry says why this one has none."""
    agents: Agents = {}
    gone = SlowSpeaker("Never.")
    lead = ScriptedModel(asks_all())
    async with office(tmp_path, agents, lead=lead, w=ScriptedModel(says("One.")), wgone=gone) as perdure:
        asking = asyncio.create_task(agents["lead"].send("Ask all"))
        await gone.speaking.wait()
        await perdure.delete_agent(agents["wgone"].id)
        async with asyncio.timeout(10):
            reply = await asking

    assert [one.get("type") for one in answers(reply)] == [None, "NotFound"]


async def test_a_caller_that_is_deleted_while_it_waits_leaves_nobody_working(tmp_path: Path) -> None:
    """The runs that it waits for are cancelled, since nobody would read their replies."""
    agents: Agents = {}
    bob = SlowSpeaker("Slow.")
    async with office(tmp_path, agents, ann=ScriptedModel(writes(agents, WAIT_TOOL, "bob")), bob=bob) as perdure:
        await agents["ann"].submit("Ask Bob")
        await bob.speaking.wait()
        await perdure.delete_agent(agents["ann"].id)
        async with asyncio.timeout(10):
            runs = await ended_runs(perdure)

    assert [run.stop_reason for run in runs] == ["cancelled"]


async def test_agents_that_all_write_to_all_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run leads to a limited number of others, however many hops are left: the calls beyond it say why."""
    monkeypatch.setattr(toolbox, "MESSAGES_MAX", 12)
    agents: Agents = {}

    def passes_on(request: ModelRequest) -> ModelReply:
        return says("Heard.") if request.messages[-1].role == "tool" else asks_all()

    model = ScriptedModel(otherwise=passes_on)
    async with office(tmp_path, agents, w=model) as perdure:
        for number in range(4):
            worker = await perdure.create_agent(f"w{number}", model="test/w", tags=["w"])
            await worker.tools.attach(ALL_TAGS_TOOL)
        async with asyncio.timeout(30):
            run = (await agents["w"].send("Start")).run_id
            runs = await ended_runs(perdure)

    assert len(runs) == 1 + 12
    assert {one.options.origin for one in runs if one.id != run} == {run}
    assert any("TooManyMessages" in request.messages[-1].text for request in model.requests)
