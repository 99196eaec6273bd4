"""Sessions of an editor: conversations, each with the folder that it was begun in, a title, a model and / commands."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp import schema

from perdure.cli.chat.slash import COMMANDS, run_command
from perdure.cli.session.session import ChatSession
from perdure.cli.session.source import StdinLines
from perdure.cli.views.text import TextView
from perdure.core.conversations import Conversation, ConversationFilter
from perdure.core.errors import InvalidInput
from perdure.core.ids import ConversationId
from perdure.features.acp.turns import PromptTurn
from perdure.library.agent import AsyncAgent
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure

PAGE, MODELS_MAX = 50, 200
OF_AGENT = "default"
"""In place of a model: a session has the agent's."""
_OFFERED = ("/memory", "/facts", "/search", "/why", "/recall", "/remember", "/forget", "/undo", "/context")
SLASHES = {name: command for name, command in COMMANDS.items() if name in _OFFERED}
"""The commands of the chat that an editor offers: those that ask nothing and stay in the conversation."""
_FOLDER = "Begun in an editor, in "
"""Before the folder, in the description of a conversation."""


@dataclass(slots=True)
class EditorSession:
    """A session that the editor has open.

    Args:
        turns: its prompts that have no answer yet, in order; one is answered at a time.
        sending: sends the commands that it takes.
    """

    conversation: Conversation
    turns: list[PromptTurn] = field(default_factory=list)
    answering: asyncio.Lock = field(default_factory=asyncio.Lock)
    sending: asyncio.Future[None] | None = None

    @property
    def id(self) -> ConversationId:
        """The id of its conversation."""
        return self.conversation.id


async def begin(agent: AsyncAgent, cwd: str, *, copy_of: Conversation | None = None) -> Conversation:
    """A new conversation that is begun in a folder, with a copy of what another one has in view."""
    made = await (agent.new_conversation() if copy_of is None else agent.fork_conversation(copy_of.id))
    title = None if copy_of is None else copy_of.summary
    return await agent.update_conversation(made.id, summary=title, description=f"{_FOLDER}{cwd:.1000}")


def folder_of(conversation: Conversation) -> str:
    """The folder that it was begun in; empty: not in an editor."""
    before, mark, folder = str(conversation.settings.get("description")).partition(_FOLDER)
    return folder if mark and not before else ""


async def list_infos(agent: AsyncAgent, cwd: str | None, after: str | None) -> Mapping[str, Any]:
    """A page of the conversations, the newest messages first, and the cursor of the next page; without archived ones.

    The agent's first conversation, with which chats in a terminal go on, comes last.

    Args:
        cwd: only those that were begun in this folder.
        after: the last id of the page before.
    """
    where = ConversationFilter(agent_id=agent.id, archived=False)
    states = await agent.page_of_states(where, Page(PAGE, ascending=False, after=after), "last_message")
    page = [state.conversation for state in states]
    cursor = page[-1].id if len(page) == PAGE else None
    if cursor is None and (first := await agent.find_conversation()).last_message_at is not None:
        page.append(first)
    times = [(one.last_message_at or one.created_at).isoformat() for one in page]
    infos = [
        schema.SessionInfo(session_id=one.id, cwd=folder_of(one) or str(Path.home()), title=one.summary, updated_at=at)
        for one, at in zip(page, times, strict=True)
        if cwd in (None, folder_of(one))
    ]
    return {"sessions": infos, "next_cursor": cursor}


def model_option(perdure: AsyncPerdure, agent: AsyncAgent, session: EditorSession) -> schema.SessionConfigOptionSelect:
    """The model of a session, with what it can be changed to: the agent's, or another for this session alone."""
    current = str(session.conversation.settings.get("model") or OF_AGENT)
    names = {handle: handle for handle in (*list(perdure.models)[:MODELS_MAX], current)}
    names[OF_AGENT] = f"{agent.info.model} (the agent's)"
    options = [schema.SessionConfigSelectOption(value=value, name=name) for value, name in names.items()]
    return schema.SessionConfigOptionSelect(
        id="model", name="Model", category="model", type="select", current_value=current, options=options
    )


async def set_option(agent: AsyncAgent, session: EditorSession, option: str, value: object) -> None:
    """Change the model of a session. Raises: InvalidInput: there is no such option; ModelNotFound."""
    if option != "model" or not isinstance(value, str):
        raise InvalidInput(f"there is no option {option!r:.80} with the value {value!r:.80}: there is 'model'")
    model = None if value == OF_AGENT else value
    session.conversation = await agent.update_conversation(session.id, model=model)


def command_list() -> schema.AvailableCommandsUpdate:
    """The commands that a session takes, for the editor."""
    hints = {name: command.usage.partition(" ")[2].strip("[]") for name, command in SLASHES.items()}
    commands = [
        {"name": name[1:], "description": command.help, "input": {"hint": hints[name]} if hints[name] else None}
        for name, command in SLASHES.items()
    ]
    update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    return schema.AvailableCommandsUpdate.model_validate(update)


async def run_slash(perdure: AsyncPerdure, agent: AsyncAgent, conversation: ConversationId, line: str) -> str:
    """Run the command of a line and return what a chat shows of it, as Markdown. Raises: PerdureError."""
    shown = io.StringIO()
    view = TextView(shown, shown, interactive=False, coloured=False)
    session = ChatSession(perdure, agent, StdinLines(), view, conversation=conversation)  # none of these commands reads
    await run_command(session, line)
    view.finish()
    return f"````text\n{shown.getvalue().rstrip()}\n````"
