"""What stands beside the messages of a chat: the agent's conversations, and what the agent holds."""

from __future__ import annotations

import re

from starlette.requests import Request

from perdure.core.conversations import Conversation
from perdure.library.agent import AsyncAgentById
from perdure.ui.pages.memory import block_shape
from perdure.ui.render import Data, is_number

CONVERSATIONS_MAX, DELETED_MAX, NAME_CHARS, PAGES_MAX = 50, 20, 60, 200
PANES = ("conversations", "chat", "memory")
"""On a narrow screen one of them is shown, by the query's `pane`."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|[。！？]|\n")


async def panes_shape(request: Request, agent: AsyncAgentById, shown: Conversation) -> Data:
    """Return the data of both panes, with `pages` pages of conversations and always the one that is `shown`."""
    wanted = request.query_params.get("pages", "")
    count = min(max(int(wanted), 1), PAGES_MAX) if is_number(wanted) else 1
    found = await agent.named_conversations(limit=count * CONVERSATIONS_MAX)
    archived = await agent.named_conversations(archived=True, limit=count * DELETED_MAX)
    has_older = len(found) > count * CONVERSATIONS_MAX or len(archived) == count * DELETED_MAX
    listed, deleted = [_shape(*one) for one in found], [_shape(*one) for one in archived]
    known = next((one for one in (*listed, *deleted) if one["id"] == shown.id), None)
    conversation = known or _shape(shown, "")
    pane = request.query_params.get("pane", "")
    return {
        "pane": pane if pane in PANES else "chat",
        "conversation": conversation,
        "conversations": listed if conversation in listed else [conversation, *listed],
        "deleted": deleted,
        "older_conversations": count + 1 if has_older and count < PAGES_MAX else None,
        "blocks": await _blocks(agent, shown),
    }


async def _blocks(agent: AsyncAgentById, shown: Conversation) -> list[Data]:
    """The agent's blocks; in the place of some the conversation may have its own."""
    own = {block.label: block for block in await agent.isolated_blocks(shown.id)}
    listed = {block.label: block for block in await agent.blocks.list()} | own
    return [block_shape(block) | {"is_own": label in own} for label, block in listed.items()]


def _shape(conversation: Conversation, opening: str) -> Data:
    """A conversation with its name: its own, else the first sentence of its first message, `opening`."""
    is_new = conversation.last_message_at is None
    number = "First conversation" if conversation.seq == 0 else f"Conversation {conversation.seq}"
    unnamed = "New conversation" if is_new and conversation.seq else number
    return {
        "id": conversation.id,
        "seq": conversation.seq,
        "name": conversation.summary or first_sentence(opening) or unnamed,
        "own_name": conversation.summary or "",
        "at": conversation.last_message_at or conversation.created_at,
        "is_deleted": conversation.archived_at is not None,
    }


def first_sentence(text: str) -> str:
    """The first sentence of a text, cut where it is too long for a name."""
    sentence = _SENTENCE_END.split(text.strip(), maxsplit=1)[0].strip()
    return sentence if len(sentence) <= NAME_CHARS else f"{sentence[: NAME_CHARS - 1].rstrip()}…"
