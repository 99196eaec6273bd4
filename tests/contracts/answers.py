"""Runs that stopped at calls which wait for somebody outside, and those that go on with the answers."""

from __future__ import annotations

from typing import Any

from perdure.core.conversations import Conversation
from perdure.core.ids import ConversationId, OrgId
from perdure.core.runs import Run, RunKey, StopReason, Usage
from perdure.storage.tx import Tx
from tests.contracts.base import AT, AWKWARD, Contract, claimed

OTHER = OrgId("org-other")
BASH: dict[str, Any] = {"name": "Bash", "description": AWKWARD[0], "parameters": {"properties": {AWKWARD[1]: {}}}}


class AnswerContract(Contract):
    async def test_what_waits_is_recorded_with_its_conversation(self) -> None:
        """It is found for one agent and for all, in order of agents and conversations, until nothing waits any more."""
        async with self.open_store() as store, self.open_store(org_id=OTHER) as other:

            def fill(tx: Tx) -> list[Conversation]:
                agents = [self.add_agent(tx, name) for name in ("ada", "bob")]
                for agent in agents:
                    tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                tx.conversations.put_pending(agents[1].id, 0, run_seq=7, from_seq=3)
                tx.conversations.put_pending(agents[0].id, 1, run_seq=2, from_seq=1)
                tx.conversations.put_pending(agents[0].id, 0, run_seq=0, from_seq=0)
                return [tx.conversations.get_by_seq(agents[0].id, seq) for seq in (0, 1)] + [
                    tx.conversations.get_by_seq(agents[1].id, 0)
                ]

            waits = await store.write(fill)
            ada, bob = waits[0].agent_id, waits[2].agent_id
            assert [(one.pending_run_seq, one.pending_from) for one in waits] == [(0, 0), (2, 1), (7, 3)]
            assert await store.read(lambda tx: tx.conversations.list_pending()) == waits
            assert await store.read(lambda tx: tx.conversations.list_pending(limit=2)) == waits[:2]
            assert await store.read(lambda tx: tx.conversations.count_pending()) == len(waits)
            assert await store.read(lambda tx: tx.conversations.list_pending(bob)) == waits[2:]

            await other.write(lambda tx: tx.conversations.put_pending(ada, 0, run_seq=None))
            assert await other.read(lambda tx: tx.conversations.list_pending()) == []
            assert await other.read(lambda tx: tx.conversations.count_pending()) == 0
            await store.write(lambda tx: tx.conversations.put_pending(ada, 0, run_seq=None))
            assert await store.read(lambda tx: tx.conversations.list_pending(ada)) == waits[1:2]
            cleared = await store.read(lambda tx: tx.conversations.get_by_seq(ada, 0))
            assert (cleared.pending_run_seq, cleared.pending_from) == (None, None)

    async def test_a_run_that_goes_on_with_answers_comes_back_as_it_was_put(self) -> None:
        """What was answered is found again, newest first, of its own conversation; what was said along waits too."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> list[Run]:
                agent = self.add_agent(tx)
                tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                first = self.add_run(tx, agent.id)
                resumed = [
                    tx.runs.resume(
                        self.add_run(tx, agent.id, conversation_seq=seq),
                        resumes=first.key.seq,
                        begins_at=5,
                        turn_from=3,
                        answer={"said": text, "calls": [seq, None, {"yes": True}]},
                        waiting_input=waiting,
                    )
                    for seq, text, waiting in ((0, AWKWARD[0], None), (0, AWKWARD[1], AWKWARD[1]), (1, "side", ""))
                ]
                return [first, *resumed]

            first, second, third, side = await store.write(fill)
            assert (first.resumes, first.begins_at, first.turn_from, first.input_waits) == (None, None, None, False)
            assert (second.resumes, second.begins_at, second.turn_from, second.input_waits) == (
                first.key.seq,
                5,
                3,
                False,
            )
            assert (third.input_waits, side.input_waits) == (True, True)

            def look(tx: Tx) -> list[Run]:
                return [tx.runs.get(run.id) for run in (first, second, third, side)]

            assert await store.read(look) == [first, second, third, side]
            agent_id = first.key.agent_id
            answers = await store.read(lambda tx: tx.runs.answers(agent_id, 0, limit=10))
            assert [key for key, _ in answers] == [third.key, second.key]
            assert [answer["said"] for _, answer in answers] == [AWKWARD[1], AWKWARD[0]]
            assert answers[0][1]["calls"] == [0, None, {"yes": True}]
            assert await store.read(lambda tx: tx.runs.answers(agent_id, 0, limit=1)) == answers[:1]
            assert [key for key, _ in await store.read(lambda tx: tx.runs.answers(agent_id, 1, limit=10))] == [side.key]
            assert await store.read(lambda tx: tx.runs.answers(agent_id, 2, limit=10)) == []

    async def test_tools_of_a_caller_are_kept_once_for_each_agent(self) -> None:
        """By their digest; another agent, another digest and another organisation have none."""
        async with self.open_store() as store, self.open_store(org_id=OTHER) as other:

            def fill(tx: Tx) -> list[Run]:
                ada, bob = self.add_agent(tx, "ada"), self.add_agent(tx, "bob")
                runs = [self.add_run(tx, ada.id) for _ in range(2)]
                given = [tx.runs.put_client_tools(run, "d1", [BASH, {"name": "Read"}]) for run in runs]
                return [*given, self.add_run(tx, bob.id)]

            first, second, strange = await store.write(fill)
            assert (first.client_tools, second.client_tools, strange.client_tools) == ("d1", "d1", None)
            assert await store.read(lambda tx: tx.runs.get(second.id)) == second

            def tools(tx: Tx, run: Run, digest: str) -> list[Any]:
                return [*tx.runs.client_tools(run.key.agent_id, digest)]

            assert await store.read(tools, first, "d1") == [BASH, {"name": "Read"}]
            for run, digest in ((first, "d2"), (strange, "d1")):
                assert await store.read(tools, run, digest) == []
            assert await other.read(tools, first, "d1") == []
            await other.write(lambda tx: tx.runs.put_client_tools(strange, "d3", [BASH]))
            assert await store.read(tools, strange, "d3") == []
            held = await store.write(claimed, first.key, "here")
            assert held.client_tools == "d1"

    async def test_a_run_that_stopped_at_calls_can_be_cancelled(self) -> None:
        """No other that has ended, and none that has not."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            reasons: tuple[StopReason | None, ...] = ("requires_approval", "end_turn", "error", None)
            found: list[tuple[str, str | None]] = []

            def end(tx: Tx, key: RunKey, reason: StopReason) -> Run:
                return tx.runs.end(
                    tx.runs.get_by_key(key), reason=reason, usage=Usage(), step_count=1, failure=None, at=AT
                )

            def cancel(tx: Tx, key: RunKey) -> Run:
                return tx.runs.cancel_stopped(key)

            for reason in reasons:
                run = await store.write(self.add_run, agent.id)
                if reason is not None:
                    await store.write(claimed, run.key)
                    await store.write(end, run.key, reason)
                cancelled = await store.write(cancel, run.key)
                found.append((cancelled.status, cancelled.stop_reason))

            assert found == [
                ("cancelled", "cancelled"),
                ("completed", "end_turn"),
                ("failed", "error"),
                ("queued", None),
            ]
