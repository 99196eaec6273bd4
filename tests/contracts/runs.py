"""Runs: one at a time in a conversation, held under a lease, accepted once per key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.agents import Agent
from perdure.core.conversations import ConversationState
from perdure.core.errors import LeaseLost, NotFound
from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.runs import FAILED_REASONS, Failure, Run, RunFilter, RunKey, StopReason, Usage
from perdure.storage.tx import Tx
from tests.contracts.base import AT, AWKWARD, LATER, UNTIL, Contract, claimed, raises

SECOND = timedelta(seconds=1)


def ended(tx: Tx, key: RunKey, *, reason: StopReason = "end_turn", failure: Failure | None = None) -> Run:
    return tx.runs.end(tx.runs.get_by_key(key), reason=reason, usage=Usage(), step_count=1, failure=failure, at=AT)


def _opening(tx: Tx, agent_id: AgentId, seq: int) -> ConversationState:
    return tx.conversations.get_state(agent_id, seq)


def _put(tx: Tx, agent: Agent) -> Agent:
    return tx.agents.put(agent)


class RunContract(Contract):
    async def test_a_run_waits_until_it_is_claimed(self) -> None:
        """It is queued, numbered by its agent, and knows its conversation; claiming makes it run under lease 1."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            first = await store.write(self.add_run, agent.id)
            conversation = await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))

            assert (first.key, first.status, first.lease_number) == (RunKey(agent.id, 0), "queued", 0)
            assert first.conversation_id == conversation.id
            assert not first.ended

            run = await store.write(claimed, first.key, "here")
            assert run == replace(
                first, status="running", lease_owner="here", lease_number=1, lease_until=UNTIL, started_at=AT
            )
            assert await store.read(lambda tx: tx.runs.get(first.id)) == run
            assert await store.read(lambda tx: tx.runs.get_by_key(first.key)) == run

    async def test_what_waits_for_a_request_stands_on_the_run(self) -> None:
        """It is there whoever reads the run, until something else, or nothing, takes its place."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            assert run.context == ()

            waiting = await store.write(lambda tx: tx.runs.set_context(tx.runs.get_by_key(run.key), AWKWARD))
            assert waiting.context == AWKWARD
            assert await store.read(lambda tx: tx.runs.get_by_key(run.key)) == waiting
            assert (await store.write(claimed, run.key, "here")).context == waiting.context

            assert (await store.write(lambda tx: tx.runs.set_context(waiting, ()))).context == ()
            assert (await store.read(lambda tx: tx.runs.get_by_key(run.key))).context == ()

    async def test_a_run_takes_the_numbers_of_its_messages(self) -> None:
        """What a conversation's next run begins from is seen in one look; what is reckoned of it is what is stored."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            await store.write(self.say, agent.id, "before")
            drafts = [self.draft("hello"), self.draft("a note", role="system", kind="memory_delta")]

            def add(tx: Tx) -> tuple[Run, ConversationState]:
                tx.agents.lock(agent.id)
                opening = tx.conversations.get_state(agent.id, 0)
                assert opening.conversation == tx.conversations.get_by_seq(agent.id, 0)
                assert (opening.agent, opening.message_count) == (tx.agents.get(agent.id), 1)
                run = tx.runs.add(
                    opening,
                    RunId(self.ids.new("run")),
                    drafts=drafts,
                    at=AT,
                    max_steps=50,
                    background=False,
                    lease_owner=None,
                    lease_until=None,
                    waiting_input=None,
                )
                messages = tx.messages.append(run, drafts, [10, 20], at=AT, opening=opening)
                assert [message.seq for message in messages] == [1, 2]
                return run, opening.with_messages(messages)

            run, reckoned = await store.write(add)
            assert (run.key.seq, run.first_message_seq, reckoned.active_run_seq) == (0, 1, None)

            found = await store.read(lambda tx: tx.conversations.get_state(agent.id, 0))
            assert found == replace(reckoned, active_run_seq=0, next_run_seq=1)
            assert found.message_count == 2

            for agent_id, seq in ((agent.id, 7), (AgentId(self.ids.new("agent")), 0)):
                with raises(NotFound):
                    await store.read(_opening, agent_id, seq)

    async def test_runs_are_counted_by_the_run_that_they_go_back_to(self) -> None:
        """Whichever agent has them, waiting or ended."""
        async with self.open_store() as store:
            ann, bob = [await store.write(self.add_agent) for _ in range(2)]
            first = await store.write(self.add_run, ann.id)
            other = await store.write(self.add_run, ann.id, origin=first.id)
            for agent in (ann, bob):
                await store.write(self.add_run, agent.id, origin=first.id)

            assert await store.read(lambda tx: tx.runs.count_by_origin(first.id)) == 3
            assert len({one.id for one in await store.read(lambda tx: tx.runs.list_by_origin(first.id))}) == 3
            assert await store.read(lambda tx: tx.runs.count_by_origin(other.id)) == 0
            assert (await store.read(lambda tx: tx.runs.get(other.id))).options.origin == first.id

    async def test_only_the_oldest_run_of_a_conversation_is_claimed(self) -> None:
        """The next one's turn comes when it has ended; another conversation does not wait."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> list[Run]:
                agent = self.add_agent(tx)
                tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                return [self.add_run(tx, agent.id, conversation_seq=seq) for seq in (0, 0, 1)]

            first, second, side = await store.write(fill)

            def claim(tx: Tx, run: Run) -> Run | None:
                return tx.runs.claim(run.key, owner="here", at=AT, until=UNTIL)

            assert await store.read(lambda tx: tx.runs.list_oldest(free_at=AT)) == [first, side]
            assert await store.write(claim, second) is None
            assert await store.write(claim, first) is not None
            assert await store.write(claim, second) is None
            assert await store.write(claim, side) is not None
            assert (await store.read(lambda tx: tx.runs.find_active(first.key.agent_id, 0))).id == first.id  # type: ignore[union-attr]

            await store.write(ended, first.key)
            assert await store.read(lambda tx: tx.runs.find_active(first.key.agent_id, 0)) == second
            assert await store.write(claim, second) is not None
            assert await store.write(claim, first) is None

    async def test_a_held_run_is_not_claimed(self) -> None:
        """Neither by another process nor by the holder again, until the lease has run out."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            await store.write(claimed, run.key, "here")

            def claim(tx: Tx, owner: str, seconds: float) -> Run | None:
                at = UNTIL + timedelta(seconds=seconds)
                return tx.runs.claim(run.key, owner=owner, at=at, until=at + 15 * SECOND)

            assert await store.write(claim, "there", -1) is None
            assert await store.write(claim, "here", -1) is None
            assert await store.read(lambda tx: tx.runs.list_oldest(free_at=AT)) == []
            assert [r.id for r in await store.read(lambda tx: tx.runs.list_oldest())] == [run.id]
            assert [r.id for r in await store.read(lambda tx: tx.runs.list_oldest(free_at=LATER))] == [run.id]

            taken = await store.write(claim, "there", 1)
            assert taken is not None
            assert (taken.lease_owner, taken.lease_number, taken.started_at) == ("there", 2, AT)

    async def test_a_reservation_is_its_owners(self) -> None:
        """Whoever accepted a run may claim it at once; others may when the reservation has run out."""
        async with self.open_store() as store:
            agents = [await store.write(self.add_agent) for _ in range(2)]
            runs = await store.write(
                lambda tx: [self.add_run(tx, agent.id, owner="here", until=UNTIL) for agent in agents]
            )

            def claim(tx: Tx, index: int, owner: str, seconds: float) -> Run | None:
                at = UNTIL + timedelta(seconds=seconds)
                return tx.runs.claim(runs[index].key, owner=owner, at=at, until=at)

            assert await store.read(lambda tx: tx.runs.list_oldest(free_at=AT)) == []
            assert await store.write(claim, 0, "there", -1) is None
            assert await store.write(claim, 0, "here", -1) is not None
            assert await store.write(claim, 1, "there", 1) is not None

    async def test_a_dead_holders_lease_is_void(self) -> None:
        """Who knows that the holder is gone needs not wait; naming somebody else gives nothing."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            await store.write(claimed, run.key, "dead")

            def claim(tx: Tx, dead_owner: str | None) -> Run | None:
                return tx.runs.claim(run.key, owner="there", at=AT, until=UNTIL, dead_owner=dead_owner)

            assert await store.write(claim, None) is None
            assert await store.write(claim, "somebody") is None
            taken = await store.write(claim, "dead")
            assert taken is not None
            assert taken.lease_number == 2

    async def test_a_process_that_leaves_gives_its_runs_back(self) -> None:
        """What it held or had reserved may be claimed at once; its ended runs and other holders' stay as they are."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> list[RunKey]:
                keys = [self.add_run(tx, self.add_agent(tx).id, owner="here", until=UNTIL).key for _ in range(3)]
                keys.append(self.add_run(tx, self.add_agent(tx).id, owner="there", until=UNTIL).key)
                claimed(tx, keys[1])
                claimed(tx, keys[2])
                ended(tx, keys[2])
                return keys

            keys = await store.write(fill)
            assert await store.write(lambda tx: tx.runs.release("here")) == 2
            found = [run.key for run in await store.read(lambda tx: tx.runs.list_oldest(free_at=AT))]
            assert found == sorted(keys[:2], key=lambda key: (key.agent_id, key.seq))
            taken = await store.write(claimed, keys[1], "there")
            assert taken.lease_number == 2
            assert await store.write(lambda tx: tx.runs.release("here")) == 0

    async def test_runs_are_given_back_one_by_one_or_those_that_were_not_begun(self) -> None:
        """A run that is given back keeps its status and is free at once; another owner's stays held."""
        async with self.open_store() as store:
            keys = []
            for name in ("a", "b"):
                agent = await store.write(self.add_agent, name)
                keys.append((await store.write(self.add_run, agent.id, owner="here", until=UNTIL)).key)
            await store.write(claimed, keys[0], "here")

            assert not await store.write(lambda tx: tx.runs.give_back(keys[0], "there"))
            assert await store.write(lambda tx: tx.runs.release("here", queued=True)) == 1
            assert [run.key for run in await store.read(lambda tx: tx.runs.list_oldest(free_at=AT))] == [keys[1]]
            assert await store.write(lambda tx: tx.runs.give_back(keys[0], "here"))
            freed = await store.read(lambda tx: tx.runs.get_by_key(keys[0]))
            assert (freed.status, freed.lease_owner, freed.lease_number) == ("running", None, 1)
            assert (await store.write(claimed, keys[0], "there")).lease_number == 2

    async def test_an_older_lease_can_hold_nothing(self) -> None:
        """After a take-over the first holder is told so, whatever its name; the new one goes on."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            await store.write(claimed, run.key, "here")
            await store.write(lambda tx: claimed(tx, run.key, "here", at=LATER, until=LATER + 15 * SECOND))

            def hold(tx: Tx, owner: str, number: int) -> Run:
                return tx.runs.keep_lease(
                    replace(run, lease_owner=owner, lease_number=number), until=LATER + 30 * SECOND
                )

            with raises(LeaseLost):
                await store.write(hold, "here", 1)
            with raises(LeaseLost):
                await store.write(hold, "there", 2)
            held = await store.write(hold, "here", 2)
            assert held.lease_until == LATER + 30 * SECOND

            await store.write(ended, run.key)
            with raises(LeaseLost):
                await store.write(hold, "here", 2)

    async def test_of_many_claims_exactly_one_wins(self) -> None:
        """Two handles race for the same runs: each run has one holder, under lease 1."""
        async with self.open_store() as one, self.open_store() as other:
            runs = []
            for _ in range(5):
                agent = await one.write(self.add_agent)
                runs.append(await one.write(self.add_run, agent.id))

            def claim(tx: Tx, run: Run, owner: str) -> Run | None:
                return tx.runs.claim(run.key, owner=owner, at=AT, until=UNTIL)

            def get(tx: Tx, run: Run) -> Run:
                return tx.runs.get(run.id)

            claims = await asyncio.gather(
                *(
                    store.write(claim, run, f"{name} {index}")
                    for run in runs
                    for index in range(2)
                    for name, store in (("one", one), ("other", other))
                )
            )

            won = [claim for claim in claims if claim is not None]
            assert sorted(claim.id for claim in won) == sorted(run.id for run in runs)
            assert {claim.lease_number for claim in won} == {1}
            assert [await other.read(get, run) for run in won] == won

    async def test_a_race_in_one_conversation_runs_one_run(self) -> None:
        """Two handles claim both runs of a conversation at once: the older one runs, the younger one waits."""
        async with self.open_store() as one, self.open_store() as other:
            agent = await one.write(self.add_agent)
            runs = [await one.write(self.add_run, agent.id) for _ in range(2)]

            def claim(tx: Tx, run: Run) -> Run | None:
                return tx.runs.claim(run.key, owner="w", at=AT, until=UNTIL)

            claims = await asyncio.gather(
                *(store.write(claim, run) for run in reversed(runs) for store in (one, other))
            )

            assert [claim.id for claim in claims if claim is not None] == [runs[0].id]
            assert [r.status for r in await one.read(lambda tx: tx.runs.list(agent.id))] == ["queued", "running"]

    async def test_an_ended_run_says_how_it_ended(self) -> None:
        """Reason, status, usage, steps and failure are kept, its lease is gone; ending twice changes nothing."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            reasons: tuple[StopReason, ...] = ("end_turn", "max_steps", "cancelled", "error", "llm_api_error")
            usage = Usage(input_tokens=1, output_tokens=2, cached_input_tokens=3, cache_write_tokens=4)

            def at(tx: Tx, key: RunKey) -> Run:
                return tx.runs.get_by_key(key)

            for reason in reasons:
                run = await store.write(self.add_run, agent.id)
                await store.write(claimed, run.key)
                failure = Failure(kind="llm_error", message="\x00 down \ud800") if reason in FAILED_REASONS else None

                def end(
                    tx: Tx, key: RunKey = run.key, reason: StopReason = reason, failure: Failure | None = failure
                ) -> Run:
                    return tx.runs.end(
                        tx.runs.get_by_key(key), reason=reason, usage=usage, step_count=3, failure=failure, at=LATER
                    )

                done = await store.write(end)
                status = "cancelled" if reason == "cancelled" else "failed" if failure else "completed"
                assert done.ended
                assert (done.stop_reason, done.status, done.usage) == (reason, status, usage)
                assert (done.step_count, done.failure, done.ended_at) == (3, failure, LATER)
                assert (done.lease_owner, done.lease_until) == (None, None)

                await store.write(ended, run.key, reason="cancelled")
                assert await store.read(at, run.key) == done

    async def test_a_key_leads_to_its_run(self) -> None:
        """Within its conversation; an unknown key, or another conversation's, leads nowhere."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[AgentId, list[Run]]:
                agent = self.add_agent(tx)
                tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                runs = []
                for index, key in enumerate(AWKWARD):
                    runs.append(self.add_run(tx, agent.id, conversation_seq=index % 2))
                    tx.runs.remember_key(runs[-1].key, index % 2, key, digest=f"digest {index}")
                return agent.id, runs

            agent_id, runs = await store.write(fill)
            for index, key in enumerate(AWKWARD):

                def find(tx: Tx, seq: int, key: str = key) -> tuple[Run, str] | None:
                    return tx.runs.find_by_key(agent_id, seq, key)

                assert await store.read(find, index % 2) == (runs[index], f"digest {index}")
                assert await store.read(find, 1 - index % 2) is None
                assert await store.read(find, index % 2, key + "x") is None

    async def test_a_run_is_asked_to_stop_once(self) -> None:
        """The first request counts; a second one, or one to an ended run, is told so. The lease holder sees it."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            added = await store.write(self.add_run, agent.id)
            run = await store.write(claimed, added.key)

            assert await store.write(lambda tx: tx.runs.request_cancel(run.key))
            assert not await store.write(lambda tx: tx.runs.request_cancel(run.key))
            held = await store.write(lambda tx: tx.runs.keep_lease(run, until=UNTIL))
            assert held == await store.write(lambda tx: tx.runs.keep_lease(run))
            assert held == await store.read(lambda tx: tx.runs.get_by_key(run.key))
            assert held.cancel_requested

            done = await store.write(self.add_run, agent.id)
            await store.write(ended, done.key)
            assert not await store.write(lambda tx: tx.runs.request_cancel(done.key))

    async def test_waiting_input_is_kept_until_it_begins(self) -> None:
        """It comes back exactly, and is gone once the run's messages are in the log."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def wait(tx: Tx, text: str) -> Run:
                return self.add_run(tx, agent.id, waiting_input=text)

            def waiting(tx: Tx, key: RunKey) -> str | None:
                return tx.runs.waiting_input(key)

            def begin(tx: Tx, key: RunKey) -> Run:
                tx.runs.begin_input(key, first_message_seq=5)
                return tx.runs.get_by_key(key)

            for text in AWKWARD:
                run = await store.write(wait, text)

                assert run.first_message_seq is None
                assert await store.read(waiting, run.key) == text
                assert await store.write(begin, run.key) == replace(run, first_message_seq=5)
                assert await store.read(waiting, run.key) is None

    async def test_started_calls_remember_their_lease(self) -> None:
        """A call that was started again is known under the newest lease."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            other = await store.write(self.add_run, agent.id)

            def start(tx: Tx, run: Run, number: int, *call_ids: str) -> None:
                tx.runs.start_calls(replace(run, lease_number=number), call_ids, at=AT + timedelta(minutes=number))

            await store.write(start, run, 1, "a", "b", *AWKWARD)
            await store.write(start, run, 2, "b")
            await store.write(start, other, 3, "a")

            expected = {"a": 1, "b": 2} | dict.fromkeys(AWKWARD, 1)
            starts = {call_id: (AT + timedelta(minutes=lease), lease) for call_id, lease in expected.items()}
            assert await store.read(lambda tx: tx.runs.get_call_starts(run.key)) == starts
            assert await store.read(lambda tx: tx.runs.get_call_starts(other.key)) == {
                "a": (AT + timedelta(minutes=3), 3)
            }

    async def test_runs_are_listed_newest_first(self) -> None:
        """In pages that follow each other."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            for _ in range(5):
                await store.write(self.add_run, agent.id)

            def pages(tx: Tx) -> list[list[int]]:
                first = tx.runs.list(agent.id, limit=2)
                rest = tx.runs.list(agent.id, before_seq=first[-1].key.seq)
                return [[run.key.seq for run in page] for page in (first, rest)]

            assert await store.read(pages) == [[4, 3], [2, 1, 0]]

    async def test_runs_of_all_agents_come_in_pages(self) -> None:
        """Both ways, forwards and backwards, in the order of time; pages that follow each other miss none."""
        async with self.open_store() as store:
            agents = [await store.write(self.add_agent, name) for name in ("ada", "bob")]
            made = []
            for index in range(6):
                at = AT + index // 2 * SECOND
                made.append(await store.write(self.add_run, agents[index % 2].id, at=at))
            made.sort(key=lambda run: (run.created_at, run.key.agent_id, run.key.seq))

            def page(tx: Tx, /, where: RunFilter, **place: Any) -> list[Run]:
                return list(tx.runs.page(where, **place))

            assert await store.read(page, RunFilter(), newest_first=False) == made
            assert await store.read(page, RunFilter()) == made[::-1]
            for newest_first in (True, False):
                order = made[::-1] if newest_first else made
                walked: list[Run] = []
                while step := await store.read(
                    page, RunFilter(), limit=2, newest_first=newest_first, after=walked[-1] if walked else None
                ):
                    walked += step
                assert walked == order
                assert (
                    await store.read(page, RunFilter(), limit=2, newest_first=newest_first, before=order[4])
                    == order[2:4]
                )
            one = RunFilter(agent_ids=(agents[0].id,))
            mine = [run for run in made if run.key.agent_id == agents[0].id]
            assert await store.read(page, one, newest_first=False) == mine
            assert await store.read(page, one, limit=1, after=mine[2]) == [mine[1]]
            assert await store.read(page, one, limit=1, before=mine[0]) == [mine[1]]

    async def test_runs_are_filtered(self) -> None:
        """By conversation, status, reason and background; all conditions hold."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            side = await store.write(
                lambda tx: tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
            )
            first = await store.write(self.add_run, agent.id)
            await store.write(ended, first.key, reason="max_steps")
            second = await store.write(self.add_run, agent.id, conversation_seq=1)

            async def find(**conditions: Any) -> list[int]:
                runs = await store.read(lambda tx: tx.runs.page(RunFilter(**conditions), newest_first=False))
                return [run.key.seq for run in runs]

            assert await find(statuses=("completed",)) == [first.key.seq]
            assert await find(statuses=("queued", "running", "completed")) == [first.key.seq, second.key.seq]
            assert await find(conversation_id=side.id) == [second.key.seq]
            assert await find(conversation_seq=0, stop_reason="max_steps") == [first.key.seq]
            assert await find(conversation_seq=1, stop_reason="max_steps") == []
            assert await find(background=False, agent_ids=(agent.id,)) == [first.key.seq, second.key.seq]
            assert await find(background=True) == []

    async def test_a_run_needs_its_agent_and_conversation(self) -> None:
        """Without either there is no run, and nothing is left behind."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            units: tuple[Callable[[Tx], Any], ...] = (
                lambda tx: self.add_run(tx, AgentId(self.ids.new("agent"))),
                lambda tx: self.add_run(tx, agent.id, conversation_seq=7),
                lambda tx: tx.runs.get_by_key(RunKey(agent.id, 0)),
            )
            for unit in units:
                with raises(NotFound):
                    await store.write(unit)

            assert await store.read(lambda tx: tx.runs.list(agent.id)) == []
