"""What fills a context window, as the wire shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.context.request.explain import share_out
from perdure.context.sections.directories import directories_section
from perdure.context.window.budget import blocks_section
from perdure.core.messages import Message, Part, Reasoning, Text
from perdure.core.ports import TokenCounter
from perdure.engine.run.preview import Preview
from perdure.server.wire.base import stamp

_RULES = ("<tool_usage_rules>", "</tool_usage_rules>")
_METADATA = ("<memory_metadata>", "</memory_metadata>")


def context_shape(found: Preview, *, counter: TokenCounter) -> dict[str, Any]:
    """The overview with all fields of the wire; the parts' tokens sum to `context_window_size_current`.

    The date and the counts that end each request (the status) are told with the summary of what is out of view, which
    has counts too. Perdure has no memory files in its prompt: that part is empty.
    """
    view, certificate = found.view, found.certificate
    tokens = {segment.name: segment.tokens for segment in certificate.segments}
    blocks, metadata = blocks_section(view.prefix.system), _section(view.prefix.system, *_METADATA)
    directories = directories_section(view.prefix.system)
    rules = _section(view.prefix.system, *_RULES)
    system = _without(view.prefix.system, blocks, rules, directories, metadata)
    outside = min(tokens["system prompt"], counter.count(metadata))
    ruling = min(tokens["system prompt"] - outside, counter.count(rules))
    sizes = {
        "system": tokens["system prompt"] - outside - ruling,
        "tool_usage_rules": ruling,
        "core_memory": tokens["memory blocks"],
        "directories": tokens.get("files", 0),
        "external_memory_summary": outside + tokens["status"],
        "summary_memory": tokens["summary"],
        "functions_definitions": tokens["tools"],
        "messages": tokens["messages"] + tokens["newest turn"],
    }
    sizes = dict(zip(sizes, share_out(list(sizes.values()), certificate.tokens), strict=True))
    # The summary, which is shown first, stands in no log.
    messages = [context_message(message) for message in view.messages[bool(view.prefix.summary) :]]
    return {
        "context_window_size_max": certificate.window_tokens,
        "context_window_size_current": certificate.tokens,
        "num_messages": len(messages),
        "num_archival_memory": found.counts.passages,
        "num_recall_memory": found.counts.messages,
        "num_tokens_external_memory_summary": sizes["external_memory_summary"],
        "external_memory_summary": "\n".join(filter(None, (metadata, found.status))),
        "num_tokens_system": sizes["system"],
        "system_prompt": system,
        "num_tokens_core_memory": sizes["core_memory"],
        "core_memory": blocks,
        "num_tokens_memory_filesystem": 0,
        "memory_filesystem": None,
        "num_tokens_tool_usage_rules": sizes["tool_usage_rules"],
        "tool_usage_rules": rules or None,
        "num_tokens_directories": sizes["directories"],
        "directories": directories or None,
        "num_tokens_summary_memory": sizes["summary_memory"],
        "summary_memory": view.prefix.summary or None,
        "num_tokens_functions_definitions": sizes["functions_definitions"],
        "functions_definitions": [{"type": "function", "function": dict(tool)} for tool in view.prefix.tools],
        "num_tokens_messages": sizes["messages"],
        "messages": messages,
    }


def context_message(message: Message) -> dict[str, Any]:
    """A row as the model is shown it, in the shape that this route alone has: by role, as Letta stores messages.

    Calls and results are not typed messages of their own here, so that one row is one message.
    """
    return {
        "created_by_id": None,
        "last_updated_by_id": None,
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
        "batch_item_id": None,
        "is_err": None,
    }


def _content(parts: Sequence[Part]) -> list[Mapping[str, Any]]:
    """Texts and reasoning; of a tool's message what it returned."""
    shapes: list[Mapping[str, Any]] = []
    for part in parts:
        if isinstance(part, Reasoning):
            shapes.append({"type": "reasoning", "is_native": True, "reasoning": part.text, "signature": part.signature})
        elif isinstance(part, Text) or part.type == "tool_result":
            shapes.append({"type": "text", "text": part.text})
    return shapes


def _section(text: str, begin: str, end: str) -> str:
    """The last section of this name, tags included; empty if there is none."""
    start = text.rfind(begin)
    stop = text.find(end, start)
    return text[start : stop + len(end)] if 0 <= start < stop else ""


def _without(text: str, *sections: str) -> str:
    for section in filter(None, sections):
        before, _, after = text.rpartition(section)
        text = "\n\n".join(filter(None, (before.rstrip(), after.lstrip())))
    return text.strip()
