"""`perdure agent`: create, list, reset, cancel and delete agents; and what `/agents` lists."""

from __future__ import annotations

from typing import Annotated

from perdure.cli.run import Agent, LastAgent, NewProfile, Yes, argument, command, flag, for_work, option

if for_work(__name__):
    from perdure.cli import work
    from perdure.cli.chat.agent_choice import chat_command, check_first_model, open_agent
    from perdure.cli.chat.models import model_row, set_model
    from perdure.cli.commands.conversations import conversation_named
    from perdure.cli.commands.memory import NO_STORE
    from perdure.cli.views.json import agent_shape, model_shape
    from perdure.cli.views.text import agents_view, model_view, reset_view, settings_view
    from perdure.cli.views.view import AgentRow, View, plural
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
    used_at = await perdure.all_agents.last_used([agent.id for agent in agents])
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
