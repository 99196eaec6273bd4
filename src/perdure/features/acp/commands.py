"""`perdure acp`: an agent in an editor that speaks the Agent Client Protocol over stdio."""

from __future__ import annotations

from typing import Annotated

from perdure.cli.commands.run import agent_option, command, for_work

if for_work(__name__):
    from perdure.cli.session.agent_choice import open_agent
    from perdure.cli.views.view import Output
    from perdure.core.errors import InvalidInput
    from perdure.library.perdure import AsyncPerdure


@command("acp", json=False)
async def serve_acp(
    view: Output,
    perdure: AsyncPerdure,
    agent: Annotated[str | None, agent_option("Name or id; by default the agent used last.")] = None,
) -> None:
    """Serve an agent to an editor, such as Zed.

    It speaks the Agent Client Protocol over stdio; the editor starts it by itself.
    """
    try:
        import acp
    except ImportError as error:
        raise InvalidInput("the package agent-client-protocol is missing: pip install 'perdure[acp]'") from error
    from perdure.features.acp.agent import EditorAgent

    chosen = await open_agent(perdure, name=agent, new=False, model=None, view=view)
    await acp.run_agent(EditorAgent(chosen.agent))  # type: ignore[arg-type]  # it leaves optional methods out
