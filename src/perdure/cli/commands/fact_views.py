"""`perdure fact`: bring facts back or accept them, how they are extracted, what is derived from them, what may fade."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any

from perdure.cli.needs import NO_AGENT
from perdure.cli.run import LastAgent, Limit, Yes, argument, command, flag, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.commands.facts import find_facts
    from perdure.cli.views.facts import day, entity_shape, fact_shape, facts_view, rule_shape
    from perdure.cli.views.json import fields
    from perdure.cli.views.text import settings_view
    from perdure.cli.views.view import View, fold, new_table, plural, short_id, visible
    from perdure.cli.work import confirm, get_agent, read_pairs, read_value
    from perdure.core.errors import InvalidInput
    from perdure.domain.facts.context import context_facts
    from perdure.domain.facts.settings import load_graph_settings
    from perdure.domain.forgetting import Memory, kind_of
    from perdure.library.perdure import AsyncPerdure
    from perdure.library.services.search import period

FactNames = Annotated[list[str], argument("Ids of facts, or their beginnings.", "ID...")]

TEXT_CHARS = 200
WHY_FADED = {"unused": "faded before, and not used since", "used": "used again: it comes back"}


@command("fact restore", lacks=NO_AGENT)
async def restore(
    view: View,
    perdure: AsyncPerdure,
    facts: Annotated[
        list[str] | None, argument("Ids of facts, or their beginnings; with --last the agent's name.", "[ID...]")
    ] = None,
    last: Annotated[bool, flag("--last", "All that the latest `perdure fact tidy` let fade.")] = False,
) -> None:
    """Bring forgotten facts back, or those that faded."""
    if last:
        agent = await get_agent(view, perdure, facts[0] if facts else None, change=True)
        restored = await agent.facts.restore_last()
        table = new_table("id", "text", "state", styles={"id": "dim", "text": "bold"})
        for one in restored:
            table.add_row(*_memory_cells(one), one.state)
        view.show([_memory_shape(one) for one in restored], table if restored else Text("Nothing has faded."))
        view.hint(f"`perdure fact list {agent.name}` shows what is known, `perdure archive show` the passages.")
        return
    if not facts:
        raise InvalidInput("name the facts: perdure fact restore ID; or give --last for what `tidy` let fade")
    fact_ids, home = await find_facts(perdure, *facts)
    hits = [await perdure.services.facts.restore(fact_id) for fact_id in fact_ids]
    view.show([fact_shape(hit) for hit in hits], *facts_view(hits, home))
    view.hint(f"`perdure fact history {short_id(fact_ids[0])}` shows what happened to it.")


@command("fact accept", finds="fact")
async def accept(view: View, perdure: AsyncPerdure, facts: FactNames) -> None:
    """Accept proposed facts."""
    fact_ids, home = await find_facts(perdure, *facts)
    hits = [await perdure.services.facts.update(fact_id, {"state": "active"}) for fact_id in fact_ids]
    view.show([fact_shape(hit) for hit in hits], *facts_view(hits, home))
    view.hint("`perdure fact list --state proposed` shows what else waits.")


@command("fact pause", change=True)
async def pause(view: View, agent: LastAgent) -> None:
    """Extract no facts until `resume`."""
    await agent.facts.pause()
    view.show({"agent": agent.name, "paused": True}, Text(f"No facts are extracted for {visible(agent.name)}."))
    view.hint(f"`perdure fact resume {agent.name}` goes on.")


@command("fact resume", change=True)
async def resume(view: View, agent: LastAgent) -> None:
    """Extract facts again, also from what was said meanwhile."""
    await agent.facts.resume()
    text = f"Facts are extracted for {visible(agent.name)}, also from what was said meanwhile."
    view.show({"agent": agent.name, "paused": False}, Text(text))
    view.hint(f"`perdure fact list {agent.name}` shows them.")


@command("fact settings", change=lambda given: bool(given["changes"]))
async def settings(
    view: View,
    perdure: AsyncPerdure,
    agent: LastAgent,
    changes: Annotated[list[str] | None, argument("Such as reflect=false; values are JSON.", "[NAME=VALUE]...")] = None,
) -> None:
    """Show or change how facts are extracted: `entity_types`, `prompt` and so on."""
    if pairs := read_pairs("a setting", changes):
        values = {name: text if name == "prompt" else read_value(text) for name, text in pairs.items()}
        await agent.facts.update_settings(**values)
    graph = await perdure.services.facts.find_graph(agent.id)
    settings = asdict(load_graph_settings({} if graph is None else graph.settings))
    view.show(settings, settings_view(settings))
    view.hint(f"`perdure fact settings {agent.name} NAME=VALUE` changes one; the value is JSON, of `prompt` a text.")


@command("fact rule", change=True)
async def rule(
    view: View,
    text: Annotated[str, argument("Words; facts that hold them are not stored.", "TEXT")],
    agent: LastAgent,
    entity: Annotated[str | None, option("Only about it; TEXT can be ''.", "NAME")] = None,
    relation: Annotated[str | None, option("Only of this relation; TEXT can be ''.", "NAME")] = None,
) -> None:
    """Say what must not be remembered from now on."""
    added = await agent.facts.add_rule(text, relation=relation, entity=entity)
    view.show(rule_shape(added), Text(f"Rule {added.seq}: such facts are not stored from now on."))
    view.hint(f"What is stored already stays: `perdure fact search TEXT {agent.name}` finds it, `forget` takes it.")


@command("fact rules", change=lambda given: given["lift"] is not None)
async def rules(
    view: View, agent: LastAgent, lift: Annotated[int | None, option("Lift this rule first.", "NUMBER")] = None
) -> None:
    """List what must not be remembered."""
    if lift is not None:
        await agent.facts.delete_rule(lift)
    found = await agent.facts.rules()
    table = new_table("number", "words", "entity", "relation", right=("number",))
    for one in found:
        table.add_row(str(one.seq), visible(one.text) or "-", visible(one.entity_name) or "-", one.relation or "-")
    view.show([rule_shape(one) for one in found], table if found else Text("Everything may be remembered."))
    view.hint("`perdure fact rule TEXT` adds one, `perdure fact rules --lift NUMBER` lifts one.")


@command("fact entities")
async def entities(view: View, agent: LastAgent, limit: Limit = 100) -> None:
    """List the people, places and things that facts are about."""
    found = await agent.facts.entities(limit=limit)
    table = new_table("name", "type", "facts", "also", right=("facts",), styles={"name": "bold"})
    for one in found:
        table.add_row(visible(one.name), visible(one.type), str(one.fact_count), visible(", ".join(one.aliases)))
    view.show([entity_shape(one) for one in found], table if found else Text("No entities."))
    view.hint("`perdure fact list --entity NAME` shows what is known about one.")


@command("fact profile")
async def profile(
    view: View,
    agent: LastAgent,
    user: Annotated[str, option("Of this entity in place of the user.", "NAME")] = "",
    budget: Annotated[int, option("The most tokens.", min=1, max=200_000)] = 500,
) -> None:
    """Show what is known about the user, by slots."""
    found = await agent.profile(budget_tokens=budget, user=user)
    table = new_table("slot", "value", "fact", styles={"slot": "bold", "fact": "dim"})
    for entry in found.entries:
        table.add_row(entry.slot, visible(entry.value), short_id(entry.fact.id) if entry.fact else "-")
    shape = {"user": found.user and found.user.name, **fields(found, "slots", "tokens", "left_out")}
    view.show(shape, table if found.entries else Text("Nothing is known yet."))
    more = f" {plural(found.left_out, 'more value')} did not fit --budget." if found.left_out else ""
    view.hint(f"`perdure fact edit ID TEXT` corrects a value, `perdure fact forget ID` takes it away.{more}")


@command("fact timeline")
async def timeline(
    view: View,
    agent: LastAgent,
    entity: Annotated[str | None, option("Only about it; a name or an id.", "NAME")] = None,
    since: Annotated[str | None, option("Only then or later.", "DATE")] = None,
    until: Annotated[str | None, option("Only then or before.", "DATE")] = None,
    tags: Annotated[
        list[str] | None, option("Only of this relation or type; several: any.", "NAME", name="--tag")
    ] = None,
    limit: Limit = 100,
) -> None:
    """Show when facts began and ceased to be true."""
    home = agent.info.timezone
    events = await agent.facts.timeline(*period(since, until, home), entity=entity, tags=tags or (), limit=limit)
    table = new_table("day", "", "fact", "id", styles={"fact": "bold", "id": "dim"})
    for event in events:
        table.add_row(day(event.at, home), event.kind, visible(event.fact.text), short_id(event.fact.id))
    shape = [
        fields(event, "at", "kind", id="fact.id", text="fact.text") | {"tags": list(event.tags)} for event in events
    ]
    view.show(shape, table if events else Text("No facts with a time."))
    view.hint("`perdure fact history ID` shows where one comes from.")


@command("fact context")
async def context(
    view: View,
    *,
    query: Annotated[str, argument("What the facts should match.", "[TEXT]")] = "",
    agent: LastAgent,
    budget: Annotated[int, option("The most tokens.", min=1, max=200_000)] = 1_000,
) -> None:
    """Print what is known as one text, for any program."""
    packed = await agent.facts.context(query, budget_tokens=budget)
    facts = context_facts(packed)
    sources = {fact.id: [one.ref for one in packed.sources.get(fact.id, ())] for fact in facts}
    shape = fields(packed, "text", "tokens") | {"facts": [fields(fact, "id", "text") for fact in facts]}
    view.show(shape | {"sources": sources}, Text(visible(packed.text) or "Nothing is known yet."))
    view.hint(f"{packed.tokens} tokens. `perdure why ID` shows where a fact comes from; --json has the ids.")


@command("fact communities")
async def communities(
    view: View,
    *,
    query: Annotated[str, argument("Search their summaries; '' lists the largest.", "[TEXT]")] = "",
    agent: LastAgent,
    limit: Annotated[int, option("How many.", min=1, max=1_000)] = 10,
) -> None:
    """Show groups of entities that many facts connect."""
    found = await agent.facts.communities(query, limit=limit)
    table = new_table("name", "entities", "summary", right=("entities",), styles={"name": "bold"})
    for one in found:
        table.add_row(visible(one.community.name), str(one.community.size), visible(one.community.summary) or "-")
    shape = [
        {**fields(one.community, "name", "size", "summary"), "members": [entity.name for entity in one.members]}
        for one in found
    ]
    view.show(shape, table if found else Text("No communities."))
    view.hint("`perdure fact list --entity NAME` shows the facts of one entity. Summaries follow in the background.")


@command("fact tidy", change=lambda given: not given["dry_run"])
async def tidy(
    view: View,
    agent: LastAgent,
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would fade.")] = False,
    yes: Yes = False,
) -> None:
    """Let facts and passages fade that matter little, and near-duplicates."""
    items = await agent.facts.tidy(dry_run=True)
    table = new_table("id", "text", "why", styles={"id": "dim", "text": "bold"})
    for item in items:
        why = WHY_FADED.get(item.reason, f"worth {item.score:.2f}")
        if item.into is not None:
            why = f"like: {visible(fold(item.into.text, TEXT_CHARS))}"
        table.add_row(*_memory_cells(item.memory), why)
    if items and not dry_run:
        counts = Counter(item.kind for item in items)
        what = " and ".join(plural(count, kind) for kind, count in sorted(counts.items()))
        confirm(view, f"{what} would fade; --dry-run lists them. Go on?", action=f"let {what} fade", yes=yes)
        items = await agent.facts.tidy()
    shape = [
        {**_memory_shape(item.memory), **fields(item, "reason", "score"), "into": item.into and item.into.id}
        for item in items
    ]
    view.show(shape, table if items else Text("Nothing fades."))
    if dry_run:
        view.hint("Nothing has changed. `perdure fact tidy` lets them fade, `perdure fact restore --last` undoes.")
    else:
        view.hint(f"`perdure fact restore --last {agent.name}` brings all of them back.")


def _memory_cells(memory: Memory) -> tuple[str, str]:
    """The id of a fact or passage, as other commands take it, and the beginning of its text."""
    return short_id(memory.id), visible(fold(memory.text, TEXT_CHARS))


def _memory_shape(memory: Memory) -> dict[str, Any]:
    """A fact or passage for programs."""
    return {"kind": kind_of(memory), **fields(memory, "id", "text", "state")}
