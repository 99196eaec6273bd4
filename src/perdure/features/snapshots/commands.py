"""`perdure agent snapshot`, `snapshots`, `restore`, `clone` and `load`: exact states of agents."""

from __future__ import annotations

import json
from typing import Annotated, Any

from perdure.cli.commands.run import Agent, Org, Yes, argument, command, flag, for_work, option

if for_work(__name__):
    from perdure.cli.session import work
    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output, local_time, new_table, plural, visible
    from perdure.core.errors import InvalidInput
    from perdure.features.snapshots.values import Clone, Snapshot
    from perdure.library.perdure import AsyncPerdure

At = Annotated[str | None, option("The end of this step, by its id.", "STEP")]

NONE_KEPT = "No snapshot is kept. `perdure agent snapshot` keeps one; every step is one too."
SHOWN = 1_000


@command("agent snapshot", argument_names={"step": "--at"})
async def make_snapshot(
    view: Output,
    agent: Agent,
    at: At = None,
    note: Annotated[str, option("What it is kept for.", "TEXT")] = "",
    file: Annotated[str | None, option("Also write it as one JSON object; - is stdout.", "FILE")] = None,
    overwrite: Annotated[bool, flag("--overwrite", "Replace the file if it is there.")] = False,
) -> None:
    """Keep an agent exactly as it is now, or as a step left it."""
    made = await agent.snapshots.make(step=at, note=note)
    if file is not None:
        document = await agent.snapshots.document(made.number)
        with work.output_lines(view, file, overwrite=overwrite) as write:
            write(json.dumps(document))  # escapes what is not ASCII: half a character has no other form
    if file != work.STDIN:
        view.show(_shape(made), f"Snapshot {made.number} of {visible(agent.name)}.")
        view.hint(f"`perdure agent restore {shell_word(agent.name)} {made.number}` brings the agent back to it")


@command("agent snapshots", none=NONE_KEPT)
async def list_snapshots(view: Output, agent: Agent) -> None:
    """List the snapshots of an agent, newest first."""
    found = await agent.snapshots.list(limit=SHOWN)
    table = new_table("number", "made", "because", "at", "note", styles={"note": "dim"})
    for one in found:
        because = {"manual": "asked for", "before_restore": "before a restore"}[one.reason]
        table.add_row(
            str(one.number), local_time(one.created_at), because, one.step_id or "that time", visible(one.note)
        )
    view.show([_shape(one) for one in found], table if found else NONE_KEPT)


@command("agent restore", change=True, argument_names={"step": "--at"})
async def restore(
    view: Output,
    agent: Agent,
    what: Annotated[str | None, argument("Its number in the list, or a file with it.", "NUMBER|FILE")] = None,
    at: At = None,
    shared: Annotated[bool, flag("--shared", "Change blocks that other agents have too.")] = False,
    yes: Yes = False,
) -> None:
    """Bring an agent back to a snapshot, or to the end of a step; later messages leave the view.

    Nothing is lost: the messages stay in the log, and what the agent is now is kept as a snapshot. Archives, facts and
    files stay as they are.
    """
    if (what is None) == (at is None):
        raise InvalidInput("give either the number of a snapshot, or a file with one, or --at STEP")
    number = int(what) if what is not None and what.isdecimal() else None
    document = None if what is None or number is not None else _read_document(what)
    name = f"the end of {at}" if what is None else f"snapshot {what}"
    work.confirm(view, f"Bring agent {agent.name!r} back to {name}?", action="restore the agent", yes=yes)
    restored = await agent.snapshots.restore(number, step=at, document=document, shared=shared)
    view.show(
        fields(restored, "agent_id", "conversation_id", "undo", "hidden", "left"),
        f"{visible(agent.name)} is as in {visible(name)}; {plural(restored.hidden, 'message')} left the view.",
    )
    for sentence in restored.left:
        view.note(f"{sentence[0].upper()}{sentence[1:]}.")
    view.hint(f"`perdure agent restore {shell_word(agent.name)} {restored.undo}` takes it back")


@command("agent clone", argument_names={"step": "--at"})
async def clone(
    view: Output,
    agent: Agent,
    name: Annotated[str, argument("The name of the clone.", "NAME")],
    number: Annotated[int | None, option("Copy it as in this snapshot.", "NUMBER", name="--snapshot", min=1)] = None,
    at: At = None,
) -> None:
    """Make another agent of this one, with its whole log, as it is now or was in a snapshot or at a step."""
    with work.progress_bar() as progress:
        made = await agent.snapshots.clone(
            name, number, step=at, progress=lambda done: progress("copying rows", done, done)
        )
    _show_made(view, made)


@command("agent load")
async def load(
    view: Output,
    perdure: AsyncPerdure,
    file: Annotated[str, argument("What `perdure agent snapshot --file` has written; - is stdin.", "FILE")],
    name: Annotated[str | None, option("Another name.", "NAME")] = None,
    org: Org = None,
) -> None:
    """Create an agent from a snapshot file, of this store or another one."""
    _show_made(view, await perdure.load_snapshot(_read_document(file), name=name))


def _read_document(file: str) -> dict[str, Any]:
    """The object in a file. Raises: InvalidInput: there is none."""
    try:
        return dict(json.loads(work.read_text(file)))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(f"{file} holds no snapshot: {error}") from error


def _show_made(view: Output, made: Clone) -> None:
    """Show an agent that was made."""
    view.show(fields(made, "agent_id", "name", "left"), f"Made {visible(made.name)}, {made.agent_id}.")
    for sentence in made.left:
        view.note(f"{sentence[0].upper()}{sentence[1:]}.")
    view.hint(f"`perdure chat {shell_word(made.name)}` talks to it")


def _shape(one: Snapshot) -> dict[str, Any]:
    """A snapshot as `--json` prints it."""
    names = ("agent_id", "number", "reason", "note", "step_id", "conversation_id", "waits", "created_by", "created_at")
    return fields(one, *names)
