"""Writing an agent file: an agent with its blocks, tools, folders and messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Any

from perdure.core.messages import Image, Message, Reasoning, Text, ToolCall, ToolResult
from perdure.domain.agents.units import AgentChanges
from perdure.domain.conversations.copy_values import AgentCopy
from perdure.features.agent_files.messages import unpack_text
from perdure.features.agent_files.reading import build_own_metadata
from perdure.features.files.values import Folder
from perdure.server.wire.messages import image_shape

AGENT_COLUMNS = [name for name in AgentChanges.__annotations__ if name not in ("follows_default", "settings")]
"""Fields of the agent itself that it has in a file and in answers; `AGENT_FIELDS` has its settings too."""
AGENT_FIELDS = (
    *(*AGENT_COLUMNS, "agent_type", "tool_rules", "llm_config", "embedding_config", "embedding", "model_settings"),
    *("compaction_settings", "response_format", "message_buffer_autoclear", "enable_sleeptime", "max_files_open"),
    *("per_file_view_window_char_limit", "auto_recall", "auto_capture", "facts", "guards", "summaries", "tool_output"),
    *("context_engine", "limits", "untrusted_writes", "bypass_session_patterns"),
)
_STAMPS = ("created_by_id", "last_updated_by_id")


def write_agent_file(
    agent: Mapping[str, Any],
    conversations: Sequence[Sequence[Message]],
    folders: Sequence[tuple[Folder, Mapping[str, str]]],
    *,
    shown: frozenset[str],
    copy: AgentCopy,
    at: datetime,
) -> dict[str, Any]:
    """Build the document of an agent file with one agent.

    Args:
        agent: the agent as answers of the API show it.
        conversations: the messages of each, in the order of `copy.conversations`; what models never see is left out.
        folders: each with the texts of its files by their names.
        shown, copy: the ids of messages in the context window; what else the agent has, which only Perdure reads.
    """
    blocks = [
        {key: value for key, value in block.items() if key not in _STAMPS} | {"id": f"block-{number}"}
        for number, block in enumerate(agent["blocks"])
    ]
    tools = [tool | {"id": f"tool-{n}", "name": tool["json_schema"]["name"]} for n, tool in enumerate(agent["tools"])]
    sources: list[dict[str, Any]] = [
        {
            "id": f"source-{number}",
            "name": folder.name,
            "description": folder.description,
            "instructions": folder.instructions,
            "metadata": dict(folder.metadata) or None,
        }
        for number, (folder, _) in enumerate(folders)
    ]
    files = [
        {"source_id": f"source-{number}", "file_name": name, "content": text}
        for number, (_, texts) in enumerate(folders)
        for name, text in texts.items()
    ]
    secrets = {secret["key"]: "" for secret in agent["secrets"]}
    settings = dict(agent["model_settings"])
    if agent["llm_config"].get("reasoning_effort") is None:
        settings.pop("reasoning", None)  # answers have a value where none is set
    messages, *others = ([one for one in line if one.kind == "message"] for line in conversations)
    system: dict[str, Any] = {"type": "message", "id": "message-0", "role": "system", "agent_id": "agent-0"}
    system |= {"content": [{"type": "text", "text": agent["system"]}], "created_at": agent["created_at"]}
    lines, in_context = ([system], ["message-0"]) if messages else ([], [])
    for message in messages:
        if message.id in shown:
            in_context.append(f"message-{len(lines)}")
        lines.append(_message_shape(message, len(lines)))
    first, *rest = copy.conversations
    own = [
        replace(one, messages=[*map(_message_shape, line, count(1))]) for one, line in zip(rest, others, strict=True)
    ]
    return {
        "agents": [
            {
                **{name: agent[name] for name in AGENT_FIELDS if name in agent},
                "id": "agent-0",
                "model_settings": settings,
                "context_window_limit": agent["llm_config"]["context_window"],
                "include_base_tools": False,
                "include_multi_agent_tools": False,
                "block_ids": [block["id"] for block in blocks],
                "tool_ids": [tool["id"] for tool in tools],
                "secrets": secrets,
                "tool_exec_environment_variables": secrets,
                "messages": lines,
                "in_context_message_ids": in_context,
                "source_ids": [source["id"] for source in sources],
                **{name: [] for name in ("memory_blocks", "tools", "files_agents", "group_ids")},
            }
        ],
        **{name: [] for name in ("groups", "mcp_servers", "skills")},
        "sources": sources,
        "files": [{**file, "id": f"file-{number}"} for number, file in enumerate(files)],
        "blocks": blocks,
        "tools": tools,
        "metadata": build_own_metadata(replace(copy, conversations=[first, *own])),
        "created_at": at.isoformat(),
    }


def _message_shape(message: Message, number: int) -> dict[str, Any]:
    """A message as an agent file has it; `number` is its place in the conversation, of which its id is made."""
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Reasoning):
            content.append({"type": "reasoning", "reasoning": part.text, "is_native": True})
        elif isinstance(part, Image):
            content.append(image_shape(replace(part, url=None)))  # with its bytes
    if message.role == "user":
        content = [_pack_if_ambiguous(one, message) for one in content]
    calls = [
        {"id": part.call_id, "type": "function", "function": {"name": part.name, "arguments": part.arguments}}
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    results = [
        {"tool_call_id": one.call_id, "status": one.status, "func_response": pack_result(one, message.occurred_at)}
        | {"stdout": [*one.stdout], "stderr": [*one.stderr]}
        for one in message.results
    ]
    return {
        "type": "message",
        "id": f"message-{number}",
        "role": message.role,
        "content": [
            *content,
            *({"type": "text", "text": one["func_response"]} for one in results[:1]),
            *(image_shape(replace(image, url=None)) for result in message.results for image in result.images),
        ],
        "name": message.name,
        "otid": message.otid,
        "sender_id": message.sender_id,
        "agent_id": "agent-0",
        "tool_calls": calls or None,
        "tool_call_id": results[0]["tool_call_id"] if results else None,
        "tool_returns": results,
        "created_at": message.occurred_at.isoformat(),
    }


def pack_result(result: ToolResult, at: datetime) -> str:
    """Return the result of a tool as Letta's server stores it: JSON with its status, text, and the time `at`."""
    status = "OK" if result.status == "success" else "Failed"
    return json.dumps({"status": status, "message": result.text, "time": f"{at:%Y-%m-%d %I:%M:%S %p UTC%z}"})


def _pack_if_ambiguous(content: dict[str, Any], message: Message) -> dict[str, Any]:
    """Pack a part of a user's message into JSON if its text looks packed: whoever reads the file would unpack it."""
    text = content.get("text", "")
    if unpack_text(text) == text:
        return content
    return {**content, "text": json.dumps({"type": "user_message", "message": text, "time": f"{message.occurred_at}"})}
