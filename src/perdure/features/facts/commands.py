"""`perdure fact`: list, search, show, add, correct and forget what an agent knows, and bring it back; how facts are
extracted, what is derived from them, what may fade. `/facts` shows the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, get_args

from perdure.cli.commands.run import LastAgent, Limit, Yes, argument, command, flag, for_work, option
from perdure.cli.session.needs import NO_STORE

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.session.agent_choice import chat_command, shell_word
    from perdure.cli.session.work import confirm, get_agent, read_pairs, read_value
    from perdure.cli.views.json import fields, score_shape
    from perdure.cli.views.text import settings_view
    from perdure.cli.views.view import Output, fold, new_table, plural, short_id, visible
    from perdure.core.errors import InvalidInput
    from perdure.core.forgetting.origins import origin_shape
    from perdure.core.ids import FactId
    from perdure.core.sources import TrustLabel
    from perdure.features.facts.cli_views import (
        day,
        entity_shape,
        fact_shape,
        fact_view,
        facts_view,
        origin_view,
        rule_shape,
    )
    from perdure.features.facts.fading.policy import Memory, kind_of
    from perdure.features.facts.units.context import context_facts
    from perdure.features.facts.values.facts import FACT_STATES, KNOWN_STATES
    from perdure.features.facts.values.settings import load_graph_settings
    from perdure.features.facts.views import FactConditions
    from perdure.library.memory.search import period
    from perdure.library.perdure import AsyncPerdure
    from perdure.search.ranking.query import parse_time

    TRUSTS: Final[tuple[TrustLabel, ...]] = get_args(TrustLabel)

FactName = Annotated[str, argument("The id of the fact, or its beginning.", "ID")]
FactNames = Annotated[list[str], argument("Ids of facts, or their beginnings.", "ID...")]
FromDate = Annotated[str | None, option("From when it is true, such as 2026-11-20.", "DATE", name="--since")]
ToDate = Annotated[str | None, option("Until when it was true.", "DATE", name="--until")]
TEXT_CHARS = 200
WHY_FADED = {"unused": "faded before, and not used since", "used": "used again: it comes back"}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `list` and `search` that say which facts."""

    entity: Annotated[str | None, option("Only facts about this entity; a name or an id.", "NAME")] = None
    relations: Annotated[
        list[str] | None,
        option("Only this relation, such as LIVES_IN; repeat it for any of several.", "NAME", name="--relation"),
    ] = None
    types: Annotated[
        list[str] | None, option("Only of this fact type; repeat it for any of several.", "NAME", name="--type")
    ] = None
    at: Annotated[str | None, option("Only what was true then.", "DATE")] = None
    since: Annotated[str | None, option("Only what was true then or later.", "DATE")] = None
    until: Annotated[str | None, option("Only what was true then or before.", "DATE")] = None
    as_of: Annotated[str | None, option("What was believed at the end of that day.", "DATE")] = None
    min_rating: Annotated[float, option("Only facts rated at least this.", min=0, max=1)] = 0.0
    state: Annotated[
        str | None, option("`active`, `faded`, `proposed`, `archived` or `all`; by default the first two.", "STATE")
    ] = None
    trust: Annotated[
        list[str] | None,
        option("Only from `user`, `agent`, `tool`, `web` and so on; repeat it for any of several.", "NAME"),
    ] = None
    scope: Annotated[
        list[str] | None, option("Only of this scope, such as user_id=ann; repeat it for all of several.", "NAME=VALUE")
    ] = None


@command("fact list")
async def list_facts(view: Output, *, agent: LastAgent, options: Options, limit: Limit = 50) -> None:
    """List what an agent knows as facts, newest first."""
    hits = await agent.facts.list(limit=limit, **_conditions(options, agent.info.timezone))
    view.show([fact_shape(hit) for hit in hits], *facts_view(hits, agent.info.timezone))
    waiting = (await agent.facts.counts()).waiting
    more = f" {plural(waiting, 'message')} wait for extraction." if waiting else ""
    view.hint(f"`perdure fact edit ID TEXT` corrects one, `forget ID` takes it away, `history ID` says whence.{more}")


@command("fact search")
async def search_facts(
    view: Output,
    *,
    text: Annotated[str, argument("What to search for.", "TEXT")],
    agent: LastAgent,
    options: Options,
    limit: Annotated[int, option("How many.", min=1, max=1_000)] = 10,
) -> None:
    """Search the facts of an agent, best first."""
    if not text.strip():
        raise InvalidInput("there is nothing to look for: perdure fact search TEXT")
    hits = await agent.facts.search(text, limit=limit, **_conditions(options, agent.info.timezone))
    view.show([fact_shape(hit) | score_shape(hit) for hit in hits], *facts_view(hits, agent.info.timezone))
    view.hint("`perdure fact history ID` shows where one comes from; `perdure why ID` too.")


@command("fact show", finds="fact")
async def show_fact(view: Output, perdure: AsyncPerdure, fact: FactName) -> None:
    """Show a fact with its times and its entities."""
    [fact_id], home = await find_facts(perdure, fact)
    hit = await perdure.facts.get(fact_id)
    view.show(fact_shape(hit), *fact_view(hit, home))
    view.hint(f"`perdure fact edit {short_id(fact_id)} TEXT` corrects it, `history` shows where it comes from.")


@command("fact history", finds="fact")
async def history(view: Output, perdure: AsyncPerdure, fact: FactName) -> None:
    """Show the versions of a fact, who wrote each and why, and what it comes from."""
    [fact_id], _ = await find_facts(perdure, fact)
    origin = await perdure.facts.origin(fact_id)
    view.show({"why": origin_shape(origin)}, *origin_view(origin))
    view.hint(f"`perdure fact edit {short_id(fact_id)} TEXT` corrects it, `forget` has it believed no longer.")


@command("fact add", change=True, argument_names={"valid_at": "--since", "invalid_at": "--until"})
async def add(
    view: Output,
    text: Annotated[str, argument("A sentence, such as 'Ada lives in Turin.'", "TEXT")],
    agent: LastAgent,
    subject: Annotated[str, option("Whom it is about; by default the user.", "NAME")] = "",
    relation: Annotated[str, option("Such as LIVES_IN.", "NAME")] = "REMEMBERS",
    object_: Annotated[str, option("What it is related to.", "NAME", name="--object")] = "",
    since: FromDate = None,
    until: ToDate = None,
) -> None:
    """Add a fact."""
    home, given = agent.info.timezone, (("valid_at", since), ("invalid_at", until))
    times = {name: parse_time(name, value, timezone=home) for name, value in given if value}
    hit = await agent.facts.add(text, subject=subject, relation=relation, object=object_, **times)
    view.show(fact_shape(hit), *fact_view(hit, home))
    view.hint(f"The agent finds it: `{chat_command(agent)}`. `perdure fact forget {short_id(hit.fact.id)}` undoes.")


@command("fact edit", finds="fact", argument_names={"valid_at": "--since", "invalid_at": "--until"})
async def edit(
    view: Output,
    perdure: AsyncPerdure,
    fact: FactName,
    text: Annotated[str | None, argument("The new sentence; by default it stays as it is.", "TEXT")] = None,
    since: FromDate = None,
    until: ToDate = None,
    rating: Annotated[float | None, option("How much it matters.", min=0, max=1)] = None,
) -> None:
    """Correct a fact; the version before stays in its history. '' removes a date."""
    [fact_id], home = await find_facts(perdure, fact)
    given, times = (("text", text), ("rating", rating)), (("valid_at", since), ("invalid_at", until))
    changes: Any = {name: value for name, value in given if value is not None}
    changes |= {name: parse_time(name, value, timezone=home) for name, value in times if value is not None}
    if not changes:
        raise InvalidInput("nothing changes: give the new text, --since, --until or --rating")
    hit = await perdure.facts.edit(fact_id, changes)
    view.show(fact_shape(hit), *fact_view(hit, home))
    view.hint(f"`perdure fact history {short_id(fact_id)}` shows the version before.")


@command("fact forget", finds="fact")
async def forget(view: Output, perdure: AsyncPerdure, facts: FactNames, yes: Yes = False) -> None:
    """Forget facts; `perdure fact restore` brings each back."""
    fact_ids, _ = await find_facts(perdure, *facts)
    hits = [await perdure.facts.get(fact_id) for fact_id in fact_ids]
    what = plural(len(hits), "fact")
    texts = "; ".join(visible(hit.fact.text) for hit in hits)
    confirm(view, f"{texts}\nForget {what}?", action=f"forget the {what}", yes=yes)
    forgotten = await perdure.facts.forget(fact_ids)
    view.show(
        {"forgotten": [fact.id for fact in forgotten]}, *(Text(f"Forgotten: {visible(f.text)}") for f in forgotten)
    )
    command = " ".join(("perdure fact restore", *map(short_id, fact_ids)))
    view.hint(f"`{command}` brings {'it' if len(hits) == 1 else 'them'} back.")


def _conditions(options: Options, timezone: str) -> FactConditions:
    """The conditions that the options say. Raises: InvalidInput: no date, an unknown state or source, or no pair."""
    state = options.state
    chosen = FACT_STATES if state == "all" else tuple(one for one in FACT_STATES if one == state)
    states = chosen if state else KNOWN_STATES
    if not states:
        raise InvalidInput(f"--state is {state!r:.80}: it can be {', '.join(FACT_STATES)} or all")
    said_by = options.trust or ()
    if unknown := [one for one in said_by if one not in TRUSTS]:
        raise InvalidInput(f"--trust is {unknown[0]!r:.80}: it can be {', '.join(TRUSTS)}")
    return FactConditions(
        entity=options.entity,
        relations=options.relations or (),
        types=options.types or (),
        at=parse_time("at", options.at, timezone=timezone),
        since=parse_time("since", options.since, timezone=timezone),
        until=parse_time("until", options.until, timezone=timezone, end=True),
        as_of=parse_time("as_of", options.as_of, timezone=timezone, end=True),
        min_rating=options.min_rating,
        states=states,
        trust=tuple(one for one in TRUSTS if one in said_by) or None,
        scope=read_pairs("--scope", options.scope),
    )


async def find_facts(perdure: AsyncPerdure, *starts: str) -> tuple[Sequence[FactId], str]:
    """The ids of facts that begin with these texts, and the time zone of the first. Raises: NotFound, InvalidInput."""
    ids = [FactId(await perdure.ids.find(start, "fact")) for start in starts]
    return ids, await perdure.facts.timezone(ids[0])


@command("fact restore", lacks=NO_STORE)
async def restore(
    view: Output,
    perdure: AsyncPerdure,
    facts: Annotated[
        list[str] | None, argument("Ids of facts, or their beginnings; with --last the agent's name.", "[ID...]")
    ] = None,
    last: Annotated[bool, flag("--last", "All that the latest `perdure fact tidy` let fade.")] = False,
) -> None:
    """Bring back forgotten or faded facts."""
    if last:
        agent = await get_agent(view, perdure, facts[0] if facts else None, change=True)
        restored = await agent.facts.restore_last()
        table = new_table("id", "text", "state", styles={"id": "dim", "text": "bold"})
        for one in restored:
            table.add_row(*_memory_cells(one), one.state)
        view.show([_memory_shape(one) for one in restored], table if restored else Text("Nothing has faded."))
        view.hint(
            f"`perdure fact list {shell_word(agent.name)}` shows what is known, `perdure archive show` the passages."
        )
        return
    if not facts:
        raise InvalidInput("name the facts: perdure fact restore ID; or give --last for what `tidy` let fade")
    fact_ids, home = await find_facts(perdure, *facts)
    hits = [await perdure.facts.restore(fact_id) for fact_id in fact_ids]
    view.show([fact_shape(hit) for hit in hits], *facts_view(hits, home))
    view.hint(f"`perdure fact history {short_id(fact_ids[0])}` shows what happened to it.")


@command("fact accept", finds="fact")
async def accept(view: Output, perdure: AsyncPerdure, facts: FactNames) -> None:
    """Accept proposed facts."""
    fact_ids, home = await find_facts(perdure, *facts)
    hits = [await perdure.facts.edit(fact_id, {"state": "active"}) for fact_id in fact_ids]
    view.show([fact_shape(hit) for hit in hits], *facts_view(hits, home))
    view.hint("`perdure fact list --state proposed` shows what else waits.")


@command("fact pause", change=True)
async def pause(view: Output, agent: LastAgent) -> None:
    """Stop extracting facts until `resume`."""
    await agent.facts.pause()
    view.show({"agent": agent.name, "paused": True}, Text(f"No facts are extracted for {visible(agent.name)}."))
    view.hint(f"`perdure fact resume {shell_word(agent.name)}` goes on.")


@command("fact resume", change=True)
async def resume(view: Output, agent: LastAgent) -> None:
    """Extract facts again, also from what was said meanwhile."""
    await agent.facts.resume()
    text = f"Facts are extracted for {visible(agent.name)}, also from what was said meanwhile."
    view.show({"agent": agent.name, "paused": False}, Text(text))
    view.hint(f"`perdure fact list {shell_word(agent.name)}` shows them.")


@command("fact settings", change=lambda given: bool(given["changes"]))
async def settings(
    view: Output,
    perdure: AsyncPerdure,
    agent: LastAgent,
    changes: Annotated[list[str] | None, argument("Such as reflect=false; values are JSON.", "[NAME=VALUE]...")] = None,
) -> None:
    """Show or change how facts are extracted: `entity_types`, `prompt` and so on."""
    if pairs := read_pairs("a setting", changes):
        values = {name: text if name == "prompt" else read_value(text) for name, text in pairs.items()}
        await agent.facts.update_settings(**values)
    graph = await agent.facts.find_graph()
    settings = asdict(load_graph_settings({} if graph is None else graph.settings))
    view.show(settings, settings_view(settings))
    view.hint(
        f"`perdure fact settings {shell_word(agent.name)} NAME=VALUE` changes one; VALUE is JSON, of `prompt` a text."
    )


@command("fact rule", change=True)
async def rule(
    view: Output,
    text: Annotated[str, argument("Words; facts that hold them are not stored.", "TEXT")],
    agent: LastAgent,
    entity: Annotated[str | None, option("Only about it; TEXT can be ''.", "NAME")] = None,
    relation: Annotated[str | None, option("Only of this relation; TEXT can be ''.", "NAME")] = None,
) -> None:
    """Say what must not be remembered from now on."""
    added = await agent.facts.add_rule(text, relation=relation, entity=entity)
    view.show(rule_shape(added), Text(f"Rule {added.seq}: such facts are not stored from now on."))
    view.hint(f"What is stored stays: `perdure fact search TEXT {shell_word(agent.name)}` finds it, `forget` takes it.")


@command("fact rules", change=lambda given: given["lift"] is not None)
async def rules(
    view: Output, agent: LastAgent, lift: Annotated[int | None, option("Lift this rule first.", "NUMBER")] = None
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
async def entities(view: Output, agent: LastAgent, limit: Limit = 100) -> None:
    """List the people, places and things that facts are about."""
    found = await agent.facts.entities(limit=limit)
    table = new_table("name", "type", "facts", "also", right=("facts",), styles={"name": "bold"})
    for one in found:
        table.add_row(visible(one.name), visible(one.type), str(one.fact_count), visible(", ".join(one.aliases)))
    view.show([entity_shape(one) for one in found], table if found else Text("No entities."))
    view.hint("`perdure fact list --entity NAME` shows what is known about one.")


@command("fact profile", argument_names={"budget_tokens": "--budget"})
async def profile(
    view: Output,
    agent: LastAgent,
    user: Annotated[str, option("Of this entity in place of the user.", "NAME")] = "",
    budget: Annotated[int, option("How many tokens at most.", min=1, max=200_000)] = 500,
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
    view: Output,
    agent: LastAgent,
    entity: Annotated[str | None, option("Only facts about this entity; a name or an id.", "NAME")] = None,
    since: Annotated[str | None, option("Only then or later.", "DATE")] = None,
    until: Annotated[str | None, option("Only then or before.", "DATE")] = None,
    tags: Annotated[
        list[str] | None, option("Only of this relation or type; repeat it for any of several.", "NAME", name="--tag")
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


@command("fact context", argument_names={"budget_tokens": "--budget"})
async def context(
    view: Output,
    *,
    query: Annotated[str, argument("What the facts should match.", "[TEXT]")] = "",
    agent: LastAgent,
    budget: Annotated[int, option("How many tokens at most.", min=1, max=200_000)] = 1_000,
) -> None:
    """Print what is known as one text, for any program."""
    packed = await agent.facts.context(query, budget_tokens=budget)
    facts = context_facts(packed)
    sources = {fact.id: [source.ref for source in packed.sources.get(fact.id, ())] for fact in facts}
    shape = fields(packed, "text", "tokens") | {"facts": [fields(fact, "id", "text") for fact in facts]}
    view.show(shape | {"sources": sources}, Text(visible(packed.text) or "Nothing is known yet."))
    view.hint(f"{packed.tokens} tokens. `perdure why ID` shows where a fact comes from; --json has the ids.")


@command("fact communities")
async def communities(
    view: Output,
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
    view: Output,
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
        view.hint(f"`perdure fact restore --last {shell_word(agent.name)}` brings all of them back.")


def _memory_cells(memory: Memory) -> tuple[str, str]:
    """The id of a fact or passage, as other commands take it, and the beginning of its text."""
    return short_id(memory.id), visible(fold(memory.text, TEXT_CHARS))


def _memory_shape(memory: Memory) -> dict[str, Any]:
    """A fact or passage for programs."""
    return {"kind": kind_of(memory), **fields(memory, "id", "text", "state")}
