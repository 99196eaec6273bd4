"""`perdure agents`, and what `/agents` lists."""

from __future__ import annotations

from perdure.cli.confirm import agreed
from perdure.cli.views.view import AgentRow, View
from perdure.core.agents import Agent
from perdure.core.errors import NotFound, PerdureError
from perdure.core.ids import AgentId
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

__all__ = ["agents", "list_agents"]

PAGE = 100


async def agents(*, delete: str | None, yes: bool, as_json: bool) -> int:
    """Print the agents of the data folder, once the one to delete is gone. A folder that is not there is left so."""
    from perdure.cli.chat.terminal import standard_streams

    out, err = standard_streams()
    view: View
    if as_json:
        from perdure.cli.views.json import JsonView

        view = JsonView(out)
    else:
        from perdure.cli.chat.terminal import Terminal
        from perdure.cli.views.text import TextView

        view = TextView(Terminal(out, err, interactive=False))
    rows: list[AgentRow] = []
    try:
        settings = Settings.from_environment()
        if settings.store_path.exists():
            async with await AsyncPerdure.open(settings=settings) as perdure:
                if delete is not None and not await _deleted(perdure, delete, yes=yes):
                    view.hint("Nothing was deleted.")
                    return 1
                rows = await list_agents(perdure)
        elif delete is not None:
            raise NotFound("agent", delete, hint="there is none yet")
    except PerdureError as error:
        view.error(error)
        return 1
    if as_json:
        from perdure.cli.views.json import agent_shape, to_line

        print(to_line([agent_shape(row) for row in rows], out), file=out)
        return 0
    view.agents(rows)
    view.hint("`perdure chat NAME` talks to one of them." if rows else "`perdure` makes one and starts the chat.")
    return 0


async def list_agents(perdure: AsyncPerdure) -> list[AgentRow]:
    """Every agent, the one used last first."""
    rows: list[AgentRow] = []
    after: AgentId | None = None
    while page := await perdure.agents(limit=PAGE, after=after):
        rows += [await _row(agent) for agent in page]
        after = page[-1].id
    return sorted(rows, key=lambda row: row.used_at, reverse=True)


async def _deleted(perdure: AsyncPerdure, name: str, *, yes: bool) -> bool:
    """Whether a person wanted it so."""
    agent = await perdure.agent(name)
    count = await agent.message_count()
    told = (
        f"Agent {agent.name!r} ({agent.id}) with {count:,} message{'' if count == 1 else 's'} will be gone for good;"
        " its memory blocks, archives and files stay. Delete?"
    )
    if not yes and not agreed(told, whether="the agent shall be deleted"):
        return False
    await perdure.delete_agent(agent.id)
    return True


async def _row(agent: AsyncAgent) -> AgentRow:
    info: Agent = agent.info
    newest = await agent.messages(limit=1, newest_first=True)
    return AgentRow(
        id=info.id,
        name=info.name,
        model=info.model,
        created_at=info.created_at,
        used_at=newest[0].created_at if newest else info.created_at,
        message_count=await agent.message_count(),
    )
