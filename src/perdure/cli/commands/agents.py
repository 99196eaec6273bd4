"""`perdure agents`, and what `/agents` lists."""

from __future__ import annotations

from perdure.cli.confirm import confirm
from perdure.cli.open_store import Output, with_store
from perdure.cli.pages import load_agents
from perdure.cli.views.fold import plural
from perdure.cli.views.json import agent_shape
from perdure.cli.views.view import AgentRow
from perdure.core.errors import NotFound
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

NO_AGENT = "`perdure` makes one and starts the chat."


async def agents(*, delete: str | None, yes: bool, as_json: bool) -> int:
    """Delete an agent if one is named, print the agents, and return the exit code. No store is made."""
    output = Output(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        if delete is not None and not await _delete(perdure, delete, yes=yes):
            output.view.hint("Nothing was deleted.")
            return 1
        rows = await list_agents(perdure)
        if as_json:
            output.json([agent_shape(row) for row in rows])
        else:
            output.view.show_agents(rows)
            output.view.hint("`perdure chat NAME` talks to one of them." if rows else NO_AGENT)
        return 0

    if delete is not None:
        return await with_store(output, work, empty=NotFound("agent", delete, hint="there is none yet"))
    return await with_store(output, work, empty=f"There are no agents yet. {NO_AGENT}")


async def list_agents(perdure: AsyncPerdure) -> list[AgentRow]:
    """Every agent, the one used last first."""
    rows = [await _row(agent) for agent in await load_agents(perdure)]
    return sorted(rows, key=lambda row: row.used_at, reverse=True)


async def _delete(perdure: AsyncPerdure, name: str, *, yes: bool) -> bool:
    """Delete an agent after a question; False: the person says no."""
    agent = await perdure.agent(name)
    question = (
        f"Agent {agent.name!r} ({agent.id}) with {plural(await agent.message_count(), 'message')} will be gone for"
        " good; its memory blocks, archives and files stay. Delete?"
    )
    if not confirm(question, action="delete the agent", yes=yes):
        return False
    await perdure.delete_agent(agent.id)
    return True


async def _row(agent: AsyncAgent) -> AgentRow:
    newest = await agent.messages(limit=1, newest_first=True)
    return AgentRow(
        id=agent.info.id,
        name=agent.info.name,
        model=agent.info.model,
        created_at=agent.info.created_at,
        used_at=newest[0].created_at if newest else agent.info.created_at,
        message_count=await agent.message_count(),
    )
