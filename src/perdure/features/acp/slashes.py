"""The / commands of the chat that an editor offers: those that ask nothing and stay in the conversation."""

from __future__ import annotations

import io
from collections.abc import Sequence

from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from perdure.cli.chat.slash import COMMANDS, run_command
from perdure.cli.session.session import ChatSession
from perdure.cli.session.source import StdinLines
from perdure.cli.views.text import TextView
from perdure.core.ids import ConversationId
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

_OFFERED = ("memory", "facts", "search", "why", "recall", "remember", "forget", "undo", "context")
NAMES = [name for name in COMMANDS if name[1:] in _OFFERED]
"""The commands that are offered, each with its slash."""


def available_commands() -> Sequence[AvailableCommand]:
    """What the editor lists."""
    hints = {name: COMMANDS[name].usage.partition(" ")[2].strip("[]") for name in NAMES}
    inputs = {name: AvailableCommandInput(root=UnstructuredCommandInput(hint=hint)) for name, hint in hints.items()}
    return [
        AvailableCommand(name=name[1:], description=COMMANDS[name].help, input=inputs[name] if hints[name] else None)
        for name in NAMES
    ]


async def run_slash(perdure: AsyncPerdure, agent: AsyncAgent, conversation: ConversationId, line: str) -> str:
    """Run the command of a line and return what a chat shows of it, as Markdown. Raises: PerdureError."""
    shown = io.StringIO()
    view = TextView(shown, shown, interactive=False, coloured=False)
    session = ChatSession(perdure, agent, StdinLines(), view, conversation=conversation)  # none of these commands reads
    await run_command(session, line)
    view.finish()
    return f"````text\n{shown.getvalue().rstrip()}\n````"
