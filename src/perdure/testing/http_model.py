"""A real HTTP server with the OpenAI chat API that answers from a script, well or badly. It embeds texts too."""

from __future__ import annotations

import asyncio
import contextlib
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from perdure.core.errors import ModelError
from perdure.core.messages import Reasoning, Text, ToolCall
from perdure.core.models import ModelReply
from perdure.core.tasks import end_tasks
from perdure.testing.scripted_model import ScriptedEmbedder, says, split_words

LOOK_S = 0.01
"""How often a server that hangs looks whether its client is still there."""

JSON_PIECES = 8
"""The number of pieces in which an answer that is not streamed is sent."""

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@dataclass(frozen=True, slots=True)
class Status:
    """An answer with an HTTP status. A body that is not a text is sent as JSON."""

    status: int
    body: Any = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that refuses, with its text in the API's field `refusal`."""

    text: str


@dataclass(frozen=True, slots=True)
class ChunkList:
    """An answer that streams these chunks unchanged. `[DONE]` is sent only if it is one of them."""

    chunks: Sequence[Mapping[str, Any] | str]


@dataclass(frozen=True, slots=True)
class RawBody:
    """An answer with these bytes as its body."""

    data: bytes
    content_type: str = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer: the connection is closed."""


@dataclass(frozen=True, slots=True)
class Hanging:
    """No answer until the client disconnects; with `line`, the first `after` chunks of that answer and then nothing."""

    line: ModelReply | None = None
    after: int = 0


@dataclass(frozen=True, slots=True)
class CutOff:
    """The first `after` chunks (streamed) or eighths (not streamed) of an answer; then the connection is closed. A
    `clean` end is valid HTTP; the stream only lacks `[DONE]`."""

    line: ModelReply
    after: int
    clean: bool = False


@dataclass(frozen=True, slots=True)
class Malformed:
    """An answer with `text` in place of its chunk number `at`, or of the whole body if it is not streamed."""

    line: ModelReply
    at: int = 0
    text: str = '{"choices": [{"delta": {"content": "un'


@dataclass(frozen=True, slots=True)
class AfterChunks:
    """The answer `line` after a pause of `pause_s` seconds for each of `chunks`, which a stream gets if `are_sent`."""

    chunks: Sequence[Mapping[str, Any]]
    pause_s: float
    line: HttpLine
    are_sent: bool = True


@dataclass(frozen=True, slots=True)
class Later:
    """The answer `line` after a delay in seconds."""

    delay_s: float
    line: HttpLine


_Answer: TypeAlias = ModelReply | Refusal | Hanging | CutOff | Malformed
HttpLine: TypeAlias = _Answer | Status | ChunkList | RawBody | Unanswered | AfterChunks | Later
"""One answer. `says`, `calls` and `thinks` of `perdure.testing` build good ones."""

Script: TypeAlias = HttpLine | Callable[[Mapping[str, Any]], HttpLine]
"""A line, or a function that computes one from the request's body."""


class HttpModel:
    """`async with HttpModel(*script) as server`: a server at `server.url`. Each request gets a line, then `otherwise`.

    A request decides whether its answer is streamed. `requests` holds the bodies of the chat requests, `headers` their
    headers, in order; `connections` counts the opened ones. `GET /v1/models` lists `models` and uses up no line.
    Requests for vectors, by OpenAI's API or Ollama's, get the lines of `then_embeds`, then the vectors of `embedder`;
    `embedding_requests` holds their bodies. `hanging` is set when a request begins to hang. Port 0 picks a free one.
    """

    def __init__(
        self,
        *script: Script,
        otherwise: Script | None = None,
        models: Sequence[str] = ("test",),
        port: int = 0,
        embedder: ScriptedEmbedder | None = None,
    ) -> None:
        self._script = list(script)
        self._embed_script: list[HttpLine] = []
        self.embedder = embedder or ScriptedEmbedder()
        self._otherwise = otherwise if otherwise is not None else says("OK.")
        self._models, self._port = models, port
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.requests: list[dict[str, Any]] = []
        self.embedding_requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.connections = 0
        self.hanging = asyncio.Event()
        self.url = ""

    def then(self, *script: Script) -> None:
        """Append lines to the script."""
        self._script += script

    def then_embeds(self, *script: HttpLine) -> None:
        """Append answers to the next requests for vectors: `Status`, `RawBody`, `Hanging`, ..."""
        self._embed_script += script

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve_connection, "127.0.0.1", self._port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        await end_tasks(*self._serving)
        await self._server.wait_closed()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                if not await self._answer(_Wire(writer, reader), *request):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client disconnected
        except asyncio.CancelledError:
            pass  # the server is closed; the task must not end as cancelled, or asyncio reports it
        finally:
            self._serving.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, wire: _Wire, line: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Answer one request, whose first line is `line`; return whether the connection stays open."""
        method, path, *_ = line.split()
        if (listing := self.find_listing(method, path, body)) is not None:
            return await wire.send_json(200, json.dumps(listing))
        if method == "POST" and path.split("?")[0].endswith(("/embeddings", "/api/embed")):
            return await self._embed(wire, json.loads(body), headers)
        if method != "POST" or not path.split("?")[0].endswith("/chat/completions"):
            return await wire.send_json(404, json.dumps({"error": {"message": f"no route {method} {path}"}}))
        request = json.loads(body)
        self.requests.append(request)
        self.headers.append(headers)
        async with self.turn(request, wire.is_cut) as answer:
            return answer is not None and await self._send_line(wire, answer, request)

    def find_listing(self, method: str, path: str, body: bytes) -> Any:
        """Return the body of the answer to a request about the server or its models; None: the path is another one."""
        if method == "GET" and path.endswith("/models"):
            data = [{"id": model, "object": "model", "owned_by": "perdure"} for model in self._models]
            return {"object": "list", "data": data}
        return None

    @contextlib.asynccontextmanager
    async def turn(self, request: Mapping[str, Any], is_cut: Callable[[], bool]) -> AsyncIterator[HttpLine | None]:
        """A context with the script's line for a chat request, in which the line is sent. It may wait for a turn.
        None: the client closed the connection meanwhile, as `is_cut` says."""
        yield self.next_line(request)

    def next_line(self, request: Mapping[str, Any]) -> HttpLine:
        """Take the next line of the script."""
        script = self._script.pop(0) if self._script else self._otherwise
        return script(request) if callable(script) else script

    async def _hang(self, wire: _Wire) -> None:
        """Wait until the client disconnects, which raises a ConnectionError, or the server closes."""
        self.hanging.set()
        while not wire.is_cut():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(LOOK_S)
        raise ConnectionError

    async def _embed(self, wire: _Wire, request: dict[str, Any], headers: Mapping[str, str]) -> bool:
        """Answer a request for vectors; return whether the connection stays open."""
        self.embedding_requests.append(request)
        self.headers.append(headers)
        if self._embed_script:
            return await self._send_line(wire, self._embed_script.pop(0), request)
        texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
        try:
            vectors = await self.embedder.embed(texts)
        except ModelError as error:
            return await wire.send_json(error.status or 503, json.dumps({"error": {"message": str(error)}}))
        return await wire.send_json(200, json.dumps(embeddings_response(vectors, request)))

    async def _send_line(self, wire: _Wire, line: HttpLine, request: Mapping[str, Any]) -> bool:
        """Send one line of the script; return whether the connection stays open."""
        match line:
            case Later(delay_s, inner):
                await asyncio.sleep(delay_s)
                return await self._send_line(wire, inner, request)
            case AfterChunks(chunks, pause_s, inner, are_sent):
                for chunk in chunks:
                    await asyncio.sleep(pause_s)
                    if wire.is_cut():
                        return False
                    if are_sent and request.get("stream"):
                        await wire.stream([_event(chunk)], end="open")
                return await self._send_line(wire, inner, request)
            case Unanswered():
                return False
            case Hanging(None):
                await self._hang(wire)
            case Status(status, body, headers):
                return await wire.send_json(status, body if isinstance(body, str) else json.dumps(body), headers)
            case RawBody(data, content_type):
                await wire.head(200, {"content-type": content_type, "content-length": str(len(data))})
                await wire.send(data)
                return True
            case ChunkList(chunks):
                return await wire.stream([_event(chunk) for chunk in chunks])
        assert isinstance(line, ModelReply | Refusal | Hanging | CutOff | Malformed)
        reply = line if isinstance(line, ModelReply | Refusal) else line.line
        assert reply is not None
        if request.get("stream"):
            return await self._stream(wire, line, reply, request)
        return await self._send_whole(wire, line, reply)

    async def _stream(
        self, wire: _Wire, line: _Answer, reply: ModelReply | Refusal, request: Mapping[str, Any]
    ) -> bool:
        """Send `reply` in chunks, as `line` says; return whether the connection stays open."""
        wants_usage = (request.get("stream_options") or {}).get("include_usage")
        events = [_event(chunk) for chunk in completion_chunks(reply, len(self.requests), usage=bool(wants_usage))]
        match line:
            case CutOff(after=after, clean=clean):
                return await wire.stream(events[:after], end="clean" if clean else "cut")
            case Hanging(after=after):
                await wire.stream(events[:after], end="open")
                await self._hang(wire)
            case Malformed(at=at, text=text):
                events[at] = f"data: {text}\n\n".encode()
        return await wire.stream([*events, _event("[DONE]")])

    async def _send_whole(self, wire: _Wire, line: _Answer, reply: ModelReply | Refusal) -> bool:
        """Send `reply` in one piece, as `line` says; return whether the connection stays open."""
        text = json.dumps(completion(reply, len(self.requests)), ensure_ascii=False)
        match line:
            case Malformed(text=text):
                return await wire.send_json(200, text)
            case CutOff(after=after) | Hanging(after=after):
                data = text.encode()
                await wire.head(200, {"content-type": "application/json", "content-length": str(len(data))})
                await wire.send(data[: len(data) * min(after, JSON_PIECES - 1) // JSON_PIECES])
                if isinstance(line, Hanging):
                    await self._hang(wire)
                return False
        return await wire.send_json(200, text)


class _Wire:
    """One connection, with the part of HTTP/1.1 that this server needs."""

    def __init__(self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        self._writer, self._reader = writer, reader
        self._in_stream = False

    def is_cut(self) -> bool:
        """Return whether the client has closed the connection."""
        return self._reader.at_eof() or self._reader.exception() is not None  # with something unread, it is a reset

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status line and the headers."""
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", *(f"{k}: {v}" for k, v in headers.items())]
        await self.send("\r\n".join((*lines, "", "")).encode("latin-1"))

    async def send_json(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> bool:
        """Send a whole answer with JSON in `text`; return True: the connection stays open."""
        data = text.encode("utf-8", "surrogatepass")
        content = {"content-type": "application/json", "content-length": str(len(data))}
        await self.head(status, content | dict(headers or {}))
        await self.send(data)
        return True

    async def stream(self, events: Sequence[bytes], *, end: str = "clean") -> bool:
        """Send events of a stream, which begins with the first call; return whether the connection stays open. `end`:
        `clean` ends the stream; `open` goes on; `cut` makes the caller close the connection."""
        if not self._in_stream:
            await self.head(200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"})
        self._in_stream = True
        for event in events:
            await self.send(b"%x\r\n%b\r\n" % (len(event), event))
        if end == "clean":
            await self.send(b"0\r\n\r\n")
        return end == "clean"


def completion_chunks(reply: ModelReply | Refusal, number: int, *, usage: bool) -> list[dict[str, Any]]:
    """Return the chunks of the answer `number`: text in words, arguments in halves, the finish reason, the usage."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if isinstance(reply, Refusal):
        deltas += [{"refusal": piece} for piece in split_words(reply.text)]
        return [_chunk(number, delta) for delta in deltas] + [_chunk(number, {}, finish="stop")]
    position = 0
    for part in reply.parts:
        match part:
            case Text(text=text):
                deltas += [{"content": piece} for piece in split_words(text)]
            case Reasoning(text=text):
                deltas += [{"reasoning_content": piece} for piece in split_words(text)]
            case ToolCall():
                half = len(part.arguments) // 2
                call = _call(part, number, position) | {"index": position}
                deltas.append({"tool_calls": [call | {"function": {"name": part.name, "arguments": ""}}]})
                deltas += [
                    {"tool_calls": [{"index": position, "function": {"arguments": piece}}]}
                    for piece in (part.arguments[:half], part.arguments[half:])
                    if piece
                ]
                position += 1
    chunks = [_chunk(number, delta) for delta in deltas] + [_chunk(number, {}, finish=_finish(reply))]
    if usage:
        chunks.append(_chunk(number, None) | {"usage": _usage(reply)})
    return chunks


def completion(reply: ModelReply | Refusal, number: int) -> dict[str, Any]:
    """Return the body of an answer that is not streamed, the `number`-th of the server."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(reply, Refusal):
        message["refusal"] = reply.text
        return _shape(number, "chat.completion", [{"index": 0, "message": message, "finish_reason": "stop"}])
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    text = "".join(part.text for part in reply.parts if isinstance(part, Text))
    thought = "".join(part.text for part in reply.parts if isinstance(part, Reasoning))
    message["content"] = text or None
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [_call(call, number, position) for position, call in enumerate(calls)]
    shape = _shape(number, "chat.completion", [{"index": 0, "message": message, "finish_reason": _finish(reply)}])
    return shape | {"usage": _usage(reply)}


def embeddings_response(vectors: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of an answer with vectors, in the shapes of OpenAI and Ollama; in base64 if the request asks."""
    base64 = request.get("encoding_format") == "base64"
    rows = [b64encode(row.tobytes()).decode() if base64 else row.tolist() for row in vectors]
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    return {"object": "list", "model": request.get("model"), "data": data, "embeddings": vectors.tolist()}


def _chunk(number: int, delta: Mapping[str, Any] | None, *, finish: str | None = None) -> dict[str, Any]:
    """Return a chunk of the answer `number` with a delta in OpenAI's shape; None: without choices."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return _shape(number, "chat.completion.chunk", choices)


def _shape(number: int, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a chunk or a whole answer, by its `kind`, in OpenAI's shape."""
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 0, "model": "test", "choices": choices}


def _call(call: ToolCall, number: int, position: int) -> dict[str, Any]:
    """Return a tool call in OpenAI's shape; one without an id gets one from the numbers of the answer and the call."""
    return {
        "id": call.call_id or f"call_{number}_{position}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _finish(reply: ModelReply) -> str:
    """Return OpenAI's finish reason of a reply."""
    if reply.stop_reason == "max_tokens_exceeded":
        return "length"
    return "tool_calls" if any(isinstance(part, ToolCall) for part in reply.parts) else "stop"


def _usage(reply: ModelReply) -> dict[str, Any]:
    """Return the token counts of a reply in OpenAI's shape."""
    usage = reply.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _event(chunk: Mapping[str, Any] | str) -> bytes:
    """Return a chunk as a server-sent event."""
    text = chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode("utf-8", "surrogatepass")


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, Mapping[str, str], bytes] | None:
    """Return (request line, headers by lower-case name, body) of the next request; None: the connection has ended."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *rows = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (row.partition(":") for row in rows) if name}
    return line, headers, await reader.readexactly(int(headers.get("content-length", "0")))
