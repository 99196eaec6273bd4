"""Two units of work that come at the same time, by two handles on one database."""

from __future__ import annotations

import asyncio
import threading

from perdure.core.ids import AgentId, ArchiveId, GraphId
from perdure.features.facts.tables import Graphs
from perdure.storage.tx import Tx
from tests.contracts.base import Contract, list_texts

WAIT_S = 0.2
"""How long one waits for the other to come as far. Where they come one after the other nobody comes meanwhile."""


class RaceContract(Contract):
    async def test_who_locks_an_agent_decides_alone(self) -> None:
        """What was read under an agent's lock is still true when it is acted on: of two who add a run if there is none,
        one does."""
        async with self.open_store() as one, self.open_store() as other:
            agent = await one.write(self.add_agent)
            looked = (threading.Event(), threading.Event())

            def add_the_only_run(tx: Tx, index: int) -> bool:
                tx.agents.lock(agent.id)
                there = tx.runs.find_active(agent.id, 0) is not None
                looked[index].set()
                looked[1 - index].wait(WAIT_S)
                if not there:
                    self.add_run(tx, agent.id)
                return not there

            added = await asyncio.gather(one.write(add_the_only_run, 0), other.write(add_the_only_run, 1))

            assert sorted(added) == [False, True]
            assert len(await one.read(lambda tx: tx.runs.list(agent.id))) == 1

    async def test_who_locks_the_names_decides_alone(self) -> None:
        """Of two who add an agent if there is none of its name, one does."""
        async with self.open_store() as one, self.open_store() as other:
            looked = (threading.Event(), threading.Event())

            def add_the_only_ada(tx: Tx, index: int) -> bool:
                tx.agents.lock_names()
                there = tx.agents.find_by_name("ada") is not None
                looked[index].set()
                looked[1 - index].wait(WAIT_S)
                if not there:
                    self.add_agent(tx, "ada")
                return not there

            added = await asyncio.gather(one.write(add_the_only_ada, 0), other.write(add_the_only_ada, 1))

            assert sorted(added) == [False, True]

    async def test_who_locks_the_names_of_graphs_decides_alone(self) -> None:
        """Of two who add a graph if there is none of its name, one does."""
        async with self.open_store() as one, self.open_store() as other:
            looked = (threading.Event(), threading.Event())

            def add_the_only_graph(tx: Tx, index: int) -> GraphId:
                tx.of(Graphs).lock_names()
                graph = tx.of(Graphs).find_by_name("shared")
                looked[index].set()
                looked[1 - index].wait(WAIT_S)
                return (graph or self.add_graph(tx, "shared")).id

            first, second = await asyncio.gather(one.write(add_the_only_graph, 0), other.write(add_the_only_graph, 1))

            assert first == second

    async def test_who_locks_the_names_of_archives_decides_alone(self) -> None:
        """Of two who add an archive if there is none of its name, one does."""
        async with self.open_store() as one, self.open_store() as other:
            looked = (threading.Event(), threading.Event())

            def add_the_only_archive(tx: Tx, index: int) -> ArchiveId:
                tx.archives.lock_names()
                found = tx.archives.list(name="shared")
                looked[index].set()
                looked[1 - index].wait(WAIT_S)
                return found[0].id if found else self.add_archive(tx, name="shared").id

            first, second = await asyncio.gather(
                one.write(add_the_only_archive, 0), other.write(add_the_only_archive, 1)
            )

            assert first == second

    async def test_units_that_lock_each_other_out_are_both_carried_out(self) -> None:
        """Each holds what the other wants next: one is given up and run again, and its caller learns nothing of it."""
        async with self.open_store() as one, self.open_store() as other:
            first, second = await one.write(self.add_agent), await one.write(self.add_agent, "eve")
            holds = (threading.Event(), threading.Event())

            def say_to_both(tx: Tx, index: int, agents: tuple[AgentId, AgentId]) -> int:
                tx.agents.lock(agents[0])
                holds[index].set()
                holds[1 - index].wait(WAIT_S)
                tx.agents.lock(agents[1])
                for agent_id in agents:
                    self.say(tx, agent_id, f"from {index}")
                return index

            told = await asyncio.gather(
                one.write(say_to_both, 0, (first.id, second.id)), other.write(say_to_both, 1, (second.id, first.id))
            )

            assert sorted(told) == [0, 1]
            for agent in (first, second):
                assert sorted(await one.read(list_texts, agent.id)) == ["from 0", "from 1"]
