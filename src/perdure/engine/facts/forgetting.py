"""Passes that let facts fade: on demand, and by themselves where an agent's settings say so."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from perdure.core.errors import PerdureError, StoreError
from perdure.core.facts.values import Fact, Graph
from perdure.core.ids import AgentId
from perdure.domain.facts.forgetting import TidyItem, last_pass, plan_tidy, restore_pass, tidy
from perdure.domain.facts.settings import Forgetting, load_agent_facts
from perdure.engine.ports import Ports
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

PORTION = 100
"""The most facts that one transaction changes, for other writers wait for it."""
EVERY = timedelta(days=1)


class ForgettingWork:
    """Passes that begin by themselves, at most one a day for each agent."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._last: dict[AgentId, datetime] = {}

    async def tidy_due(self, agent_id: AgentId) -> None:
        """Let the facts of an agent fade, if its settings say so and no pass was today. Raises: StoreError."""
        now = self._ports.clock.now()
        if agent_id in self._last and now - self._last[agent_id] < EVERY:
            return
        self._last[agent_id] = now

        def load(tx: Tx) -> tuple[Graph | None, Forgetting]:
            return tx.graphs.find_by_agent(agent_id), load_agent_facts(tx.agents.get(agent_id).settings).forgetting

        try:
            graph, policy = await self._ports.store.read(load)
            if graph is not None and policy.on:
                await tidy_graph(self._ports, graph, policy)
        except StoreError:
            raise
        except PerdureError as error:
            log.warning("facts of %s don't fade: %s", agent_id, error)


async def tidy_graph(ports: Ports, graph: Graph, policy: Forgetting, *, dry_run: bool = False) -> Sequence[TidyItem]:
    """Let the facts of a graph fade; return which. `dry_run` changes nothing. Raises: StoreError."""
    at = ports.clock.now()
    items = await ports.store.read(plan_tidy, graph, policy, at=at)
    if dry_run:
        return items
    done: list[TidyItem] = []
    for start in range(0, len(items), PORTION):
        done += await ports.store.write(tidy, graph, items[start : start + PORTION], pass_=at.isoformat(), at=at)
    return done


async def restore_last(ports: Ports, graph: Graph) -> Sequence[Fact]:
    """Take back the latest pass; return the facts that are active again. Raises: StoreError."""
    restored: list[Fact] = []
    pass_ = await ports.store.read(last_pass, graph)
    while pass_ is not None:
        at = ports.clock.now()
        portion = await ports.store.write(restore_pass, graph, pass_, at=at, limit=PORTION)
        restored += portion
        if len(portion) < PORTION:
            break
    return restored
