"""The verbs of `perdure schedule`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from perdure.cli.run import AsJson, LastAgent, Yes, command, verbs

schedule = verbs()

WORK = "schedules.schedules"
Name = Annotated[str, typer.Argument(metavar="ID", help="Its id or the beginning of it, or its name.")]


@command(schedule, f"{WORK}.add_schedule", name="add")
def add_schedule(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the agent is told then.")],
    agent: LastAgent = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Once: 2026-11-24T09:00, 09:00, or 'in 20m'.")
    ] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="DURATION", help="Such as 30m, 2h or 1d.")] = None,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="FIELDS", help="Five fields, such as '0 9 * * MON-FRI'.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--zone", metavar="ZONE", help="Such as Europe/Rome; by default the agent's.")
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="A short name.")] = "",
    times: Annotated[int | None, typer.Option("--times", metavar="NUMBER", help="How often at most.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Not after this time.")] = None,
    missed: Annotated[
        Literal["skip", "once", "all"],
        typer.Option("--missed", help="What becomes of times at which no process ran."),
    ] = "once",
    missed_limit: Annotated[
        int, typer.Option("--missed-limit", metavar="NUMBER", min=1, max=100, help="Of `all`: only the newest.")
    ] = 10,
    quiet: Annotated[
        str | None, typer.Option("--quiet", metavar="HOURS", help="Not at these hours, such as 22:00-07:00.")
    ] = None,
    skip_quiet: Annotated[bool, typer.Option("--skip-quiet", help="Nor after them, what falls there.")] = False,
    as_user: Annotated[bool, typer.Option("--as-user", help="The agent reads TEXT as a message of its user.")] = False,
    companion: Annotated[
        bool, typer.Option("--companion", help="Wake the agent's companion instead; TEXT is the name.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Have an agent told something later, once or again and again."""
    if sum(option is not None for option in (at, every, cron)) != 1:
        raise typer.BadParameter("give one of --at, --every and --cron")


@command(schedule, f"{WORK}.list_schedules", name="list")
def list_schedules(
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Name or id; by default all agents.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="With those that have ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the schedules, and when each fires next."""


@command(schedule, f"{WORK}.show_schedule", name="show")
def show_schedule(schedule: Name, as_json: AsJson = False) -> None:
    """Show a schedule: its next five times, and what became of the last ones."""


@command(schedule, f"{WORK}.cancel_schedule", name="cancel")
def cancel_schedule(schedule: Name, as_json: AsJson = False) -> None:
    """End a schedule; its past can still be shown."""


@command(schedule, f"{WORK}.delete_schedule", name="delete")
def delete_schedule(schedule: Name, yes: Yes = False) -> None:
    """Delete a schedule with its past."""
