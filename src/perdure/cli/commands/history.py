"""`perdure history`, and the last turns that a chat shows when it goes on."""

from __future__ import annotations

from typing import Any

from perdure.cli.chat.agent_choice import chat_command, existing_agent
from perdure.cli.commands.conversations import conversation_named
from perdure.cli.views.fold import plural
from perdure.cli.views.json import fields, message_shape
from perdure.cli.views.transcript import last_turns, transcript_view
from perdure.cli.views.view import View
from perdure.cli.work import no_agent, open_store
from perdure.core.ids import ConversationId
from perdure.library.agent import AsyncAgent
from perdure.library.checks import LIMIT_MAX
from perdure.library.services.transcripts import TranscriptEntry

MESSAGES = 100
TURN_MESSAGES_MAX = 50
LAST_TURNS = 3


async def history(
    view: View, *, agent: str | None, since: str | None, limit: int | None, conversation: str | None
) -> None:
    """Print a transcript, newest messages at the end. No store is made."""
    async with open_store(view, empty=no_agent(agent)) as perdure:
        target = await existing_agent(perdure, agent)
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
    """A message of a transcript, with the edits of memory that it made."""
    message = entry.message
    edits = [fields(edit, "label", "version", "diff") for edit in entry.edits]
    more = fields(message, "run_id", "step_id") | {"conversation": message.conversation_seq, "edits": edits}
    return message_shape(message) | more


async def show_last_turns(
    view: View, agent: AsyncAgent, conversation: ConversationId | None, turns: int = LAST_TURNS
) -> None:
    """Show a person the last turns of a conversation (None: the agent's first), dimmed."""
    line = (await agent.find_conversation(conversation)).id
    entries = await agent.transcript(conversation=line, limit=TURN_MESSAGES_MAX)
    view.print(*transcript_view(last_turns(entries, turns), agent.name, style="dim"))
