"""`perdure fact`: list, search, show, add, correct and forget what an agent knows; `/facts` shows the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Final, TypedDict, Unpack, get_args

from rich.text import Text

from perdure.cli.chat.agent_choice import chat_command
from perdure.cli.commands.memory import NO_STORE
from perdure.cli.commands.provenance.sources import show_origin
from perdure.cli.views.facts import (
    SHORT_CHARS,
    entity_shape,
    fact_shape,
    fact_view,
    facts_view,
    rule_shape,
)
from perdure.cli.views.text import settings_view
from perdure.cli.views.view import View, new_table, plural, visible
from perdure.cli.work import confirm, get_agent, no_store, none_yet, open_store, read_pairs, read_value
from perdure.core.errors import InvalidInput
from perdure.core.facts.values import FACT_STATES, KNOWN_STATES
from perdure.core.ids import FactId
from perdure.core.provenance.sources import TrustLabel
from perdure.domain.facts.graphs import FactFields
from perdure.domain.facts.settings import load_graph_settings
from perdure.library.agent import AsyncAgent
from perdure.library.facts import AsyncFacts
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.facts.views import FactConditions
from perdure.search.query import parse_time

TRUSTS: Final[tuple[TrustLabel, ...]] = get_args(TrustLabel)


class Options(TypedDict):
    """The options of `list` and `search` that say which facts."""

    entity: str | None
    relations: Sequence[str] | None
    types: Sequence[str] | None
    at: str | None
    since: str | None
    until: str | None
    as_of: str | None
    min_rating: float
    state: str | None
    trust: Sequence[str] | None
    scope: Sequence[str] | None


async def list_facts(view: View, *, agent: str | None, limit: int, **options: Unpack[Options]) -> None:
    """Print the newest facts of an agent that meet the conditions."""
    conditions = _conditions(options)
    async with owner_of(view, agent) as owner:
        hits = await owner.facts.list(limit=limit, **conditions)
        view.show([fact_shape(hit) for hit in hits], *facts_view(hits))
        view.hint(await _next_steps(owner.facts))


async def search_facts(view: View, *, text: str, agent: str | None, limit: int, **options: Unpack[Options]) -> None:
    """Print the facts of an agent that best match."""
    if not text.strip():
        raise InvalidInput("there is nothing to look for: perdure fact search TEXT")
    conditions = _conditions(options)
    async with owner_of(view, agent) as owner:
        hits = await owner.facts.search(text, limit=limit, **conditions)
        view.show([fact_shape(hit, with_score=True) for hit in hits], *facts_view(hits))
        view.hint("`perdure fact history ID` shows where one comes from; `perdure why ID` too.")


async def show_fact(view: View, *, fact: str) -> None:
    """Print a fact."""
    async with named_facts(view, fact) as (perdure, [fact_id]):
        hit = await perdure.services.facts.get(fact_id)
        view.show(fact_shape(hit), *fact_view(hit))
        view.hint(f"`perdure fact edit {short_id(fact_id)} TEXT` corrects it, `history` shows where it comes from.")


async def history(view: View, *, fact: str) -> None:
    """Print the versions of a fact and its sources."""
    async with named_facts(view, fact) as (perdure, [fact_id]):
        show_origin(view, await perdure.services.why.find_origin(fact_id))
        view.hint(f"`perdure fact edit {short_id(fact_id)} TEXT` corrects it, `forget` has it believed no longer.")


async def add(
    view: View,
    *,
    text: str,
    agent: str | None,
    subject: str,
    relation: str,
    object_: str,
    since: str | None,
    until: str | None,
) -> None:
    """Add a fact."""
    async with owner_of(view, agent, change=True) as owner:
        times = {name: parse_time(value) for name, value in (("valid_at", since), ("invalid_at", until)) if value}
        hit = await owner.facts.add(text, subject=subject, relation=relation, object=object_, **times)
        view.show(fact_shape(hit), *fact_view(hit))
        view.hint(f"The agent finds it: `{chat_command(owner)}`. `perdure fact forget {short_id(hit.fact.id)}` undoes.")


async def edit(
    view: View, *, fact: str, text: str | None, since: str | None, until: str | None, rating: float | None
) -> None:
    """Correct a fact. An empty date takes the date away."""
    changes: FactFields = {}
    if text is not None:
        changes["text"] = text
    if since is not None:
        changes["valid_at"] = parse_time(since)
    if until is not None:
        changes["invalid_at"] = parse_time(until)
    if rating is not None:
        changes["rating"] = rating
    if not changes:
        raise InvalidInput("nothing changes: give the new text, --since, --until or --rating")
    async with named_facts(view, fact) as (perdure, [fact_id]):
        hit = await perdure.services.facts.update(fact_id, changes)
        view.show(fact_shape(hit), *fact_view(hit))
        view.hint(f"`perdure fact history {short_id(fact_id)}` shows the version before.")


async def forget(view: View, *, facts: Sequence[str], yes: bool) -> None:
    """Forget facts after a question."""
    async with named_facts(view, *facts) as (perdure, fact_ids):
        hits = [await perdure.services.facts.get(fact_id) for fact_id in fact_ids]
        what = plural(len(hits), "fact")
        confirm(
            view,
            f"{'; '.join(visible(hit.fact.text) for hit in hits)}\nForget {what}?",
            action=f"forget the {what}",
            yes=yes,
        )
        gone = await perdure.services.facts.delete(fact_ids)
        view.show({"forgotten": [fact.id for fact in gone]}, *(Text(f"Forgotten: {visible(f.text)}") for f in gone))
        command = " ".join(("perdure fact restore", *map(short_id, fact_ids)))
        view.hint(f"`{command}` brings {'it' if len(hits) == 1 else 'them'} back.")


async def accept(view: View, *, facts: Sequence[str]) -> None:
    """Accept proposed facts."""
    async with named_facts(view, *facts) as (perdure, fact_ids):
        hits = [await perdure.services.facts.update(fact_id, {"state": "active"}) for fact_id in fact_ids]
        view.show([fact_shape(hit) for hit in hits], *facts_view(hits))
        view.hint("`perdure fact list --state proposed` shows what else waits.")


async def pause(view: View, *, agent: str | None) -> None:
    """Stop the extraction of an agent's facts."""
    async with owner_of(view, agent, change=True) as owner:
        await owner.facts.pause()
        view.show({"agent": owner.name, "paused": True}, Text(f"No facts are extracted for {visible(owner.name)}."))
        view.hint(f"`perdure fact resume {owner.name}` goes on.")


async def resume(view: View, *, agent: str | None) -> None:
    """Extract an agent's facts again."""
    async with owner_of(view, agent, change=True) as owner:
        await owner.facts.resume()
        text = f"Facts are extracted for {visible(owner.name)}, also from what was said meanwhile."
        view.show({"agent": owner.name, "paused": False}, Text(text))
        view.hint(f"`perdure fact list {owner.name}` shows them.")


async def settings(view: View, *, agent: str | None, changes: Sequence[str] | None) -> None:
    """Print the settings of what an agent knows, after changing some."""
    pairs = read_pairs("a setting", changes or ())
    async with open_store(view, empty=no_store(NO_STORE)) as perdure:
        owner = await get_agent(view, perdure, agent, change=bool(pairs))
        if pairs:
            values = {name: text if name == "prompt" else read_value(text) for name, text in pairs.items()}
            await owner.facts.update_settings(**values)
        graph = await perdure.services.facts.find_graph(owner.id)
        settings = asdict(load_graph_settings({} if graph is None else graph.settings))
        view.show(settings, settings_view(settings))
        view.hint(
            f"`perdure fact settings {owner.name} NAME=VALUE` changes one; the value is JSON, of `prompt` a text."
        )


async def rule(view: View, *, text: str, agent: str | None, entity: str | None, relation: str | None) -> None:
    """Add a rule about what must not be remembered."""
    async with owner_of(view, agent, change=True) as owner:
        added = await owner.facts.add_rule(text, relation=relation, entity=entity)
        view.show(rule_shape(added), Text(f"Rule {added.seq}: such facts are not stored from now on."))
        view.hint(f"What is stored already stays: `perdure fact search TEXT {owner.name}` finds it, `forget` takes it.")


async def rules(view: View, *, agent: str | None, lift: int | None) -> None:
    """Print what must not be remembered, after lifting a rule."""
    async with owner_of(view, agent, change=lift is not None) as owner:
        if lift is not None:
            await owner.facts.delete_rule(lift)
        found = await owner.facts.rules()
        table = new_table("number", "words", "entity", "relation", right=("number",))
        for one in found:
            table.add_row(str(one.seq), visible(one.text) or "-", visible(one.entity_name) or "-", one.relation or "-")
        parts = [table] if found else [Text("Everything may be remembered.")]
        view.show([rule_shape(one) for one in found], *parts)
        view.hint("`perdure fact rule TEXT` adds one, `perdure fact rules --lift NUMBER` lifts one.")


async def entities(view: View, *, agent: str | None, limit: int) -> None:
    """Print what facts are about."""
    async with owner_of(view, agent) as owner:
        found = await owner.facts.entities(limit=limit)
        table = new_table("name", "type", "facts", "also", right=("facts",), styles={"name": "bold"})
        for one in found:
            table.add_row(visible(one.name), visible(one.type), str(one.fact_count), visible(", ".join(one.aliases)))
        view.show([entity_shape(one) for one in found], *([table] if found else [Text("No entities.")]))
        view.hint("`perdure fact list --entity NAME` shows what is known about one.")


async def _next_steps(facts: AsyncFacts) -> str:
    """What can be done with facts, and how much waits."""
    counts = await facts.counts()
    waiting = f" {plural(counts.waiting, 'message')} wait for extraction." if counts.waiting else ""
    return f"`perdure fact edit ID TEXT` corrects one, `forget ID` takes it away, `history ID` says whence.{waiting}"


def _conditions(options: Options) -> FactConditions:
    """The options as conditions. Raises: InvalidInput: a text that is no date, an unknown state or source, no pair."""
    state = options["state"]
    chosen = FACT_STATES if state == "all" else tuple(one for one in FACT_STATES if one == state)
    states = chosen if state else KNOWN_STATES
    if not states:
        raise InvalidInput(f"--state is {state!r:.80}: it can be {', '.join(FACT_STATES)} or all")
    said_by = options["trust"] or ()
    if unknown := [one for one in said_by if one not in TRUSTS]:
        raise InvalidInput(f"--trust is {unknown[0]!r:.80}: it can be {', '.join(TRUSTS)}")
    return FactConditions(
        entity=options["entity"],
        relations=options["relations"] or (),
        types=options["types"] or (),
        at=parse_time(options["at"]),
        since=parse_time(options["since"]),
        until=parse_time(options["until"], end=True),
        as_of=parse_time(options["as_of"], end=True),
        min_rating=options["min_rating"],
        states=states,
        trust=tuple(one for one in TRUSTS if one in said_by) or None,
        scope=read_pairs("--scope", options["scope"] or ()),
    )


@asynccontextmanager
async def owner_of(view: View, name: str | None, *, change: bool = False) -> AsyncIterator[AsyncAgent]:
    """The agent of this name, or the one used last; `change` as `get_agent` has it."""
    async with open_store(view, empty=no_store(NO_STORE)) as perdure:
        yield await get_agent(view, perdure, name, change=change)


@asynccontextmanager
async def named_facts(view: View, *starts: str) -> AsyncIterator[tuple[AsyncPerdure, Sequence[FactId]]]:
    """The open store, and the facts whose ids begin so."""
    async with open_store(view, empty=none_yet("fact", starts[0])) as perdure:
        yield perdure, [FactId(await perdure.services.why.find_id(start, "fact")) for start in starts]


def short_id(fact_id: FactId) -> str:
    """The beginning of an id, as lists show it."""
    return fact_id[:SHORT_CHARS]
