"""`perdure conversation` and `perdure history`, what `/conversations` lists, and the turns that a chat shows again."""

from __future__ import annotations

from typing import Annotated, Any

from perdure.cli.run import LastAgent, Yes, argument, command, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.chat.agent_choice import chat_command, existing_agent
    from perdure.cli.views.json import conversation_shape, fields, message_shape
    from perdure.cli.views.text import about_conversation, conversations_view, last_turns, transcript_view
    from perdure.cli.views.view import ConversationRow, View, plural
    from perdure.cli.work import NO_AGENT, confirm, deleted, get_agent, load_conversations, no_agent, open_store
    from perdure.core.conversations import Conversation
    from perdure.core.errors import NotFound
    from perdure.core.ids import ConversationId, is_id
    from perdure.library.agent import AsyncAgent
    from perdure.library.checks import LIMIT_MAX
    from perdure.library.messages.transcripts import TranscriptEntry

Number = Annotated[str, argument("Number or id of the conversation.", "NUMBER")]

MESSAGES = 100
TURN_MESSAGES_MAX = 50
LAST_TURNS = 3


@command("conversation list")
async def list_conversations(view: View, agent: LastAgent = None) -> None:
    """List the conversations of an agent, oldest first."""
    empty: dict[str, object] = {"conversations": []}
    async with open_store(view, empty=NO_AGENT, empty_shape=empty) as perdure:
        target = await existing_agent(view, perdure, agent)
        if target is None:
            view.show(empty)
            view.hint(NO_AGENT)
            return
        await show_conversations(view, target.agent, target.conversation)
        view.hint(f"`{chat_command(target.agent)} --conversation NUMBER` goes on with one of them.")


@command("conversation rename")
async def rename(
    view: View,
    number: Number,
    name: Annotated[str, argument("What it is about; '' takes its name away.", "NAME")],
    agent: LastAgent = None,
) -> None:
    """Name a conversation."""
    async with open_store(view, empty=NotFound("conversation", number, hint=NO_AGENT)) as perdure:
        owner = await get_agent(view, perdure, agent, change=True)
        conversation = await conversation_named(owner, number)
        conversation = await owner.update_conversation(conversation.id, summary=name.strip() or None)
        await show_conversation(view, owner, conversation)


@command("conversation delete")
async def delete_conversation(view: View, number: Number, agent: LastAgent = None, yes: Yes = False) -> None:
    """Hide a conversation from every list, search and view, for good."""
    async with open_store(view, empty=NotFound("conversation", number, hint=NO_AGENT)) as perdure:
        owner = await get_agent(view, perdure, agent, change=True)
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


@command("history")
async def history(
    view: View,
    agent: LastAgent = None,
    since: Annotated[str | None, option("Only from this date on, such as 2026-11-20.", "DATE")] = None,
    limit: Annotated[int | None, option("How many messages; by default 100, or all since.", min=1, max=10_000)] = None,
    conversation: Annotated[str | None, option("A number or id; by default all.", "NUMBER")] = None,
) -> None:
    """Print what was said, with tool calls and edits of memory.

    The newest stands at the end.
    """
    async with open_store(view, empty=no_agent(agent)) as perdure:
        target = await existing_agent(view, perdure, agent)
        if target is None:
            raise no_agent(agent)
        owner = target.agent
        line = None if conversation is None else (await conversation_named(owner, conversation)).id
        most = limit or (MESSAGES if since is None else LIMIT_MAX)
        entries = await owner.transcript(conversation=line, since=since, limit=most)
        several = len({entry.message.conversation_seq for entry in entries}) > 1
    shape = {"agent": owner.name, "agent_id": owner.id, "messages": [entry_shape(entry) for entry in entries]}
    view.show_long(shape, *transcript_view(entries, owner.name, conversations=several))
    if not entries:
        said = "nothing was said yet" if since is None else f"nothing was said since {since}"
        view.hint(
            f"{said}: `{chat_command(owner)}` begins" if since is None else f"{said}: --since takes an earlier date"
        )
    elif len(entries) == most:
        view.hint(f"only the newest {plural(most, 'message')}: --limit shows more")
    else:
        view.hint(f"`{chat_command(owner)}` goes on")


def entry_shape(entry: TranscriptEntry) -> dict[str, Any]:
    """A message of a transcript, with the edits of memory that it made, and `failure` if its run failed there."""
    message = entry.message
    edits = [fields(edit, "label", "version", "diff") for edit in entry.edits]
    more = fields(message, "run_id", "step_id") | {"conversation": message.conversation_seq, "edits": edits}
    failed = {} if entry.failure is None else {"failure": fields(entry.failure, "kind", "message")}
    return message_shape(message) | more | failed


async def show_last_turns(
    view: View, agent: AsyncAgent, conversation: ConversationId | None, turns: int = LAST_TURNS
) -> None:
    """Show a person the last turns of a conversation (None: the agent's first), dimmed."""
    line = (await agent.find_conversation(conversation)).id
    entries = await agent.transcript(conversation=line, limit=TURN_MESSAGES_MAX)
    view.print(*transcript_view(last_turns(entries, turns), agent.name, style="dim"))
