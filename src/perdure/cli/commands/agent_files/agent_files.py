"""`perdure agent export` and `perdure agent import`: agents as files, which Letta's server reads and writes too."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

from perdure.cli.chat.agent_choice import chat_command
from perdure.cli.views.view import View, plural
from perdure.cli.work import STDIN, describe_same_name, get_agent, none_yet, open_store, output_lines
from perdure.core.errors import InvalidInput
from perdure.server.routes.agent_files.exporting import export_text
from perdure.server.routes.agent_files.importing import Import, ImportOptions
from perdure.server.wire.agent_files.reading import read_agent_file


async def export_agent(view: View, *, agent: str, file: str, messages: bool, overwrite: bool, org: str | None) -> None:
    """Write an agent to a file; `-` is stdout."""
    async with open_store(view, empty=none_yet("agent", agent), org=org) as perdure:
        target = await get_agent(view, perdure, agent)
        text = await export_text(perdure, target.id, with_messages=messages)
        with nullcontext(view.print) if file == STDIN else output_lines(file, overwrite=overwrite) as write:
            write(text)
        where = "" if file == STDIN else f" to {file}; `perdure agent import {file}` reads it, here or elsewhere"
        view.hint(
            f"Exported {target.name!r}{where}. Other archives than its own are not in it: `perdure archive export`."
        )


async def import_agents(
    view: View, *, file: str, name: str | None, model: str | None, messages: bool, org: str | None
) -> None:
    """Make the agents of a file; `-` is stdin. A file that is wrong makes nothing."""
    read = read_agent_file(_read(file))
    async with open_store(view, org=org) as perdure:
        work = Import(perdure, read, ImportOptions(name=name, model=model, without_messages=not messages))
        agents = [await perdure.agent(agent_id) for agent_id in await work.run()]
        for warning in work.warnings:
            view.note(f"{warning[0].upper()}{warning[1:]}.")
        for several in [await describe_same_name(perdure, name) for name in dict.fromkeys(one.name for one in agents)]:
            if several:
                view.note(f"{several[0]} now: {several[1]}. Commands that change or delete one need its id.")
        names = ", ".join(repr(agent.name) for agent in agents)
        talks = f"`{chat_command(agents[0])}` talks to it" if org is None else "the organisation's keys reach it"
        view.hint(f"Imported {plural(len(agents), 'agent')}: {names}; {talks}.")


def _read(file: str) -> bytes:
    """The bytes of a file, or of stdin. Raises: InvalidInput."""
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).expanduser().read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error.strerror or error}") from error
