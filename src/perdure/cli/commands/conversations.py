"""`perdure conversations`, and what `/conversations` lists."""

from __future__ import annotations

from perdure.cli.chat.agent_choice import existing_agent, go_on_with, last_conversation
from perdure.cli.confirm import agreed
from perdure.cli.open_store import Shown, with_store
from perdure.cli.views.view import ConversationRow
from perdure.core.conversations import Conversation
from perdure.core.errors import NotFound
from perdure.core.ids import ConversationId, is_id
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

__all__ = ["NOTHING", "conversation_named", "conversation_row", "conversations", "list_conversations"]

NOTHING = "there is no agent yet: `perdure` makes one and starts the chat"
PAGE = 100


async def conversations(
    name: str | None, *, rename: tuple[str, str] | None, delete: str | None, yes: bool, as_json: bool
) -> int:
    """List an agent's conversations, once what is asked for has been done to one of them; the exit code."""
    shown = Shown(as_json=as_json)
    asked = delete if rename is None else rename[0]
    missing = None if asked is None else NotFound("conversation", asked, hint=NOTHING)

    async def work(perdure: AsyncPerdure) -> int:
        opened = await existing_agent(perdure, name)
        if opened is None:
            if missing is not None:
                raise missing
            shown.view.conversations(())
            shown.view.hint(NOTHING)
            return 0
        agent = opened.agent
        if rename is not None:
            which, summary = rename
            await agent.update_conversation(
                (await conversation_named(agent, which)).id, summary=summary.strip() or None
            )
        if delete is not None:
            line = await conversation_named(agent, delete)
            if line.seq and not yes and not _agreed(agent, line):  # the first can't be deleted
                shown.view.hint("Nothing was deleted.")
                return 1
            await agent.delete_conversation(line.id)
        shown.view.conversations(await list_conversations(agent, current=await last_conversation(agent)))
        shown.view.hint(f"`{go_on_with(agent)} --conversation NUMBER` goes on with one of them.")
        return 0

    return await with_store(shown, work, empty=missing or NOTHING, empty_json={"conversations": []})


async def conversation_named(agent: AsyncAgent, name: str) -> Conversation:
    """The conversation of this number, `default` (the first) or id. Raises: NotFound."""
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
        current: the one that goes on; None: the agent's first.
    """
    rows: list[ConversationRow] = []
    after = -1
    while page := await agent.conversations(limit=PAGE, after_seq=after):
        rows += [await conversation_row(agent, line, current) for line in page]
        after = page[-1].seq
    return rows


async def conversation_row(agent: AsyncAgent, line: Conversation, current: ConversationId | None) -> ConversationRow:
    """What a person is shown of a conversation."""
    begun = () if line.summary else await agent.messages(conversation=line.id, limit=1)
    return ConversationRow(
        id=line.id,
        number=line.seq,
        summary=line.summary,
        begins=begun[0].text if begun else "",
        created_at=line.created_at,
        used_at=line.last_message_at,
        archived=line.archived_at is not None,
        current=line.id == current if current is not None else line.seq == 0,
    )


def _agreed(agent: AsyncAgent, line: Conversation) -> bool:
    about = f" ({line.summary!r:.80})" if line.summary else ""
    return agreed(
        f"What was said in conversation {line.seq}{about} of agent {agent.name!r} will be in no list, search or view,"
        " for good; memory blocks, archives and files stay. Delete?",
        whether="the conversation shall be deleted",
    )
