"""The text of an agent file, without what the agent has forgotten.

Forgetting leaves a text where only `undo` finds it, and where people speak of the agent: in values that blocks had,
facts that are believed no longer, names, schedules, settings. A file goes to others, so it reads there as if the text
was erased. What is in view holds none of it, but where somebody has said it again since.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.core.conversations import Conversation, ConversationFilter
from perdure.core.forgetting.corrections import Correction
from perdure.core.forgetting.redaction import REDACTED
from perdure.core.ids import AgentId, ConversationId
from perdure.core.messages import Message
from perdure.domain.conversations.agent_copies import copy_parts
from perdure.domain.conversations.copy_values import HiddenText
from perdure.features.agent_files.folders import list_folders
from perdure.features.agent_files.reading import NAME
from perdure.features.agent_files.writing import write_agent_file
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.routes.agents import agent_replies

_PAGE = 500


async def export_text(
    library: AsyncPerdure,
    agent_id: AgentId,
    *,
    conversation: ConversationId | None = None,
    with_messages: bool = True,
    skills: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Write an agent, its `skills`, and messages of one or all conversations as a file. Raises: NotFound."""
    state = await library.agent_of(agent_id).state()
    messages = await _list_messages(library, agent_id, conversation) if with_messages else []
    shown = frozenset(map(str, state.message_ids if conversation is None else [message.id for message in messages]))
    folders = await list_folders(library, agent_id)
    by_seq = {(await library.agent_of(agent_id).find_conversation(conversation)).seq: messages}
    if conversation is None and with_messages:
        for other in await _list_conversations(library, agent_id):
            by_seq[other.seq] = await _list_messages(library, agent_id, other.id)
    copy = await library.transfer.copy_agent(agent_id, by_seq)
    forgotten = await library.transfer.list_forgotten(agent_id)
    agent, now = (await agent_replies(library, [state]))[0], library.app.ports.clock.now()

    def write() -> str:
        """Return the file's JSON, without the forgotten texts."""
        document = write_agent_file(agent, [*by_seq.values()], folders, shown=shown, copy=copy, at=now)
        hide_forgotten(document, forgotten)
        document["skills"] = [*skills]
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


_SAID_OF_AGENT = ("system", "description", "metadata", "tags")
_CHOSEN = ("name", "secrets", "tool_exec_environment_variables", "messages", *_SAID_OF_AGENT)
"""Fields of an agent that are no settings."""


def hide_forgotten(document: dict[str, Any], forgotten: Sequence[Correction]) -> None:
    """Replace in `document`, an agent file as an object, every text of the `forgotten` corrections."""
    for correction in forgotten:
        if correction.needle != REDACTED:
            _hide(document, HiddenText(correction.needle, correction.created_at))


def _hide(document: dict[str, Any], text: HiddenText) -> None:
    """Replace one forgotten text in the agent file. Messages newer than the forgetting keep it: they say it again."""
    (agent,) = document["agents"]
    settings = {name: value for name, value in agent.items() if name not in _CHOSEN}
    agent |= text.redactor.redact_choices(settings)
    text.redact([agent], _SAID_OF_AGENT)
    text.redact(agent["messages"][:1], ("content",))  # the system message
    text.redact(agent["messages"][1:], ("name", "otid"), text.is_old)
    text.redact(document["blocks"], ("description", "metadata", "tags"))
    text.redact(document["sources"], ("description", "instructions", "metadata"))
    text.redact(document["files"], ("file_name",))
    for copy in document["metadata"][NAME]["agents"].values():
        _hide_in_copy(copy, text)


def _hide_in_copy(copy: dict[str, Any], text: HiddenText) -> None:
    """Replace one forgotten text in `copy`, the part of an agent file that only Perdure reads."""
    copy["settings"] = text.redactor.redact_choices(copy["settings"])
    text.redact(copy["passages"], ("sources", "state_origin"), text.is_old)
    for part in copy_parts():
        if part.name in copy:
            part.hide(copy[part.name], text)
    text.redact(copy["conversations"], ("summary", "description", "options"))
    for conversation in copy["conversations"]:
        text.redact(conversation["messages"], ("name", "otid"), text.is_old)
    for versions in copy["block_values"].values():
        for version in filter(text.is_old, versions[:-1]):  # the last one is the block as it is now
            version["value"] = text.redactor.drop_lines(version["value"])
