"""The / commands of a chat: each parses its argument, calls the library, and shows the result."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rich.text import Text

from perdure.cli.commands import agents, memory
from perdure.cli.commands.archives import show_hits
from perdure.cli.session.agent_choice import MODELS_MAX, context_command, model_row, set_model
from perdure.cli.session.session import ChatSession
from perdure.cli.views.context import context_view
from perdure.cli.views.hits import SearchOptions, search_more
from perdure.cli.views.json import agent_shape, context_shape, model_shape, reset_shape
from perdure.cli.views.text import ABOUT_CHARS, agents_view, model_view, reset_view
from perdure.cli.views.view import first_names, fold, new_table, visible
from perdure.core.errors import InvalidInput
from perdure.core.features import find_features
from perdure.domain.agents.automatic import AutoRecall, find_automatic
from perdure.library.messages.slashes import find_slash, list_slashes

SEARCH_LIMIT = 10


Run = Callable[[ChatSession, str], Awaitable[None]]
"""Runs a command with the text after its name."""


@dataclass(frozen=True, slots=True)
class Command:
    """A / command: how it is used, what it does, and the function that runs it."""

    usage: str
    help: str
    run: Run


COMMANDS: dict[str, Command] = {}
"""Name with its slash -> command, in the order of /help."""

_ALIASES = {"/exit": "/quit", "/q": "/quit", "/?": "/help"}


async def run_command(session: ChatSession, line: str) -> None:
    """Run the command of a line. Raises: InvalidInput: unknown command or wrong usage; errors of the library."""
    name, _, argument = line.partition(" ")
    name = _ALIASES.get(name, name)
    command = COMMANDS.get(name)
    if command is None:
        agent_id, app = session.agent.id, session.perdure.app
        if (found := await find_slash(app, agent_id, line, session.conversation)) is not None:
            await session.say(*found)
            return
        begun = [command for command in COMMANDS if len(name) > 1 and command.startswith(name)]
        similar = begun or difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.7)
        suggestion = f"did you mean {similar[0]}? " if similar else ""
        raise InvalidInput(
            f"there is no command {name}: {suggestion}/help lists them; // at the start sends the text itself"
        )
    argument = argument.strip()
    if not argument and " " in command.usage and "[" not in command.usage:
        raise _wrong_usage(name)
    await command.run(session, argument)


def command_help(more: Mapping[str, str] = MappingProxyType({})) -> Mapping[str, str]:
    """Command name -> help, for completion. `more`: usage -> help of commands that the chat itself does not have."""
    names = {usage.partition(" ")[0]: about for usage, about in more.items()}
    return {**names, **{name: command.help for name, command in COMMANDS.items()}}


def _command(usage: str) -> Callable[[Run], Run]:
    """Add a command, whose help is the docstring of its function."""

    def add(run: Run) -> Run:
        """Register the function as the command, with its docstring as help."""
        text = (run.__doc__ or "").rstrip(".")
        COMMANDS[usage.partition(" ")[0]] = Command(usage, text[:1].lower() + text[1:], run)
        return run

    return add


def _wrong_usage(name: str) -> InvalidInput:
    """The error for a command whose argument does not fit its usage."""
    return InvalidInput(f"that is not how {name} is used: {COMMANDS[name].usage}")


@_command("/memory [LABEL [history | restore N]]")
async def _memory(session: ChatSession, argument: str) -> None:
    """Show memory blocks, the versions of one, or restore one."""
    agent, view, words = session.agent, session.view, argument.split()
    match words:
        case []:
            memory.show_blocks(view, await agent.blocks.list())
            view.hint("/memory LABEL history shows how a block came to be what it is")
        case [label]:
            memory.show_blocks(view, [await agent.blocks.get(label)])
            view.hint(f"/memory {label} history shows how it came to be what it is")
        case [label, "history"]:
            await memory.show_versions(view, agent, label)
            view.hint(f"/memory {label} restore N brings the value of version N back")
        case [label, "restore", number] if number.isdecimal():
            await memory.restore_version(view, agent, label, int(number))
            view.hint(f"the agent sees it from the next message on; /memory {label} history shows it")
        case _:
            raise _wrong_usage("/memory")


for _feature in find_features():
    for _usage, _name in _feature.slashes.items():
        _command(_usage)(_feature.load(_name))


@_command("/search TEXT")
async def _search(session: ChatSession, argument: str) -> None:
    """Search everything that was said, and the archive."""
    messages = await session.agent.search(argument, limit=SEARCH_LIMIT)
    passages = await session.agent.search_archive(argument, limit=SEARCH_LIMIT)
    show_hits(session.view, argument, messages, passages, await search_more(SearchOptions(argument)))
    session.view.hint('/search "some words" finds them only next to each other')


@_command("/recall [on | off]")
async def _recall(session: ChatSession, argument: str) -> None:
    """Show whether each message is looked up in memory first, or change it."""
    session.agent = await session.perdure.agent(session.agent.id)
    settings = dict(session.agent.info.settings)
    match argument:
        case "on":
            if find_automatic(AutoRecall, settings) is None:
                del settings[AutoRecall.name]
        case "off":
            settings[AutoRecall.name] = False
        case "":
            pass
        case _:
            raise _wrong_usage("/recall")
    if argument:
        session.agent = await session.agent.update(settings=settings)
    setting = find_automatic(AutoRecall, settings)
    text = "Automatic recall is off."
    if setting is not None:
        text = f"Automatic recall is on: up to {setting.budget_tokens:,} tokens of memory go with each message."
    shape = None if setting is None else {"budget_tokens": setting.budget_tokens}
    session.view.show({"auto_recall": shape}, Text(text))
    session.view.hint("/recall off leaves it out" if setting else "/recall on has it look before each answer")


@_command("/remember TEXT")
async def _remember(session: ChatSession, argument: str) -> None:
    """Store a text in the agent's archive."""
    passage = await session.agent.archive(argument)
    session.view.show({"remembered": passage.id}, Text(f"Remembered: {fold(visible(argument), ABOUT_CHARS)}"))
    session.view.hint("the agent finds it by searching its archive; /forget TEXT takes it out again")


@_command("/approvals")
async def _approvals(session: ChatSession, argument: str) -> None:
    """Show the calls that wait, and ask you about yours."""
    await session.approvals()


@_command("/approve [CALL]")
async def _approve(session: ChatSession, argument: str) -> None:
    """Let a call run that waits for you, by default all of them."""
    await session.decide(True, argument or None)


@_command("/deny [CALL] [REASON]")
async def _deny(session: ChatSession, argument: str) -> None:
    """Refuse a call that waits for you, by default all of them."""
    first, _, rest = argument.partition(" ")
    call_ids = {call.call_id for call in await session.agent.pending(conversation=session.conversation)}
    has_id = first in call_ids
    await session.decide(False, first if has_id else None, reason=(rest if has_id else argument).strip() or None)


@_command("/new [NAME]")
async def _new(session: ChatSession, argument: str) -> None:
    """Begin a new conversation with the same memory."""
    conversation = await session.agent.new_conversation(summary=argument or None)
    await session.switch_to(conversation.id)
    about = "" if conversation.summary is None else f", {visible(fold(conversation.summary, ABOUT_CHARS))!r}"
    text = f"A new conversation{about}: nothing said before is in view, memory and search are the same."
    session.view.show({"conversation": conversation.id}, Text(text))
    session.view.hint("what was said before is still found: /search TEXT, or ask; /conversations leads back")


@_command("/conversations")
async def _conversations(session: ChatSession, argument: str) -> None:
    """List the conversations."""
    await agents.show_conversations(session.view, session.agent, session.conversation)
    session.view.hint("/switch NUMBER goes on with another one; /rename NAME says what this one is about")


@_command("/switch NUMBER")
async def _switch(session: ChatSession, argument: str) -> None:
    """Go on with another conversation."""
    conversation = await agents.conversation_named(session.agent, argument)
    await agents.show_conversation(session.view, session.agent, conversation)
    if session.interactive:
        await agents.show_last_turns(session.view, session.agent, conversation.id, agents.LAST_TURNS)
    await session.switch_to(conversation.id)
    session.view.hint("what you say now goes there; memory and search are the same")


@_command("/rename NAME")
async def _rename(session: ChatSession, argument: str) -> None:
    """Say what this conversation is about."""
    conversation = await session.agent.find_conversation(session.conversation)
    conversation = await session.agent.update_conversation(conversation.id, summary=argument)
    await agents.show_conversation(session.view, session.agent, conversation)
    session.view.hint("/conversations lists it by this name")


@_command("/reset")
async def _reset(session: ChatSession, argument: str) -> None:
    """Take what was said in this conversation out of view, for good; memory stays."""
    resets = await session.reset()
    if resets is not None:
        session.view.show({"reset": [reset_shape(reset) for reset in resets]}, reset_view(resets))


@_command("/model [HANDLE]")
async def _model(session: ChatSession, argument: str) -> None:
    """Show the agent's model, or pin another; `default` has it follow the default."""
    app, view = session.perdure.app, session.view
    if app.models.endpoints and (argument or not app.models.listings):
        view.show_status("asking for models…")
        await app.models.refresh()
        view.clear_status()
    if argument:
        session.agent = await set_model(session.agent, argument, app)
        more = "it answers from the next message on; what was said and memory stay"
    else:
        session.agent = await session.perdure.agent(session.agent.id)  # its model can have changed
        known = first_names(session.perdure.models, MODELS_MAX)
        more = f"/model HANDLE pins one of {known}; /model default follows the default"
    row = model_row(session.agent, app)
    view.show({"model": model_shape(row)}, *model_view(row))
    view.hint(more)


@_command("/context")
async def _context(session: ChatSession, argument: str) -> None:
    """Show what fills the model's window."""
    overview = await session.agent.context(conversation=session.conversation)
    session.view.show({"context": context_shape(overview)}, context_view(overview))
    command = f"{context_command(session.agent)} --step last"
    session.view.hint(f"`{command}` explains the newest request; what leaves the window stays in /search and memory")


@_command("/agents")
async def _agents(session: ChatSession, argument: str) -> None:
    """List the agents."""
    rows = await agents.load_agents(session.perdure)
    session.view.show({"agents": [agent_shape(row) for row in rows]}, agents_view(rows))
    session.view.hint("`perdure chat NAME` talks to another one; `perdure chat NAME --new` makes it")


@_command("/help")
async def _help(session: ChatSession, argument: str) -> None:
    """List the commands."""
    more = await list_slashes(session.perdure.app, session.agent.id)
    commands = {**{command.usage: command.help for command in COMMANDS.values()}, **more}
    table = new_table("usage", "help", styles={"usage": "bold"}, head=False)
    for row in commands.items():
        table.add_row(*map(visible, row))
    session.view.show({"commands": commands}, table)
    session.view.hint("Enter sends, Alt-Enter begins a new line, Ctrl-C cancels the answer, Ctrl-D leaves")


@_command("/quit")
async def _quit(session: ChatSession, argument: str) -> None:
    """Leave."""
    session.leave()
