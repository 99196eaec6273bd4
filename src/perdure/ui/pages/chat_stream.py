"""The stream of a run as the chat shows it: HTML of its messages, and of an answer while it is being written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.core.errors import PerdureError
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
from perdure.core.ids import MessageId, RunId
from perdure.core.messages import SEND_MESSAGE, Message
from perdure.core.text.json_strings import StringMember
from perdure.server.wire.http import library_of
from perdure.server.wire.sse import HEADERS as STREAM_HEADERS
from perdure.server.wire.sse import Streams
from perdure.ui.markdown import LiveMarkdown
from perdure.ui.pages.chat_items import edit_item, end_item, message_items
from perdure.ui.render import HEADERS, Data, Pages, environment, is_number

EVERY_S, CHARS_PER_S = 0.1, 50_000
"""A piece of an answer is rendered after `EVERY_S`, and later the longer the block is that goes on."""

pages = Pages()


async def events(request: Request) -> Response:
    """The events of a run as server-sent events, each with HTML for the elements that it names. They have no numbers: a
    browser that comes back gets them again from the message behind the query's `after`, the newest that its page has.
    """
    library = library_of(request)
    run = await library.runs.run(RunId(request.path_params["run_id"]))
    agent = await library.all_agents.resolve(run.key.agent_id)
    after = request.query_params.get("after", "")
    shown = RunStream(run.id, agent.name, after=int(after) if is_number(after) else -1)
    body = _stream(shown, library.runs.follow_run(run), request.app.state.streams)
    return StreamingResponse(body, media_type="text/event-stream", headers={**HEADERS, **STREAM_HEADERS})


pages.add("/events/runs/{run_id}", events)


async def _stream(
    shown: RunStream, followed: AsyncIterator[StoredEvent | Delta], streams: Streams
) -> AsyncIterator[bytes]:
    """Yield the events that the chat shows, pieces of answers joined, until the run or the server ends."""
    clock = asyncio.get_running_loop().time
    following: asyncio.Task[StoredEvent | Delta | None] | None = None
    yield b": open\n\n"
    try:
        while True:
            following = following or streams.track(anext(followed, None))
            due_at = shown.due_at
            await asyncio.wait({following}, timeout=None if due_at is None else max(0.0, due_at - clock()))
            if following.done():
                if following.cancelled():
                    return
                sent, following = following.result(), None
                if sent is None:
                    break
                for event in shown.events_of(sent, now=clock()):
                    yield event
            if shown.due_at is not None and shown.due_at <= clock():
                for event in shown.render(now=clock()):
                    yield event
    except PerdureError:
        return  # the browser comes back, and hears then what is the matter
    finally:
        if following is not None:
            following.cancel()
    yield shown.event("closed", {})


@dataclass(slots=True)
class _Live:
    """One part of an answer that is being written: Markdown, or plain text (reasoning, arguments of a call)."""

    kind: str
    markdown: LiveMarkdown | None
    plain: str = ""
    is_new: bool = True
    changed: bool = True
    rendered_at: float = 0.0

    @property
    def due_at(self) -> float:
        """When it is rendered next."""
        size = 0 if self.markdown is None else len(self.markdown.tail)
        return self.rendered_at + EVERY_S + size / CHARS_PER_S

    def add(self, delta: Delta) -> None:
        """Add a piece at the end."""
        text = f"{delta.text} " if delta.kind == "tool_name" else delta.text
        if self.markdown is None:
            self.plain += text
        else:
            self.markdown.add(text)
        self.changed = True

    def render(self, now: float) -> Data:
        """Return what is new: HTML of finished blocks, HTML of the unfinished one, and plain text to append."""
        ended, goes_on = ("", None) if self.markdown is None else self.markdown.render()
        plain, self.plain = self.plain, ""
        self.rendered_at, self.changed, self.is_new = now, False, False
        return {"ended": ended, "goes_on": goes_on, "plain": plain}


@dataclass
class RunStream:
    """What a page has heard of a run.

    Args:
        speaker: the name of the agent.
        after: the number of the newest message that the page shows already.
        speeches: (message, number of a call of `send_message`) -> the reader of what it says.
    """

    run_id: RunId
    speaker: str
    after: int = -1
    seq: int = -1
    live: dict[tuple[MessageId, str, int], _Live] = field(default_factory=dict)
    stored: set[MessageId] = field(default_factory=set)
    speeches: dict[tuple[MessageId, int], StringMember] = field(default_factory=dict)

    @property
    def due_at(self) -> float | None:
        """When pieces are to be rendered; None: there are no new ones."""
        return min((one.due_at for one in self.live.values() if one.changed), default=None)

    def event(self, name: str, data: Mapping[str, object]) -> bytes:
        """A server-sent event of this name with data as JSON, and the run."""
        return f"event: {name}\ndata: {json.dumps({'run': self.run_id, **data})}\n\n".encode()

    def render(self, *, now: float) -> Iterator[bytes]:
        """The events of the pieces that have waited long enough."""
        for (message_id, kind, index), one in self.live.items():
            if one.changed and one.due_at <= now:
                place = {"id": f"live-{message_id}-{kind}-{index}", "message": message_id, "kind": one.kind}
                shell = self._html("chat/live.html", item=place) if one.is_new else None
                yield self.event("piece", {**place, "shell": shell, **one.render(now)})

    def events_of(self, sent: StoredEvent | Delta, *, now: float) -> Iterator[bytes]:
        """What the chat shows of an event at once. Pieces of an answer wait for `render`."""
        match sent if isinstance(sent, Delta) else sent.event:
            case Delta(kind="progress", text=text):
                yield self.event("progress", {"text": text})
            case Delta() as delta:
                self._add(delta, now)
            case DeltaStreamed(delta=delta):
                self._add(delta, now)
            case MessageAdded(message=Message() as message):
                self._drop({message.id})
                self.stored.add(message.id)
                self.seq = message.seq
                if message.seq > self.after:
                    yield self._items(message_items(message), message.id)
            case MemoryEdited() as edit if self.seq >= self.after:
                yield self._items([edit_item(edit.block_id, edit.version, edit.label, edit.diff)])
            case ModelChanged(old=old, new=new):
                text = f"This agent follows the default model: {new} answers from now on, no longer {old}."
                yield self._items(
                    [{"id": f"model-{self.run_id}", "kind": "note", "name": "Another model", "text": text}]
                )
            case StepAbandoned():
                self._drop({message_id for message_id, *_ in self.live})
                yield self.event("void", {})
            case RunEnded() as end:
                self._drop({message_id for message_id, *_ in self.live})
                yield self.event("void", {})
                if end.failure is not None or end.stop_reason == "cancelled":
                    yield self._items([end_item(end.run_id, end.failure, is_last=True)])

    def _add(self, delta: Delta, now: float) -> None:
        """Add a piece of an answer, unless the answer is stored already."""
        if delta.message_id in self.stored:
            return
        place, kind, of = (delta.message_id, delta.index), str(delta.kind), str(delta.kind)
        if (kind, delta.text, delta.awaits, delta.refused) == ("tool_name", SEND_MESSAGE, None, False):
            self.speeches[place] = StringMember("message")
            return
        if kind == "tool_arguments" and (speech := self.speeches.get(place)) is not None:
            if not (text := speech.read(delta.text)):
                return
            kind, of, delta = "text", "speech", replace(delta, kind="text", text=text)
        elif kind.startswith("tool"):
            kind = of = "call"
        key = (delta.message_id, of, delta.index)
        if key not in self.live:
            self.live[key] = _Live(kind, LiveMarkdown() if kind == "text" else None, rendered_at=now - EVERY_S / 2)
        self.live[key].add(delta)

    def _drop(self, message_ids: set[MessageId]) -> None:
        """Forget the pieces of these answers."""
        self.live = {key: one for key, one in self.live.items() if key[0] not in message_ids}

    def _items(self, items: Iterable[Data], message_id: MessageId | None = None) -> bytes:
        """The event with these items."""
        pieces = [{"id": item["id"], "html": self._html("chat/item.html", item=item)} for item in items]
        return self.event("message", {"message": message_id, "items": pieces, "seq": self.seq})

    def _html(self, template: str, **values: object) -> str:
        """The HTML of a template."""
        return environment().get_template(template).render(speaker=self.speaker, **values)
