"""Texts that begin with / where a person types, as features read them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from perdure.app import App
from perdure.core.features import Point
from perdure.core.ids import AgentId, ConversationId
from perdure.core.runs import NO_OPTIONS, RunOptions

SLASH_TEXT: Point[[App, AgentId, str, ConversationId | None], Awaitable[tuple[str, RunOptions] | None]] = Point(
    "slash_text"
)
"""What is sent for a text that begins with / in a conversation, by default the agent's first one, and the options of
its run; None: it is no command."""
LISTED_SLASHES: Point[[App, AgentId], Awaitable[Mapping[str, str]]] = Point("listed_slashes")
"""Usage of a command, such as `/commit [TEXT]` -> what it does."""


async def find_slash(
    app: App, agent_id: AgentId, text: str, conversation: ConversationId | None = None
) -> tuple[str, RunOptions] | None:
    """Return what a slash command in a person's text sends, and the options of its run, for a conversation (default:
    the agent's first); None: it is no command."""
    if text.startswith("/") and not text.startswith("//"):
        for found in SLASH_TEXT(app, agent_id, text, conversation):
            if (read := await found) is not None:
                return read
    return None


async def read_slash(
    app: App, agent_id: AgentId, text: str, conversation: ConversationId | None = None
) -> tuple[str, RunOptions]:
    """As `find_slash`; what is no command is sent as it is, without the first of two slashes."""
    if (found := await find_slash(app, agent_id, text, conversation)) is not None:
        return found
    return text.removeprefix("/") if text.startswith("//") else text, NO_OPTIONS


async def list_slashes(app: App, agent_id: AgentId) -> Mapping[str, str]:
    """Return usage of each command that an agent's user may type -> what it does."""
    found: dict[str, str] = {}
    for listed in LISTED_SLASHES(app, agent_id):
        found |= await listed
    return found
