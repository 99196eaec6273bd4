"""What a stream tells: its chunks by number, and its messages with their pieces put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perdure import tool
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.server.wire.messages import FIRST_FIELDS
from perdure.testing import ScriptedModel
from tests.server.routed import Routed
from tests.support.servers import chunks_of

Chunk = Mapping[str, Any]
Story = list[tuple[str, str, str, Any]]
"""(message type, id, otid, content) of each message, in order."""

LAST = ("stop_reason", "usage_statistics")
NOT_STREAMED = ("user_message", "system_message", "approval_response_message")
"""What the caller sent: lists hold it, streams don't."""


@tool
def look(place: str = "here") -> str:
    """Look."""
    return f"seen {place}"


@tool
def pay(n: int = 0) -> str:
    """Pay."""
    return f"paid {n}"


@tool
def boom(why: str = "") -> str:
    """Fail."""
    raise ValueError(why or "no reason")


@dataclass(frozen=True, slots=True)
class Held:
    """An answer that stops before its last piece, until it is cancelled."""

    reply: ModelReply


class PieceModel(ScriptedModel):
    """A scripted model that streams the arguments of its calls in pieces of four characters."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        async for piece in super().respond(request):
            if isinstance(piece, ModelReply) or piece.kind != "tool_arguments":
                yield piece
                continue
            for start in range(0, len(piece.text), 4):
                yield replace(piece, text=piece.text[start : start + 4])


class Stage(ScriptedModel):
    """A scripted model whose script is set anew for each run; `speaking` is set while it holds an answer."""

    def play(self, script: Iterable[Any]) -> None:
        """Replace what is left of the script."""
        self._script = list(script)
        self.speaking = asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        held = self._script[0] if self._script and request.purpose != "summary" else None
        if isinstance(held, Held):
            self._script[0] = held.reply
            pieces = [piece async for piece in super().respond(request)]
            for piece in pieces[:-1]:
                yield piece
            self.speaking.set()
            await asyncio.Event().wait()
            return
        async for piece in super().respond(request):
            yield piece


class PieceStage(Stage, PieceModel):
    """A stage that streams the arguments of its calls in pieces."""


async def read_stream(server: Routed, path: str, body: Mapping[str, Any]) -> list[tuple[str | None, Chunk]]:
    """(event name, chunk) of a stream that ends as it must; without the end marker."""
    answer = await server.http.post(path, json=dict(body))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, end = chunks_of(answer.text)
    assert end == (None, "[DONE]")
    return [(name, chunk) for name, chunk in chunks if isinstance(chunk, Mapping)]


def without_ping_ids(chunks: Iterable[tuple[str | None, Chunk]]) -> list[tuple[str | None, Chunk]]:
    """The chunks without the ids that each ping makes anew."""
    return [
        (name, {key: value for key, value in chunk.items() if chunk["message_type"] != "ping" or key != "id"})
        for name, chunk in chunks
    ]


def is_message(chunk: Chunk) -> bool:
    """Whether it is a message or a piece of one, and not about the stream."""
    return chunk["message_type"] not in ("ping", "error_message", *LAST)


def story_of(messages: Iterable[Chunk]) -> Story:
    """The messages without those of the caller. Pieces of one message are put together."""
    contents: dict[tuple[str, str, str], Any] = {}
    for message in filter(is_message, messages):
        kind = message["message_type"]
        if kind in NOT_STREAMED:
            continue
        assert list(message)[: len(FIRST_FIELDS)] == list(FIRST_FIELDS)
        _add(contents, (kind, message["id"], message["otid"]), message)
    return [(*key, content) for key, content in contents.items()]


def _add(contents: dict[tuple[str, str, str], Any], key: tuple[str, str, str], message: Chunk) -> None:
    """Add a message or a piece to what is known of its message."""
    match key[0]:
        case "reasoning_message":
            contents[key] = contents.get(key, "") + message["reasoning"]
        case "assistant_message":
            contents[key] = contents.get(key, "") + message["content"]
        case "event_message" | "summary_message":
            assert key not in contents
            contents[key] = message.get("event_data", message.get("summary"))
        case "tool_return_message":
            assert key not in contents
            contents[key] = message["tool_returns"]
        case _:
            known = contents.setdefault(key, {})
            calls = message["tool_calls"]
            for call in calls if isinstance(calls, list) else [calls]:
                name, arguments = known.get(call["tool_call_id"], ("", ""))
                known[call["tool_call_id"]] = (name + call.get("name", ""), arguments + call.get("arguments", ""))


def check_numbers(chunks: Iterable[Chunk], *, background: bool) -> None:
    """Only a background run has numbers: from 1 on, ascending, each once; the last chunks have none."""
    numbers = [chunk.get("seq_id") for chunk in chunks if chunk["message_type"] not in LAST]
    assert all(chunk.get("seq_id") is None for chunk in chunks if chunk["message_type"] in LAST)
    if not background:
        assert set(numbers) <= {None}
        return
    known = [number for number in numbers if number is not None]
    assert len(known) == len(numbers)
    assert known == sorted(set(known)) and (not known or known[0] >= 1)
