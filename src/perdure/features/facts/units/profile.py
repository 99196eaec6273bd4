"""Profiles: what is known about a user now, by slots, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from perdure.core.ids import AgentId
from perdure.core.sources import TRUSTED
from perdure.core.text.tables import read_table
from perdure.features.facts.tables import Entities, Facts
from perdure.features.facts.values.extraction import USER
from perdure.features.facts.values.facts import Entity, Fact, FactFilter, Graph, Profile, ProfileEntry
from perdure.features.facts.values.settings import load_agent_facts, load_graph_settings
from perdure.storage.tx import Tx

SLOTS: Final[Mapping[str, Sequence[str]]] = read_table(__file__)
"""Slot -> the relations whose facts stand in it, unless the graph's settings name others."""

NAME_SLOT: Final = "basic_info.name"
TEXT_RELATION: Final = "REMEMBERS"
"""The relation of a sentence that a person added without naming an object: its value is the sentence."""
FACTS_MAX = 500
"""The most facts of a user that a profile is chosen from."""


def find_users(tx: Tx, graph: Graph, agent_id: AgentId | None, name: str = "") -> Sequence[Entity]:
    """Return the entities that stand for the user, by name; several may have one name. Without `name`: those named like
    the agent's only identity, and those named `User`."""
    names = [name]
    if not name:
        identities = [] if agent_id is None else tx.identities.list_by_agent(agent_id)
        names = [*(identity.name for identity in identities if len(identities) == 1), USER]
    found = tx.of(Entities).find_by_names(graph.id, names)
    return tx.of(Entities).list_by_seqs(graph.id, list(dict.fromkeys(seq for one in names for seq in found[one])))


def trust_filter(tx: Tx, agent_id: AgentId | None, where: FactFilter) -> FactFilter:
    """Return the filter limited to trusted sources, unless the agent's settings allow others. Raises: NotFound."""
    if agent_id is not None and load_agent_facts(tx.agents.get(agent_id).settings).use_untrusted:
        return where
    return replace(where, trust=tuple(sorted(TRUSTED)))


def load_profile(
    tx: Tx,
    graph: Graph,
    agent_id: AgentId | None,
    *,
    budget_tokens: int,
    count: Callable[[str], int],
    at: datetime,
    user: str = "",
) -> Profile:
    """Load the profile of the user of this name, by default the agent's: facts that are true at `at` and trusted, the
    best rated and newest first, of at most `budget_tokens` as `count` returns them. Raises: NotFound."""
    users = find_users(tx, graph, agent_id, user)
    if not users:
        return Profile()
    where = trust_filter(tx, agent_id, FactFilter(at=at, entities=tuple(entity.seq for entity in users)))
    facts = tx.of(Facts).page(graph.id, where=where, newest_first=True, limit=FACTS_MAX)
    entities = tx.of(Entities).of_facts(graph.id, facts)
    settings = load_graph_settings(graph.settings)
    slots = settings.slots or SLOTS
    entries = build_entries(users, facts, entities, slots, strict=settings.strict_slots)
    return fit_profile(users[0], entries, list(slots), budget_tokens=budget_tokens, count=count)


def build_entries(
    users: Sequence[Entity],
    facts: Sequence[Fact],
    entities: Mapping[int, Entity],
    slots: Mapping[str, Sequence[str]],
    *,
    strict: bool,
) -> Sequence[ProfileEntry]:
    """Build the entries of a profile, the best rated first; each value of a slot once.

    Args:
        users: the entities that are the user, who may have several.
        entities: number -> entity, of all that the facts name.
        slots: slot -> the relations whose facts stand in it.
        strict: whether facts of other relations are left out; else they get slots such as `other.met`.
    """
    slot_of = {relation: slot for slot, relations in slots.items() for relation in relations}
    own = {entity.seq for entity in users}
    entries: dict[tuple[str, str], ProfileEntry] = {}
    named = next((name for entity in users for name in (entity.name, *entity.aliases) if name != USER), "")
    if named and (NAME_SLOT in slots or not strict):
        entries[NAME_SLOT, named.casefold()] = ProfileEntry(slot=NAME_SLOT, value=named)
    for fact in sorted(facts, key=lambda fact: (fact.rating, fact.valid_at or fact.created_at, fact.seq), reverse=True):
        states_value = fact.subject in own and fact.relation != TEXT_RELATION
        # A relation to the user, such as `MANAGES`, is not one of the user: only the sentence says who does what.
        slot = slot_of.get(fact.relation) if fact.subject in own else None
        if slot is None and strict:
            continue
        slot = slot or f"other.{fact.relation.lower()}"
        value = entities[fact.object].name if states_value else fact.text
        if slot == NAME_SLOT and named in fact.text:
            value = named or value
        elif fact.change == "edit" and value.casefold() not in fact.text.casefold():
            value = fact.text  # a person put it in other words
        value = " ".join(value.split())
        entry = entries.setdefault((slot, value.casefold()), ProfileEntry(slot=slot, value=value, fact=fact))
        if entry.fact is None:
            entries[slot, value.casefold()] = replace(entry, fact=fact)
    return list(entries.values())


def fit_profile(
    user: Entity,
    entries: Sequence[ProfileEntry],
    slots: Sequence[str],
    *,
    budget_tokens: int,
    count: Callable[[str], int],
) -> Profile:
    """Return the first entries that fit the budget, by the tokens that `count` returns, in the order of `slots`."""
    chosen: list[ProfileEntry] = []
    left_tokens = budget_tokens
    for entry in entries:
        cost = count(f"- {entry.slot}: {entry.value}\n")
        if cost <= left_tokens:
            chosen.append(entry)
            left_tokens -= cost
    places = {slot: place for place, slot in enumerate(slots)}
    while True:
        ordered = sorted(chosen, key=lambda entry: places.get(entry.slot, len(places)))
        profile = Profile(user=user, entries=tuple(ordered), left_out=len(entries) - len(chosen))
        tokens = count(profile.text)
        if tokens <= budget_tokens or not chosen:
            return replace(profile, tokens=tokens if chosen else 0)
        chosen.pop()
