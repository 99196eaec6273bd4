"""`perdure agent export` and `perdure agent import`."""

from __future__ import annotations

import shlex
from typing import Annotated

from perdure.cli.commands.run import Agent, Org, argument, command, flag, for_work, option

if for_work(__name__):
    from perdure.cli.session import work
    from perdure.cli.session.agent_choice import chat_command
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output, plural
    from perdure.features.agent_files.exporting import export_text
    from perdure.features.agent_files.importing import Import, ImportOptions
    from perdure.features.agent_files.reading import read_agent_file
    from perdure.library.perdure import AsyncPerdure


@command("agent export", json=False)
async def export_agent(
    view: Output,
    perdure: AsyncPerdure,
    agent: Agent,
    file: Annotated[str | None, argument("By default NAME.af in this folder; - is stdout.", "FILE")] = None,
    messages: Annotated[bool, flag("--messages/--no-messages", "With its messages.")] = True,
    overwrite: Annotated[bool, flag("--overwrite", "Replace the file if it is there.")] = False,
    org: Org = None,
) -> None:
    """Write an agent with its memory, tools, folders and messages as an agent file, which Letta's server reads too."""
    file = file or f"{agent.name}.af"
    text = await export_text(perdure, agent.id, with_messages=messages)
    with work.output_lines(view, file, overwrite=overwrite) as write:
        write(text)
    where = (
        ""
        if file == work.STDIN
        else f" to {file}; `perdure agent import {shlex.quote(file)}` reads it, here or elsewhere"
    )
    view.hint(f"Exported {agent.name!r}{where}. Other archives than its own are not in it: `perdure archive export`.")


@command("agent import")
async def import_agents(
    view: Output,
    file: Annotated[str, argument("An agent file (.af); - is stdin.", "FILE")],
    name: Annotated[str | None, option("Another name.", "NAME")] = None,
    model: Annotated[str | None, option("Another model, as provider/name.", "HANDLE")] = None,
    messages: Annotated[bool, flag("--messages/--no-messages", "With its messages.")] = True,
    org: Org = None,
) -> None:
    """Create the agents of an agent file, written here or by Letta's server."""
    read = read_agent_file(work.read_bytes(file))
    async with work.open_store(org=org) as perdure:
        importer = Import(perdure, read, ImportOptions(name=name, model=model, without_messages=not messages))
        agents = [await perdure.agent(agent_id) for agent_id in await importer.run()]
        for warning in importer.warnings:
            view.note(f"{warning[0].upper()}{warning[1:]}.")
        for name in dict.fromkeys(agent.name for agent in agents):
            if several := await work.describe_same_name(perdure, name):
                view.note(f"{several[0]} now: {several[1]}. Commands that change or delete one need its id.")
        names = ", ".join(repr(agent.name) for agent in agents)
        view.show({"agents": [fields(agent, "id", "name") for agent in agents], "warnings": importer.warnings})
        talks = f"`{chat_command(agents[0])}` talks to it" if org is None else "the organisation's keys reach it"
        view.hint(f"Imported {plural(len(agents), 'agent')}: {names}; {talks}.")
