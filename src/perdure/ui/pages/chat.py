"""Chat: the messages of a conversation; sending, stopping, taking back and asking again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from starlette.requests import Request

from perdure.core.agents import Agent
from perdure.core.errors import Conflict, InvalidInput, LimitReached
from perdure.core.ids import ConversationId, MessageId, RunId
from perdure.core.messages import Image, Text, ToolDecision
from perdure.core.runs import NO_OPTIONS, RunOptions
from perdure.core.text.reprs import attributes
from perdure.domain.agents.profile import PROFILE
from perdure.domain.agents.units import AgentChanges
from perdure.engine.compaction.room import RequestPreview
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.library.agent import AsyncAgentById
from perdure.library.messages.retries import WaitingRun
from perdure.library.messages.sending import Picture, load_images
from perdure.library.messages.slashes import list_slashes, read_slash
from perdure.library.messages.transcripts import TranscriptEntry
from perdure.library.perdure import AsyncPerdure
from perdure.library.runs.steps import overview_of
from perdure.ui.pages.chat_items import answer_text, entry_items, open_questions, queued_items
from perdure.ui.pages.home import agent_shape, page_author
from perdure.ui.pages.panes import panes_shape
from perdure.ui.pages.pictures import pictures_of
from perdure.ui.pages.tool_forms import approval_shape, decision_of
from perdure.ui.render import Data, Notice, Pages, agent_of, field_of, form_of, is_number

MESSAGES_MAX = 50

pages = Pages()


@pages.get("/agents/{agent_id}", "chat.html", sections="chat", is_live=True)
async def chat(request: Request, library: AsyncPerdure) -> Data:
    """The newest messages of a conversation, or with `before` those before a number."""
    own = agent_of(request, library)
    agent = await library.all_agents.resolve(own.id)
    edit, again = await _load_edit(request, library), await _load_again(request, own)
    line = (edit or again or {}).get("conversation_id") or _conversation_id(request)
    conversation = await own.find_conversation(line)
    # Before its messages are read: a run that ends meanwhile is followed, and nothing of it is missed.
    waiting = await own.waiting(conversation.id)
    before = request.query_params.get("before", "")
    before_seq = int(before) if is_number(before) else None
    entries = await own.transcript(conversation=conversation.id, limit=MESSAGES_MAX, before_seq=before_seq)
    return {
        "title": agent.name,
        "agent": agent_shape(agent),
        "tab": "chat",
        **await panes_shape(request, own, conversation),
        "older": entries[0].message.seq if len(entries) == MESSAGES_MAX else None,
        "newer": None if before_seq is None else await _newer_page(own, conversation.id, before_seq),
        **_shown_messages(entries, waiting if before_seq is None else ()),
        "pending": [await approval_shape(library, call) for call in await own.pending(conversation=conversation.id)],
        "questions": [attributes(question, "text", "options") for question in open_questions(entries)]
        if before_seq is None and not waiting
        else [],
        "edit": edit,
        "again": again,
        "commands": await list_slashes(library.app, own.id),
        "context": context_shape(await own.preview(conversation.id)),
        "models": list(library.app.models.handles()),
        "default_model": library.app.models.follow(agent.model) if agent.follows_default else library.app.choice.handle,
    }


async def _newer_page(agent: AsyncAgentById, conversation: ConversationId, before_seq: int) -> str:
    """The query of the page of messages that follows the one before this number."""
    later = await agent.messages(conversation=conversation, after_seq=before_seq - 1, limit=MESSAGES_MAX + 1)
    return f"&before={later[-1].seq}" if len(later) > MESSAGES_MAX else ""


def _shown_messages(entries: Sequence[TranscriptEntry], waiting: Sequence[WaitingRun]) -> Data:
    """Return the page's messages as items, those waiting behind a run, the active run, the newest number."""
    items = [item for entry in entries for item in entry_items(entry)]
    if items and not waiting and items[-1]["kind"] in ("failure", "stopped"):
        items[-1]["is_last"] = True
    shown = {item["id"] for item in items}
    queued = [item for one in waiting for item in queued_items(one) if item["id"] not in shown]
    seq = entries[-1].message.seq if entries else -1
    return {"items": items, "queued": queued, "run_id": waiting[0].run.id if waiting else None, "seq": seq}


async def _load_edit(request: Request, library: AsyncPerdure) -> Data | None:
    """The message that `edit` names, with its conversation; None: none is edited."""
    if request.method != "GET" or not (wanted := request.query_params.get("edit")):
        return None
    message_id = MessageId(wanted)
    source = await agent_of(request, library).conversation_of_message(message_id)
    message = await library.messages.message(message_id)
    text = "\n\n".join(part.text for part in message.parts if isinstance(part, Text))
    pictures = sum(isinstance(part, Image) for part in message.parts)
    return {"message_id": message_id, "conversation_id": source.id, "text": text, "pictures": pictures}


async def _load_again(request: Request, agent: AsyncAgentById) -> Data | None:
    """The run that `again` names, with its conversation; None: none is to be answered again."""
    if request.method != "GET" or not (wanted := request.query_params.get("again")):
        return None
    return attributes(await agent.run(RunId(wanted)), "conversation_id", run_id="id")


def context_shape(preview: RequestPreview) -> Data:
    """What fills the window of the next request."""
    overview = overview_of(preview)
    amounts = {name: f"{name}_tokens" for name in ("window", "used", "reserve", "free", "over")}
    return attributes(overview, "rewrite", "hidden_messages", "pending_edits", **amounts) | {
        "parts": [attributes(part, "name", "tokens") for part in overview.parts],
        "measured": overview.measured_tokens is not None,
        "results": asdict(overview.results),
    }


def _conversation_id(request: Request) -> ConversationId | None:
    value = request.query_params.get("conversation")
    return None if not value else ConversationId(value)


@pages.post("/agents/{agent_id}/messages", shows=chat)
async def send(request: Request, library: AsyncPerdure) -> Notice:
    """Send a message; its run goes on in the background, and the page follows it."""
    agent, form = agent_of(request, library), await form_of(request)
    line = _conversation_id(request)
    pictures = await pictures_of(request, library, agent, line)
    text, options = await read_slash(library.app, agent.id, field_of(form, "text"), line)
    await send_to(agent, line, text, form.get("key") or None, options, pictures)
    return Notice("")


async def send_to(
    agent: AsyncAgentById,
    conversation: ConversationId | None,
    sent: str | ToolDecision,
    key: str | None = None,
    options: RunOptions = NO_OPTIONS,
    pictures: Sequence[Picture | Image] = (),
) -> None:
    """Send a text or a decision about a call to a conversation. What follows goes on in the background.

    Args:
        key: of the page's own: a text that comes twice under it is sent once, and its message bears it.
    """
    seq = (await agent.find_conversation(conversation)).seq
    request = RunRequest(agent_id=agent.id, conversation_seq=seq, background=True, idempotency_key=key)
    if isinstance(sent, str):
        stored = [picture for picture in pictures if isinstance(picture, Image)]
        parts = (Text(sent), *stored, *await load_images([one for one in pictures if not isinstance(one, Image)]))
        request = replace(request, messages=(NewMessage(parts, otid=key),), options=options)
    else:
        request = replace(request, answers=(sent,), partial=True)
    await agent.send_request(request)


@pages.post("/agents/{agent_id}/fork", shows=chat)
async def edit_and_fork(request: Request, library: AsyncPerdure) -> Notice:
    """Send a text in place of a message, with its pictures, in a new conversation that is a copy up to that message."""
    agent, form = agent_of(request, library), await form_of(request)
    message_id, text = MessageId(field_of(form, "message_id")), field_of(form, "text")
    source = await agent.conversation_of_message(message_id)
    pictures = [part for part in (await library.messages.message(message_id)).parts if isinstance(part, Image)]
    made = await agent.fork_conversation(source.id, before=message_id)
    try:
        await send_to(agent, made.id, text, pictures=pictures)
    except (InvalidInput, LimitReached):
        await agent.delete_conversation(made.id, author=page_author())
        raise
    return Notice("", location=f"/agents/{agent.id}?conversation={made.id}")


@pages.post("/agents/{agent_id}/regenerate", shows=chat)
async def regenerate(request: Request, library: AsyncPerdure) -> Notice:
    """Have a message answered again, by another model, in a new conversation with a copy of what was said before it."""
    agent, form = agent_of(request, library), await form_of(request)
    made, _ = await agent.answer_again(RunId(field_of(form, "run_id")), model=form.get("model") or None)
    return Notice("", location=f"/agents/{agent.id}?conversation={made.id}")


@pages.post("/agents/{agent_id}/again", shows=chat)
async def try_again(request: Request, library: AsyncPerdure) -> Notice:
    """Have the last message answered again, whose run failed or was stopped."""
    await agent_of(request, library).try_again(RunId(field_of(await form_of(request), "run_id")))
    return Notice("")


@pages.post("/agents/{agent_id}/stop", shows=chat)
async def stop(request: Request, library: AsyncPerdure) -> Notice:
    """Ask one run to stop. Messages that wait behind it are answered next."""
    await agent_of(request, library).cancel(RunId(field_of(await form_of(request), "run_id")))
    return Notice("")


@pages.post("/agents/{agent_id}/take-back", shows=chat)
async def take_back(request: Request, library: AsyncPerdure) -> Notice:
    """Take back a message that waits behind a run: the composer gets it back."""
    await agent_of(request, library).take_back(RunId(field_of(await form_of(request), "run_id")))
    return Notice("")


@pages.post("/agents/{agent_id}/reply", shows=chat)
async def reply(request: Request, library: AsyncPerdure) -> Notice:
    """Answer the question that the agent asked with `ask_user`, unless something was said since: `asked` is the newest
    message when the form was shown."""
    agent, form, line = agent_of(request, library), await form_of(request), _conversation_id(request)
    found = await agent.find_conversation(line)
    newest = await agent.transcript(conversation=found.id, limit=1)
    if await agent.waiting(found.id) or str(newest[-1].message.seq if newest else -1) != form.get("asked"):
        raise Conflict("This question was answered in the meantime: read what was said, and write a message")
    await send_to(agent, line, answer_text(form))
    return Notice("")


@pages.post("/agents/{agent_id}/answers", shows=chat)
async def answer(request: Request, library: AsyncPerdure) -> Notice:
    """Approve a call that waits, perhaps with other arguments, or deny it."""
    agent, form = agent_of(request, library), await form_of(request)
    approves, line = form.get("approve") == "yes", _conversation_id(request)
    await send_to(agent, line, await decision_of(library, agent, line, form, approves=approves))
    return Notice("The call was approved." if approves else "The call was denied.")


@pages.post("/agents/{agent_id}/model", shows=chat)
async def switch_model(request: Request, library: AsyncPerdure) -> Notice:
    """Give the agent another model or profile."""
    form = await form_of(request)
    changes = await library.all_agents.model_changes(form.get("model") or None)
    profile = form.get("profile")

    def change(before: Agent) -> AgentChanges:
        """The model and the profile; the other settings are those of now."""
        others = {name: value for name, value in before.settings.items() if name != PROFILE}
        return {**changes, "settings": others | ({PROFILE: profile} if profile else {})}

    agent = await agent_of(request, library).edit(change)
    which = "the default model, now " if agent.follows_default else ""
    return Notice(f"{agent.name} answers with {which}{agent.model} from now on.")
