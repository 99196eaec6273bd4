"""The first layout of agent files, of one agent with `core_memory`, as one of the second.

Most files in the wild have it. It has the things themselves where the second layout has lists and ids, and other names
for some fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.server.wire.agent_files.messages import objects

_FIELDS = (
    *("name", "system", "agent_type", "description", "tool_rules", "llm_config", "embedding_config", "timezone"),
    *("message_buffer_autoclear", "response_format"),
)
_RULES = {
    "InitToolRule": "run_first",
    "TerminalToolRule": "exit_loop",
    "ContinueToolRule": "continue_loop",
    "ChildToolRule": "constrain_child_tools",
    "ConditionalToolRule": "conditional",
}
"""The types of tool rules as the oldest files name them."""


def is_first_layout(document: Any) -> bool:
    """Whether a file has one agent with its memory in itself."""
    return isinstance(document, dict) and "agents" not in document and isinstance(document.get("core_memory"), list)


def of_first_layout(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same file in the second layout. Raises: AgentFileInvalid."""
    blocks = [
        _numbered("block", place, one) for place, one in enumerate(objects(document["core_memory"], "core_memory"))
    ]
    tools = [_numbered("tool", place, one) for place, one in enumerate(objects(document.get("tools"), "tools"))]
    messages = [
        _message(place, one, document) for place, one in enumerate(objects(document.get("messages"), "messages"))
    ]
    rules = [
        {**rule, "type": _RULES.get(str(rule.get("type")), rule.get("type"))}
        for rule in objects(document.get("tool_rules"), "tool_rules")
    ]
    tags = document.get("tags")
    agent = {
        **{name: document[name] for name in _FIELDS if name in document},
        "id": "agent-0",
        "metadata": document.get("metadata_"),
        "tags": [one.get("tag") if isinstance(one, dict) else one for one in tags] if isinstance(tags, list) else [],
        "tool_rules": rules,
        "block_ids": [one["id"] for one in blocks],
        "tool_ids": [one["id"] for one in tools],
        "messages": messages,
    }
    return {"agents": [agent], "blocks": blocks, "tools": tools}


def _numbered(kind: str, place: int, one: Mapping[str, Any]) -> dict[str, Any]:
    """A block or tool with an id."""
    fields = {
        name: value for name, value in one.items() if name not in ("metadata_", "template_name", "organization_id")
    }
    return {**fields, "id": f"{kind}-{place}", "metadata": one.get("metadata_") or {}}


def _message(place: int, one: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """A message with an id, a time, and its text as content; a result without the id of its call stands in the text."""
    content = one.get("content") if one.get("content") is not None else one.get("text")
    returns = [each for each in objects(one.get("tool_returns"), "tool_returns") if each.get("tool_call_id")]
    times = (one.get("created_at"), one.get("updated_at"), document.get("created_at"))
    return {
        **one,
        "id": f"message-{place}",
        "content": content,
        "tool_returns": returns,
        "created_at": next((time for time in times if isinstance(time, str)), None),
    }
