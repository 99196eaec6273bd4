"""Chat: the messages of a conversation, sending and stopping; and the calls that wait, of all agents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.core.blocks import BlockVersion
from perdure.core.conversations import Conversation
from perdure.core.errors import NotFound
from perdure.core.events import (
    Delta,
    DeltaStreamed,
    MemoryEdited,
    MessageAdded,
    ModelChanged,
    RunEnded,
    StepAbandoned,
    StoredEvent,
)
from perdure.core.ids import AgentId, BlockId, ConversationId, MessageId, RunId
from perdure.core.messages import Image, Message, Reasoning, Text, ToolCall, ToolDecision, ToolResult
from perdure.core.runs import NO_OPTIONS, Failure, RunFilter, RunOptions
from perdure.core.text.reprs import attributes
from perdure.core.tools.answers import PendingCall
from perdure.domain.agents.profile import PROFILE
from perdure.engine.compaction.room import Preview
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.library.agent import AsyncAgentById
from perdure.library.messages.slashes import list_slashes, read_slash
from perdure.library.messages.transcripts import TranscriptEntry
from perdure.library.parts.checks import Page as ListPage
from perdure.library.perdure import AsyncPerdure
from perdure.library.runs.steps import overview_of
from perdure.server.wire.http import library_of, require_scope
from perdure.server.wire.sse import HEADERS as STREAM_HEADERS
from perdure.ui.pages.home import agent_shape
from perdure.ui.render import HEADERS, Data, Notice, Pages, agent_of, environment, field_of, form_of, is_number

MESSAGES_MAX, CONVERSATIONS_MAX = 50, 100

pages = Pages()


@pages.get("/agents/{agent_id}", "chat.html")
async def chat(request: Request, library: AsyncPerdure) -> Data:
    """The newest messages of a conversation, or with `before` those before a number."""
    own = agent_of(request, library)
    agent = await library.all_agents.resolve(own.id)
    edit = await _load_edit(request, library)
    conversation = await own.find_conversation(_conversation_id(request) if edit is None else edit["conversation_id"])
    where = RunFilter(agent_ids=(own.id,), conversation_id=conversation.id, statuses=("queued", "running"))
    # Before its messages are read: a run that ends meanwhile is followed, and nothing of it is missed.
    running = await library.runs.page_of_runs(where, ListPage(1, ascending=True))
    before = request.query_params.get("before", "")
    before_seq = int(before) if is_number(before) else None
    entries = await own.transcript(conversation=conversation.id, limit=MESSAGES_MAX, before_seq=before_seq)
    lines = await own.conversations(limit=CONVERSATIONS_MAX)
    return {
        "title": agent.name,
        "agent": agent_shape(agent),
        "tab": "chat",
        "conversation": _conversation_shape(conversation),
        "conversations": [_conversation_shape(line) for line in lines],
        "items": [item for entry in entries for item in _entry_items(entry)],
        "older": entries[0].message.seq if len(entries) == MESSAGES_MAX else None,
        "pending": [pending_shape(call) for call in await own.pending(conversation=conversation.id)],
        "run_id": running[0].id if running else None,
        "edit": edit,
        "commands": await list_slashes(library.app, own.id),
        "context": context_shape(await own.preview(conversation.id)),
        "models": list(library.app.models.handles()),
        "default_model": library.app.models.follow(agent.model) if agent.follows_default else library.app.choice.handle,
    }


async def _load_edit(request: Request, library: AsyncPerdure) -> Data | None:
    """The message that `edit` names, with its conversation; None: none is edited."""
    if request.method != "GET" or not (wanted := request.query_params.get("edit")):
        return None
    message_id = MessageId(wanted)
    source = await agent_of(request, library).conversation_of_message(message_id)
    message = await library.messages.message(message_id)
    return {"message_id": message_id, "conversation_id": source.id, "text": message.text}


def context_shape(preview: Preview) -> Data:
    """What fills the window of the next request."""
    overview = overview_of(preview)
    amounts = {name: f"{name}_tokens" for name in ("window", "used", "reserve", "free", "over")}
    return attributes(overview, "rewrite", "hidden_messages", "pending_edits", **amounts) | {
        "parts": [attributes(part, "name", "tokens") for part in overview.parts],
        "measured": overview.measured_tokens is not None,
        "results": asdict(overview.results),
    }


def message_items(message: Message, edits: Sequence[BlockVersion] = ()) -> Iterable[Data]:
    """What the chat shows of a message, part by part; of the engine's own messages only summaries and notes."""
    common = attributes(message, "agent_id", "run_id", "step_id", message_id="id", at="occurred_at")
    for place, part in enumerate(message.parts):
        item = {**common, "id": f"{message.id}-{place}"}
        match part:
            case _ if message.kind not in ("message", "approval"):
                yield {**item, "kind": "note", "name": message.kind, "text": message.text}
                return
            case Text(text=text):
                yield {**item, "kind": message.role, "name": message.name, "text": text}
            case Image():
                yield {**item, "kind": message.role, "name": message.name, "text": part.text}
            case Reasoning(text=text) if text:
                yield {**item, "kind": "reasoning", "text": text}
            case ToolCall():
                if part.thoughts:
                    yield {**item, "id": f"{item['id']}-thoughts", "kind": "reasoning", "text": part.thoughts}
                if part.speech:
                    yield {**item, "kind": "assistant", "name": None, "text": part.speech}
                else:
                    yield {**item, "kind": "call", "name": part.name, "text": part.own_arguments}
            case ToolResult():
                failed = part.status != "success"
                yield {**item, "kind": "result", "name": part.name, "text": part.text, "failed": failed}
            case ToolDecision():
                text = "Approved" if part.approve else "Denied"
                yield {**item, "kind": "note", "name": "approval", "text": f"{text}: {part.reason or part.call_id}"}
    for edit in edits:
        yield edit_item(edit.block_id, edit.version, edit.label, edit.diff)


def _entry_items(entry: TranscriptEntry) -> Iterable[Data]:
    """What the chat shows of a message, of the edits of memory that it made, and of the failure if its run failed."""
    yield from message_items(entry.message, entry.edits)
    if entry.failure is not None and entry.message.run_id is not None:
        yield _failure_item(entry.message.run_id, entry.failure)


def _failure_item(run_id: RunId, failure: Failure) -> Data:
    """What the chat shows in the place of an answer that did not come."""
    return {"id": f"failure-{run_id}", "kind": "failure", "run_id": run_id, "text": failure.message}


def edit_item(block_id: BlockId, version: int, label: str, diff: str) -> Data:
    """What the chat shows of an edit of memory."""
    return {"id": f"edit-{block_id}-{version}", "kind": "edit", "name": label, "text": diff}


def pending_shape(call: PendingCall) -> Data:
    """A call that waits."""
    own = ("call_id", "agent_id", "conversation_id", "run_id", "awaits_client", "helper")
    return attributes(call, *own, why="reason", tool="name", arguments="call.own_arguments")


def _conversation_shape(conversation: Conversation) -> Data:
    number = "first conversation" if conversation.seq == 0 else f"conversation {conversation.seq}"
    name = conversation.summary or number
    return {"id": conversation.id, "seq": conversation.seq, "name": name, "updated_at": conversation.updated_at}


def _conversation_id(request: Request) -> ConversationId | None:
    value = request.query_params.get("conversation")
    return None if not value else ConversationId(value)


@pages.post("/agents/{agent_id}/messages", shows=chat)
async def send(request: Request, library: AsyncPerdure) -> Notice:
    """Send a message; its run goes on in the background, and the page follows it."""
    agent, form = agent_of(request, library), await form_of(request)
    line = _conversation_id(request)
    text, options = await read_slash(library.app, agent.id, field_of(form, "text"), line)
    await _send(agent, line, text, form.get("key") or None, options)
    return Notice("")


async def _send(
    agent: AsyncAgentById,
    conversation: ConversationId | None,
    sent: str | ToolDecision,
    key: str | None = None,
    options: RunOptions = NO_OPTIONS,
) -> None:
    """Send a text or a decision about a call to a conversation. What follows goes on in the background."""
    seq = (await agent.find_conversation(conversation)).seq
    request = RunRequest(agent_id=agent.id, conversation_seq=seq, background=True, idempotency_key=key)
    if isinstance(sent, str):
        request = replace(request, messages=(NewMessage((Text(sent),)),), options=options)
    else:
        request = replace(request, answers=(sent,), partial=True)
    await agent.send_request(request)


@pages.post("/agents/{agent_id}/fork", shows=chat)
async def edit_and_fork(request: Request, library: AsyncPerdure) -> Notice:
    """Send another text in place of a message, in a new conversation with a copy of what was said before it."""
    agent, form = agent_of(request, library), await form_of(request)
    message_id, text = MessageId(field_of(form, "message_id")), field_of(form, "text")
    source = await agent.conversation_of_message(message_id)
    made = await agent.fork_conversation(source.id, before=message_id)
    await _send(agent, made.id, text)
    return Notice("", location=f"/agents/{agent.id}?conversation={made.id}")


@pages.post("/agents/{agent_id}/stop", shows=chat)
async def stop(request: Request, library: AsyncPerdure) -> Notice:
    """Ask the runs of the conversation to stop."""
    await agent_of(request, library).cancel_all(conversation=_conversation_id(request))
    return Notice("The run was asked to stop.")


@pages.post("/agents/{agent_id}/answers", shows=chat)
async def answer(request: Request, library: AsyncPerdure) -> Notice:
    """Approve or deny a call that waits."""
    agent, form = agent_of(request, library), await form_of(request)
    approves, call_id = form.get("approve") == "yes", field_of(form, "call_id")
    await _send(agent, _conversation_id(request), ToolDecision(call_id, approves, form.get("reason") or None))
    return Notice("The call was approved." if approves else "The call was denied.")


@pages.post("/agents/{agent_id}/model", shows=chat)
async def switch_model(request: Request, library: AsyncPerdure) -> Notice:
    """Give the agent another model or profile."""
    form, one = await form_of(request), await library.agent(agent_of(request, library).id)
    changes = await library.all_agents.model_changes(form.get("model") or None)
    settings = {name: value for name, value in one.info.settings.items() if name != PROFILE}
    if profile := form.get("profile"):
        settings[PROFILE] = profile
    agent = await one.edit({**changes, "settings": settings})
    which = "the default model, now " if agent.follows_default else ""
    return Notice(f"{agent.name} answers with {which}{agent.model} from now on.")


async def events(request: Request) -> Response:
    """The events of a run as HTML fragments: each names the element that it replaces, or is a new one."""
    library = library_of(request)
    run = await library.runs.run(RunId(request.path_params["run_id"]))
    last = request.headers.get("last-event-id", "")
    followed = library.runs.follow_run(run, after=int(last) if is_number(last) else 0)
    return StreamingResponse(
        _fragments(followed), media_type="text/event-stream", headers={**HEADERS, **STREAM_HEADERS}
    )


pages.add("/events/runs/{run_id}", events)


async def _fragments(followed: AsyncIterator[StoredEvent | Delta]) -> AsyncIterator[bytes]:
    """Each event of a run that the chat shows, as a server-sent event."""
    template = environment().get_template("_item.html")

    def shown(items: Iterable[Data], seq: int | None, message_id: MessageId | None = None) -> bytes:
        pieces = [{"id": item["id"], "html": template.render(item=item)} for item in items]
        return _sse("message", {"message": message_id, "items": pieces}, seq)

    async for sent in followed:
        seq = sent.seq if isinstance(sent, StoredEvent) else None
        event = sent.event if isinstance(sent, StoredEvent) else sent
        match event:
            case Delta(kind="progress", text=text):
                yield _sse("progress", {"text": text}, None)
            case Delta() | DeltaStreamed():
                delta = event if isinstance(event, Delta) else event.delta
                piece = {"message": delta.message_id, "kind": delta.kind, "index": delta.index, "text": delta.text}
                yield _sse("delta", piece, seq)
            case MessageAdded(message=Message() as message):
                yield shown(message_items(message), seq, message.id)
            case MemoryEdited():
                yield shown([edit_item(event.block_id, event.version, event.label, event.diff)], seq)
            case ModelChanged():
                text = f"This agent follows the default model: {event.new} answers from now on, no longer {event.old}."
                yield shown([{"id": f"model-{seq}", "kind": "note", "name": "Another model", "text": text}], seq)
            case StepAbandoned():
                yield _sse("void", {}, seq)
            case RunEnded(failure=Failure() as failure):
                yield shown([_failure_item(event.run_id, failure)], seq)
    yield _sse("closed", {}, None)


def _sse(name: str, data: Mapping[str, object], seq: int | None) -> bytes:
    """A server-sent event of this name with data as JSON; `seq`, if any, is its id, to resume the stream behind it."""
    number = "" if seq is None else f"id: {seq}\n"
    return f"{number}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


@pages.get("/approvals", "approvals.html")
async def approvals(request: Request, library: AsyncPerdure) -> Data:
    """The calls that wait, those of clients left out."""
    waiting = await library.approvals.list_all()
    calls = [pending_shape(call) | {"agent": name} for name, call in waiting if not call.awaits_client]
    return {"title": "Approvals", "pending": calls}


@pages.post("/approvals", shows=approvals)
async def decide(request: Request, library: AsyncPerdure) -> Notice:
    """Approve a call, perhaps with other arguments, deny it, or approve it and all later ones of its tool."""
    form = await form_of(request)
    agent = library.agent_of(AgentId(field_of(form, "agent_id")))
    conversation_id = ConversationId(field_of(form, "conversation_id"))
    choice, call_id = field_of(form, "choice"), field_of(form, "call_id")
    tool = ""
    if choice == "always":
        require_scope(request, "builder", what="approving all later calls of a tool")
        waiting = await agent.pending(conversation=conversation_id)
        tool = next((call.name for call in waiting if call.call_id == call_id), "")
        if not tool:
            raise NotFound("call that waits", call_id)
        await agent.require_approval(tool, required=False)
    edited = form.get("arguments") if choice != "deny" and form.get("arguments") != form.get("original") else None
    decision = ToolDecision(call_id, choice != "deny", form.get("reason") or None, edited)
    await _send(agent, conversation_id, decision)
    texts = {"deny": "The call was denied.", "always": f"Approved; {tool} needs no approval of this agent any more."}
    return Notice(texts.get(choice, "The call was approved."))
