"""The parts of a context window on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.context.request.explain import share_out
from perdure.context.sections.directories import directories_section
from perdure.context.sections.envelopes import text_for_clients
from perdure.context.window.budget import blocks_section
from perdure.core.messages import Image, Message, Part, Reasoning, Text, ToolResult
from perdure.core.ports import TokenCounter
from perdure.engine.run.room import Preview
from perdure.server.wire.base import nulls, stamp

_RULES = ("<tool_usage_rules>", "</tool_usage_rules>")
_METADATA = ("<memory_metadata>", "</memory_metadata>")


def context_shape(preview: Preview, *, counter: TokenCounter) -> dict[str, Any]:
    """The overview with all fields of the wire; the parts' tokens sum to `context_window_size_current`.

    The status, the date and counts at the end of each request, is part of the external summary, which has counts too.
    Perdure has no memory files in its prompt: that part is empty.
    """
    view, certificate = preview.view, preview.certificate
    tokens = {segment.name: segment.tokens for segment in certificate.segments}
    blocks, metadata = blocks_section(view.prefix.system), _section(text_for_clients(view.prefix), *_METADATA)
    directories = directories_section(view.prefix.system)
    rules = _section(view.prefix.system, *_RULES)
    system = _without(view.prefix.system, blocks, rules, directories, metadata)
    outside = min(tokens["system prompt"], counter.count(metadata))
    ruling = min(tokens["system prompt"] - outside, counter.count(rules))
    # The summary, which is shown first, stands in no log.
    messages = [context_message(message) for message in view.messages[bool(view.prefix.summary) :]]
    summary = "\n".join(filter(None, (metadata, preview.status)))
    functions = [{"type": "function", "function": dict(tool)} for tool in view.prefix.tools]
    parts: dict[str, tuple[int, Any]] = {  # tokens and content
        "external_memory_summary": (outside + tokens["status"], summary),
        "system": (tokens["system prompt"] - outside - ruling, system),
        "core_memory": (tokens["memory blocks"], blocks),
        "memory_filesystem": (0, None),
        "tool_usage_rules": (ruling, rules or None),
        "directories": (tokens.get("files", 0), directories or None),
        "summary_memory": (tokens["summary"], view.prefix.summary or None),
        "functions_definitions": (tokens["tools"], functions),
        "messages": (tokens["messages"] + tokens["newest turn"], messages),
    }
    shape: dict[str, Any] = {
        "context_window_size_max": certificate.window_tokens,
        "context_window_size_current": certificate.tokens,
        "num_messages": len(messages),
        "num_archival_memory": preview.counts.passages,
        "num_recall_memory": preview.counts.messages,
    }
    sizes = share_out([size for size, _ in parts.values()], certificate.tokens)
    for (name, (_, content)), size in zip(parts.items(), sizes, strict=True):
        shape |= {f"num_tokens_{name}": size, "system_prompt" if name == "system" else name: content}
    return shape


def context_message(message: Message) -> dict[str, Any]:
    """A row as the model is shown it, in the shape that this route alone has: by role, as Letta stores messages.

    Calls and results are not typed messages of their own here, so that one row is one message.
    """
    return {
        **nulls("created_by_id", "last_updated_by_id"),
        "created_at": stamp(message.created_at),
        "updated_at": None,
        "id": message.id,
        "agent_id": message.agent_id,
        "model": None,
        "role": message.role,
        "content": _content(message.parts),
        "name": message.name or next((result.name for result in message.results), None),
        "tool_calls": [
            {"id": call.call_id, "function": {"name": call.name, "arguments": call.arguments}, "type": "function"}
            for call in message.calls
        ]
        or None,
        "tool_call_id": next((result.call_id for result in message.results), None),
        "step_id": message.step_id,
        "run_id": message.run_id,
        "otid": message.otid,
        "tool_returns": [
            {
                "tool_call_id": result.call_id,
                "status": result.status,
                "stdout": list(result.stdout),
                "stderr": list(result.stderr),
                "func_response": result.text,
            }
            for result in message.results
        ],
        "group_id": None,
        "sender_id": message.sender_id,
        **nulls("batch_item_id", "is_err"),
    }


def _content(parts: Sequence[Part]) -> list[Mapping[str, Any]]:
    """Texts and reasoning; of a tool's message what it returned."""
    shapes: list[Mapping[str, Any]] = []
    for part in parts:
        if isinstance(part, Reasoning):
            shapes.append({"type": "reasoning", "is_native": True, "reasoning": part.text, "signature": part.signature})
        elif isinstance(part, Text | Image | ToolResult):
            shapes.append({"type": "text", "text": part.text})
    return shapes


def _section(text: str, begin: str, end: str) -> str:
    """The last section of this name, tags included; empty if there is none."""
    start = text.rfind(begin)
    stop = text.find(end, start)
    return text[start : stop + len(end)] if 0 <= start < stop else ""


def _without(text: str, *sections: str) -> str:
    """The text without these sections."""
    for section in filter(None, sections):
        before, _, after = text.rpartition(section)
        text = "\n\n".join(filter(None, (before.rstrip(), after.lstrip())))
    return text.strip()
