"""What an agent is told of facts that a person has changed since its last request.

Only what facts say now and said when the log was told last: a fact that was added and deleted between is no news. Nor
is a text that the agent was made to forget.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.context.sections.envelopes import envelope
from perdure.core.agents import Agent
from perdure.core.conversations import GRAPH_KEY, ConversationState
from perdure.core.ids import GraphId
from perdure.core.runs import Prefix
from perdure.core.text.zones import zone
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.prefixes import MemoryState
from perdure.features.facts.tables import Facts, Graphs
from perdure.features.facts.units.context import fact_line
from perdure.features.facts.units.profile import trust_filter
from perdure.features.facts.values.facts import KNOWN_STATES, Fact, FactFilter
from perdure.storage.tx import Tx

CHANGES_MAX = 50
"""The newest changes that are looked at."""
DELTA_TOKENS = 500
"""The most tokens of the facts in a message; the newest go first."""


def build_fact_deltas(
    tx: Tx, agent: Agent, seen: Mapping[str, int], memory: MemoryState, prefix: Prefix, inputs: UnitInputs
) -> tuple[str, ...]:
    """Build the message that tells an agent which facts people have changed; empty: there is none.

    Facts of untrusted sources are left out, as they are in recall.

    Args:
        seen: graph -> the version of a fact up to which the conversation was told of changes.
        memory: has the same versions as they are now.
        prefix: not looked at; part of the point `memory_deltas`.
    """
    versions = memory.versions.items()
    graphs = (key for key, version in versions if key.startswith(GRAPH_KEY) and seen.get(key, 0) < version)
    if (key := next(graphs, None)) is None:
        return ()
    graph_id, after = GraphId(key), seen.get(key, 0)
    changed = tx.of(Facts).list_of_people(graph_id, after=after, limit=CHANGES_MAX + 1)
    trusts, tz = trust_filter(tx, agent.id, FactFilter()).trust, zone(tx.agents.get(agent.id).timezone)
    changes: dict[str, list[Any]] = {"added": [], "changed": [], "deleted": []}
    tokens, is_cut = 0, len(changed) > CHANGES_MAX
    forgotten = forgotten_texts(tx, graph_id) if changed else set()
    for fact_id in dict.fromkeys(fact.id for fact in changed[:CHANGES_MAX]):
        before, now = _then_and_now(tx.of(Facts).versions(fact_id), after)
        old_line, new_line = (
            fact_line(fact, tz)
            if fact and fact.text_seq not in forgotten and (trusts is None or fact.trust in trusts)
            else None
            for fact in (before, now)
        )
        if old_line == new_line:
            continue
        cost = inputs.counter.count(f"{old_line}{new_line}")
        if tokens + cost > DELTA_TOKENS:
            is_cut = True
            continue
        tokens += cost
        if new_line is None:
            changes["deleted"].append(old_line)
        elif old_line is None:
            changes["added"].append(new_line)
        else:
            changes["changed"].append({"was": old_line, "is": new_line})
    if not any(changes.values()) and not is_cut:
        return ()
    hint = "search_facts finds the others" if is_cut else None
    lines = {kind: of_kind or None for kind, of_kind in changes.items()}
    return (envelope("memory_delta", op="facts", by="a person", **lines, more=hint),)


def graph_versions(tx: Tx, opening: ConversationState) -> Mapping[str, int]:
    """Return the agent's graph -> the newest version of a fact that a person wrote; empty: no person wrote one."""
    if (graph_id := opening.has.get("graph")) is None:
        return {}
    version = tx.of(Graphs).newest_of_people(graph_id)
    return {graph_id: version} if version else {}


def changed_texts(tx: Tx, graph_id: GraphId) -> Mapping[int, str]:
    """Return number -> text of all versions that a message about changes by people may still hold."""
    changed = tx.of(Facts).list_of_people(graph_id, after=0, limit=CHANGES_MAX + 1)
    versions = [version for id_ in dict.fromkeys(fact.id for fact in changed) for version in tx.of(Facts).versions(id_)]
    return {version.text_seq: version.text for version in versions}


def forgotten_texts(tx: Tx, graph_id: GraphId) -> set[int]:
    """Return the numbers of the texts that agents of a graph were made to forget, if that was not undone."""
    items = [
        item for id_ in tx.of(Graphs).list_agents(graph_id) for _, item in tx.corrections.list_of(id_, "fact", graph_id)
    ]
    return {seq for item in items for seq in json.loads(item.before).get("texts", ())}


def _then_and_now(versions: Sequence[Fact], after: int) -> tuple[Fact | None, Fact | None]:
    """Return the known version of a fact up to version number `after`, and the one now; None: it was not known then."""
    earlier = [version for version in versions if version.seq <= after]
    later = [version for version in versions if version.seq > after]
    # A fact that was deleted by an older Perdure has no version that says so.
    is_back = bool(later) and later[0].change == "restore"
    before = earlier[-1] if earlier and not earlier[-1].is_deletion and not is_back else None
    now = versions[-1] if versions[-1].expired_at is None else None
    return tuple(fact if fact and fact.state in KNOWN_STATES else None for fact in (before, now))  # type: ignore[return-value]
