"""`perdure schedule`: what wakes agents by itself; `perdure event`: tell an agent what happened."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from perdure.cli.commands.run import Agent, LastAgent, Yes, argument, command, flag, for_work, option
from perdure.core.text.forms import name_form

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.session.agent_choice import chat_command
    from perdure.cli.session.work import deleting, get_agent, read_object
    from perdure.cli.views.json import fields, reply_shape
    from perdure.cli.views.view import Output, new_table, visible
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.messages import text_of
    from perdure.core.text.zones import zone
    from perdure.features.schedules.units import describe_timing, next_times
    from perdure.features.schedules.values import Schedule
    from perdure.library.perdure import AsyncPerdure

Name = Annotated[str, argument("Its id or the beginning of it, or its name.", "ID")]

NO_SCHEDULE = "There are no schedules yet: `perdure schedule add TEXT --at TIME` makes one."
FIRED_BY = "it is fired while a process has the store open, such as `perdure serve`"
ALL_MAX = 10_000
NEXT_TIMES = 5
FIRINGS = 20
ONE_OF = "give one of --at, --every and --cron"


@command(
    "schedule add",
    change=True,
    refuses=[(lambda given: [given["at"], given["every"], given["cron"]].count(None) != 2, ONE_OF, None)],
    argument_names={"ends_at": "--until", "max_firings": "--times"},
)
async def add_schedule(
    view: Output,
    text: Annotated[str, argument("What the agent is told then.", "TEXT")],
    agent: LastAgent,
    at: Annotated[str | None, option("Once: 2026-11-24T09:00, 09:00, or 'in 20m'.", "TIME")] = None,
    every: Annotated[str | None, option("Such as 30m, 2h or 1d.", "DURATION")] = None,
    cron: Annotated[str | None, option("Five fields, such as '0 9 * * MON-FRI', or @daily.", "FIELDS")] = None,
    timezone: Annotated[
        str | None, option("Such as Europe/Rome; by default the agent's.", "ZONE", name="--zone")
    ] = None,
    name: Annotated[str, option("A short name.", "NAME")] = "",
    times: Annotated[int | None, option("How often at most.", "NUMBER")] = None,
    until: Annotated[str | None, option("Not after this time.", "TIME")] = None,
    missed: Annotated[
        Literal["skip", "once", "all"], option("What to do about times at which no process ran.")
    ] = "once",
    missed_limit: Annotated[int, option("With `all`: only this many of the newest.", "NUMBER", min=1, max=100)] = 10,
    quiet: Annotated[str | None, option("Not at these hours, such as 22:00-07:00.", "HOURS")] = None,
    skip_quiet: Annotated[
        bool, flag("--skip-quiet", "Skip what falls into quiet hours, instead of sending it after them.")
    ] = False,
    as_user: Annotated[bool, flag("--as-user", "The agent reads TEXT as a message of its user.")] = False,
    companion: Annotated[bool, flag("--companion", "Wake the agent's companion instead; TEXT is the name.")] = False,
) -> None:
    """Tell an agent something later, once or repeatedly."""
    schedule = await agent.schedules.create(
        text,
        at=at,
        every=every,
        cron=cron,
        timezone=timezone,
        name=text if companion and not name else name,
        role="user" if as_user else "system",
        companion=companion,
        ends_at=until,
        max_firings=times,
        missed=missed,
        missed_limit=missed_limit,
        quiet_hours=quiet,
        in_quiet_hours="skip" if skip_quiet else "move",
    )
    line = f"{schedule.id}  {agent.name}  {describe_timing(schedule.timing)}"
    view.show(schedule_shape(schedule, agent.name), Text(visible(line)), *_next_lines(schedule))
    view.hint(FIRED_BY)


@command("schedule list", none=NO_SCHEDULE)
async def list_schedules(
    view: Output,
    perdure: AsyncPerdure,
    agent: Annotated[str | None, argument("Name or id; by default all agents.", "AGENT")] = None,
    everything: Annotated[bool, flag("--all", "Include those that have ended.")] = False,
) -> None:
    """List the schedules, and when each fires next."""
    schedules = perdure.schedules if agent is None else (await get_agent(view, perdure, agent)).schedules
    found = await schedules.list(statuses=() if everything else ("active", "paused"), limit=ALL_MAX)
    names = {agent_id: (await perdure.agent(agent_id)).name for agent_id in {one.agent_id for one in found}}
    found = sorted(found, key=lambda one: (one.next_at is None, one.next_at or one.created_at))  # what comes next first
    table = new_table("schedule", "agent", "name", "when", "next", styles={"name": "dim"})
    for schedule in found:
        following = schedule.status if schedule.next_at is None else _local_time(schedule, schedule.next_at)
        row = (schedule.id, names[schedule.agent_id], schedule.name, describe_timing(schedule.timing), following)
        table.add_row(*map(visible, row))
    shapes = [schedule_shape(schedule, names[schedule.agent_id]) for schedule in found]
    view.show(shapes, table if found else NO_SCHEDULE)
    if found:
        view.hint("`perdure schedule show ID` shows what became of its times")


@command("schedule show", finds="schedule")
async def show_schedule(view: Output, perdure: AsyncPerdure, schedule: Name) -> None:
    """Show a schedule: its next five times, and what became of the last ones."""
    found = await _find_schedule(perdure, schedule)
    firings = await perdure.schedules.firings(found.id, limit=FIRINGS)
    name = (await perdure.agent(found.agent_id)).name
    head = f"{found.id}  {found.name or name}  {describe_timing(found.timing)}  {found.status}"
    table = new_table("due", "fired", "", "run")
    for firing in firings:
        what = firing.outcome + (f", {firing.missed} missed" if firing.missed else "")
        times = [_local_time(found, moment) for moment in (firing.due_at, firing.fired_at)]
        table.add_row(*map(visible, (*times, what, firing.run_id or firing.reason)))
    columns = ("due_at", "fired_at", "outcome", "run_id", "missed", "reason")
    shape = schedule_shape(found, name) | {"past": [fields(firing, *columns) for firing in firings]}
    said = "\n".join(text_of(message.parts) for message in found.messages)
    parts = [table] if firings else []
    view.show_long(shape, Text(visible(head), style="bold"), Text(visible(said)), *_next_lines(found), *parts)


@command("schedule pause", finds="schedule")
async def pause_schedule(view: Output, perdure: AsyncPerdure, schedule: Name) -> None:
    """Stop a schedule from firing until it is resumed."""
    paused = await perdure.schedules.pause((await _find_schedule(perdure, schedule)).id)
    view.show(schedule_shape(paused, (await perdure.agent(paused.agent_id)).name), f"{paused.id} is paused.")
    view.hint(f"`perdure schedule resume {paused.id}` has it fire again")


@command("schedule resume", finds="schedule")
async def resume_schedule(view: Output, perdure: AsyncPerdure, schedule: Name) -> None:
    """Let a paused schedule fire again, from its next due time on."""
    found = await perdure.schedules.resume((await _find_schedule(perdure, schedule)).id)
    view.show(schedule_shape(found, (await perdure.agent(found.agent_id)).name), *_next_lines(found))


@command("schedule cancel", finds="schedule")
async def cancel_schedule(view: Output, perdure: AsyncPerdure, schedule: Name) -> None:
    """End a schedule; its past can still be shown."""
    found = await _find_schedule(perdure, schedule)
    cancelled = await perdure.schedules.cancel(found.id)
    ended = found.status not in ("active", "paused")
    line = f"{found.id} had {found.status} already." if ended else f"{found.id} fires no more."
    view.show(schedule_shape(cancelled, (await perdure.agent(found.agent_id)).name), line)


@command("schedule delete", finds="schedule")
async def delete_schedule(view: Output, perdure: AsyncPerdure, schedule: Name, yes: Yes = False) -> None:
    """Delete a schedule with its past."""
    found = await _find_schedule(perdure, schedule)
    what = f"schedule {visible(found.name or found.id)!r} with its past"
    with deleting(view, what, "what it sent stays in the history", yes=yes, id_=found.id):
        await perdure.schedules.delete(found.id)


@command("event")
async def tell_event(
    view: Output,
    perdure: AsyncPerdure,
    kind: Annotated[str, argument("What happened, such as login or like.", "KIND")],
    agent: Agent,
    data: Annotated[str | None, option("More about it: a JSON object.", "JSON")] = None,
    wake: Annotated[
        bool, flag("--wake/--note", "Whether the agent acts now, or reads of it with its next message.")
    ] = True,
    key: Annotated[str | None, option("An event that comes twice under one key counts once.", "TEXT")] = None,
) -> int:
    """Tell an agent that something happened, and print what it says."""
    values = {} if data is None else read_object("--data", data, '{"from": "the app"}')
    accepted = await agent.notify(kind, values, wake=wake, idempotency_key=key)
    view.show_status("waiting for the agent…" if wake else "")
    reply = await perdure.messages.reply_to(accepted)
    view.clear_status()
    if wake:
        view.show(reply_shape(agent, reply), Text(visible(reply.text)))
    else:
        view.show({"run_id": accepted.run.id}, f"{visible(agent.name)} reads of it with the next message.")
        view.hint(f"`{chat_command(agent)}` sends one")
    return 1 if reply.failure is not None else 0


def schedule_shape(schedule: Schedule, agent: str) -> dict[str, Any]:
    """A schedule as `--json` prints it; `agent` is the name of its agent."""
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


def _next_lines(schedule: Schedule) -> list[Text]:
    """The next due times of a schedule, one in a line."""
    times = next_times(schedule, NEXT_TIMES)
    return [Text(f"next: {_local_time(schedule, moment)}", style="dim") for moment in times]


def _local_time(schedule: Schedule, moment: datetime) -> str:
    """A moment in the zone of a schedule, such as `Mon 2026-11-23 09:00 CET`."""
    return f"{moment.astimezone(zone(schedule.timing.timezone)):%a %Y-%m-%d %H:%M %Z}"


async def _find_schedule(perdure: AsyncPerdure, name: str) -> Schedule:
    """The schedule of this id, beginning of an id, or name. Raises: NotFound; InvalidInput: several have it."""
    found = await perdure.schedules.list(statuses=(), limit=ALL_MAX)
    matches = [one for one in found if one.id == name or (one.name and one.name == name_form(name))]
    if not matches and name.startswith("schedule-") and len(name) > len("schedule-"):
        matches = [one for one in found if one.id.startswith(name)]
    if not matches:
        raise NotFound("schedule", name, hint="`perdure schedule list` lists them")
    if len(matches) > 1:
        raise InvalidInput(f"{name!r:.80} is the name of {len(matches)} schedules: give more of the id")
    return matches[0]
