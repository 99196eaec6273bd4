"""Conversations, steps and prefixes: how each request was made."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ConversationId, StepId
from perdure.core.messages import Text
from perdure.core.models import Exchange
from perdure.core.runs import Failure, Prefix, PrefixChange, Recipe, Run, RunKey, Step, StepFilter, Usage
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, LATER, Contract, claimed, raises

RECIPE = Recipe(
    prefix_seq=3, upto_message_seq=9, tail='{"type": "context_status"} \x00 \ud800', settings_revision=2, estimator=1.25
)


class StepContract(Contract):
    async def test_conversations_are_numbered_from_the_default_one(self) -> None:
        """The first has number 0; pages follow their numbers."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            for _ in range(3):
                await store.write(
                    lambda tx: tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                )

            def look(tx: Tx) -> list[list[int]]:
                first = tx.conversations.list(agent.id, limit=2)
                rest = tx.conversations.list(agent.id, after_seq=first[-1].seq)
                return [[one.seq for one in page] for page in (first, rest)]

            assert await store.read(look) == [[0, 1], [2, 3]]
            with raises(NotFound):
                await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 4))
            with raises(NotFound):
                await store.write(
                    lambda tx: tx.conversations.add(
                        AgentId(self.ids.new("agent")), ConversationId(self.ids.new("conversation")), at=AT
                    )
                )

    async def test_steps_of_all_agents_are_paged_by_time(self) -> None:
        """Those of one agent by their numbers; the steps of a hidden run are left out, and feedback filters."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> list[Step]:
                runs = [self.add_run(tx, self.add_agent(tx).id) for _ in range(2)]
                return [
                    tx.steps.add(
                        run,
                        StepId(self.ids.new("step")),
                        index=index,
                        model=f"test/m{index}",
                        recipe=RECIPE,
                        at=AT + timedelta(minutes=10 * index + place),
                    )
                    for place, run in enumerate(runs)
                    for index in range(2)
                ]

            a0, a1, b0, b1 = await store.write(fill)

            async def page(where: StepFilter, **place: Any) -> list[StepId]:
                return [step.id for step in await store.read(lambda tx: tx.steps.page(where, **place))]

            assert await page(StepFilter()) == [b1.id, a1.id, b0.id, a0.id]
            assert await page(StepFilter(), after=a1, limit=1) == [b0.id]
            assert await page(StepFilter(), before=a0, limit=2) == [a1.id, b0.id]
            assert await page(StepFilter(), newest_first=False, after=b0) == [a1.id, b1.id]
            assert await page(StepFilter(agent_id=a0.agent_id), newest_first=False) == [a0.id, a1.id]
            assert await page(StepFilter(model="m1")) == await page(StepFilter(since=a1.created_at)) == [b1.id, a1.id]
            assert await page(StepFilter(until=b0.created_at)) == [b0.id, a0.id]
            marked = await store.write(lambda tx: tx.steps.put_feedback(b0, "positive", ["a", "b"]))
            assert await store.read(lambda tx: tx.steps.get(b0.id)) == marked
            assert await page(StepFilter(feedback="positive")) == await page(StepFilter(tags=("b",))) == [b0.id]
            assert await page(StepFilter(feedback="negative")) == await page(StepFilter(tags=("c",))) == []
            await store.write(lambda tx: tx.runs.hide(RunKey(b0.agent_id, b0.run_seq)))
            assert await page(StepFilter()) == [a1.id, a0.id]

    async def test_a_conversation_knows_what_its_log_shows(self) -> None:
        """Block versions are stored; with a new prefix, the tokens of the view are counted from where it begins."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            await store.write(lambda tx: self.say(tx, agent.id, "a", "b", "c", tokens=10, at=LATER))
            seen = {"block-1": 4}
            prefix = Prefix(
                agent_id=agent.id,
                seq=0,
                conversation_seq=0,
                reason="window",
                system="s",
                tools=(),
                from_message_seq=1,
                created_at=AT,
            )

            def show(tx: Tx) -> int:
                stored = tx.prefixes.add(prefix)
                tx.conversations.put_seen_versions(agent.id, 0, seen, prefix=stored)
                return stored.seq

            before = await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))
            seq = await store.write(show)
            after = await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))
            assert (before.view_tokens, before.seen, before.prefix_seq) == (30, {}, None)
            assert before.last_message_at == LATER
            assert after == replace(before, view_tokens=20, seen=seen, prefix_seq=seq)

            await store.write(lambda tx: tx.conversations.put_seen_versions(agent.id, 0, {}))
            await store.write(lambda tx: self.say(tx, agent.id, "d", tokens=5, at=LATER))
            assert await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0)) == replace(
                after, view_tokens=25, seen={}
            )

            await store.write(lambda tx: tx.conversations.remove_prefix(agent.id, 0))
            assert await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0)) == replace(
                after, view_tokens=25, seen={}, prefix_seq=None
            )

    async def test_a_step_keeps_its_recipe_and_outcome(self) -> None:
        """A step comes back as it was recorded, pending first, then as it ended."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[Run, list[Step]]:
                agent = self.add_agent(tx)
                run = replace(claimed(tx, self.add_run(tx, agent.id).key), lease_number=7)
                steps = [
                    tx.steps.add(
                        run,
                        StepId(self.ids.new("step")),
                        index=index,
                        model="test/model \x00",
                        recipe=RECIPE,
                        at=AT + timedelta(seconds=index),
                    )
                    for index in range(2)
                ]
                return run, steps

            run, steps = await store.write(fill)
            assert [step.status for step in steps] == ["pending", "pending"]
            assert [(step.index, step.lease_number, step.recipe) for step in steps] == [(0, 7, RECIPE), (1, 7, RECIPE)]
            assert await store.read(lambda tx: tx.steps.list_by_run(run.key)) == steps

            usage = Usage(input_tokens=5, reasoning_tokens=1)
            failure = Failure(kind="llm_error", message="down")
            ends = [
                await store.write(lambda tx: tx.steps.end(steps[0], status="success", at=LATER, usage=usage)),
                await store.write(
                    lambda tx: tx.steps.end(
                        steps[1], status="failed", at=LATER, stop_reason="llm_api_error", failure=failure
                    )
                ),
            ]
            assert [step.usage for step in ends] == [usage, Usage()]
            assert ends[1].failure == failure
            assert await store.read(lambda tx: tx.steps.list_by_run(run.key)) == ends
            assert await store.read(lambda tx: tx.steps.get(steps[1].id)) == ends[1]

    async def test_a_step_keeps_what_went_over_the_wire(self) -> None:
        """Any text of it; a second exchange replaces the first; nothing where there was none."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[Step, Step]:
                run = self.add_run(tx, self.add_agent(tx).id)
                first, second = (
                    tx.steps.add(run, StepId(self.ids.new("step")), index=index, model="m", recipe=RECIPE, at=AT)
                    for index in range(2)
                )
                return first, second

            first, second = await store.write(fill)
            for attempts in (1, 2):
                exchange = Exchange(
                    request={"url": "http://127.0.0.1"}, response={"said": "\x00 \ud800 中"}, attempts=attempts
                )
                await store.write(lambda tx, exchange=exchange: tx.steps.put_exchange(first, exchange))  # type: ignore[misc]
                assert await store.read(lambda tx: tx.steps.exchange(first)) == exchange
            assert await store.read(lambda tx: tx.steps.exchange(second)) is None

    async def test_steps_are_listed_from_the_newest(self) -> None:
        """Of an agent, or of one conversation; pages follow each other; another agent's are not among them."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[AgentId, list[Step]]:
                agent, other = self.add_agent(tx), self.add_agent(tx)
                tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                steps = []
                for owner, line, count in ((agent.id, 0, 2), (agent.id, 1, 2), (other.id, 0, 1), (agent.id, 0, 1)):
                    run = self.add_run(tx, owner, conversation_seq=line)
                    steps += [
                        tx.steps.add(run, StepId(self.ids.new("step")), index=index, model="m", recipe=RECIPE, at=AT)
                        for index in range(count)
                    ]
                return agent.id, steps

            agent_id, (first, second, third, fourth, _, fifth) = await store.write(fill)

            def look(tx: Tx) -> list[list[Step]]:
                page = tx.steps.list(agent_id, limit=3)
                return [
                    list(page),
                    list(tx.steps.list(agent_id, limit=3, before=page[-1])),
                    list(tx.steps.list(agent_id, conversation_seq=0)),
                    list(tx.steps.list(agent_id, conversation_seq=1, limit=1)),
                    list(tx.steps.list(agent_id, conversation_seq=1, before=third)),
                    list(tx.steps.list(agent_id, conversation_seq=7)),
                ]

            assert await store.read(look) == [
                [fifth, fourth, third],
                [second, first],
                [fifth, second, first],
                [fourth],
                [],
                [],
            ]
            calls = await store.read(lambda tx: tx.steps.list_calls(agent_id, 0, limit=2))
            assert [tuple(call) for call in calls] == [(fifth.run_seq, AT), (second.run_seq, AT)]
            assert await store.read(
                lambda tx: [call.run_seq for call in tx.steps.list_calls(agent_id, 0, limit=2)]
            ) == [fifth.run_seq, second.run_seq]
            assert await store.read(lambda tx: [tx.steps.count_before(one, 0) for one in (first, second, fifth)]) == [
                0,
                1,
                2,
            ]

    async def test_an_unknown_run_has_no_steps(self) -> None:
        """A step is not recorded for a run that is not there."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            ghost = replace(run, key=RunKey(agent.id, 7))
            with raises(NotFound):
                await store.write(
                    lambda tx: tx.steps.add(
                        ghost, StepId(self.ids.new("step")), index=0, model="m", recipe=RECIPE, at=AT
                    )
                )

            assert await store.read(lambda tx: tx.steps.list_by_run(ghost.key)) == []

    async def test_the_last_model_call_is_known(self) -> None:
        """Over all runs of the agent; None before the first."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            assert await store.read(lambda tx: tx.steps.find_last_time(agent.id)) is None

            def ask(tx: Tx, seconds: int) -> None:
                tx.steps.add(
                    self.add_run(tx, agent.id),
                    StepId(self.ids.new("step")),
                    index=0,
                    model="m",
                    recipe=RECIPE,
                    at=AT + timedelta(seconds=seconds),
                )

            await store.write(ask, 1)
            await store.write(ask, 2)

            assert await store.read(lambda tx: tx.steps.find_last_time(agent.id)) == AT + timedelta(seconds=2)

    async def test_prefixes_say_what_is_new_in_them(self) -> None:
        """The rewrites of a conversation with their changes, and the rows that were revised behind a prefix."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            rows = await store.write(lambda tx: self.say(tx, agent.id, "a", "b", "c"))
            first = Prefix(
                agent_id=agent.id,
                seq=0,
                conversation_seq=0,
                reason="first",
                system="s",
                tools=(),
                from_message_seq=rows[1].seq,
                created_at=AT,
            )
            changes = (PrefixChange("block", "human", "changed", "user"),)
            second = replace(first, reason="settings", changes=changes)

            def fill(tx: Tx) -> list[Prefix]:
                return [tx.prefixes.add(one) for one in (first, second, replace(first, conversation_seq=1))]

            stored = await store.write(fill)
            for row in rows[:2]:
                await store.write(lambda tx, row=row: tx.messages.revise(row.id, [Text("x")], author=ADA, at=AT))  # type: ignore[misc]

            def rewrites(after: int, upto: int) -> Any:
                return store.read(
                    lambda tx: list(tx.prefixes.list_rewrites(agent.id, 0, after_seq=after, upto_seq=upto))
                )

            assert await rewrites(-1, 9) == [(0, "first", ()), (1, "settings", changes)]
            assert await rewrites(0, 1) == [(1, "settings", changes)]
            assert await rewrites(1, 9) == []
            assert list(await store.read(lambda tx: tx.prefixes.list_revised(stored[0]))) == [rows[1].seq]
            assert list(await store.read(lambda tx: tx.prefixes.list_revised(stored[2]))) == []

    async def test_a_prefix_is_kept_byte_for_byte(self) -> None:
        """System text, tools with the order of their keys, and what was folded in come back as they were sent."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            prefix = Prefix(
                agent_id=agent.id,
                seq=0,
                conversation_seq=0,
                reason="first",
                system="You are \x00 \ud800 🧭",
                tools=({"name": "b", "description": "中", "parameters": {"z": 1, "a": [1, 2.5, None, True]}},),
                seen={"block-2": 1, "block-1": 0},
                from_message_seq=4,
                settings_revision=2,
                tokens=99,
                created_at=AT,
            )
            first = await store.write(lambda tx: tx.prefixes.add(prefix))
            second = await store.write(lambda tx: tx.prefixes.add(prefix))
            stored = await store.read(lambda tx: tx.prefixes.get(agent.id, second.seq))

            assert (first.seq, second.seq) == (0, 1)
            assert stored == second == replace(prefix, seq=1)
            assert str(stored.tools) == str(prefix.tools)
            with raises(NotFound):
                await store.read(lambda tx: tx.prefixes.get(agent.id, 2))
            with raises(NotFound):
                await store.write(lambda tx: tx.prefixes.add(replace(prefix, agent_id=AgentId(self.ids.new("agent")))))
