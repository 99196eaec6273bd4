"""`perdure apply`, `perdure diff` and `perdure agent show`."""

from __future__ import annotations

from typing import Annotated

from perdure.cli.commands.run import Agent, Org, Yes, command, flag, for_work, option

if for_work(__name__):
    import json

    import typer

    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import confirm, open_store
    from perdure.cli.views.view import Output, plural
    from perdure.core.errors import InvalidInput
    from perdure.features.manifests.schema import manifest_schema
    from perdure.features.manifests.views import plan_lines, plan_shape, summary_line
    from perdure.library.perdure import AsyncPerdure

Place = Annotated[str | None, option("The YAML file, or a folder of them.", "PATH", name="-f")]
Prune = Annotated[bool, flag("--prune", "Retire what the files once had and no longer have.")]


@command("apply")
async def apply(
    view: Output,
    place: Place = None,
    prune: Prune = False,
    schema: Annotated[bool, flag("--schema", "Print the JSON schema of such files, and do nothing else.")] = False,
    yes: Yes = False,
    org: Org = None,
) -> None:
    """Create and change agents, and what they use, to match files.

    It shows what would change, and asks; then all is changed at once, or nothing.
    """
    if schema:
        typer.echo(json.dumps(manifest_schema(), indent=2))
        return
    if place is None:
        raise InvalidInput("give the file or folder: `perdure apply -f agents.yaml`")
    async with open_store(org=org) as perdure:
        manifest = await perdure.manifests.read(place)
        plan = await perdure.manifests.plan(manifest, prune=prune)
        if plan.changes:
            view.print(*plan_lines(plan), summary_line(plan, done=False))
            confirm(view, "Apply it?", action="apply it", yes=yes)
        done = await perdure.manifests.apply(manifest, prune=prune, plan=plan)
        view.show(plan_shape(done), *([] if plan.changes else plan_lines(done)), summary_line(done, done=True))
        for name in done.waiting:
            view.hint(
                f"MCP server {name!r} can't be reached: `perdure mcp refresh {shell_word(name)}`, and apply again."
            )
        if done.count("remove"):
            view.hint("What was removed comes back when the files have it again.")


@command("diff")
async def diff(view: Output, place: Place = None, prune: Prune = False, org: Org = None) -> int:
    """Show where agents differ from the files that describe them.

    The exit code is 2 if they differ.
    """
    if place is None:
        raise InvalidInput("give the file or folder: `perdure diff -f agents.yaml`")
    async with open_store(org=org) as perdure:
        plan = await perdure.manifests.plan(place, prune=prune)
        view.show(plan_shape(plan), *plan_lines(plan), summary_line(plan, done=False))
    return 2 if plan.changes else 0


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
