"""`perdure conversations`, and what `/conversations` lists."""

from __future__ import annotations

from rich.text import Text

from perdure.cli.chat.agent_choice import chat_command, existing_agent, last_conversation
from perdure.cli.views.json import conversation_shape
from perdure.cli.views.text import about_conversation, conversations_view
from perdure.cli.views.view import ConversationRow, View
from perdure.cli.work import confirm, deleted, load_conversations, open_store
from perdure.core.conversations import Conversation
from perdure.core.errors import NotFound
from perdure.core.ids import ConversationId, is_id
from perdure.library.agent import AsyncAgent

NO_AGENT = "there is no agent yet: `perdure` makes one and starts the chat"


async def conversations(
    view: View, *, agent: str | None, rename: tuple[str, str] | None, delete: str | None, yes: bool
) -> None:
    """Rename or delete a conversation if one is named, and list the agent's conversations."""
    number = delete if rename is None else rename[0]
    missing = None if number is None else NotFound("conversation", number, hint=NO_AGENT)
    async with open_store(view, empty=missing or NO_AGENT, empty_shape={"conversations": []}) as perdure:
        target = await existing_agent(perdure, agent)
        if target is None:
            if missing is not None:
                raise missing
            view.show({"conversations": []})
            view.hint(NO_AGENT)
            return
        owner = target.agent
        if rename is not None:
            conversation = await conversation_named(owner, rename[0])
            await owner.update_conversation(conversation.id, summary=rename[1].strip() or None)
        if delete is not None:
            await _delete(view, owner, await conversation_named(owner, delete), yes=yes)
        await show_conversations(view, owner, await last_conversation(owner))
        view.hint(f"`{chat_command(owner)} --conversation NUMBER` goes on with one of them.")


async def _delete(view: View, agent: AsyncAgent, conversation: Conversation, *, yes: bool) -> None:
    """Delete a conversation after a question."""
    about = f" ({conversation.summary!r:.80})" if conversation.summary else ""
    question = (
        f"What was said in conversation {conversation.seq}{about} of agent {agent.name!r} will be in no list, search or"
        " view, for good; memory blocks, archives and files stay. Delete?"
    )
    if conversation.seq:  # the first one can't be deleted: the call below says so, without a question
        confirm(view, question, action="delete the conversation", yes=yes)
    await agent.delete_conversation(conversation.id)
    view.hint(deleted(f"conversation {conversation.seq} of agent {agent.name!r}", "memory blocks and archives stay"))


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
    hint = f"agent {agent.name!r} has none of this number; `perdure conversations` lists them"
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
