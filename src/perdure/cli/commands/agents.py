"""`perdure agent`: create, list, reset and delete agents; and what `/agents` lists."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.cli.chat.agent_choice import chat_command, check_first_model, open_agent
from perdure.cli.chat.models import model_row, set_model
from perdure.cli.commands.memory import NO_STORE
from perdure.cli.views.json import agent_shape, model_shape
from perdure.cli.views.text import agents_view, model_view, reset_view, settings_view
from perdure.cli.views.view import AgentRow, View, plural
from perdure.cli.work import (
    confirm,
    deleted,
    get_agent,
    load_all,
    no_store,
    none_yet,
    open_store,
    read_pairs,
    read_value,
)
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

NO_AGENT = "`perdure` makes one and starts the chat."
SHOWN = 500
"""How many agents a person is shown, those used last: laying out a table of all would take longer than reading them."""


async def create_agent(view: View, *, name: str, model: str | None, profile: str | None, sleeptime: bool) -> None:
    """Create an agent, and say which model it has and why."""
    await check_first_model(Settings.from_environment(), model)
    async with open_store(view) as perdure:
        target = await open_agent(perdure, name=name, new=True, model=model, view=view, profile=profile)
        agent = target.agent
        if sleeptime:
            await agent.companion.enable()
        reason = perdure.app.choice.reason if model is None else "as you asked"
        view.show(
            agent_shape(await _row(agent)), f"Created agent {agent.name!r} with model {agent.info.model} ({reason})."
        )
        view.hint(f"`{chat_command(agent)}` talks to it.")


async def list_agents(view: View) -> None:
    """Print the agents. No store is made."""
    async with open_store(view, empty=f"There are no agents yet. {NO_AGENT}") as perdure:
        rows = await load_agents(perdure)
        view.show([agent_shape(row) for row in rows], agents_view(rows[:SHOWN]))
        if len(rows) > SHOWN:
            view.hint(f"{len(rows) - SHOWN:,} more were used before these: `perdure agent list --json` lists all.")
        view.hint("`perdure chat NAME` talks to one of them." if rows else NO_AGENT)


async def update_agent(view: View, *, agent: str, model: str) -> None:
    """Pin an agent to a model, or with `default` have it follow the default, and print its model."""
    async with open_store(view, empty=none_yet("agent", agent)) as perdure:
        target = await get_agent(view, perdure, agent, change=True)
        row = model_row(await set_model(target, model, perdure.app), perdure.app)
        view.show({"model": model_shape(row)}, *model_view(row))


async def settings(view: View, *, agent: str | None, changes: Sequence[str] | None) -> None:
    """Print the settings of an agent that differ from the defaults, after changing some."""
    pairs = read_pairs("a setting", changes or ())
    async with open_store(view, empty=no_store(NO_STORE)) as perdure:
        target = await get_agent(view, perdure, agent, change=bool(pairs))
        if pairs:
            changed = dict(target.info.settings) | {name: read_value(text) for name, text in pairs.items()}
            target = await target.update(settings={name: value for name, value in changed.items() if value is not None})
        view.show(target.info.settings, settings_view(target.info.settings))
        view.hint(
            f"`perdure agent settings {target.name} NAME=VALUE` sets one, NAME=null takes it back;"
            " docs/library.md#agents lists them."
        )


async def load_agents(perdure: AsyncPerdure) -> list[AgentRow]:
    """Every agent, the one used last first."""
    agents = [agent.info for agent in await load_all(perdure.agents)]
    used_at = await perdure.services.agents.last_used([agent.id for agent in agents])
    rows = [AgentRow(agent, used_at.get(agent.id, agent.created_at), agent.message_count) for agent in agents]
    return sorted(rows, key=lambda row: row.used_at, reverse=True)


async def _row(agent: AsyncAgent) -> AgentRow:
    """An agent as a list shows it."""
    newest = await agent.messages(limit=1, newest_first=True)
    used_at = newest[0].created_at if newest else agent.info.created_at
    return AgentRow(agent.info, used_at, await agent.message_count())


async def delete_agent(view: View, *, agent: str, yes: bool) -> None:
    """Delete an agent after a question."""
    async with open_store(view, empty=none_yet("agent", agent)) as perdure:
        target = await get_agent(view, perdure, agent, change=True)
        question = (
            f"Agent {target.name!r} ({target.id}) with {plural(await target.message_count(), 'message')} will be gone"
            " for good; its memory blocks, archives and files stay. Delete?"
        )
        confirm(view, question, action="delete the agent", yes=yes)
        await perdure.delete_agent(target.id)
        text = deleted(f"agent {target.name!r}", "its memory blocks, archives and files stay")
        view.show({"deleted": target.id})
        view.hint(text)


async def reset(view: View, *, agent: str, yes: bool) -> None:
    """Reset all conversations of an agent after a question."""
    async with open_store(view, empty=none_yet("agent", agent)) as perdure:
        target = await get_agent(view, perdure, agent, change=True)
        question = (
            f"{plural(await target.message_count(), 'message')} of agent {target.name!r} will be out of its view, for"
            " good; its memory blocks, archives and files stay. Reset?"
        )
        confirm(view, question, action="reset the agent", yes=yes)
        view.print(reset_view(await target.reset()))
        view.hint(f"This can't be undone; `{chat_command(target)}` begins anew.")
