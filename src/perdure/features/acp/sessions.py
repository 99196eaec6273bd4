"""Sessions of an editor: conversations, each with the folder that it was begun in, a title, a model and / commands."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from acp import schema

from perdure.cli.chat.slash import COMMANDS, run_command
from perdure.cli.session.session import ChatSession
from perdure.cli.session.source import StdinLines
from perdure.cli.views.text import TextView
from perdure.core.conversations import MODEL, Conversation
from perdure.core.ids import ConversationId
from perdure.domain.conversations.units import SUMMARY_CHARS
from perdure.domain.values import check_short_text
from perdure.features.acp.turns import PromptTurn
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

Options = list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean]

_OFFERED = ("/memory", "/facts", "/search", "/why", "/recall", "/remember", "/forget", "/undo")
SLASHES = {name: command for name, command in COMMANDS.items() if name in _OFFERED}
"""The commands of the chat that an editor offers: those that ask nothing and stay in the conversation."""


@dataclass(slots=True)
class EditorSession:
    """A session that the editor has open. `turns` are its prompts that have no answer yet: one is answered at a time,
    in order. `sending` sends the commands that it takes."""

    conversation: Conversation
    turns: list[PromptTurn] = field(default_factory=list)
    answering: asyncio.Lock = field(default_factory=asyncio.Lock)
    sending: asyncio.Future[None] | None = None


async def begin(agent: AsyncAgent, cwd: str, *, copy_of: Conversation | None = None) -> Conversation:
    """A new conversation that is begun in a folder, with a copy of what another one has in view. Raises: InvalidInput:
    the folder's name is too long."""
    check_short_text("cwd", cwd, SUMMARY_CHARS)
    if copy_of is None:
        return (await agent.create_conversation({"description": cwd})).conversation
    made = await agent.fork_conversation(copy_of.id)
    return await agent.update_conversation(made.id, summary=copy_of.summary, description=cwd)


def folder_of(conversation: Conversation) -> str:
    """The folder that it was begun in, which its description is; empty: not in an editor."""
    description = str(conversation.settings.get("description") or "")
    return description if PurePath(description).is_absolute() else ""


def session_info(conversation: Conversation) -> schema.SessionInfo:
    """What a list of sessions has of a conversation."""
    return schema.SessionInfo(
        session_id=conversation.id,
        cwd=folder_of(conversation) or str(Path.home()),
        title=conversation.summary,
        updated_at=(conversation.last_message_at or conversation.created_at).isoformat(),
    )


async def model_options(perdure: AsyncPerdure, agent: AsyncAgent, conversation: Conversation) -> Options:
    """The models that a session can have, with the one that it has. Raises: NotFound: the agent is gone."""
    own = (await perdure.agent(agent.id)).info.model  # others can have changed it
    current = conversation.settings.get(MODEL) or own
    options = [
        schema.SessionConfigSelectOption(value=one, name=one, description="The agent's own" if one == own else None)
        for one in sorted({*perdure.models, own, current})
    ]
    about = "Which model answers in this session; the agent keeps its own elsewhere."
    shown = {"type": "select", "id": MODEL, "category": "model", "name": "Model", "description": about}
    return [schema.SessionConfigOptionSelect.model_validate({**shown, "currentValue": current, "options": options})]


def command_list() -> schema.AvailableCommandsUpdate:
    """The commands that a session takes, for the editor."""
    commands = [
        {"name": name[1:], "description": command.help, "input": {"hint": command.usage.partition(" ")[2]}}
        for name, command in SLASHES.items()
    ]
    update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    return schema.AvailableCommandsUpdate.model_validate(update)


def find_slash(text: str) -> str | None:
    """The line of a text that is a command, as the chat takes it; None: it is a message."""
    words = text.split(maxsplit=1)
    return " ".join(words).rstrip() if words and words[0] in SLASHES else None


async def run_slash(perdure: AsyncPerdure, agent: AsyncAgent, conversation: ConversationId, line: str) -> str:
    """Run the command of a line and return what a chat shows of it, as Markdown. Raises: PerdureError."""
    shown = io.StringIO()
    view = TextView(shown, shown, interactive=False, coloured=False)
    session = ChatSession(perdure, agent, StdinLines(), view, conversation=conversation)  # none of these commands reads
    await run_command(session, line)
    view.finish()
    return f"````text\n{shown.getvalue().rstrip()}\n````"
