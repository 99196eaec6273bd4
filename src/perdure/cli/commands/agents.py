"""`perdure agent`: create, list, reset, cancel and delete agents; agents as files, which Letta's server
reads and writes too; and what `/agents` lists.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from perdure.cli.run import Agent, LastAgent, NewProfile, Org, Yes, argument, command, flag, for_work, option

if for_work(__name__):
    from perdure.cli import work
    from perdure.cli.chat.agent_choice import chat_command, check_first_model, open_agent
    from perdure.cli.chat.models import model_row, set_model
    from perdure.cli.commands.conversations import conversation_named
    from perdure.cli.commands.memory import NO_STORE
    from perdure.cli.views.json import agent_shape, model_shape
    from perdure.cli.views.text import agents_view, model_view, reset_view, settings_view
    from perdure.cli.views.view import AgentRow, View, plural
    from perdure.core.errors import InvalidInput
    from perdure.library.agent import AsyncAgent
    from perdure.library.perdure import AsyncPerdure
    from perdure.settings import Settings

NOTHING = "there is nothing to cancel"
NO_AGENT = "`perdure` makes one and starts the chat."
SHOWN = 500
"""How many agents a person is shown, those used last: laying out a table of all would take longer than reading them."""


@command("agent create")
async def create_agent(
    view: View,
    name: Annotated[str, argument("Of the new agent.", "NAME")],
    model: Annotated[str | None, option("Its model, as provider/name; by default as found.", "HANDLE")] = None,
    profile: NewProfile = None,
    sleeptime: Annotated[
        bool, flag("--sleeptime", "With a companion that tidies its memory while nobody waits.")
    ] = False,
) -> None:
    """Create an agent. `perdure chat NAME` talks to it."""
    await check_first_model(Settings.from_environment(), model)
    async with work.open_store(view) as perdure:
        target = await open_agent(perdure, name=name, new=True, model=model, view=view, profile=profile)
        agent = target.agent
        if sleeptime:
            await agent.companion.enable()
        reason = perdure.app.choice.reason if model is None else "as you asked"
        view.show(
            agent_shape(await _row(agent)), f"Created agent {agent.name!r} with model {agent.info.model} ({reason})."
        )
        view.hint(f"`{chat_command(agent)}` talks to it.")


@command("agent list")
async def list_agents(view: View) -> None:
    """List the agents, the one used last first."""
    async with work.open_store(view, empty=f"There are no agents yet. {NO_AGENT}") as perdure:
        rows = await load_agents(perdure)
        view.show([agent_shape(row) for row in rows], agents_view(rows[:SHOWN]))
        if len(rows) > SHOWN:
            view.hint(f"{len(rows) - SHOWN:,} more were used before these: `perdure agent list --json` lists all.")
        view.hint("`perdure chat NAME` talks to one of them." if rows else NO_AGENT)


@command("agent update")
async def update_agent(
    view: View,
    agent: Agent,
    model: Annotated[str, option("Pin this model, or `default`: follow the default.", "HANDLE")],
) -> None:
    """Give an agent another model."""
    async with work.named_agent(view, agent, change=True) as (perdure, target):
        row = model_row(await set_model(target, model, perdure.app), perdure.app)
        view.show({"model": model_shape(row)}, *model_view(row))


@command("agent export", json=False)
async def export_agent(
    view: View,
    agent: Agent,
    file: Annotated[str, argument("Such as ann.af (- is stdout).", "FILE")],
    messages: Annotated[bool, flag("--messages/--no-messages", "With its messages.")] = True,
    overwrite: Annotated[bool, flag("--overwrite", "Replace the file if it is there.")] = False,
    org: Org = None,
) -> None:
    """Write an agent with its memory, tools, folders and messages as an agent file, which Letta's server reads too."""
    from perdure.server.routes.agent_files.exporting import export_text

    async with work.named_agent(view, agent, empty=work.none_yet("agent", agent), org=org) as (perdure, target):
        text = await export_text(perdure, target.id, with_messages=messages)
        with nullcontext(view.print) if file == work.STDIN else work.output_lines(file, overwrite=overwrite) as write:
            write(text)
        where = "" if file == work.STDIN else f" to {file}; `perdure agent import {file}` reads it, here or elsewhere"
        view.hint(
            f"Exported {target.name!r}{where}. Other archives than its own are not in it: `perdure archive export`."
        )


@command("agent import", json=False)
async def import_agents(
    view: View,
    file: Annotated[str, argument("An agent file (.af); - is stdin.", "FILE")],
    name: Annotated[str | None, option("Another name.", "NAME")] = None,
    model: Annotated[str | None, option("Another model, as provider/name.", "HANDLE")] = None,
    messages: Annotated[bool, flag("--messages/--no-messages", "With its messages.")] = True,
    org: Org = None,
) -> None:
    """Make the agents of an agent file, of this program or of Letta's server."""
    from perdure.server.routes.agent_files.importing import Import, ImportOptions
    from perdure.server.wire.agent_files.reading import read_agent_file

    read = read_agent_file(_read(file))
    async with work.open_store(view, org=org) as perdure:
        importer = Import(perdure, read, ImportOptions(name=name, model=model, without_messages=not messages))
        agents = [await perdure.agent(agent_id) for agent_id in await importer.run()]
        for warning in importer.warnings:
            view.note(f"{warning[0].upper()}{warning[1:]}.")
        for several in [
            await work.describe_same_name(perdure, name) for name in dict.fromkeys(one.name for one in agents)
        ]:
            if several:
                view.note(f"{several[0]} now: {several[1]}. Commands that change or delete one need its id.")
        names = ", ".join(repr(agent.name) for agent in agents)
        talks = f"`{chat_command(agents[0])}` talks to it" if org is None else "the organisation's keys reach it"
        view.hint(f"Imported {plural(len(agents), 'agent')}: {names}; {talks}.")


@command("agent settings")
async def settings(
    view: View,
    agent: LastAgent = None,
    changes: Annotated[
        list[str] | None, argument("Such as context_engine=sliding_window; values are JSON.", "[NAME=VALUE]...")
    ] = None,
) -> None:
    """Show or change an agent's settings: `context_engine`, `guards`, `summaries`, `tool_output` and so on."""
    pairs = work.read_pairs("a setting", changes or ())
    async with work.named_agent(view, agent, change=bool(pairs), empty=work.no_store(NO_STORE)) as (_, target):
        if pairs:
            changed = dict(target.info.settings) | {name: work.read_value(text) for name, text in pairs.items()}
            target = await target.update(settings={name: value for name, value in changed.items() if value is not None})
        view.show(target.info.settings, settings_view(target.info.settings))
        view.hint(
            f"`perdure agent settings {target.name} NAME=VALUE` sets one, NAME=null takes it back;"
            " docs/library.md#agents lists them."
        )


async def load_agents(perdure: AsyncPerdure) -> list[AgentRow]:
    """Every agent, the one used last first."""
    agents = [agent.info for agent in await work.load_all(perdure.agents)]
    used_at = await perdure.services.agents.last_used([agent.id for agent in agents])
    rows = [AgentRow(agent, used_at.get(agent.id, agent.created_at), agent.message_count) for agent in agents]
    return sorted(rows, key=lambda row: row.used_at, reverse=True)


async def _row(agent: AsyncAgent) -> AgentRow:
    """An agent as a list shows it."""
    newest = await agent.messages(limit=1, newest_first=True)
    used_at = newest[0].created_at if newest else agent.info.created_at
    return AgentRow(agent.info, used_at, await agent.message_count())


@command("agent reset", json=False)
async def reset(view: View, agent: Agent, yes: Yes = False) -> None:
    """Take the old messages of an agent out of its view, for good; its memory stays.

    Memory blocks, archives and files stay, and so does the log.
    """
    async with work.named_agent(view, agent, change=True) as (_, target):
        question = (
            f"{plural(await target.message_count(), 'message')} of agent {target.name!r} will be out of its view, for"
            " good; its memory blocks, archives and files stay. Reset?"
        )
        work.confirm(view, question, action="reset the agent", yes=yes)
        view.print(reset_view(await target.reset()))
        view.hint(f"This can't be undone; `{chat_command(target)}` begins anew.")


@command("agent cancel", json=False)
async def cancel(
    view: View,
    agent: Agent,
    conversation: Annotated[str | None, option("Only this one; a number or id.", "NUMBER")] = None,
) -> None:
    """Cancel the runs of an agent and its waiting calls. No model is called."""
    async with work.named_agent(view, agent, change=True) as (perdure, target):
        line = None if conversation is None else (await conversation_named(target, conversation)).id
        runs = await perdure.agent_of(target.id).cancel_all(conversation=line, whole_agent=line is None)
        view.print(*(f"{run.id}: {'cancelled' if run.ended else 'asked to stop'}" for run in runs))
        view.hint(f"`{chat_command(target)}` goes on." if runs else NOTHING)


@command("agent delete")
async def delete_agent(view: View, agent: Agent, yes: Yes = False) -> None:
    """Delete an agent with its whole history; its memory blocks, archives and files stay."""
    async with work.named_agent(view, agent, change=True) as (perdure, target):
        question = (
            f"Agent {target.name!r} ({target.id}) with {plural(await target.message_count(), 'message')} will be gone"
            " for good; its memory blocks, archives and files stay. Delete?"
        )
        work.confirm(view, question, action="delete the agent", yes=yes)
        await perdure.delete_agent(target.id)
        text = work.deleted(f"agent {target.name!r}", "its memory blocks, archives and files stay")
        view.show({"deleted": target.id})
        view.hint(text)


def _read(file: str) -> bytes:
    """The bytes of a file, or of stdin. Raises: InvalidInput."""
    try:
        return sys.stdin.buffer.read() if file == work.STDIN else Path(file).expanduser().read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error.strerror or error}") from error
