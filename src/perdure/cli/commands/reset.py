"""`perdure reset`: an agent begins anew, once a person has agreed."""

from __future__ import annotations

from perdure.cli.confirm import agreed
from perdure.cli.open_store import Shown, with_store
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

__all__ = ["reset"]

NOTHING = "there is no agent yet"


async def reset(name: str, *, yes: bool) -> int:
    """Reset all conversations of an agent, after asking; the exit code."""
    shown = Shown(as_json=False)

    async def work(perdure: AsyncPerdure) -> int:
        agent = await perdure.agent(name)
        if not yes and not agreed(await _question(agent), whether="the agent shall begin anew"):
            shown.view.hint("Nothing was changed.")
            return 1
        shown.view.reset(await agent.reset())
        return 0

    return await with_store(shown, work, empty=NOTHING)


async def _question(agent: AsyncAgent) -> str:
    """What a person agrees to."""
    count = await agent.message_count()
    return (
        f"{count:,} message{'' if count == 1 else 's'} of agent {agent.name!r} will be out of its view, for good;"
        " its memory blocks, archives and files stay. Reset?"
    )
