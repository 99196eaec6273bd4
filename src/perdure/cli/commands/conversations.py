"""`perdure conversation`, and what `/conversations` lists."""

from __future__ import annotations

from rich.text import Text

from perdure.cli.chat.agent_choice import chat_command, existing_agent
from perdure.cli.views.json import conversation_shape
from perdure.cli.views.text import about_conversation, conversations_view
from perdure.cli.views.view import ConversationRow, View
from perdure.cli.work import NO_AGENT, confirm, deleted, get_agent, load_conversations, open_store
from perdure.core.conversations import Conversation
from perdure.core.errors import NotFound
from perdure.core.ids import ConversationId, is_id
from perdure.library.agent import AsyncAgent


async def list_conversations(view: View, *, agent: str | None) -> None:
    """Print the conversations of an agent. No store is made."""
    empty: dict[str, object] = {"conversations": []}
    async with open_store(view, empty=NO_AGENT, empty_shape=empty) as perdure:
        target = await existing_agent(perdure, agent)
        if target is None:
            view.show(empty)
            view.hint(NO_AGENT)
            return
        await show_conversations(view, target.agent, target.conversation)
        view.hint(f"`{chat_command(target.agent)} --conversation NUMBER` goes on with one of them.")


async def rename(view: View, *, number: str, name: str, agent: str | None) -> None:
    """Name a conversation of an agent, and print it."""
    async with open_store(view, empty=NotFound("conversation", number, hint=NO_AGENT)) as perdure:
        owner = await get_agent(perdure, agent)
        conversation = await conversation_named(owner, number)
        conversation = await owner.update_conversation(conversation.id, summary=name.strip() or None)
        await show_conversation(view, owner, conversation)


async def delete_conversation(view: View, *, number: str, agent: str | None, yes: bool) -> None:
    """Delete a conversation after a question."""
    async with open_store(view, empty=NotFound("conversation", number, hint=NO_AGENT)) as perdure:
        owner = await get_agent(perdure, agent)
        conversation = await conversation_named(owner, number)
        about = f" ({conversation.summary!r:.80})" if conversation.summary else ""
        question = (
            f"What was said in conversation {conversation.seq}{about} of agent {owner.name!r} will be in no list,"
            " search or view, for good; memory blocks, archives and files stay. Delete?"
        )
        if conversation.seq:  # the first one can't be deleted: the call below says so, without a question
            confirm(view, question, action="delete the conversation", yes=yes)
        await owner.delete_conversation(conversation.id)
        view.show({"deleted": conversation.id})
        name = f"conversation {conversation.seq} of agent {owner.name!r}"
        view.hint(deleted(name, "memory blocks and archives stay"))


async def conversation_named(agent: AsyncAgent, name: str) -> Conversation:
    """The conversation of this number or id; `default` is the first. Raises: NotFound."""
    if name == "default":
        return await agent.find_conversation()
    if is_id("conversation", name):
        return await agent.find_conversation(ConversationId(name))
    if name.isdecimal() and len(name) < 10:
        page = await agent.conversations(limit=1, after_seq=int(name) - 1)
        if page and page[0].seq == int(name):
            return page[0]
    hint = f"agent {agent.name!r} has none of this number; `perdure conversation list` lists them"
    raise NotFound("conversation", name, hint=hint)


async def show_conversations(view: View, agent: AsyncAgent, current: ConversationId | None) -> None:
    """Show every conversation of the agent, oldest first.

    Args:
        current: the conversation that the chat continues; None: the agent's first.
    """
    rows = [await _row(agent, conversation, current) for conversation in await load_conversations(agent)]
    view.show({"conversations": [conversation_shape(row) for row in rows]}, conversations_view(rows))


async def show_conversation(view: View, agent: AsyncAgent, conversation: Conversation) -> None:
    """Show the conversation that the chat continues."""
    about = about_conversation(await _row(agent, conversation, conversation.id))
    view.show({"conversation": conversation.id}, Text.assemble(f"Conversation {conversation.seq}: ", about))


async def _row(agent: AsyncAgent, conversation: Conversation, current: ConversationId | None) -> ConversationRow:
    """A conversation as a list shows it."""
    first = () if conversation.summary else await agent.messages(conversation=conversation.id, limit=1)
    is_current = conversation.id == current if current is not None else conversation.seq == 0
    return ConversationRow(conversation, first[0].text if first else "", is_current)
