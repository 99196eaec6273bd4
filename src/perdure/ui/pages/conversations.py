"""What one does beside a chat: begin, name and delete conversations, and change a block."""

from __future__ import annotations

from starlette.requests import Request

from perdure.core.blocks import Block
from perdure.core.errors import InvalidInput, VersionConflict
from perdure.core.ids import ConversationId
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.chat import chat
from perdure.ui.pages.home import page_author
from perdure.ui.pages.memory import VERSIONS_MAX, check_meanwhile, edit_block
from perdure.ui.render import Notice, Pages, agent_of, field_of, form_of, is_number, url_of

pages = Pages()


@pages.post("/agents/{agent_id}/conversations", shows=chat)
async def begin(request: Request, library: AsyncPerdure) -> Notice:
    """Begin a conversation, and open it."""
    agent = agent_of(request, library)
    made = await agent.new_conversation()
    return Notice("", location=f"/agents/{agent.id}?conversation={made.id}")


@pages.post("/agents/{agent_id}/conversations/rename", shows=chat)
async def rename(request: Request, library: AsyncPerdure) -> Notice:
    """Name a conversation; without a name it has that of its first sentence again."""
    agent, name = agent_of(request, library), (await form_of(request)).get("name", "").strip()
    before = await agent.find_conversation(_conversation_id(request))
    await agent.update_conversation(before.id, summary=name or None)
    undo = f"/agents/{agent.id}/conversations/rename?conversation={before.id}"
    return Notice("The conversation was renamed.", undo=undo, fields={"name": before.summary or ""})


@pages.post("/agents/{agent_id}/conversations/delete", shows=chat)
async def delete(request: Request, library: AsyncPerdure) -> Notice:
    """Take a conversation out of the list, and show the agent's first; it can be brought back."""
    agent = agent_of(request, library)
    found = await agent.find_conversation(ConversationId(field_of(await form_of(request), "conversation_id")))
    if found.seq == 0:
        raise InvalidInput("an agent's first conversation can't be deleted")
    await agent.update_conversation(found.id, archived=True)
    undo = f"/agents/{agent.id}/conversations/restore?conversation={found.id}"
    return Notice("The conversation was deleted.", undo=undo, location=f"/agents/{agent.id}")


@pages.post("/agents/{agent_id}/conversations/restore", shows=chat)
async def restore(request: Request, library: AsyncPerdure) -> Notice:
    """Bring a deleted conversation back, and show it."""
    agent = agent_of(request, library)
    found = await agent.find_conversation(_conversation_id(request))
    await agent.update_conversation(found.id, archived=False)
    return Notice("The conversation is back.", location=f"/agents/{agent.id}?conversation={found.id}")


@pages.post("/agents/{agent_id}/conversations/erase", shows=chat)
async def erase(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a conversation for good: what was said in it can no longer be found."""
    agent, form = agent_of(request, library), await form_of(request)
    await agent.delete_conversation(ConversationId(field_of(form, "conversation_id")), author=page_author())
    return Notice("The conversation was deleted for good.", location=f"/agents/{agent.id}")


@pages.post("/agents/{agent_id}/conversations/blocks/{label:path}", shows=chat)
async def write_block(request: Request, library: AsyncPerdure) -> Notice:
    """Write a block's value as on the memory page, or of the conversation's own block in place of the agent's."""
    if (own := await _own_block(request, library)) is not None:
        form = await form_of(request)
        version, changes = form.get("version", ""), {"value": form.get("value", "")}
        expected = int(version) if is_number(version) else None
        try:
            block = await library.blocks.edit(own.id, changes, expected=expected, author=page_author())
        except VersionConflict as late:
            versions = await library.blocks.history(own.id, limit=VERSIONS_MAX)
            check_meanwhile(versions, own.label, changes["value"], since=late.expected)
            raise
        fields = {"value": own.value, "version": str(block.version), "back": "yes"}
        done = "is as it was before" if form.get("back") else "was changed"
        return Notice(f"Block {block.label!r} of this conversation {done}.", undo=url_of(request), fields=fields)
    return await edit_block(request, library)


async def _own_block(request: Request, library: AsyncPerdure) -> Block | None:
    """The block of the path, if the conversation that the query names has one for itself."""
    if not request.query_params.get("conversation"):
        return None
    own = await agent_of(request, library).isolated_blocks(_conversation_id(request))
    return next((block for block in own if block.label == request.path_params["label"]), None)


def _conversation_id(request: Request) -> ConversationId:
    """The conversation that the query names. Raises: InvalidInput: it names none."""
    value = request.query_params.get("conversation")
    if not value:
        raise InvalidInput("conversation: the query names none")
    return ConversationId(value)
