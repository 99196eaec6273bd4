"""`perdure mcp`: memory for a program that speaks MCP over stdio."""

from __future__ import annotations

from typing import Annotated

from perdure.cli.commands.run import agent_option, command, flag, for_work, option

if for_work(__name__):
    from contextlib import nullcontext

    from perdure.cli.views.view import Output
    from perdure.features.mcp_server.context import NextSession
    from perdure.features.mcp_server.memory import MemoryOptions, MemoryTools
    from perdure.features.notes.nudges import check_nudge_level
    from perdure.features.notes.projects import ProjectMemory
    from perdure.library.perdure import AsyncPerdure
    from perdure.scratch import user_path


@command("mcp serve", json=False)
async def serve_mcp(
    view: Output,
    perdure: AsyncPerdure,
    project: Annotated[
        str | None, option("Memory of this folder's project, with the global one behind it.", "DIR")
    ] = None,
    agent: Annotated[str | None, agent_option("The memory of this agent in place of a project's.")] = None,
    read_only: Annotated[bool, flag("--read-only", "Offer only tools that read.")] = False,
    nudges: Annotated[str, option("Reminders to write notes: off, light, balanced or strict.", "LEVEL")] = "balanced",
    root: Annotated[
        list[str] | None, option("A further folder whose files may be indexed.", "DIR", name="--root")
    ] = None,
    allow_run: Annotated[
        bool, flag("--allow-run", "Let the program run shell commands in the project's folder, by index_output.")
    ] = False,
) -> None:
    """Serve memory over stdio to a program that speaks MCP, such as Claude Code; it starts this command by itself."""
    if project == "${workspaceFolder}":
        project = None  # an editor in which no folder is open leaves its variable as it is
    known = ProjectMemory(perdure, project, agent=agent)
    following = NextSession(perdure, known)
    options = MemoryOptions(
        read_only=read_only,
        nudges=check_nudge_level(nudges),
        roots=[*map(user_path, root or ())],
        runs_commands=allow_run,
        tell=following.tell,
    )
    memory = MemoryTools(perdure, known, options)
    from perdure.features.mcp_server.server import build_server
    from perdure.features.mcp_server.stdio import serve_stdio

    # Sessions begin with a project's own memory, whatever agent this server is told to use.
    async with nullcontext() if agent else following.prepared():
        await serve_stdio(build_server(memory))
