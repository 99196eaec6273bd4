"""`perdure schedule`: add, list, show, cancel and delete schedules; `perdure event`: tell an agent what happened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from perdure.cli.run import Agent, LastAgent, Yes, argument, command, flag, for_work, option
from perdure.core.text.forms import name_form

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.chat.agent_choice import chat_command
    from perdure.cli.views.json import fields, reply_shape
    from perdure.cli.views.view import View, new_table, visible
    from perdure.cli.work import NO_AGENT, confirm, deleted, get_agent, named_agent, no_agent, open_store
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.messages import text_of
    from perdure.core.schedules import Firing, Schedule
    from perdure.core.text.zones import zone
    from perdure.core.tools.arguments import read_json
    from perdure.domain.schedules import describe_timing, next_times
    from perdure.library.perdure import AsyncPerdure

Name = Annotated[str, argument("Its id or the beginning of it, or its name.", "ID")]

NO_SCHEDULE = "There are no schedules yet: `perdure schedule add TEXT --at TIME` makes one."
FIRED_BY = "it is fired while a process has the store open, such as `perdure serve`"
ALL_MAX = 10_000
NEXT_TIMES = 5
FIRINGS = 20


@command("schedule add")
async def add_schedule(
    view: View,
    text: Annotated[str, argument("What the agent is told then.", "TEXT")],
    agent: LastAgent = None,
    at: Annotated[str | None, option("Once: 2026-11-24T09:00, 09:00, or 'in 20m'.", "TIME")] = None,
    every: Annotated[str | None, option("Such as 30m, 2h or 1d.", "DURATION")] = None,
    cron: Annotated[str | None, option("Five fields, such as '0 9 * * MON-FRI'.", "FIELDS")] = None,
    timezone: Annotated[
        str | None, option("Such as Europe/Rome; by default the agent's.", "ZONE", name="--zone")
    ] = None,
    name: Annotated[str, option("A short name.", "NAME")] = "",
    times: Annotated[int | None, option("How often at most.", "NUMBER")] = None,
    until: Annotated[str | None, option("Not after this time.", "TIME")] = None,
    missed: Annotated[
        Literal["skip", "once", "all"], option("What becomes of times at which no process ran.")
    ] = "once",
    missed_limit: Annotated[int, option("Of `all`: only the newest.", "NUMBER", min=1, max=100)] = 10,
    quiet: Annotated[str | None, option("Not at these hours, such as 22:00-07:00.", "HOURS")] = None,
    skip_quiet: Annotated[bool, flag("--skip-quiet", "Nor after them, what falls there.")] = False,
    as_user: Annotated[bool, flag("--as-user", "The agent reads TEXT as a message of its user.")] = False,
    companion: Annotated[bool, flag("--companion", "Wake the agent's companion instead; TEXT is the name.")] = False,
) -> None:
    """Have an agent told something later, once or again and again."""
    if sum(option is not None for option in (at, every, cron)) != 1:
        raise typer.BadParameter("give one of --at, --every and --cron")
    role: Literal["user", "system"] = "user" if as_user else "system"
    async with named_agent(view, agent, change=True, empty=no_agent(agent)) as (_, owner):
        schedule = await owner.schedules.create(
            text,
            at=at,
            every=every,
            cron=cron,
            timezone=timezone,
            name=text if companion and not name else name,
            role=role,
            companion=companion,
            ends_at=until,
            max_firings=times,
            missed=missed,
            missed_limit=missed_limit,
            quiet_hours=quiet,
            in_quiet_hours="skip" if skip_quiet else "move",
        )
        view.show(
            schedule_shape(schedule, owner.name),
            Text(visible(f"{schedule.id}  {owner.name}  {describe_timing(schedule.timing)}")),
            *_next_lines(schedule),
        )
        view.hint(FIRED_BY)


@command("schedule list")
async def list_schedules(
    view: View,
    agent: Annotated[str | None, argument("Name or id; by default all agents.", "AGENT")] = None,
    everything: Annotated[bool, flag("--all", "With those that have ended.")] = False,
) -> None:
    """List the schedules, and when each fires next."""
    async with open_store(view, empty=NO_SCHEDULE) as perdure:
        schedules = perdure.schedules if agent is None else (await get_agent(view, perdure, agent)).schedules
        found = await schedules.list(statuses=() if everything else ("active",), limit=ALL_MAX)
        names = await _agent_names(perdure, found)
    found = sorted(found, key=lambda one: (one.next_at is None, one.next_at or one.created_at))  # what comes next first
    table = new_table("schedule", "agent", "name", "when", "next", styles={"name": "dim"})
    for schedule in found:
        following = schedule.status if schedule.next_at is None else _time(schedule, schedule.next_at)
        row = (schedule.id, names[schedule.agent_id], schedule.name, describe_timing(schedule.timing), following)
        table.add_row(*map(visible, row))
    shapes = [schedule_shape(schedule, names[schedule.agent_id]) for schedule in found]
    view.show(shapes, *([table] if found else [NO_SCHEDULE]))
    if found:
        view.hint("`perdure schedule show ID` shows what became of its times")


@command("schedule show")
async def show_schedule(view: View, schedule: Name) -> None:
    """Show a schedule: its next five times, and what became of the last ones."""
    async with _open_schedule(view, schedule) as (perdure, found):
        firings = await perdure.schedules.firings(found.id, limit=FIRINGS)
        names = await _agent_names(perdure, [found])
    name = names[found.agent_id]
    head = f"{found.id}  {found.name or name}  {describe_timing(found.timing)}  {found.status}"
    table = new_table("due", "fired", "", "run")
    for firing in firings:
        what = firing.outcome + (f", {firing.missed} missed" if firing.missed else "")
        row = (_time(found, firing.due_at), _time(found, firing.fired_at), what, firing.run_id or firing.reason)
        table.add_row(*map(visible, row))
    shape = schedule_shape(found, name) | {"past": [firing_shape(firing) for firing in firings]}
    said = "\n".join(text_of(message.parts) for message in found.messages)
    parts = [table] if firings else []
    view.show_long(shape, Text(visible(head), style="bold"), Text(visible(said)), *_next_lines(found), *parts)


@command("schedule cancel")
async def cancel_schedule(view: View, schedule: Name) -> None:
    """End a schedule; its past can still be shown."""
    async with _open_schedule(view, schedule) as (perdure, found):
        cancelled = await perdure.schedules.cancel(found.id)
        names = await _agent_names(perdure, [found])
        ended = found.status != "active"
        line = f"{found.id} had {found.status} already." if ended else f"{found.id} fires no more."
        view.show(schedule_shape(cancelled, names[found.agent_id]), line)


@command("schedule delete", json=False)
async def delete_schedule(view: View, schedule: Name, yes: Yes = False) -> None:
    """Delete a schedule with its past."""
    async with _open_schedule(view, schedule) as (perdure, found):
        confirm(view, f"{found.id} and its past firings will be gone. Delete?", action="delete the schedule", yes=yes)
        await perdure.schedules.delete(found.id)
        view.hint(deleted(found.id, "what it sent stays in the history"))


@command("event")
async def tell_event(
    view: View,
    agent: Agent,
    kind: Annotated[str, argument("What happened, such as login or like.", "KIND")],
    data: Annotated[str | None, option("More about it: a JSON object.", "JSON")] = None,
    wake: Annotated[
        bool, flag("--wake/--note", "Whether the agent acts now, or reads of it with its next message.")
    ] = True,
    key: Annotated[str | None, option("The same key again is the same event.", "TEXT")] = None,
) -> int:
    """Tell an agent that something happened, and print what it says."""
    values = _read_data(data)
    async with named_agent(view, agent) as (perdure, found):
        accepted = await found.notify(kind, values, wake=wake, idempotency_key=key)
        view.show_status("waiting for the agent…" if wake else "")
        reply = await perdure.messages.reply_to(accepted)
        view.clear_status()
        if wake:
            view.show(reply_shape(found, reply), Text(visible(reply.text)))
        else:
            view.show({"run_id": accepted.run.id}, f"{visible(found.name)} reads of it with the next message.")
            view.hint(f"`{chat_command(found)}` sends one")
        return 1 if reply.failure is not None else 0


def schedule_shape(schedule: Schedule, agent: str) -> dict[str, Any]:
    """A schedule for programs."""
    timing = schedule.timing
    names = ("id", "name", "status", "made_by", "next_at", "firings", "max_steps", "created_at")
    quiet = timing.quiet and f"{timing.quiet.start:%H:%M}-{timing.quiet.end:%H:%M}"
    return fields(schedule, *names) | {
        "agent": agent,
        "agent_id": schedule.agent_id,
        "message": "\n".join(text_of(message.parts) for message in schedule.messages),
        **fields(timing, "at", "every_s", "cron", "timezone", "starts_at", "ends_at", "max_firings", "missed"),
        "quiet_hours": quiet,
        "next_times": [moment.isoformat() for moment in next_times(schedule, NEXT_TIMES)],
    }


def firing_shape(firing: Firing) -> dict[str, Any]:
    """What became of a due time, for programs."""
    return fields(firing, "due_at", "fired_at", "outcome", "run_id", "missed", "reason")


def _next_lines(schedule: Schedule) -> list[Text]:
    """The next due times, one in a line."""
    times = next_times(schedule, NEXT_TIMES)
    return [Text(f"next: {_time(schedule, moment)}", style="dim") for moment in times]


def _time(schedule: Schedule, moment: datetime) -> str:
    """A time in the schedule's zone."""
    return f"{moment.astimezone(zone(schedule.timing.timezone)):%a %Y-%m-%d %H:%M %Z}"


def _read_data(text: str | None) -> Mapping[str, Any]:
    """The data of an event. Raises: InvalidInput: it is no JSON object."""
    if text is None:
        return {}
    try:
        value = read_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--data is {text!r:.80}: it is no JSON ({error})") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"""--data is {text!r:.80}: give a JSON object, such as '{{"from": "the app"}}'""")
    return value


async def _agent_names(perdure: AsyncPerdure, schedules: Iterable[Schedule]) -> dict[str, str]:
    """Id -> name of the agents of schedules."""
    ids = dict.fromkeys(schedule.agent_id for schedule in schedules)
    return {agent_id: (await perdure.agent(agent_id)).name for agent_id in ids}


@asynccontextmanager
async def _open_schedule(view: View, name: str) -> AsyncIterator[tuple[AsyncPerdure, Schedule]]:
    """The open store, and the schedule of this id or its beginning, or of this name. Raises: NotFound,
    InvalidInput."""
    async with open_store(view, empty=NotFound("schedule", name, hint=NO_AGENT)) as perdure:
        found = await perdure.schedules.list(statuses=(), limit=ALL_MAX)
        matches = [one for one in found if one.id == name or (one.name and one.name == name_form(name))]
        if not matches and name.startswith("schedule-") and len(name) > len("schedule-"):
            matches = [one for one in found if one.id.startswith(name)]
        if not matches:
            raise NotFound("schedule", name, hint="`perdure schedule list` lists them")
        if len(matches) > 1:
            raise InvalidInput(f"{name!r:.80} is the name of {len(matches)} schedules: give more of the id")
        yield perdure, matches[0]
