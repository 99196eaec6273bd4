"""`perdure fact`: list, search, show, add, correct and forget what an agent knows; `/facts` shows the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Final, get_args

from perdure.cli.run import LastAgent, Yes, argument, command, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.chat.agent_choice import chat_command
    from perdure.cli.commands.memory import NO_STORE
    from perdure.cli.commands.provenance.sources import show_origin
    from perdure.cli.views.facts import SHORT_CHARS, fact_shape, fact_view, facts_view
    from perdure.cli.views.view import View, plural, visible
    from perdure.cli.work import confirm, get_agent, no_store, none_yet, open_store, read_pairs
    from perdure.core.errors import InvalidInput
    from perdure.core.facts.values import FACT_STATES, KNOWN_STATES
    from perdure.core.ids import FactId
    from perdure.core.provenance.sources import TrustLabel
    from perdure.domain.facts.graphs import FactFields
    from perdure.library.agent import AsyncAgent
    from perdure.library.facts.facts import AsyncFacts
    from perdure.library.facts.views import FactConditions
    from perdure.library.perdure import AsyncPerdure
    from perdure.search.query import parse_time

    TRUSTS: Final[tuple[TrustLabel, ...]] = get_args(TrustLabel)

FactName = Annotated[str, argument("The id of the fact, or its beginning.", "ID")]
FactNames = Annotated[list[str], argument("Ids of facts, or their beginnings.", "ID...")]
FromDate = Annotated[str | None, option("From when it is true, such as 2026-11-20.", "DATE", name="--since")]
ToDate = Annotated[str | None, option("Until when it was true.", "DATE", name="--until")]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `list` and `search` that say which facts."""

    entity: Annotated[str | None, option("Only about it; a name or an id.", "NAME")] = None
    relations: Annotated[
        list[str] | None, option("Only such as LIVES_IN; several: any of them.", "NAME", name="--relation")
    ] = None
    types: Annotated[list[str] | None, option("Only of this fact type; several: any.", "NAME", name="--type")] = None
    at: Annotated[str | None, option("Only what was true then.", "DATE")] = None
    since: Annotated[str | None, option("Only what was true then or later.", "DATE")] = None
    until: Annotated[str | None, option("Only what was true then or before.", "DATE")] = None
    as_of: Annotated[str | None, option("What was believed at the end of that day.", "DATE")] = None
    min_rating: Annotated[float, option("Only what matters so much.", min=0, max=1)] = 0.0
    state: Annotated[
        str | None, option("`active`, `faded`, `proposed`, `archived` or `all`; by default the first two.", "STATE")
    ] = None
    trust: Annotated[
        list[str] | None, option("Only from `user`, `agent`, `tool`, `web` and so on; several: any.", "NAME")
    ] = None
    scope: Annotated[list[str] | None, option("Only such as user_id=ann; several: all of them.", "NAME=VALUE")] = None


@command("fact list")
async def list_facts(
    view: View,
    *,
    agent: LastAgent = None,
    options: Options,
    limit: Annotated[int, option("How many.", min=1, max=10_000)] = 50,
) -> None:
    """List what an agent knows as facts, newest first."""
    async with owner_of(view, agent) as owner:
        hits = await owner.facts.list(limit=limit, **_conditions(options, owner.info.timezone))
        view.show([fact_shape(hit) for hit in hits], *facts_view(hits, owner.info.timezone))
        view.hint(await _next_steps(owner.facts))


@command("fact search")
async def search_facts(
    view: View,
    *,
    text: Annotated[str, argument("What to search for.", "TEXT")],
    agent: LastAgent = None,
    options: Options,
    limit: Annotated[int, option("How many.", min=1, max=1_000)] = 10,
) -> None:
    """Search the facts of an agent, best first."""
    if not text.strip():
        raise InvalidInput("there is nothing to look for: perdure fact search TEXT")
    async with owner_of(view, agent) as owner:
        hits = await owner.facts.search(text, limit=limit, **_conditions(options, owner.info.timezone))
        view.show([fact_shape(hit, with_score=True) for hit in hits], *facts_view(hits, owner.info.timezone))
        view.hint("`perdure fact history ID` shows where one comes from; `perdure why ID` too.")


@command("fact show")
async def show_fact(view: View, fact: FactName) -> None:
    """Show a fact with its times and its entities."""
    async with named_facts(view, fact) as (perdure, [fact_id], home):
        hit = await perdure.facts.get(fact_id)
        view.show(fact_shape(hit), *fact_view(hit, home))
        view.hint(f"`perdure fact edit {short_id(fact_id)} TEXT` corrects it, `history` shows where it comes from.")


@command("fact history")
async def history(view: View, fact: FactName) -> None:
    """Show the versions of a fact, who wrote each and why, and what it comes from."""
    async with named_facts(view, fact) as (perdure, [fact_id], _):
        show_origin(view, await perdure.origins.why(fact_id))
        view.hint(f"`perdure fact edit {short_id(fact_id)} TEXT` corrects it, `forget` has it believed no longer.")


@command("fact add")
async def add(
    view: View,
    text: Annotated[str, argument("A sentence, such as 'Ada lives in Turin.'", "TEXT")],
    agent: LastAgent = None,
    subject: Annotated[str, option("Whom it is about; by default the user.", "NAME")] = "",
    relation: Annotated[str, option("Such as LIVES_IN.", "NAME")] = "REMEMBERS",
    object_: Annotated[str, option("What it is related to.", "NAME", name="--object")] = "",
    since: FromDate = None,
    until: ToDate = None,
) -> None:
    """Add a fact."""
    async with owner_of(view, agent, change=True) as owner:
        home, given = owner.info.timezone, (("valid_at", since), ("invalid_at", until))
        times = {name: parse_time(value, timezone=home) for name, value in given if value}
        hit = await owner.facts.add(text, subject=subject, relation=relation, object=object_, **times)
        view.show(fact_shape(hit), *fact_view(hit, home))
        view.hint(f"The agent finds it: `{chat_command(owner)}`. `perdure fact forget {short_id(hit.fact.id)}` undoes.")


@command("fact edit")
async def edit(
    view: View,
    fact: FactName,
    text: Annotated[str | None, argument("The sentence; by default it stays.", "TEXT")] = None,
    since: FromDate = None,
    until: ToDate = None,
    rating: Annotated[float | None, option("How much it matters.", min=0, max=1)] = None,
) -> None:
    """Correct a fact; the version before stays in its history. '' takes a date away."""
    changes: FactFields = {}
    if text is not None:
        changes["text"] = text
    if rating is not None:
        changes["rating"] = rating
    if not changes and since is None and until is None:
        raise InvalidInput("nothing changes: give the new text, --since, --until or --rating")
    async with named_facts(view, fact) as (perdure, [fact_id], home):
        if since is not None:
            changes["valid_at"] = parse_time(since, timezone=home)
        if until is not None:
            changes["invalid_at"] = parse_time(until, timezone=home)
        hit = await perdure.facts.edit(fact_id, changes)
        view.show(fact_shape(hit), *fact_view(hit, home))
        view.hint(f"`perdure fact history {short_id(fact_id)}` shows the version before.")


@command("fact forget")
async def forget(view: View, facts: FactNames, yes: Yes = False) -> None:
    """Forget facts; `perdure fact restore` brings each back."""
    async with named_facts(view, *facts) as (perdure, fact_ids, _):
        hits = [await perdure.facts.get(fact_id) for fact_id in fact_ids]
        what = plural(len(hits), "fact")
        confirm(
            view,
            f"{'; '.join(visible(hit.fact.text) for hit in hits)}\nForget {what}?",
            action=f"forget the {what}",
            yes=yes,
        )
        gone = await perdure.facts.forget(fact_ids)
        view.show({"forgotten": [fact.id for fact in gone]}, *(Text(f"Forgotten: {visible(f.text)}") for f in gone))
        command = " ".join(("perdure fact restore", *map(short_id, fact_ids)))
        view.hint(f"`{command}` brings {'it' if len(hits) == 1 else 'them'} back.")


async def _next_steps(facts: AsyncFacts) -> str:
    """What can be done with facts, and how much waits."""
    counts = await facts.counts()
    waiting = f" {plural(counts.waiting, 'message')} wait for extraction." if counts.waiting else ""
    return f"`perdure fact edit ID TEXT` corrects one, `forget ID` takes it away, `history ID` says whence.{waiting}"


def _conditions(options: Options, timezone: str) -> FactConditions:
    """The options as conditions. Raises: InvalidInput: a text that is no date, an unknown state or source, no pair."""
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
        at=parse_time(options.at, timezone=timezone),
        since=parse_time(options.since, timezone=timezone),
        until=parse_time(options.until, timezone=timezone, end=True),
        as_of=parse_time(options.as_of, timezone=timezone, end=True),
        min_rating=options.min_rating,
        states=states,
        trust=tuple(one for one in TRUSTS if one in said_by) or None,
        scope=read_pairs("--scope", options.scope or ()),
    )


@asynccontextmanager
async def owner_of(view: View, name: str | None, *, change: bool = False) -> AsyncIterator[AsyncAgent]:
    """The agent of this name, or the one used last; `change` as `get_agent` has it."""
    async with open_store(view, empty=no_store(NO_STORE)) as perdure:
        yield await get_agent(view, perdure, name, change=change)


@asynccontextmanager
async def named_facts(view: View, *starts: str) -> AsyncIterator[tuple[AsyncPerdure, Sequence[FactId], str]]:
    """The open store, the facts whose ids begin so, and the time zone of the first."""
    async with open_store(view, empty=none_yet("fact", starts[0])) as perdure:
        ids = [FactId(await perdure.origins.find_id(start, "fact")) for start in starts]
        yield perdure, ids, await perdure.facts.timezone(ids[0])


def short_id(fact_id: FactId) -> str:
    """The beginning of an id, as lists show it."""
    return fact_id[:SHORT_CHARS]
