"""`perdure fact`: bring facts back or accept them, how they are extracted, what is derived from them, what may fade."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any

from perdure.cli.run import LastAgent, Yes, argument, command, flag, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.commands.facts import named_facts, owner_of, short_id
    from perdure.cli.commands.memory import NO_STORE
    from perdure.cli.views.facts import SHORT_CHARS, entity_shape, fact_shape, facts_view, rule_shape
    from perdure.cli.views.json import fields
    from perdure.cli.views.text import settings_view
    from perdure.cli.views.view import View, fold, new_table, plural, visible
    from perdure.cli.views.why import day
    from perdure.cli.work import confirm, named_agent, no_store, read_pairs, read_value
    from perdure.core.errors import InvalidInput
    from perdure.domain.facts.context import context_facts
    from perdure.domain.facts.settings import load_graph_settings
    from perdure.domain.forgetting import Memory, TidyItem, kind_of
    from perdure.library.search import period

FactNames = Annotated[list[str], argument("Ids of facts, or their beginnings.", "ID...")]

TEXT_CHARS = 200
ID_CHARS = 9
"""Of an id behind its kind, in a list: enough to name it."""


@command("fact restore")
async def restore(
    view: View,
    facts: Annotated[
        list[str] | None, argument("Ids of facts, or their beginnings; with --last the agent's name.", "[ID...]")
    ] = None,
    last: Annotated[bool, flag("--last", "All that the latest `perdure fact tidy` let fade.")] = False,
) -> None:
    """Bring forgotten facts back, or those that faded."""
    if last:
        await _restore_last(view, agent=facts[0] if facts else None)
        return
    if not facts:
        raise InvalidInput("name the facts: perdure fact restore ID; or give --last for what `tidy` let fade")
    async with named_facts(view, *facts) as (perdure, fact_ids, home):
        hits = [await perdure.facts.restore(fact_id) for fact_id in fact_ids]
        view.show([fact_shape(hit) for hit in hits], *facts_view(hits, home))
        view.hint(f"`perdure fact history {short_id(fact_ids[0])}` shows what happened to it.")


async def _restore_last(view: View, *, agent: str | None) -> None:
    """Bring back what the latest `tidy` let fade."""
    async with owner_of(view, agent, change=True) as owner:
        restored = await owner.facts.restore_last()
        table = new_table("id", "text", "state", styles={"id": "dim", "text": "bold"})
        for one in restored:
            table.add_row(*_memory_cells(one), one.state)
        view.show([_memory_shape(one) for one in restored], *([table] if restored else [Text("Nothing has faded.")]))
        view.hint(f"`perdure fact list {owner.name}` shows what is known, `perdure archive show` the passages.")


@command("fact accept")
async def accept(view: View, facts: FactNames) -> None:
    """Accept proposed facts."""
    async with named_facts(view, *facts) as (perdure, fact_ids, home):
        hits = [await perdure.facts.edit(fact_id, {"state": "active"}) for fact_id in fact_ids]
        view.show([fact_shape(hit) for hit in hits], *facts_view(hits, home))
        view.hint("`perdure fact list --state proposed` shows what else waits.")


@command("fact pause")
async def pause(view: View, agent: LastAgent = None) -> None:
    """Extract no facts until `resume`."""
    async with owner_of(view, agent, change=True) as owner:
        await owner.facts.pause()
        view.show({"agent": owner.name, "paused": True}, Text(f"No facts are extracted for {visible(owner.name)}."))
        view.hint(f"`perdure fact resume {owner.name}` goes on.")


@command("fact resume")
async def resume(view: View, agent: LastAgent = None) -> None:
    """Extract facts again, also from what was said meanwhile."""
    async with owner_of(view, agent, change=True) as owner:
        await owner.facts.resume()
        text = f"Facts are extracted for {visible(owner.name)}, also from what was said meanwhile."
        view.show({"agent": owner.name, "paused": False}, Text(text))
        view.hint(f"`perdure fact list {owner.name}` shows them.")


@command("fact settings")
async def settings(
    view: View,
    agent: LastAgent = None,
    changes: Annotated[list[str] | None, argument("Such as reflect=false; values are JSON.", "[NAME=VALUE]...")] = None,
) -> None:
    """Show or change how facts are extracted: `entity_types`, `prompt` and so on."""
    pairs = read_pairs("a setting", changes or ())
    async with named_agent(view, agent, change=bool(pairs), empty=no_store(NO_STORE)) as (perdure, owner):
        if pairs:
            values = {name: text if name == "prompt" else read_value(text) for name, text in pairs.items()}
            await owner.facts.update_settings(**values)
        graph = await perdure.agent_of(owner.id).facts.find_graph()
        settings = asdict(load_graph_settings({} if graph is None else graph.settings))
        view.show(settings, settings_view(settings))
        view.hint(
            f"`perdure fact settings {owner.name} NAME=VALUE` changes one; the value is JSON, of `prompt` a text."
        )


@command("fact rule")
async def rule(
    view: View,
    text: Annotated[str, argument("Words; facts that hold them are not stored.", "TEXT")],
    agent: LastAgent = None,
    entity: Annotated[str | None, option("Only about it; TEXT can be ''.", "NAME")] = None,
    relation: Annotated[str | None, option("Only of this relation; TEXT can be ''.", "NAME")] = None,
) -> None:
    """Say what must not be remembered from now on."""
    async with owner_of(view, agent, change=True) as owner:
        added = await owner.facts.add_rule(text, relation=relation, entity=entity)
        view.show(rule_shape(added), Text(f"Rule {added.seq}: such facts are not stored from now on."))
        view.hint(f"What is stored already stays: `perdure fact search TEXT {owner.name}` finds it, `forget` takes it.")


@command("fact rules")
async def rules(
    view: View, agent: LastAgent = None, lift: Annotated[int | None, option("Lift this rule first.", "NUMBER")] = None
) -> None:
    """List what must not be remembered."""
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


@command("fact entities")
async def entities(
    view: View, agent: LastAgent = None, limit: Annotated[int, option("How many.", min=1, max=10_000)] = 100
) -> None:
    """List the people, places and things that facts are about."""
    async with owner_of(view, agent) as owner:
        found = await owner.facts.entities(limit=limit)
        table = new_table("name", "type", "facts", "also", right=("facts",), styles={"name": "bold"})
        for one in found:
            table.add_row(visible(one.name), visible(one.type), str(one.fact_count), visible(", ".join(one.aliases)))
        view.show([entity_shape(one) for one in found], *([table] if found else [Text("No entities.")]))
        view.hint("`perdure fact list --entity NAME` shows what is known about one.")


@command("fact profile")
async def profile(
    view: View,
    agent: LastAgent = None,
    user: Annotated[str, option("Of this entity in place of the user.", "NAME")] = "",
    budget: Annotated[int, option("The most tokens.", min=1, max=200_000)] = 500,
) -> None:
    """Show what is known about the user, by slots."""
    async with owner_of(view, agent) as owner:
        found = await owner.profile(budget_tokens=budget, user=user)
        table = new_table("slot", "value", "fact", styles={"slot": "bold", "fact": "dim"})
        for entry in found.entries:
            table.add_row(entry.slot, visible(entry.value), entry.fact.id[:SHORT_CHARS] if entry.fact else "-")
        shape = {"user": found.user and found.user.name, "slots": found.slots, "tokens": found.tokens}
        view.show(
            shape | {"left_out": found.left_out}, *([table] if found.entries else [Text("Nothing is known yet.")])
        )
        more = f" {plural(found.left_out, 'more value')} did not fit --budget." if found.left_out else ""
        view.hint(f"`perdure fact edit ID TEXT` corrects a value, `perdure fact forget ID` takes it away.{more}")


@command("fact timeline")
async def timeline(
    view: View,
    agent: LastAgent = None,
    entity: Annotated[str | None, option("Only about it; a name or an id.", "NAME")] = None,
    since: Annotated[str | None, option("Only then or later.", "DATE")] = None,
    until: Annotated[str | None, option("Only then or before.", "DATE")] = None,
    tags: Annotated[
        list[str] | None, option("Only of this relation or type; several: any.", "NAME", name="--tag")
    ] = None,
    limit: Annotated[int, option("How many.", min=1, max=10_000)] = 100,
) -> None:
    """Show when facts began and ceased to be true."""
    async with owner_of(view, agent) as owner:
        home = owner.info.timezone
        events = await owner.facts.timeline(*period(since, until, home), entity=entity, tags=tags or (), limit=limit)
        table = new_table("day", "", "fact", "id", styles={"fact": "bold", "id": "dim"})
        for event in events:
            table.add_row(day(event.at, home), event.kind, visible(event.fact.text), event.fact.id[:SHORT_CHARS])
        shape = [
            {**fields(event, "at", "kind"), "tags": list(event.tags), **fields(event.fact, "id", "text")}
            for event in events
        ]
        view.show(shape, *([table] if events else [Text("No facts with a time.")]))
        view.hint("`perdure fact history ID` shows where one comes from.")


@command("fact context")
async def context(
    view: View,
    query: Annotated[str, argument("What the facts should match.", "[TEXT]")] = "",
    agent: LastAgent = None,
    budget: Annotated[int, option("The most tokens.", min=1, max=200_000)] = 1_000,
) -> None:
    """Print what is known as one text, for any program."""
    async with owner_of(view, agent) as owner:
        packed = await owner.facts.context(query, budget_tokens=budget)
        facts = context_facts(packed)
        sources = {fact.id: [one.ref for one in packed.sources.get(fact.id, ())] for fact in facts}
        shape = {**fields(packed, "text", "tokens"), "facts": [{**fields(fact, "id", "text")} for fact in facts]}
        view.show(shape | {"sources": sources}, Text(visible(packed.text) or "Nothing is known yet."))
        view.hint(f"{packed.tokens} tokens. `perdure why ID` shows where a fact comes from; --json has the ids.")


@command("fact communities")
async def communities(
    view: View,
    query: Annotated[str, argument("Search their summaries; '' lists the largest.", "[TEXT]")] = "",
    agent: LastAgent = None,
    limit: Annotated[int, option("How many.", min=1, max=1_000)] = 10,
) -> None:
    """Show groups of entities that many facts connect."""
    async with owner_of(view, agent) as owner:
        found = await owner.facts.communities(query, limit=limit)
        table = new_table("name", "entities", "summary", right=("entities",), styles={"name": "bold"})
        for one in found:
            table.add_row(visible(one.community.name), str(one.community.size), visible(one.community.summary) or "-")
        shape = [
            {**fields(one.community, "name", "size", "summary"), "members": [entity.name for entity in one.members]}
            for one in found
        ]
        view.show(shape, *([table] if found else [Text("No communities.")]))
        view.hint(
            "`perdure fact list --entity NAME` shows the facts of one entity. Summaries follow in the background."
        )


@command("fact tidy")
async def tidy(
    view: View,
    agent: LastAgent = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would fade.")] = False,
    yes: Yes = False,
) -> None:
    """Let facts and passages fade that matter little, and near-duplicates."""
    async with owner_of(view, agent, change=not dry_run) as owner:
        items = await owner.facts.tidy(dry_run=True)
        table = new_table("id", "text", "why", styles={"id": "dim", "text": "bold"})
        for item in items:
            table.add_row(*_memory_cells(item.memory), _reason(item))
        if items and not dry_run:
            counts = Counter(item.kind for item in items)
            what = " and ".join(plural(count, kind) for kind, count in sorted(counts.items()))
            confirm(view, f"{what} would fade; --dry-run lists them. Go on?", action=f"let {what} fade", yes=yes)
            items = await owner.facts.tidy()
        shape = [
            {**_memory_shape(item.memory), **fields(item, "reason", "score"), "into": item.into and item.into.id}
            for item in items
        ]
        view.show(shape, *([table] if items else [Text("Nothing fades.")]))
        if dry_run:
            view.hint("Nothing has changed. `perdure fact tidy` lets them fade, `perdure fact restore --last` undoes.")
        else:
            view.hint(f"`perdure fact restore --last {owner.name}` brings all of them back.")


def _memory_cells(memory: Memory) -> tuple[str, str]:
    """The id of a fact or passage, as other commands take it, and the beginning of its text."""
    chars = len(kind_of(memory)) + ID_CHARS
    return memory.id[:chars], visible(fold(memory.text, TEXT_CHARS))


def _memory_shape(memory: Memory) -> dict[str, Any]:
    """A fact or passage for programs."""
    return {"kind": kind_of(memory), **fields(memory, "id", "text", "state")}


def _reason(item: TidyItem) -> str:
    """Why a fact or passage fades."""
    if item.into is not None:
        return f"like: {visible(fold(item.into.text, TEXT_CHARS))}"
    return {"unused": "faded before, and not used since", "used": "used again: it comes back"}.get(
        item.reason, f"worth {item.score:.2f}"
    )
