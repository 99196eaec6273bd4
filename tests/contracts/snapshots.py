"""Snapshots come back as they were; a restored view shows the messages that it had, to requests from then on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perdure.core.agents import Agent
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ConversationId
from perdure.core.runs import Prefix
from perdure.features.snapshots.tables import Snapshots
from perdure.features.snapshots.values import BlockRef, QueuedRequest, SavePoint, Snapshot
from perdure.storage.tx import Tx
from tests.contracts.base import AT, AWKWARD, Contract, list_texts, match_messages, raises

_LINE: dict[str, Any] = {"upto_seq": 9, "first_seq": 2, "prefix_seq": 3, "settings_revision": 4, "overcount": -5}
_AGENT: dict[str, Any] = {"agent_type": "letta_v1_agent", "model": "test/model", "follows_default": True}


def new_snapshot(agent_id: AgentId, **fields: Any) -> Snapshot:
    """A snapshot, not added yet."""
    moment = SavePoint(
        agent_id=agent_id,
        conversation_id=ConversationId("conv-1"),
        conversation_seq=0,
        seen={"block-1": 7},
        stubs={3: 100},
        gaps=((4, 5, 0, -1),),
        timezone="UTC",
        system=AWKWARD[0],
        settings={"guards": False, "tool_rules": [{"type": "exit_loop", "tool_name": "x"}]},
        tool_ids=("tool-1",),
        tool_names=("search",),
        blocks=(BlockRef(id="block-1", label="human", version=7),),
        queue=(QueuedRequest(run_id="run-1", waiting_input="[]", max_steps=5, background=True),),
        **_LINE,
        **_AGENT,
    )
    return Snapshot(**{"agent_id": agent_id, "reason": "manual", "moment": moment, "created_at": AT, **fields})


class SnapshotContract(Contract):
    async def test_a_snapshot_comes_back_as_it_was(self) -> None:
        """With every field, also text that databases can't hold as it is; numbers are an agent's own, from 1."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent, name) for name in ("ann", "ben")]
            new = [new_snapshot(agent.id), new_snapshot(agent.id, note=AWKWARD[1]), new_snapshot(other.id)]
            added = [await store.write(_add, one) for one in new]
            listed = await store.read(lambda tx: tx.of(Snapshots).list(agent.id))
            before = await store.read(lambda tx: tx.of(Snapshots).list(agent.id, before=2))
            await store.write(lambda tx: tx.of(Snapshots).delete(agent.id, 2))

            assert [_plain(one) for one in added] == [
                _plain(replace(one, number=number)) for one, number in zip(new, (1, 2, 1), strict=True)
            ]
            assert [_plain(one) for one in listed] == [_plain(added[1]), _plain(added[0])]
            assert [one.number for one in before] == [1]
            assert _plain(await store.read(lambda tx: tx.of(Snapshots).get(agent.id, 1))) == _plain(added[0])
            with raises(NotFound):
                await store.read(lambda tx: tx.of(Snapshots).get(agent.id, 2))
            with raises(NotFound):
                await store.write(_add, new_snapshot(AgentId("agent-nobody")))

    async def test_messages_leave_the_view_and_come_back(self) -> None:
        """Lists, counts and searches see only what is in view; requests that were made before see what they saw."""
        async with self.open_store() as store:
            agent = await store.write(self._with_messages)

            def back(tx: Tx, upto: int, revision: int, *gaps: tuple[int, int, int, int]) -> None:
                line = tx.conversations.get_by_seq(agent.id, 0)
                tx.gaps.put_view(line, first_seq=0, upto_seq=upto, next_node=0, gaps=gaps, revision=revision)

            await store.write(back, 1, 5)
            texts = await store.read(list_texts, agent.id)
            found = await store.read(match_messages, agent.id, "walrus")
            count = await store.read(lambda tx: tx.messages.count(agent.id))
            await store.write(self.say, agent.id, "a fifth walrus")
            gaps = await store.read(lambda tx: tx.gaps.list(agent.id, 0))
            views = [await store.read(_view, agent.id, revision) for revision in (4, 5)]
            await store.write(back, 3, 6)
            undone = await store.read(list_texts, agent.id)
            found_again = await store.read(match_messages, agent.id, "walrus")
            views += [await store.read(_view, agent.id, revision) for revision in (4, 5, 6)]

            assert (texts, found, count) == (["a walrus", "a second walrus"], [0, 1], 2)
            assert gaps == [(2, 3, 0, -1)]
            everything = ["a walrus", "a second walrus", "a third walrus", "a fourth walrus", "a fifth walrus"]
            first, second = everything, [*everything[:2], everything[4]]
            assert views == [first, second, first, second, everything[:4]]
            assert (undone, found_again) == (everything[:4], [0, 1, 2, 3])

    async def test_what_an_agent_was_is_kept_once_it_has_made_a_request(self) -> None:
        """With its settings and tools at each revision; before its first request nothing is kept."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def change(tx: Tx, system: str) -> Agent:
                return tx.agents.put(replace(tx.agents.get(agent.id), system=system))

            await store.write(change, "zero")
            await store.write(_request, agent.id)
            first = await store.write(change, "one")
            second = await store.write(change, "two")
            kept = [
                await store.read(lambda tx, of: tx.agent_revisions.find(agent.id, of), revision)
                for revision in (first.settings_revision - 1, first.settings_revision, second.settings_revision)
            ]

            assert [one and one.system for one in kept] == ["zero", "one", None]

    def _with_messages(self, tx: Tx) -> Agent:
        """An agent with four messages."""
        agent = self.add_agent(tx)
        self.say(tx, agent.id, "a walrus", "a second walrus", "a third walrus", "a fourth walrus")
        return agent


def _add(tx: Tx, snapshot: Snapshot) -> Snapshot:
    return tx.of(Snapshots).add(snapshot)


def _plain(one: Snapshot) -> Snapshot:
    """A snapshot with tuples in place of lists."""
    moment = one.moment
    names = ("gaps", "tool_ids", "tool_names", "blocks", "queue")
    fields: dict[str, Any] = {
        name: tuple(tuple(x) if isinstance(x, list) else x for x in getattr(moment, name)) for name in names
    }
    return replace(one, moment=replace(moment, **fields))


def _view(tx: Tx, agent_id: AgentId, revision: int) -> list[str]:
    """The texts that a request with this settings revision showed."""
    rows = tx.messages.view(agent_id, 0, from_seq=0, upto_seq=99, settings_revision=revision)
    return [row.text for row in rows]


def _request(tx: Tx, agent_id: AgentId) -> None:
    """Store the prefix of a first request."""
    prefix = Prefix(agent_id=agent_id, seq=0, conversation_seq=0, reason="first", system="", tools=(), created_at=AT)
    tx.prefixes.add(prefix)
