"""Where a fact comes from: its versions with their reasons, and what supports it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import tzinfo
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.forgetting.origins import FactOrigin, FactSource, FactVersionText
from perdure.core.ids import AgentId, FactId, MessageId, PassageId, is_id
from perdure.core.text.reprs import attributes
from perdure.core.text.tables import read_table
from perdure.core.text.zones import local, zone
from perdure.features.facts.tables import Entities, Facts, Graphs
from perdure.features.facts.units.graphs import zone_of
from perdure.features.facts.units.lines import sources_of
from perdure.features.facts.values.facts import Episode, Fact
from perdure.library.parts.part import find_message
from perdure.storage.tx import Tx

REASONS: Mapping[str, str] = read_table(__file__)
"""Change -> why a version was written."""


def origin_of_fact(tx: Tx, id_: str, agent_id: AgentId | None, timezone: str) -> FactOrigin:
    """Return where a fact comes from, with times in the zone of the agent or graph; `timezone` is the default. With an
    agent, a fact of another graph is not found. Raises: NotFound."""
    fact_id = FactId(id_)
    versions = tx.of(Facts).versions(fact_id)
    last = versions[-1]
    if agent_id is not None:
        graph = tx.of(Graphs).find_by_agent(agent_id)
        if graph is None or graph.id != last.graph_id:
            raise NotFound("fact", fact_id, hint="it is another agent's")
    tz = zone(zone_of(tx, agent_id or last.graph_id, timezone))
    entities = tx.of(Entities).of_facts(last.graph_id, [last])
    sources = sources_of(tx, last.graph_id, [last])[last.first_seq]
    return FactOrigin(
        id=fact_id,
        text=last.text,
        subject=entities[last.subject].name,
        relation=last.relation,
        object=entities[last.object].name,
        versions=tuple(_version(version, tz) for version in versions),
        sources=tuple(_source(tx, episode) for episode in sources),
    )


def _version(fact: Fact, tz: tzinfo) -> FactVersionText:
    """Return a version with its reason in words, and the times of its truth in a zone."""
    said: dict[str, Any] = {name: fact.origin.get(name) for name in ("model", "run_id", "step_id", "message_id")}
    return FactVersionText(
        **said,
        **attributes(fact, "text", "change", "rating", "state", "created_at", "expired_at"),
        reason=REASONS[fact.change],
        author=str(fact.origin.get("type", "extraction")),
        valid_at=fact.valid_at and local(fact.valid_at, tz),
        invalid_at=fact.invalid_at and local(fact.invalid_at, tz),
    )


def _source(tx: Tx, episode: Episode) -> FactSource:
    """Return an episode with its text, which its message or passage may have; None as text: that is deleted."""
    role, name, text, run_id, step_id = None, None, episode.text, None, None
    if text is None:
        with suppress(NotFound):  # it was deleted
            if is_id("message", episode.ref):
                message = find_message(tx, MessageId(episode.ref))
                role, name, text = message.role, message.name, message.text
                run_id, step_id = message.run_id, message.step_id
            else:
                text = tx.passages.get(PassageId(episode.ref)).text
    return FactSource(
        kind=episode.kind,
        id=episode.ref,
        episode_id=episode.id,
        role=role,
        name=name,
        trust=episode.trust,
        at=episode.occurred_at,
        run_id=run_id,
        step_id=step_id,
        text=text,
    )
