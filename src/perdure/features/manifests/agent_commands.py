"""`perdure agent show`."""

from __future__ import annotations

from typing import Annotated

from perdure.cli.commands.run import Agent, command, flag, for_work

if for_work(__name__):
    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.views.view import Output, plural
    from perdure.library.perdure import AsyncPerdure


@command("agent show")
async def show_agent(
    view: Output,
    perdure: AsyncPerdure,
    agent: Agent,
    as_yaml: Annotated[bool, flag("--yaml", "As a file that `perdure apply` takes.")] = False,
) -> None:
    """Show an agent: its model, its memory and its tools."""
    if as_yaml:
        text = await perdure.manifests.show(agent.id)
        view.show({"yaml": text}, text.rstrip("\n"))
        return
    state = await agent.state()
    found = {
        "id": agent.id,
        "name": agent.name,
        "model": state.agent.model,
        "description": state.agent.description,
        "tags": [*state.agent.tags],
        "blocks": {block.label: len(block.value) for block in state.blocks},
        "tools": [tool.spec.name for tool in state.tools],
    }
    view.show(
        found,
        f"{agent.name} ({agent.id})",
        f"Model: {state.agent.model}",
        *([f"Description: {state.agent.description}"] if state.agent.description else []),
        *(f"Block {block.label}: {plural(len(block.value), 'character')}" for block in state.blocks),
        f"Tools: {', '.join(tool.spec.name for tool in state.tools) or 'none'}",
    )
    view.hint(f"`perdure agent show {shell_word(agent.name)} --yaml` writes a file of it.")
