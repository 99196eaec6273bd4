"""`perdure reset`: an agent begins anew."""

from __future__ import annotations

from perdure.cli.confirm import confirm
from perdure.cli.open_store import Output, with_store
from perdure.cli.views.fold import plural
from perdure.library.perdure import AsyncPerdure


async def reset(name: str, *, yes: bool) -> int:
    """Reset all conversations of an agent after a question, and return the exit code."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        agent = await perdure.agent(name)
        question = (
            f"{plural(await agent.message_count(), 'message')} of agent {agent.name!r} will be out of its view, for"
            " good; its memory blocks, archives and files stay. Reset?"
        )
        if not confirm(question, action="reset the agent", yes=yes):
            output.view.hint("Nothing was changed.")
            return 1
        output.view.show_reset(await agent.reset())
        return 0

    return await with_store(output, work, empty="there is no agent yet")
