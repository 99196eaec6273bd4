"""Passes that let facts and passages fade: on demand, and by themselves where an agent's settings say so."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from perdure.core.errors import PerdureError, StoreError
from perdure.core.ids import AgentId
from perdure.core.passages import Archive
from perdure.engine.ports import Ports
from perdure.features.facts.fading import facts as of_facts
from perdure.features.facts.fading import passages as of_passages
from perdure.features.facts.fading.policy import Memory, TidyItem
from perdure.features.facts.tables import Graphs
from perdure.features.facts.values.facts import Fact, Graph
from perdure.features.facts.values.settings import Forgetting, load_agent_facts
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

PORTION = 100
"""The most facts or passages that one transaction changes, for other writers wait for it."""
EVERY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Fading:
    """The memories that one pass may change: the facts of a graph, if there is one, and the passages of archives."""

    graph: Graph | None
    archives: Sequence[Archive] = ()


class ForgettingWork:
    """Passes that begin by themselves after extraction, at most one a day for each agent."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._last: dict[AgentId, datetime] = {}  # when this process began the last pass

    async def tidy_due(self, agent_id: AgentId) -> None:
        """Let what an agent knows fade, if its settings say so and no pass was within a day. Raises: StoreError."""
        now = self._ports.clock.now()
        if agent_id in self._last and now - self._last[agent_id] < EVERY:
            return

        def load(tx: Tx) -> tuple[Fading, Forgetting] | None:
            """Return the memories and the policy of an agent; None: its policy is off."""
            policy = load_agent_facts(tx.agents.get(agent_id).settings).forgetting
            return (load_fading(tx, agent_id, tx.of(Graphs).find_by_agent(agent_id)), policy) if policy.on else None

        try:
            if (loaded := await self._ports.store.read(load)) is not None:
                self._last[agent_id] = now
                await tidy(self._ports, *loaded)
        except StoreError:
            raise
        except PerdureError as error:
            log.warning("facts and passages of %s don't fade: %s", agent_id, error)


def load_fading(tx: Tx, agent_id: AgentId | None, graph: Graph | None) -> Fading:
    """Return what may fade of an agent and its graph, or with `agent_id` None of a graph alone. Raises: NotFound."""
    return Fading(graph, () if agent_id is None else of_passages.fading_archives(tx, agent_id))


async def tidy(ports: Ports, fading: Fading, policy: Forgetting, *, dry_run: bool = False) -> Sequence[TidyItem]:
    """Let facts and passages fade; return what was changed, or with `dry_run` what would be. Raises: StoreError."""
    at = ports.clock.now()
    graph = fading.graph

    def plan(tx: Tx) -> tuple[Sequence[TidyItem], Sequence[TidyItem]]:
        """Return the planned changes of facts and of passages."""
        facts = () if graph is None else of_facts.plan_facts(tx, graph, policy, at=at)
        return facts, of_passages.plan_passages(tx, fading.archives, policy, at=at)

    facts, passages = await ports.store.read(plan)
    if dry_run:
        return [*facts, *passages]
    done: list[TidyItem] = []
    pass_ = at.isoformat()
    for start in range(0, len(facts), PORTION):
        assert graph is not None
        portion = facts[start : start + PORTION]
        done += await ports.store.write(of_facts.tidy_facts, graph, portion, pass_=pass_, at=at)
    for start in range(0, len(passages), PORTION):
        portion = passages[start : start + PORTION]
        done += await ports.store.write(of_passages.tidy_passages, portion, pass_=pass_, at=at)
    return done


async def restore_last(ports: Ports, fading: Fading) -> Sequence[Memory]:
    """Take back the latest pass; return the facts and passages that it restored. Raises: StoreError."""
    graph, archives = fading.graph, fading.archives

    def find_last(tx: Tx) -> str | None:
        """Return the id of the latest pass, which is its time; None: there was none."""
        origins = [passage.state_origin for passage in of_passages.passages_of_passes(tx, archives)]
        origins += [] if graph is None else [fact.origin for fact in of_facts.facts_of_passes(tx, graph)]
        return max((str(origin["pass"]) for origin in origins), default=None)

    def restore(tx: Tx, pass_: str) -> Sequence[Memory]:
        """Take back at most `PORTION` changes of a pass, of facts first; return what was restored."""
        at = ports.clock.now()
        facts: Sequence[Fact] = ()
        if graph is not None:
            facts = of_facts.restore_facts(tx, graph, pass_, at=at, limit=PORTION)
        if len(facts) == PORTION:
            return facts
        return [*facts, *of_passages.restore_passages(tx, archives, pass_, at=at, limit=PORTION - len(facts))]

    restored: list[Memory] = []
    pass_ = await ports.store.read(find_last)
    while pass_ is not None:
        portion = await ports.store.write(restore, pass_)
        restored += portion
        if len(portion) < PORTION:
            break
    return restored
