"""`perdure command`: list, show and run commands."""

from __future__ import annotations

from typing import Annotated

from perdure.cli.commands.run import agent_option, argument, command, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.commands.agents import conversation_named
    from perdure.cli.session.session import ChatSession
    from perdure.cli.session.source import StdinLines
    from perdure.cli.session.work import get_agent
    from perdure.cli.views.view import Output, new_table, visible
    from perdure.features.slash_commands.wire import CommandShape
    from perdure.library.perdure import AsyncPerdure

Name = Annotated[str, argument("Its exact name, such as git:commit.", "NAME")]
OfAgent = Annotated[str | None, agent_option("The agent; by default the one used last.")]
NO_COMMANDS = "There are no commands yet: a file commands/NAME.md in the data folder is one."


@command("command list", none=NO_COMMANDS)
async def list_commands(view: Output, perdure: AsyncPerdure, agent: OfAgent = None) -> None:
    """List the commands that a user of an agent can run."""
    commands = (await get_agent(view, perdure, agent)).commands
    found, problems = await commands.list(), await commands.problems()
    table = new_table("command", "from", "what it does", styles={"command": "bold", "from": "dim"})
    for one in found:
        table.add_row(*map(visible, (f"/{one.name} {one.hint}".rstrip(), one.layer, one.about)))
    notes = [Text(visible(f"{problem}"), style="yellow") for problem in problems]
    view.show([CommandShape.make(one) for one in found], *([table] if found else []), *notes)
    view.hint("`perdure command run NAME ARGUMENTS` runs one; so does /NAME in the chat." if found else NO_COMMANDS)


@command("command show", finds="command")
async def show_command(view: Output, perdure: AsyncPerdure, name: Name, agent: OfAgent = None) -> None:
    """Show a command: where it is from, its tools, its text."""
    found = await (await get_agent(view, perdure, agent)).commands.get(name)
    shape = CommandShape.make(found)
    lines = [f"{key.replace('_', ' ')}: {value}" for key, value in shape.items() if key != "text" and value]
    view.show(shape, *map(visible, lines), Text(visible(shape["text"])))


@command("command run", finds="command")
async def run_command(
    view: Output,
    perdure: AsyncPerdure,
    name: Name,
    arguments: Annotated[list[str] | None, argument("What it is about.", "[ARGUMENTS...]")] = None,
    agent: OfAgent = None,
    conversation: Annotated[str | None, option("Number or id of the conversation.", "CONVERSATION")] = None,
) -> int:
    """Run a command, and show what the agent does."""
    found = await get_agent(view, perdure, agent, change=True)
    line = None if conversation is None else (await conversation_named(found, conversation)).id
    text, options = await found.commands.prepare(name, arguments or (), conversation=line)
    return await ChatSession(perdure, found, StdinLines(), view, conversation=line).send(text, options)
