"""`perdure group`: list, show, create, change, reset and delete groups of agents, and talk to one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, cast

from perdure.cli.commands.run import Yes, agent_names, agent_option, argument, command, for_work, group_names, option

if for_work(__name__):
    import asyncio

    from rich.console import RenderableType
    from rich.padding import Padding
    from rich.text import Text

    from perdure.cli.session.work import STDIN, confirm, deleting, get_agent, load_all
    from perdure.cli.views.json import fields, message_shape
    from perdure.cli.views.view import Output, local_time, new_table, plural, short_id, visible
    from perdure.core.ids import AgentId
    from perdure.features.groups import values as core
    from perdure.features.groups.replies import GroupReply
    from perdure.features.groups.service import AsyncGroup
    from perdure.features.groups.units import GroupChanges
    from perdure.library.perdure import AsyncPerdure

GroupName = Annotated[
    str, argument("Its id, the beginning of it, or its description.", "GROUP", autocompletion=group_names)
]
Manager = Annotated[
    str | None, agent_option("Who answers (supervisor) or chooses who speaks (dynamic).", name="--manager")
]

NO_GROUP = "There are no groups yet: `perdure group create round_robin AGENT AGENT` makes one."
COLOURS = ("cyan", "magenta", "green", "yellow", "blue")
"""Of the agents of a group, in their order."""

STOPS = {
    "termination_token": "an agent said that it is done",
    "max_turns": "the limit of speeches is reached: `perdure group update {group} --max-turns N` changes that",
    "max_tokens": "the limit of tokens is reached: `perdure group update {group} --max-tokens N` changes that",
    "max_cost": "the limit of cost is reached: `perdure group update {group} --max-cost USD` changes that",
    "max_depth": "agents passed too many messages on, one because of the other",
    "no_speaker": "the manager named nobody of the group",
    "requires_approval": "a tool call waits for you: `perdure approval list` shows it",
    "cancelled": "cancelled",
}
"""Why a turn ended, but for its usual end and errors, which say it themselves."""


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Options of a group that is created or changed; None: not given."""

    description: Annotated[str | None, option("What it is for.", "TEXT")] = None
    max_turns: Annotated[int | None, option("How often its agents may speak after one message.", min=1)] = None
    termination_token: Annotated[str | None, option("What ends a dynamic turn; by default DONE!.", "TEXT")] = None
    max_tokens: Annotated[int | None, option("Tokens, in and out, after one message.", min=1)] = None
    max_cost: Annotated[float | None, option("What one message may cost.", "USD")] = None


@command("group list", none=NO_GROUP)
async def list_groups(view: Output, perdure: AsyncPerdure) -> None:
    """List the groups, newest first."""
    groups, names = await load_all(perdure.groups.list), await _names(perdure)
    table = new_table("id", "kind", "agents", "manager", "description", styles={"id": "dim", "description": "bold"})
    for group in groups:
        info = group.info
        members = ", ".join(names[agent_id] for agent_id in info.agent_ids)
        manager = "-" if info.manager_agent_id is None else names[info.manager_agent_id]
        table.add_row(short_id(info.id), info.kind, members, manager, visible(info.description))
    view.show([_group_shape(group, names) for group in groups], *([table] if groups else []))
    more = "`perdure group send GROUP TEXT` talks to one; `perdure group show GROUP` prints who said what."
    view.hint(more if groups else NO_GROUP)


@command("group show", finds="group")
async def show(
    view: Output,
    perdure: AsyncPerdure,
    group: GroupName,
    limit: Annotated[int, option("How much of the transcript.", min=1, max=10_000)] = 100,
) -> None:
    """Show a group's agents and settings, and who said what, the newest last."""
    target, names = await perdure.groups.get(group), await _names(perdure)
    entries = (await target.messages(limit=limit, newest_first=True))[::-1]
    columns = ("seq", "turn_seq", "kind", "sender_id", "sender_name", "run_id", "text", "created_at")
    shape = _group_shape(target, names) | {"messages": [fields(entry, *columns) for entry in entries]}
    view.show_long(shape, *_group_view(target, names), *_transcript_view(entries, _colours(target)))
    view.hint(f"`perdure group send {short_id(target.id)} TEXT` talks to it.")
    if target.kind in core.SLEEPTIME_KINDS:
        view.hint("Only its manager answers; its companion reads what is said, and tidies the memory.")


@command(
    "group create",
    finds="agent",
    named="agents",
    refuses=(
        (
            lambda args: args["kind"] != "round_robin" and args["manager"] is None,
            "a {kind} group needs an agent that leads it: add --manager AGENT",
            None,
        ),
        (
            lambda args: args["kind"] == "round_robin" and args["manager"] is not None,
            "a round_robin group has none: leave it out, or create another kind",
            "--manager",
        ),
    ),
)
async def create(
    view: Output,
    perdure: AsyncPerdure,
    *,
    kind: Annotated[
        Literal["round_robin", "supervisor", "dynamic"],
        argument("round_robin: one after the other; supervisor: all, then it; dynamic: as it chooses.", "KIND"),
    ],
    agents: Annotated[list[str], argument("Names or ids.", "AGENT...", autocompletion=agent_names)],
    manager: Manager = None,
    options: GroupOptions,
) -> None:
    """Create a group of agents that answer together."""
    members = [await get_agent(view, perdure, name, change=True) for name in agents]
    head = None if manager is None else await get_agent(view, perdure, manager, change=True)
    made = await perdure.groups.create(kind, agents=members, manager=head, **_options(options))
    names = await _names(perdure)
    view.show(_group_shape(made, names), *_group_view(made, names))
    view.hint(f"`perdure group send {short_id(made.id)} TEXT` talks to it.")


@command("group update", finds="group")
async def update(
    view: Output,
    perdure: AsyncPerdure,
    *,
    group: GroupName,
    agents: Annotated[
        list[str] | None, argument("All its agents from now on.", "[AGENT]...", autocompletion=agent_names)
    ] = None,
    manager: Manager = None,
    options: GroupOptions,
) -> None:
    """Change a group: its agents, its manager, its limits."""
    target = await perdure.groups.get(group)
    changes = cast(GroupChanges, _options(options))
    if agents:
        changes["agent_ids"] = [(await get_agent(view, perdure, name, change=True)).id for name in agents]
    if manager is not None:
        changes["manager_agent_id"] = (await get_agent(view, perdure, manager, change=True)).id
    if not changes:
        view.hint("Nothing to change: name agents, or give --manager, --description or a limit.")
    target, names = await target.update(**changes), await _names(perdure)
    view.show(_group_shape(target, names), *_group_view(target, names))


@command("group send", finds="group")
async def send(
    view: Output,
    perdure: AsyncPerdure,
    group: GroupName,
    text: Annotated[str, argument("The message; - reads stdin.", "TEXT")],
) -> int:
    """Send a message to a group, and show who answers what."""
    text = sys.stdin.read() if text == STDIN else text
    target = await perdure.groups.get(group)
    colours = _colours(target)
    events: list[core.GroupEvent] = []
    turn = await target.submit(text)
    with cancel_on_interrupt(target, turn):
        async for event in perdure.groups.by_id(turn.group_id).follow(turn):
            events.append(event)
            _show_event(view, event, colours)
    view.clear_status()
    reply = GroupReply.of(events)
    view.show(_reply_shape(target, reply))
    if reply.failure is not None:
        view.note(f"the turn failed: {reply.failure.message}")
    elif reply.stop_reason in STOPS:
        view.note(STOPS[reply.stop_reason].format(group=short_id(target.id)))
    view.hint(f"`perdure group show {short_id(target.id)}` prints who said what.")
    return int(reply.stop_reason in core.GROUP_FAILED_REASONS)


@command("group cancel", finds="group")
async def cancel(view: Output, perdure: AsyncPerdure, group: GroupName) -> None:
    """Stop what is under way in a group; what was said stays."""
    target = await perdure.groups.get(group)
    turns = await target.cancel()
    view.show({"group_id": target.id, "cancelled": [turn.seq for turn in turns]})
    view.hint(f"{plural(len(turns), 'turn')} cancelled; what was said stays." if turns else "No turn goes on.")


@contextmanager
def cancel_on_interrupt(group: AsyncGroup, turn: core.GroupTurn) -> Iterator[None]:
    """Have Ctrl-C end the turn, and a second one the program: the turn would go on when the store is opened again."""
    loop, cancelling = asyncio.get_running_loop(), set[asyncio.Task[object]]()

    def cancel() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        cancelling.add(asyncio.create_task(group.cancel(turn.seq)))

    loop.add_signal_handler(signal.SIGINT, cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@command("group reset", finds="group")
async def reset(view: Output, perdure: AsyncPerdure, group: GroupName, yes: Yes = False) -> None:
    """Clear a group's transcript, for good; its agents' other conversations stay."""
    target = await perdure.groups.get(group)
    question = (
        f"What was said in {_name(target)} will be out of its view, for good; its agents' other conversations and"
        " their memory stay. Reset?"
    )
    confirm(view, question, action="reset the group", yes=yes)
    await target.reset()
    view.show({"reset": target.id})
    view.hint(f"This can't be undone; `perdure group send {short_id(target.id)} TEXT` begins anew.")


@command("group delete", finds="group")
async def delete(view: Output, perdure: AsyncPerdure, group: GroupName, yes: Yes = False) -> None:
    """Delete a group with its transcript, for good; its agents stay."""
    target = await perdure.groups.get(group)
    with deleting(view, f"{_name(target)} with its transcript", "its agents stay", yes=yes, id_=target.id):
        await target.delete()


def _show_event(view: Output, event: core.GroupEvent, colours: Mapping[AgentId, str]) -> None:
    """Print what happens in a turn as it happens; `colours` are those of the agents' names."""
    match event:
        case core.SpeakerStarted(speaker=speaker) if speaker.task == "choose":
            view.show_status(f"{speaker.name} chooses who speaks…")
        case core.SpeakerStarted(speaker=speaker):
            view.print(Text(visible(speaker.name), style=f"bold {colours.get(speaker.agent_id, '')}".strip()))
        case core.SpeakerEvent(speaker=speaker, event=inner) if speaker.task != "choose":
            view.show_event(inner)
        case core.SpeakerFailed(speaker=speaker, reason=reason):
            view.note(f"{speaker.name} could not speak: {reason}")
        case core.SpeakerEvent() | core.GroupTurnEnded():
            pass


def _options(options: GroupOptions) -> dict[str, Any]:
    """The options that are set, by the library's names."""
    chosen = {name: value for name, value in asdict(options).items() if value is not None}
    return {("max_cost_usd" if name == "max_cost" else name): value for name, value in chosen.items()}


def _name(group: AsyncGroup) -> str:
    """A group in a question: its description and its id."""
    about = f" {group.info.description!r:.80}" if group.info.description else ""
    return f"group{about} ({group.id})"


def _colours(group: AsyncGroup) -> dict[AgentId, str]:
    """The colour of each agent: the manager has none."""
    return {agent_id: COLOURS[place % len(COLOURS)] for place, agent_id in enumerate(group.info.agent_ids)}


async def _names(perdure: AsyncPerdure) -> dict[AgentId, str]:
    """The names of all agents by their ids."""
    return {agent.id: visible(agent.name) for agent in await load_all(perdure.agents)}


def _group_view(group: AsyncGroup, names: Mapping[AgentId, str]) -> list[RenderableType]:
    """A group's kind, agents and limits; `names`: those of agents by their ids."""
    info, colours = group.info, _colours(group)
    members = Text(", ").join(Text(names.get(id_, id_), style=colour) for id_, colour in colours.items())
    head = Text.assemble((visible(info.description) or info.kind, "bold"), (f"  {info.id}  {info.kind}", "dim"))
    lines: list[RenderableType] = [head, Text.assemble("agents: ", members)]
    if info.manager_agent_id is not None:
        lines.append(Text(f"manager: {names.get(info.manager_agent_id, info.manager_agent_id)}"))
    limits = {
        "turns": info.max_turns,
        "tokens": info.max_tokens,
        "cost in USD": info.max_cost_usd,
        "wakes after turns": info.frequency,
    }
    text = ", ".join(f"{name} {value:,}" for name, value in limits.items() if value is not None)
    return [*lines, *([Text(f"limits: {text}")] if text else [])]


def _transcript_view(entries: Sequence[core.GroupMessage], colours: Mapping[AgentId, str]) -> list[RenderableType]:
    """Return the transcript, oldest first; a manager's choice is one line."""
    lines: list[RenderableType] = []
    for entry in entries:
        name = visible(entry.sender_name) if entry.sender_id is not None else visible(entry.sender_name) or "You"
        if entry.kind != "user" and (entry.kind != "speech" or not entry.parts):
            lines.append(Text(f"◆ {name} {_about(entry)}", style="dim" if entry.kind == "choice" else "yellow"))
            continue
        colour = colours.get(entry.sender_id, "") if entry.sender_id is not None else ""
        lines.append(Text.assemble((name, f"bold {colour}"), (f"  {local_time(entry.created_at)}", "dim")))
        lines.append(Padding(Text(visible(entry.text)), (0, 0, 0, 2)))
    return lines


def _about(entry: core.GroupMessage) -> str:
    """Return what happened to an agent in an entry without a speech, such as "says nothing"."""
    if entry.message_id is not None and not entry.parts:
        return "said something that was deleted"
    if entry.kind == "choice":
        return f"chooses: {visible(entry.text)}"
    if entry.kind == "silence":
        return "says nothing"
    if entry.kind == "approval":
        return "waits for an approval: `perdure approval list` shows it"
    return f"could not speak: {visible(entry.text)}"


def _group_shape(group: AsyncGroup, names: Mapping[AgentId, str]) -> dict[str, Any]:
    info, manager = group.info, group.info.manager_agent_id
    limits = ("termination_token", "max_turns", "max_tokens", "max_cost_usd", "frequency")
    return {
        **fields(info, "id", "kind", "description", *limits, "created_at"),
        "agents": [{"id": agent_id, "name": names.get(agent_id)} for agent_id in info.agent_ids],
        "manager": None if manager is None else {"id": manager, "name": names.get(manager)},
        "shared_block_ids": list(info.shared_block_ids),
    }


def _reply_shape(group: AsyncGroup, reply: GroupReply) -> dict[str, Any]:
    spoken = [
        {
            **fields(one.speaker, "agent_id", "name", "task"),
            "problem": one.problem,
            "text": None if one.reply is None else one.reply.text,
            "run_id": None if one.reply is None else one.reply.run_id,
            "messages": [] if one.reply is None else [message_shape(message) for message in one.reply.messages],
        }
        for one in reply.replies
    ]
    turn = reply.turn
    shape = {"group_id": group.id, "turn": turn.seq, **fields(reply, "stop_reason", "answer"), "replies": spoken}
    shape |= {"usage": asdict(turn.usage), "cost_usd": turn.cost_usd}
    return shape if reply.failure is None else shape | {"error": fields(reply.failure, "kind", "message")}
