"""A log, and a model that speaks to a double of its provider."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Message, MessageKind, Part, Role, Text, ToolCall, ToolResult
from perdure.core.models import ModelDelta, ModelOptions, ModelReply, ModelRequest
from perdure.providers.pydantic_ai.model import DirectModel
from tests.support.http_payloads import Payload, PayloadServer

PAYLOADS = Path(__file__).parents[1] / "payloads"
KEY = "sk-ant-api03-Zq8_not-to-be-seen"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MODELS = {"anthropic": "claude-haiku-4-5", "google": "gemini-2.5-flash", "openai-responses": "gpt-5"}

ENGINE = '{"type": "memory_delta", "label": "human", "value": "Ada"}'
TAIL = '{"type": "context_status", "date": "2026-03-01"}'


def tool(name: str) -> Mapping[str, Any]:
    return {
        "name": name,
        "description": f"Do {name}.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }


TOOLS = (tool("get_weather"), tool("list_cities"), tool("send_message"))


def log(*entries: tuple[Role, tuple[Part, ...]] | tuple[Role, tuple[Part, ...], MessageKind]) -> tuple[Message, ...]:
    return tuple(
        Message(
            id=MessageId(f"message-{seq}"),
            agent_id=AgentId("agent-1"),
            seq=seq,
            conversation_seq=1,
            role=entry[0],
            parts=entry[1],
            kind=entry[2] if len(entry) == 3 else "message",
            created_at=NOW,
            occurred_at=NOW,
        )
        for seq, entry in enumerate(entries)
    )


def two_turns(first: tuple[Part, ...] = ()) -> tuple[Message, ...]:
    """A turn with two calls and their results; then the engine, a user, a call that is not JSON, and its result."""
    return log(
        ("user", (Text("Weather?"),)),
        (
            "assistant",
            (*first, ToolCall("call_a", "get_weather", '{"city":"Oslo"}'), ToolCall("call_b", "list_cities", "")),
        ),
        ("tool", (ToolResult("call_a", "get_weather", "sunny"),)),
        ("tool", (ToolResult("call_b", "list_cities", "", "error"),)),
        ("assistant", (Text("It is sunny."),)),
        ("system", (Text(ENGINE),), "memory_delta"),
        ("user", (Text("And now?"),)),
        ("assistant", (ToolCall("call_a", "get_weather", '{"city": Os'),)),
        ("tool", (ToolResult("call_a", "get_weather", "arguments were not usable", "error"),)),
    )


def asking(provider: str, messages: tuple[Message, ...] | None = None, **options: Any) -> ModelRequest:
    return ModelRequest(
        model=f"{provider}/{MODELS.get(provider, 'm')}",
        system="You remember.",
        messages=two_turns() if messages is None else messages,
        tools=TOOLS,
        tail=TAIL,
        options=ModelOptions(**options),
    )


def sse(name: str, *, cut: bool = False, upto: float = 1) -> Payload:
    """A stored stream; `upto` ends it in the middle."""
    body = (PAYLOADS / f"{name}.sse").read_bytes()
    return Payload.sse(body[: int(len(body) * upto)], cut=cut)


async def answer(
    provider: str, payload: Payload, request: ModelRequest | None = None, *, timeout_s: float = 10, model: str = ""
) -> tuple[list[ModelDelta], ModelReply, Any]:
    """The deltas, the reply, and the body that went out."""
    async with PayloadServer(payload) as server:
        direct = DirectModel(
            provider=provider,
            model=model or MODELS.get(provider, "m"),
            api_key=KEY,
            base_url=server.url,
            timeout_s=timeout_s,
        )
        try:
            pieces = [piece async for piece in direct.respond(request or asking(provider))]
        finally:
            await direct.aclose()
            assert len(server.received) <= 1, "asked more than once"
        deltas = [piece for piece in pieces if isinstance(piece, ModelDelta)]
        reply = pieces[-1]
        assert isinstance(reply, ModelReply)
        assert len(pieces) == len(deltas) + 1
        return deltas, reply, server.received[0].json
