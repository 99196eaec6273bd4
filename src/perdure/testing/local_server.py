"""A server of local models, with their ways: a window, one slot, slow prompts, a template with or without tools."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from perdure.core.messages import Part, ToolCall, text_of
from perdure.core.models import ModelReply
from perdure.core.runs import Usage
from perdure.testing.http_model import AfterChunks, HttpLine, HttpModel, Script, Status

CHARS_PER_TOKEN = 4
READ_PIECES = 4
"""The pieces in which a prompt is read, each followed by a report if the request asks for them."""


_OWNERS = {"llamacpp": "llamacpp", "vllm": "vllm", "lmstudio": "organization_owner", "ollama": "library"}


@dataclass(slots=True)
class ServedRequest:
    """One chat request; `waited_behind`: how many were in line before it; `is_done`: fully answered."""

    request: Mapping[str, Any]
    prompt_tokens: int
    cached_tokens: int
    waited_behind: int
    is_done: bool = False


class LocalServer(HttpModel):
    """`async with LocalServer(*script) as server`: an `HttpModel` that behaves like a server on a laptop.

    `served` holds what became of each chat request. A prompt that begins like the slot's last one is read from there.

    Args:
        kind: the program whose listings and error texts it has.
        window_tokens: a longer prompt is refused in that program's own words; Ollama silently cuts it.
        tools: whether its template shows tools to the model; "refused": a request with tools is refused.
        slots: the number of requests it answers at once; others wait.
        read_tokens_s: how many tokens of a prompt it reads in a second; None: no pause.
        loading: the number of chat requests that it answers with `503 Loading model` at first.
        parameters: the number of parameters of its model, as its listing says.
        has_listing: whether its listing says more of its models than their names.
        count_tokens: estimates the tokens of a text; by default a quarter of its characters.
    """

    def __init__(
        self,
        *script: Script,
        otherwise: Script | None = None,
        kind: Literal["llamacpp", "vllm", "lmstudio", "ollama"] = "llamacpp",
        window_tokens: int = 4_096,
        tools: Literal["shown", "unseen", "refused"] = "shown",
        slots: int = 1,
        read_tokens_s: float | None = None,
        loading: int = 0,
        parameters: int = 1_500_000_000,
        has_listing: bool = True,
        models: Sequence[str] = ("local",),
        count_tokens: Callable[[str], int] = lambda text: -(-len(text) // CHARS_PER_TOKEN),
        port: int = 0,
    ) -> None:
        super().__init__(*script, otherwise=otherwise, models=models, port=port)
        self.kind, self.window_tokens, self.tools, self.loading = kind, window_tokens, tools, loading
        self.read_tokens_s, self.parameters, self.has_listing = read_tokens_s, parameters, has_listing
        self._count, self._slots, self._in_slot = count_tokens, asyncio.Semaphore(slots), ""
        self._in_line = 0
        self.served: list[ServedRequest] = []

    def find_listing(self, method: str, path: str, body: bytes) -> Any:
        """Return the body of the server's listing at a path, by its kind; None: it has none at this path."""
        path = urllib.parse.urlsplit(path).path
        if not self.has_listing and path != "/v1/models":
            return None
        match self.kind, path:
            case _, "/v1/models":
                return {"object": "list", "data": [self._row(name) for name in self._models]}
            case "llamacpp", "/props":
                settings = {"n_ctx": self.window_tokens, "params": {}}
                shown = "{% if tools %}{{ tools }}{% endif %}" if self.tools == "shown" else "{{ messages }}"
                return {"default_generation_settings": settings, "total_slots": 1, "chat_template": shown}
            case "lmstudio", "/api/v0/models":
                state = {"type": "llm", "state": "loaded", "max_context_length": 131_072}
                state |= {"loaded_context_length": self.window_tokens}
                return {"object": "list", "data": [{"id": name, **state} for name in self._models]}
            case "ollama", "/api/ps":
                return {"models": [self._loaded(name) for name in self._models]}
            case "ollama", "/api/show":
                able = ["completion", "tools"] if self.tools == "shown" else ["completion"]
                return self._loaded(json.loads(body)["model"]) | {
                    "capabilities": able,
                    "model_info": {
                        "general.architecture": "qwen2",
                        "general.parameter_count": self.parameters,
                        "qwen2.context_length": 32_768,
                    },
                }
        return None

    def _row(self, name: str) -> dict[str, Any]:
        """Return the entry of a model in `/v1/models`, the list that every kind of server has."""
        row: dict[str, Any] = {"id": name, "object": "model", "owned_by": _OWNERS[self.kind]}
        if not self.has_listing:
            return row | {"owned_by": "me"}
        match self.kind:
            case "llamacpp":
                meta = {"n_ctx": self.window_tokens, "n_ctx_train": 131_072, "n_params": self.parameters}
                return row | {"meta": meta}
            case "vllm":
                return row | {"max_model_len": self.window_tokens}
        return row

    def _loaded(self, name: str) -> dict[str, Any]:
        """Return the description of a model in Ollama's shape."""
        size = f"{self.parameters / 1e9:.1f}B" if self.parameters >= 1e9 else f"{self.parameters / 1e6:.0f}M"
        return {
            "name": name,
            "model": name,
            "context_length": self.window_tokens,
            "details": {"parameter_size": size, "family": "qwen2"},
        }

    @contextlib.asynccontextmanager
    async def turn(self, request: Mapping[str, Any], is_cut: Callable[[], bool]) -> AsyncIterator[HttpLine | None]:
        """A context with the line for a request, once a slot is free, after pauses for its prompt; see `HttpModel`."""
        if self.loading > 0:
            self.loading -= 1
            yield _error(503, "Loading model", "unavailable_error")
            return
        prompt = self.prompt(request)
        tokens = self._count(prompt)
        if refusal := self._refusal(request, tokens):
            yield refusal
            return
        row = ServedRequest(request, tokens, 0, waited_behind=self._in_line)
        self.served.append(row)
        self._in_line += 1
        try:
            async with self._slots:
                if is_cut():
                    yield None
                    return
                same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(self._in_slot, prompt, strict=False))
                row.cached_tokens = self._count(self._in_slot[: sum(1 for _ in same)])
                self._in_slot = prompt
                yield self._read(request, row, self._with_usage(self.next_line(request), row))
                row.is_done = not is_cut()
        finally:
            self._in_line -= 1

    def prompt(self, request: Mapping[str, Any]) -> str:
        """Return the prompt that the server's template makes of a request."""
        tools = json.dumps(request["tools"]) if request.get("tools") and self.tools == "shown" else ""
        return tools + "".join(f"<{one['role']}>{_text(one)}\n" for one in request.get("messages", ()))

    def _refusal(self, request: Mapping[str, Any], tokens: int) -> Status | None:
        """Return the answer to a request with tools or too many `tokens` that the server refuses; None: it takes it."""
        if request.get("tools") and self.tools == "refused":
            if self.kind == "ollama":
                return _error(400, f"{self._models[0]} does not support tools", "api_error")
            return _error(500, "tools param requires --jinja flag", "server_error")
        window = self.window_tokens
        match self.kind:
            case "llamacpp" if tokens >= window:
                text = (
                    f"request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
                )
                return _error(400, text, "exceed_context_size_error", n_prompt_tokens=tokens, n_ctx=window)
            case "vllm" if tokens + (answer := request.get("max_tokens") or 0) > window:
                text = (
                    f"This model's maximum context length is {window} tokens. However, you requested"
                    f" {tokens + answer} tokens ({tokens} in the messages, {answer} in the completion)."
                    " Please reduce the length of the messages or completion."
                )
                return _error(400, text, "BadRequestError")
            case "lmstudio" if tokens >= window:
                text = "The number of tokens to keep from the initial prompt is greater than the context length."
                return _error(400, text, "invalid_request_error")
        return None

    def _with_usage(self, line: HttpLine, row: ServedRequest) -> HttpLine:
        """Return the line, if it is a reply, with the tokens of the prompt in `row` and of the answer."""
        if not isinstance(line, ModelReply):
            return line
        answer = self._count("".join(map(_written_text, line.parts)))
        usage = Usage(input_tokens=row.prompt_tokens, output_tokens=answer, cached_input_tokens=row.cached_tokens)
        return replace(line, usage=usage)

    def _read(self, request: Mapping[str, Any], row: ServedRequest, line: HttpLine) -> HttpLine:
        """Return the line after pauses for its prompt, with reports if the request asks; an error comes at once."""
        new = row.prompt_tokens - row.cached_tokens
        pause_s = new / self.read_tokens_s / READ_PIECES if self.read_tokens_s else 0.0
        reports = self.kind == "llamacpp" and request.get("return_progress") and request.get("stream")
        if isinstance(line, Status) or (not reports and not pause_s):
            return line
        pieces = range(READ_PIECES + 1) if reports else range(READ_PIECES)
        chunks = [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}]}
            | ({"prompt_progress": _progress(row, piece, pause_s)} if reports else {})
            for piece in pieces
        ]
        return AfterChunks(chunks, pause_s, line, are_sent=bool(reports))


def _progress(row: ServedRequest, piece: int, pause_s: float) -> dict[str, int]:
    """Return llama.cpp's report after the `piece`-th of the `READ_PIECES` pieces of a prompt."""
    new = row.prompt_tokens - row.cached_tokens
    return {
        "total": row.prompt_tokens,
        "cache": row.cached_tokens,
        "processed": row.cached_tokens + new * piece // READ_PIECES,
        "time_ms": round(1_000 * pause_s * piece),
    }


def _error(status: int, text: str, kind: str, **facts: int) -> Status:
    """Return an error in the shape that all kinds of servers share."""
    return Status(status, {"error": {"code": status, "message": text, "type": kind, **facts}})


def _written_text(part: Part) -> str:
    """Return the text that a model writes for a part of its answer."""
    return part.name + part.arguments if isinstance(part, ToolCall) else text_of((part,)) or str(part)


def _text(message: Mapping[str, Any]) -> str:
    """Return the text of a message of a request, with its tool calls."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(part.get("text", "") for part in content)
    return content + (json.dumps(message["tool_calls"]) if message.get("tool_calls") else "")
