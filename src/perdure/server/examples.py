"""Examples in the OpenAPI document: written ones of bodies of requests, and values made from the shapes of answers.

The tests send every example of a body to a server, and hold all examples against their schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from perdure.core.ids import ID_PATTERNS, PREFIXES

Shape = dict[str, Any]

_UUID = "123e4567-e89b-42d3-a456-426614174000"
_IDS = {ID_PATTERNS[kind]: f"{prefix}-{_UUID}" for kind, prefix in PREFIXES.items()}
"""Pattern of an id -> an id."""

_SOURCE = (
    "def roll(sides: int) -> int:\n"
    '    """Roll a die.\n\n    Args:\n        sides: How many sides it has.\n    """\n'
    "    import random\n\n    return random.randint(1, sides)\n"
)
_MCP = {"mcp_server_type": "streamable_http", "server_url": "http://127.0.0.1:8000/mcp"}
_PROVIDER = {"provider_type": "openai", "api_key": "a key", "base_url": "http://127.0.0.1:8000/v1"}

BODIES: Mapping[str, Any] = {
    "AgentIn": {
        "name": "Ann",
        "model": "openai/gpt-4o-mini",
        "memory_blocks": [
            {"label": "human", "value": "Name: Bob. Likes tea."},
            {"label": "persona", "value": "I am Ann, a helpful assistant."},
        ],
        "tools": ["archival_memory_insert", "archival_memory_search"],
        "tags": ["support"],
    },
    "AgentChangesIn": {"name": "Anne", "tags": ["support", "tea"]},
    "SendRequest": {"messages": [{"role": "user", "content": "What do I like to drink?"}]},
    "BatchIn": {"requests": [{"agent_id": f"agent-{_UUID}", "input": "What do I like to drink?"}]},
    "CompletionRequest": {
        "model": f"agent-{_UUID}",
        "messages": [{"role": "user", "content": "What do I like to drink?"}],
    },
    "ImportRequest": {
        "messages": [{"role": "user", "text": "I planted a quince.", "occurred_at": "2023-05-07T09:00:00+02:00"}]
    },
    "NewWireBlock": {"label": "human", "value": "Name: Bob. Likes tea.", "description": "Who I talk to."},
    "BlockChanges": {"value": "Name: Bob. Likes coffee."},
    "ArchiveIn": {"name": "moons", "description": "What is known about moons."},
    "ArchiveChangesIn": {"description": "What is known about the moons of Jupiter."},
    "PassageIn": {"text": "Io has volcanoes.", "tags": ["moon"]},
    "PassagesIn": {"passages": [{"text": "Io has volcanoes."}, {"text": "Europa is covered with ice."}]},
    "PassageChangesIn": {"text": "Io has more than 400 volcanoes."},
    "FactIn": {"agent_id": f"agent-{_UUID}", "text": "Bob likes tea.", "subject": "Bob", "relation": "LIKES"},
    "FactChangesIn": {"text": "Bob likes green tea.", "valid_at": "2026-05-03T00:00:00Z"},
    "TidyIn": {"agent_id": f"agent-{_UUID}", "dry_run": True},
    "TidyUndoIn": {"agent_id": f"agent-{_UUID}"},
    "RuleIn": {"agent_id": f"agent-{_UUID}", "text": "salary"},
    "FactSettingsIn": {"agent_id": f"agent-{_UUID}", "paused": False},
    "PassageSearch": {"query": "volcanoes", "limit": 5},
    "DeleteSelected": {"tags": ["moon"], "dry_run": True},
    "MessageSearch": {"query": "tea", "limit": 5},
    "RecallIn": {"query": "What does Bob like to drink?", "agent_id": f"agent-{_UUID}"},
    "AgentRecallIn": {"query": "What does Bob like to drink?"},
    "FolderIn": {"name": "observations", "description": "What was seen of the moons."},
    "FolderChangesIn": {"instructions": "Read them before you answer."},
    "ConversationIn": {"summary": "About moons"},
    "EphemeralConversationIn": {"model": "openai/gpt-4o-mini", "system": "Answer in one sentence."},
    "ConversationChangesIn": {"summary": "About the moons of Jupiter"},
    "ResumeRequest": {"starting_after": 5},
    "ScheduleIn": {
        "messages": [{"role": "system", "content": "Ask Bob how his day was."}],
        "schedule": {"type": "recurring", "cron_expression": "0 18 * * MON-FRI"},
        "timezone": "Europe/Rome",
    },
    "EventIn": {"kind": "login", "data": {"from": "a phone"}},
    "RevertIn": {"source": "web:https://example.com/page", "dry_run": True},
    "RevertWritesIn": {"writes": [f"passage-{_UUID}"], "dry_run": True},
    "FeedbackIn": {"feedback": "positive"},
    "GroupIn": {"agent_ids": [f"agent-{_UUID}"], "description": "Friends who plan a trip."},
    "GroupChangesIn": {"description": "Friends.", "manager_config": {"manager_type": "round_robin", "max_turns": 4}},
    "IdentityIn": {"identifier_key": "ada", "name": "Ada", "identity_type": "user"},
    "IdentityChangesIn": {"name": "Ada Lovelace"},
    "ToolIn": {"source_code": _SOURCE, "tags": ["game"]},
    "ToolChangesIn": {"description": "Roll a die with any number of sides."},
    "ToolRunIn": {"source_code": _SOURCE, "args": {"sides": 6}},
    "ToolSearchIn": {"query": "memory", "limit": 5},
    "GenerateSchemaIn": {"code": _SOURCE},
    "ProviderIn": {"name": "ours", **_PROVIDER},
    "ProviderCheckIn": _PROVIDER,
    "AgentToolRunIn": {"args": {"text": "hello"}},
    "ApprovalChange": {"requires_approval": True},
    "McpServerIn": {"server_name": "moons", "config": _MCP},
    "McpServerChangesIn": {"config": {"auth_header": "Authorization", **_MCP}},
    "McpToolRunIn": {"args": {"name": "Io"}},
    "NamedServerIn": {"server_name": "moons", "type": "streamable_http", "server_url": _MCP["server_url"]},
}
"""Name of a body's schema -> an example. Of all others the required fields are shown."""

_FIELDS: Mapping[str, Any] = {
    "name": "Ann",
    "label": "human",
    "value": "Name: Bob. Likes tea.",
    "content": "You like tea.",
    "text": "Io has volcanoes.",
    "handle": "openai/gpt-4o-mini",
    "model": "openai/gpt-4o-mini",
    "description": "Who I talk to.",
    "timezone": "UTC",
    "agent_type": "letta_v1_agent",
}
"""Name of a text field -> its value in examples; other fields have their own name."""

_TIME = "2026-11-20T22:07:44Z"
_DEPTH = 5


_CONNECTING = (
    {"event": "connection_attempt", "server_name": "moons"},
    {"event": "success", "tools": [{"name": "look", "description": "Look at a moon.", "inputSchema": {}}]},
)
_PIECES: tuple[tuple[Shape, str | None], ...] = (
    ({"role": "assistant", "content": ""}, None),
    ({"content": "You like tea."}, None),
    ({}, "stop"),
)
_DONE = "[DONE]"


def add_examples(document: Shape) -> None:
    """Add an example to each body of JSON, and to each answer with content."""
    schemas = document["components"]["schemas"]
    for path, media_type, content, is_request in _contents(document):
        shape = content.get("schema", {})
        name = shape.get("$ref", "").rpartition("/")[2]
        if media_type == "text/event-stream":
            content["example"] = [
                {"data": chunk if chunk == _DONE else json.dumps(chunk)} for chunk in _stream(path, schemas)
            ]
        elif media_type == "application/json":
            content["example"] = BODIES[name] if is_request and name in BODIES else _example(shape, schemas)


def _stream(path: str, schemas: Shape) -> Iterator[Any]:
    """The chunks of a stream; one that was resumed begins behind the chunk that the example of its body names."""
    if path.endswith("/connect"):
        yield from _CONNECTING
        return
    if path.endswith("/completions"):
        head = {
            "id": f"chatcmpl-run-{_UUID}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": f"agent-{_UUID}",
        }
        for delta, reason in _PIECES:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            yield {**head, "created": 1, "choices": [choice]}
    else:
        is_resumed = path.endswith("/stream") and not path.endswith("/messages/stream")
        seq = BODIES["ResumeRequest"]["starting_after"] + 1 if is_resumed else None
        for kind in ("AssistantMessage", "Stop", "RequestUsage"):
            chunk = _example({"$ref": f"#/components/schemas/{kind}"}, schemas)
            yield chunk | {"id": f"message-{_UUID}", "seq_id": seq} if "seq_id" in chunk else chunk
    yield _DONE


def _contents(document: Shape) -> Iterator[tuple[str, str, Shape, bool]]:
    """Path and media type of each body and successful answer, its content, and whether it is a body."""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            bodies = operation.get("requestBody", {}).get("content", {})
            answers = operation["responses"].get("200", {}).get("content", {})
            yield from ((path, media_type, content, True) for media_type, content in bodies.items())
            yield from ((path, media_type, content, False) for media_type, content in answers.items())


def _example(shape: Shape, schemas: Shape, field: str = "", depth: int = 0) -> Any:
    """A value of a shape, with the required fields of objects."""
    if "$ref" in shape:
        shape = schemas[shape["$ref"].rpartition("/")[2]]
    for options in ("anyOf", "oneOf"):
        if options in shape:
            kinds = [kind for kind in shape[options] if kind.get("type") != "null"]
            is_nullable = len(kinds) < len(shape[options])
            return None if is_nullable and depth > 1 else _example(kinds[0], schemas, field, depth)
    if "const" in shape or "enum" in shape:
        return shape.get("const", shape.get("enum", [None])[0])
    match shape.get("type"):
        case "string":
            return _text(shape, field)
        case "integer" | "number":
            return max(1, shape.get("minimum", 1))
        case "boolean":
            return False
        case "array":
            return [] if depth >= _DEPTH else [_example(shape["items"], schemas, field, depth + 1)]
        case "object":
            required, fields = shape.get("required", ()), shape.get("properties", {})
            return {name: _example(fields[name], schemas, name, depth + 1) for name in required}
        case _:
            return None


def _text(shape: Shape, field: str) -> str:
    """A text of a shape."""
    if shape.get("pattern") in _IDS:
        return _IDS[shape["pattern"]]
    if shape.get("format") == "date-time":
        return _TIME
    return str(_FIELDS.get(field, field or "text"))
