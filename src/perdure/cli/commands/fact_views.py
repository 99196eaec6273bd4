"""What `perdure fact` derives from facts: the profile, the timeline, and what may fade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from perdure.cli.commands.facts import named_facts, owner_of, short_id
from perdure.cli.views.facts import SHORT_CHARS, fact_shape, facts_view
from perdure.cli.views.json import fields
from perdure.cli.views.view import View, fold, new_table, plural, visible
from perdure.cli.views.why import day
from perdure.cli.work import confirm
from perdure.core.errors import InvalidInput
from perdure.domain.facts.context import context_facts
from perdure.domain.forgetting import Memory, TidyItem, kind_of
from perdure.search.query import parse_time

TEXT_CHARS = 200
ID_CHARS = 9
"""Of an id behind its kind, in a list: enough to name it."""


async def profile(view: View, *, agent: str | None, user: str, budget: int) -> None:
    """Print the profile of an agent's user."""
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


async def timeline(
    view: View,
    *,
    agent: str | None,
    entity: str | None,
    since: str | None,
    until: str | None,
    tags: Sequence[str] | None,
    limit: int,
) -> None:
    """Print when facts began and ceased to be true."""
    async with owner_of(view, agent) as owner:
        start, end = parse_time(since), parse_time(until, end=True)
        events = await owner.facts.timeline(start, end, entity=entity, tags=tags or (), limit=limit)
        table = new_table("day", "", "fact", "id", styles={"fact": "bold", "id": "dim"})
        for event in events:
            table.add_row(day(event.at), event.kind, visible(event.fact.text), event.fact.id[:SHORT_CHARS])
        shape = [
            {**fields(event, "at", "kind"), "tags": list(event.tags), **fields(event.fact, "id", "text")}
            for event in events
        ]
        view.show(shape, *([table] if events else [Text("No facts with a time.")]))
        view.hint("`perdure fact history ID` shows where one comes from.")


async def context(view: View, *, query: str, agent: str | None, budget: int) -> None:
    """Print what is known as one text."""
    async with owner_of(view, agent) as owner:
        packed = await owner.facts.context(query, budget_tokens=budget)
        facts = context_facts(packed)
        sources = {fact.id: [one.ref for one in packed.sources.get(fact.id, ())] for fact in facts}
        shape = {**fields(packed, "text", "tokens"), "facts": [{**fields(fact, "id", "text")} for fact in facts]}
        view.show(shape | {"sources": sources}, Text(visible(packed.text) or "Nothing is known yet."))
        view.hint(f"{packed.tokens} tokens. `perdure why ID` shows where a fact comes from; --json has the ids.")


async def communities(view: View, *, query: str, agent: str | None, limit: int) -> None:
    """Print groups of entities, those that match a query or the largest."""
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


async def tidy(view: View, *, agent: str | None, dry_run: bool, yes: bool) -> None:
    """Let facts and passages fade, after a question."""
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


async def restore(view: View, *, facts: Sequence[str] | None, last: bool) -> None:
    """Bring forgotten facts back, or all that the latest `tidy` let fade."""
    if last:
        await _restore_last(view, agent=facts[0] if facts else None)
        return
    if not facts:
        raise InvalidInput("name the facts: perdure fact restore ID; or give --last for what `tidy` let fade")
    async with named_facts(view, *facts) as (perdure, fact_ids):
        hits = [await perdure.services.facts.restore(fact_id) for fact_id in fact_ids]
        view.show([fact_shape(hit) for hit in hits], *facts_view(hits))
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
