"""The verbs of `perdure fact`."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.run import AsJson, LastAgent, Yes, verbs
from perdure.cli.run import old_command as command

fact = verbs()

FactName = Annotated[str, typer.Argument(metavar="ID", help="The id of the fact, or its beginning.")]
FactNames = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of facts, or their beginnings.")]
AboutEntity = Annotated[str | None, typer.Option("--entity", metavar="NAME", help="Only about it; a name or an id.")]
WithRelation = Annotated[
    list[str] | None, typer.Option("--relation", metavar="NAME", help="Only such as LIVES_IN; several: any of them.")
]
TrueAt = Annotated[str | None, typer.Option("--at", metavar="DATE", help="Only what was true then.")]
TrueSince = Annotated[str | None, typer.Option("--since", metavar="DATE", help="Only what was true then or later.")]
TrueUntil = Annotated[str | None, typer.Option("--until", metavar="DATE", help="Only what was true then or before.")]
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="DATE", help="What was believed at the end of that day.")]
MinRating = Annotated[float, typer.Option("--min-rating", min=0, max=1, help="Only what matters so much.")]
State = Annotated[
    str | None,
    typer.Option(
        "--state", metavar="STATE", help="`active`, `faded`, `proposed`, `archived` or `all`; by default the first two."
    ),
]
WithType = Annotated[
    list[str] | None, typer.Option("--type", metavar="NAME", help="Only of this fact type; several: any.")
]
SaidBy = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="NAME", help="Only from `user`, `agent`, `tool`, `web` and so on; several: any."),
]
InScope = Annotated[
    list[str] | None,
    typer.Option("--scope", metavar="NAME=VALUE", help="Only such as user_id=ann; several: all of them."),
]
FromDate = Annotated[
    str | None, typer.Option("--since", metavar="DATE", help="From when it is true, such as 2026-11-20.")
]
ToDate = Annotated[str | None, typer.Option("--until", metavar="DATE", help="Until when it was true.")]


@command(fact, "facts.list_facts", name="list")
def list_facts(
    agent: LastAgent = None,
    entity: AboutEntity = None,
    relations: WithRelation = None,
    types: WithType = None,
    at: TrueAt = None,
    since: TrueSince = None,
    until: TrueUntil = None,
    as_of: AsOf = None,
    min_rating: MinRating = 0.0,
    state: State = None,
    trust: SaidBy = None,
    scope: InScope = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List what an agent knows as facts, newest first."""


@command(fact, "facts.search_facts", name="search")
def search_facts(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to search for.")],
    agent: LastAgent = None,
    entity: AboutEntity = None,
    relations: WithRelation = None,
    types: WithType = None,
    at: TrueAt = None,
    since: TrueSince = None,
    until: TrueUntil = None,
    as_of: AsOf = None,
    min_rating: MinRating = 0.0,
    state: State = None,
    trust: SaidBy = None,
    scope: InScope = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Search the facts of an agent, best first."""


@command(fact, "facts.show_fact", name="show")
def show_fact(fact: FactName, as_json: AsJson = False) -> None:
    """Show a fact with its times and its entities."""


@command(fact, "facts.history")
def history(fact: FactName, as_json: AsJson = False) -> None:
    """Show the versions of a fact, who wrote each and why, and what it comes from."""


@command(fact, "facts.add")
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A sentence, such as 'Ada lives in Turin.'")],
    agent: LastAgent = None,
    subject: Annotated[
        str, typer.Option("--subject", metavar="NAME", help="Whom it is about; by default the user.")
    ] = "",
    relation: Annotated[str, typer.Option("--relation", metavar="NAME", help="Such as LIVES_IN.")] = "REMEMBERS",
    object_: Annotated[str, typer.Option("--object", metavar="NAME", help="What it is related to.")] = "",
    since: FromDate = None,
    until: ToDate = None,
    as_json: AsJson = False,
) -> None:
    """Add a fact."""


@command(fact, "facts.edit")
def edit(
    fact: FactName,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The sentence; by default it stays.")] = None,
    since: FromDate = None,
    until: ToDate = None,
    rating: Annotated[float | None, typer.Option("--rating", min=0, max=1, help="How much it matters.")] = None,
    as_json: AsJson = False,
) -> None:
    """Correct a fact; the version before stays in its history. '' takes a date away."""


@command(fact, "facts.forget")
def forget(facts: FactNames, yes: Yes = False, as_json: AsJson = False) -> None:
    """Forget facts; `perdure fact restore` brings each back."""


@command(fact, "fact_views.restore")
def restore(
    facts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID...]", help="Ids of facts, or their beginnings; with --last the agent's name."),
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="All that the latest `perdure fact tidy` let fade.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring forgotten facts back, or those that faded."""


@command(fact, "fact_views.accept")
def accept(facts: FactNames, as_json: AsJson = False) -> None:
    """Accept proposed facts."""


@command(fact, "fact_views.pause")
def pause(agent: LastAgent = None, as_json: AsJson = False) -> None:
    """Extract no facts until `resume`."""


@command(fact, "fact_views.resume")
def resume(agent: LastAgent = None, as_json: AsJson = False) -> None:
    """Extract facts again, also from what was said meanwhile."""


@command(fact, "fact_views.settings")
def settings(
    agent: LastAgent = None,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Such as reflect=false; values are JSON.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or change how facts are extracted: `entity_types`, `prompt` and so on."""


@command(fact, "fact_views.rule")
def rule(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Words; facts that hold them are not stored.")],
    agent: LastAgent = None,
    entity: Annotated[
        str | None, typer.Option("--entity", metavar="NAME", help="Only about it; TEXT can be ''.")
    ] = None,
    relation: Annotated[
        str | None, typer.Option("--relation", metavar="NAME", help="Only of this relation; TEXT can be ''.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what must not be remembered from now on."""


@command(fact, "fact_views.rules")
def rules(
    agent: LastAgent = None,
    lift: Annotated[int | None, typer.Option("--lift", metavar="NUMBER", help="Lift this rule first.")] = None,
    as_json: AsJson = False,
) -> None:
    """List what must not be remembered."""


@command(fact, "fact_views.entities")
def entities(
    agent: LastAgent = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the people, places and things that facts are about."""


@command(fact, "fact_views.profile")
def profile(
    agent: LastAgent = None,
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Of this entity in place of the user.")] = "",
    budget: Annotated[int, typer.Option("--budget", min=1, max=200_000, help="The most tokens.")] = 500,
    as_json: AsJson = False,
) -> None:
    """Show what is known about the user, by slots."""


@command(fact, "fact_views.timeline")
def timeline(
    agent: LastAgent = None,
    entity: AboutEntity = None,
    since: Annotated[str | None, typer.Option("--since", metavar="DATE", help="Only then or later.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="DATE", help="Only then or before.")] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="NAME", help="Only of this relation or type; several: any.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show when facts began and ceased to be true."""


@command(fact, "fact_views.context")
def context(
    query: Annotated[str, typer.Argument(metavar="[TEXT]", help="What the facts should match.")] = "",
    agent: LastAgent = None,
    budget: Annotated[int, typer.Option("--budget", min=1, max=200_000, help="The most tokens.")] = 1_000,
    as_json: AsJson = False,
) -> None:
    """Print what is known as one text, for any program."""


@command(fact, "fact_views.communities")
def communities(
    query: Annotated[str, typer.Argument(metavar="[TEXT]", help="Search their summaries; '' lists the largest.")] = "",
    agent: LastAgent = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show groups of entities that many facts connect."""


@command(fact, "fact_views.tidy")
def tidy(
    agent: LastAgent = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would fade.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let facts and passages fade that matter little, and near-duplicates."""
