"""The text of an agent file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

from perdure.core.conversations import Conversation, ConversationFilter
from perdure.core.ids import AgentId, ConversationId
from perdure.core.messages import Message
from perdure.features.agent_files.folders import list_folders
from perdure.features.agent_files.forgotten import hide_forgotten
from perdure.features.agent_files.writing import write_agent_file
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.routes.agents import agent_replies

_PAGE = 500


async def export_text(
    library: AsyncPerdure, agent_id: AgentId, *, conversation: ConversationId | None = None, with_messages: bool = True
) -> str:
    """Write an agent as an agent file, with the messages of `conversation`, None: of all. Raises: NotFound."""
    state = await library.agent_of(agent_id).state()
    messages = await _list_messages(library, agent_id, conversation) if with_messages else []
    shown = frozenset(map(str, state.message_ids if conversation is None else [message.id for message in messages]))
    folders = await list_folders(library, agent_id)
    by_seq = {(await library.agent_of(agent_id).find_conversation(conversation)).seq: messages}
    if conversation is None and with_messages:
        for other in await _list_conversations(library, agent_id):
            by_seq[other.seq] = await _list_messages(library, agent_id, other.id)
    written_ids = {seq: [one.id for one in found if one.kind == "message"] for seq, found in by_seq.items()}
    copy = await library.transfer.copy_agent(agent_id, written_ids)
    forgotten = await library.transfer.list_forgotten(agent_id)
    agent, now = (await agent_replies(library, [state]))[0], library.app.ports.clock.now()

    def write() -> str:
        document = write_agent_file(agent, [*by_seq.values()], folders, shown=shown, copy=copy, at=now)
        hide_forgotten(document, forgotten)
        return json.dumps(document, indent=2)

    return await asyncio.to_thread(write)


async def _list_conversations(library: AsyncPerdure, agent_id: AgentId) -> Sequence[Conversation]:
    """The conversations of an agent, oldest first, without its first one, which lists of conversations leave out."""
    found: list[Conversation] = []
    page, where = Page(_PAGE, ascending=True), ConversationFilter(agent_id=agent_id)
    while states := await library.conversations.page_of_states(where, page, "created"):
        found += (state.conversation for state in states)
        page = replace(page, after=found[-1].id)
    return found


async def _list_messages(
    library: AsyncPerdure, agent_id: AgentId, conversation: ConversationId | None
) -> Sequence[Message]:
    """All messages of a conversation, oldest first; None: of the agent's first conversation."""
    agent, found = library.agent_of(agent_id), list[Message]()
    id_ = (await agent.find_conversation(conversation)).id
    while page := await agent.messages(conversation=id_, limit=_PAGE, after_seq=found[-1].seq if found else None):
        found += page
    return found
