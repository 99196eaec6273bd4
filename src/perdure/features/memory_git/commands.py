"""`perdure memory checkout`, `push` and `log`: the memory of an agent as a git repository."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from perdure.cli.commands.run import Agent, LastAgent, argument, command, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import get_agent
    from perdure.cli.views.view import Output, local_time, visible
    from perdure.core.errors import InvalidInput
    from perdure.features.memory_git.service import find_owner
    from perdure.library.perdure import AsyncPerdure


@command("memory checkout")
async def checkout(
    view: Output, agent: Agent, folder: Annotated[str, argument("A new folder, or one with this memory.", "DIR")]
) -> int:
    """Write an agent's memory into a folder as a git repository, or bring the folder up to date."""
    done = await agent.memory_git.checkout(folder)
    said = done.said or f"The memory of {agent.name} is in {done.folder}."
    view.show(asdict(done), Text(visible(said)))
    if done.conflicts:
        view.hint(f"mend {', '.join(done.conflicts)}, commit, then `perdure memory push {shell_word(folder)}`")
        return 1
    view.hint(f"edit and commit, then `perdure memory push {shell_word(folder)}`")
    return 0


@command("memory push", change=True)
async def push(
    view: Output,
    perdure: AsyncPerdure,
    folder: Annotated[str, argument("A folder of `perdure memory checkout`.", "DIR")] = ".",
) -> None:
    """Turn the commits of a folder into versions of an agent's memory."""
    if not (owner := await find_owner(folder)):
        raise InvalidInput(f"{folder} is not a folder of `perdure memory checkout AGENT DIR`")
    agent = await get_agent(view, perdure, owner, change=True)
    done = await agent.memory_git.push(folder)
    view.show(asdict(done), Text(visible(done.said)))


@command("memory log")
async def log(
    view: Output, agent: LastAgent, limit: Annotated[int, option("How many at most.", "N", min=1)] = 20
) -> None:
    """Show the newest commits of an agent's memory."""
    found = await agent.memory_git.commits(limit=limit)
    lines = [
        f"{one.hash[:10]}  {local_time(one.at)}  {one.author}  {one.subject}"
        + (f"  ({', '.join(one.versions)})" if one.versions else "")
        for one in found
    ]
    view.show([asdict(one) for one in found], Text(visible("\n".join(lines))))
