"""`perdure acp`: an agent in an editor that speaks the Agent Client Protocol over stdio."""

from __future__ import annotations

from typing import Annotated, Any

from perdure.cli.commands.run import agent_option, command, for_work

if for_work(__name__):
    import sys

    from perdure.cli.session.agent_choice import find_last_agent, open_agent
    from perdure.cli.views.text import TextView
    from perdure.cli.views.view import Output
    from perdure.core.errors import InvalidInput
    from perdure.library.agent import AsyncAgent
    from perdure.library.perdure import AsyncPerdure


@command("acp", json=False)
async def serve_acp(
    view: Output,
    perdure: AsyncPerdure,
    agent: Annotated[str | None, agent_option("Name or id; by default the agent used last.")] = None,
) -> None:
    """Serve an agent to an editor, such as Zed.

    It speaks the Agent Client Protocol over stdio. The editor starts it by itself: `perdure connect zed` sets that up.
    """
    try:
        import acp
    except ImportError as error:
        raise InvalidInput("the package agent-client-protocol is missing: pip install 'perdure[acp]'") from error
    from perdure.features.acp.agent import EditorAgent
    from perdure.features.acp.transport import open_stdio

    if sys.stdin is not None and sys.stdin.isatty():
        view.hint("an editor starts this command and speaks to it: `perdure connect zed` enters it in Zed")
    connection = await open_stdio()  # stdout is the protocol's: what is printed from here on goes to stderr
    notes = TextView(sys.stderr, sys.stderr, interactive=False)

    async def find() -> AsyncAgent:
        """Return the agent to serve; create it if there is none. Raises: PerdureError."""
        return (await open_agent(perdure, name=agent, new=False, model=None, view=notes)).agent

    served: Any = EditorAgent(perdure, find, notes.note)
    if agent is not None or await find_last_agent(perdure) is not None:
        await served.open()  # what is wrong with it is told at once; a first agent is made for the first session
    await acp.run_agent(served, connection, use_unstable_protocol=True)  # which resume, fork and close are part of
