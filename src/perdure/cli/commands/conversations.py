"""`perdure conversations`, and what `/conversations` lists."""

from __future__ import annotations

from perdure.cli.chat.agent_choice import chat_command, existing_agent, last_conversation
from perdure.cli.confirm import confirm
from perdure.cli.open_store import Output, with_store
from perdure.cli.pages import load_conversations
from perdure.cli.views.view import ConversationRow
from perdure.core.conversations import Conversation
from perdure.core.errors import NotFound
from perdure.core.ids import ConversationId, is_id
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

NO_AGENT = "there is no agent yet: `perdure` makes one and starts the chat"


async def conversations(
    name: str | None, *, rename: tuple[str, str] | None, delete: str | None, yes: bool, as_json: bool
) -> int:
    """Rename or delete a conversation if one is named, list the agent's conversations, and return the exit code."""
    output = Output(as_json=as_json)
    number = delete if rename is None else rename[0]
    missing = None if number is None else NotFound("conversation", number, hint=NO_AGENT)

    async def work(perdure: AsyncPerdure) -> int:
        target = await existing_agent(perdure, name)
        if target is None:
            if missing is not None:
                raise missing
            output.view.show_conversations(())
            output.view.hint(NO_AGENT)
            return 0
        agent = target.agent
        if rename is not None:
            which, summary = rename
            await agent.update_conversation(
                (await conversation_named(agent, which)).id, summary=summary.strip() or None
            )
        if delete is not None:
            conversation = await conversation_named(agent, delete)
            # The first one can't be deleted: the call below says so, without a question.
            if conversation.seq and not _confirm(agent, conversation, yes=yes):
                output.view.hint("Nothing was deleted.")
                return 1
            await agent.delete_conversation(conversation.id)
        output.view.show_conversations(await list_conversations(agent, current=await last_conversation(agent)))
        output.view.hint(f"`{chat_command(agent)} --conversation NUMBER` goes on with one of them.")
        return 0

    return await with_store(output, work, empty=missing or NO_AGENT, empty_json={"conversations": []})


async def conversation_named(agent: AsyncAgent, name: str) -> Conversation:
    """The conversation of this number or id; `default` is the first. Raises: NotFound."""
    if name == "default":
        return await agent.find_conversation()
    if is_id("conversation", name):
        return await agent.find_conversation(ConversationId(name))
    if name.isdecimal() and len(name) < 10:
        found = await agent.conversations(limit=1, after_seq=int(name) - 1)
        if found and found[0].seq == int(name):
            return found[0]
    raise NotFound(
        "conversation",
        name,
        hint=f"agent {agent.name!r} has none of this number; `perdure conversations` lists them",
    )


async def list_conversations(agent: AsyncAgent, *, current: ConversationId | None = None) -> list[ConversationRow]:
    """Every conversation of the agent, oldest first.

    Args:
        current: the conversation that the chat continues; None: the agent's first.
    """
    conversations = await load_conversations(agent)
    return [await conversation_row(agent, conversation, current) for conversation in conversations]


async def conversation_row(
    agent: AsyncAgent, conversation: Conversation, current: ConversationId | None
) -> ConversationRow:
    """A conversation as a list shows it."""
    first = () if conversation.summary else await agent.messages(conversation=conversation.id, limit=1)
    return ConversationRow(
        id=conversation.id,
        number=conversation.seq,
        summary=conversation.summary,
        first_text=first[0].text if first else "",
        created_at=conversation.created_at,
        used_at=conversation.last_message_at,
        archived=conversation.archived_at is not None,
        current=conversation.id == current if current is not None else conversation.seq == 0,
    )


def _confirm(agent: AsyncAgent, conversation: Conversation, *, yes: bool) -> bool:
    about = f" ({conversation.summary!r:.80})" if conversation.summary else ""
    question = (
        f"What was said in conversation {conversation.seq}{about} of agent {agent.name!r} will be in no list, search or"
        " view, for good; memory blocks, archives and files stay. Delete?"
    )
    return confirm(question, action="delete the conversation", yes=yes)
