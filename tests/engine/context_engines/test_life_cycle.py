"""When the engine room calls the callbacks of a context engine, and what an engine can bring about."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from perdure.context.engines import ContextEngine, EngineConversation, Plan, Situation, Turn, evict_count, split_atoms
from perdure.core.events import EngineQuarantined, PrefixRewritten, ViewFull
from perdure.core.ids import AgentId, MessageId, RunId
from perdure.core.messages import Draft, Message, Text
from perdure.core.runs import RunOptions
from perdure.engine.records.run_request import RunRequest
from perdure.storage.tx import Tx
from tests.engine.context_engines import stories
from tests.engine.context_engines.stories import FILLER, MODEL, Stage, call, tell

Seen = list[tuple[Any, ...]]


def recorder(seen: Seen) -> type[ContextEngine]:
    """An engine that writes down how it is called; half of its callbacks are coroutines."""

    class Recorder(ContextEngine):
        system_prompt_addition = "Ask context_grep. <value>"

        async def bootstrap(self, conversation: EngineConversation, messages: Sequence[Message]) -> None:
            seen.append(("bootstrap", *[message.text for message in messages]))

        def ingest(self, conversation: EngineConversation, messages: Sequence[Message]) -> None:
            seen.append(("ingest", *[message.text for message in messages]))

        def assemble(self, situation: Situation) -> Plan | None:
            seen.append(("assemble", len(situation.rows)))
            return None

        async def after_turn(self, conversation: EngineConversation, turn: Turn) -> None:
            seen.append(("after_turn", turn.stop_reason))

        def maintain(self, conversation: EngineConversation) -> None:
            seen.append(("maintain",))

        def before_subagent(self, conversation: EngineConversation, agent_id: AgentId, message: str) -> None:
            seen.append(("before_subagent", message))

        async def after_subagent(
            self, conversation: EngineConversation, agent_id: AgentId, reply: Sequence[str], error: str | None
        ) -> None:
            seen.append(("after_subagent", *reply, error))

        def dispose(self) -> None:
            seen.append(("dispose",))

    return Recorder


async def settle(stage: Stage) -> None:
    while tasks := stage.perdure.app.runner.after_runs.tasks:
        await asyncio.wait(tasks)


async def test_each_callback_comes_at_its_time() -> None:
    """Two runs and a new process: the second knows the messages of the first, the new process is told of its view."""
    seen: Seen = []

    async def two_runs(stage: Stage) -> None:
        await stage.say("one", "first")
        await settle(stage)
        await stage.say("two", "second")
        await settle(stage)
        await stage.perdure.close()
        stage.perdure = await stage.open()
        stage.agent = await stage.perdure.agent(stage.agent.id)
        await stage.say("three", "third")
        await settle(stage)

    told = await tell(two_runs, "recorder", {"recorder": recorder(seen)})

    assert seen == [
        *[("bootstrap", "one"), ("assemble", 1), ("ingest", "first"), ("after_turn", "end_turn"), ("maintain",)],
        *[("ingest", "two"), ("assemble", 3), ("ingest", "second"), ("after_turn", "end_turn"), ("maintain",)],
        ("dispose",),
        ("bootstrap", "one", "first", "two", "second", "three"),
        *[("assemble", 5), ("ingest", "third"), ("after_turn", "end_turn"), ("maintain",)],
        ("dispose",),
    ]
    stories.nobody_is_quarantined(told)


async def test_it_hears_of_runs_with_a_system_text_of_their_own() -> None:
    """Their views are not kept in the process, so the agent is read again."""
    seen: Seen = []

    async def overridden(stage: Stage) -> None:
        ids = stage.perdure.app.ports.ids
        draft = Draft(id=MessageId(ids.new("message")), role="user", parts=(Text("one"),))
        options = RunOptions(system="Be brief.")
        request = RunRequest(
            run_id=RunId(ids.new("run")),
            agent_id=stage.agent.id,
            conversation_seq=0,
            drafts=(draft,),
            tokens=(9,),
            options=options,
        )
        accepted = await stage.perdure.app.runner.accept(request)
        async for _ in stage.perdure.app.runner.follow(accepted.run, known=accepted.events):
            pass
        await settle(stage)

    told = await tell(overridden, "recorder", {"recorder": recorder(seen)})

    assert told.sent[0].system == "Be brief."
    assert ("after_turn", "end_turn") in seen


async def test_its_addition_stands_in_the_system_prompt() -> None:
    """As text, whatever it is; the prefix is stored, so it stays as long as it is sent."""
    told = await tell(stories.small_talk, "recorder", {"recorder": recorder([])})

    section = "<context_engine>\nAsk context_grep. <\\value>\n</context_engine>"
    assert all(section in request.system for request in told.sent)
    stories.every_request_can_be_rebuilt(told)
    plain = await tell(stories.memory_edits, None)
    assert "context_engine" not in plain.sent[0].system


async def test_a_program_with_a_newer_engine_sends_its_addition() -> None:
    """The agent is the same, but the prefix that was stored lacks what the engine adds now."""
    additions = ["Old.", "New."]

    def make() -> ContextEngine:
        engine = ContextEngine()
        engine.system_prompt_addition = additions.pop(0)
        return engine

    async def reopened(stage: Stage) -> None:
        await stage.say("one")
        await stage.perdure.close()
        stage.perdure = await stage.open()
        stage.agent = await stage.perdure.agent(stage.agent.id)
        await stage.say("two")
        await stage.say("three")

    told = await tell(reopened, "newer", {"newer": make})

    assert [("Old." in one.system, "New." in one.system) for one in told.sent] == [(True, False)] + [(False, True)] * 2
    assert [event.reason for event in told.events_of(PrefixRewritten)] == ["first", "settings"]


@pytest.mark.uses("groups")
async def test_it_hears_of_what_its_agent_says_to_others() -> None:
    """Before the message is sent, and when the reply is there or fails."""
    seen: Seen = []

    async def asking(stage: Stage) -> None:
        other = await stage.perdure.create_agent("other", model=MODEL)
        tool = "send_message_to_agent_and_wait_for_reply"
        await stage.perdure.agent_of(stage.agent.id).tools.attach(tool)
        asks = [call(tool, message="how much?", other_agent_id=other.id)]
        nobody = [call(tool, call_id="n", message="hello?", other_agent_id=stage.agent.id)]
        await stage.say("ask", asks, "seven", nobody, "done")

    await tell(asking, "recorder", {"recorder": recorder(seen)})

    calls = [one for one in seen if "subagent" in one[0]]
    assert calls[:2] == [("before_subagent", "how much?"), ("after_subagent", "seven", None)]
    assert calls[2:] == [
        ("before_subagent", "hello?"),
        ("after_subagent", "other_agent_id is your own: write to another agent"),
    ]


async def test_what_fails_after_a_run_is_no_harm_to_the_next() -> None:
    """There is no run that could go on without the engine; the next one asks it again."""

    class Failing(ContextEngine):
        async def after_turn(self, conversation: EngineConversation, turn: Turn) -> None:
            raise RuntimeError("after_turn")

        def dispose(self) -> None:
            raise RuntimeError("dispose")

    told = await tell(stories.small_talk, "failing", {"failing": Failing})

    stories.every_run_has_ended(told)
    stories.nobody_is_quarantined(told)


@pytest.mark.uses("groups")
async def test_a_callback_that_fails_in_a_run_ends_in_quarantine() -> None:
    """The agent's message is sent all the same."""

    class Failing(ContextEngine):
        def before_subagent(self, conversation: EngineConversation, agent_id: AgentId, message: str) -> None:
            raise RuntimeError("not now")

    async def asking(stage: Stage) -> None:
        other = await stage.perdure.create_agent("other", model=MODEL)
        tool = "send_message_to_agent_and_wait_for_reply"
        await stage.perdure.agent_of(stage.agent.id).tools.attach(tool)
        await stage.say("ask", [call(tool, message="how much?", other_agent_id=other.id)], "seven", "done")

    told = await tell(asking, "failing", {"failing": Failing})

    (event,) = told.events_of(EngineQuarantined)
    assert event.reason == "before_subagent raised RuntimeError: not now"
    assert "seven" in told.sent[-1].messages[-1].text
    stories.every_run_has_ended(told)


async def test_its_own_summary_stands_in_the_view() -> None:
    """With what code found in the messages and the engine left out; no model is asked."""

    class Own(ContextEngine):
        owns_compaction = True

        def assemble(self, situation: Situation) -> Plan | None:
            may_leave, _ = split_atoms(situation)
            found = evict_count(situation, len(may_leave) - 2, absorbs=True) if len(may_leave) > 4 else None
            if found is None:
                return None
            return replace(found, text="They spoke of harbours.")

    async def talk(stage: Stage) -> None:
        for number in range(6):
            await stage.say(f"message {number} {FILLER * 10}")

    told = await tell(talk, "own", {"own": Own})

    assert told.by == {"engine"}
    assert {node.made_by for node in told.nodes.values()} == {"engine"}
    assert len(told.shown) == 1
    assert told.shown[0].text.startswith("They spoke of harbours.")
    stories.every_message_is_reachable(told)
    stories.every_request_can_be_rebuilt(told)


async def test_without_owning_compaction_an_engine_gets_prepared_summaries() -> None:
    """They are there before it is asked; one that owns compaction gets none."""

    class Shared(ContextEngine):
        pass

    class Owning(ContextEngine):
        owns_compaction = True

    prepared: dict[str, int] = {"shared": 0, "owning": 0}

    def count_waiting(tx: Tx, agent_id: AgentId) -> int:
        prefix = tx.prefixes.get(agent_id, tx.conversations.get_by_seq(agent_id, 0).prefix_seq or 0)
        return sum(node.upto_message_seq >= prefix.from_message_seq for node in tx.nodes.list(agent_id, 0))

    async def talk(name: str, stage: Stage) -> None:
        for number in range(8):
            await stage.say(f"message {number} {FILLER * 30}")
            await settle(stage)
            prepared[name] += await stage.perdure.app.ports.store.read(count_waiting, stage.agent.id)

    engines = {"shared": Shared, "owning": Owning}
    told = [await tell(functools.partial(talk, name), name, engines) for name in engines]

    assert all(one.events_of(ViewFull) and not one.events_of(EngineQuarantined) for one in told)
    assert prepared["shared"] > 0
    assert prepared["owning"] == 0
