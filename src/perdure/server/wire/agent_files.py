"""Agent files (`.af`): agents with their blocks, tools and messages in one JSON document, as Letta writes them.

The second layout is read and written: one list of each kind, whose members name each other by ids of the file
(`agent-0`, `block-3`). See https://github.com/letta-ai/agent-file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from perdure.core.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.domain.conversations.importing import NAME_MAX_CHARS, ImportedMessage, parse_time
from perdure.server.errors import AgentFileInvalid

LISTS = ("agents", "groups", "blocks", "files", "sources", "tools", "mcp_servers")
"""The lists of a file. The first one must be there."""

_ENTRIES_MAX = 10_000
"""How many members a list may have; messages are no such list."""
_NO_RESULT = "The agent file holds no result of this call."
_RELATIONS = ("block_ids", "tool_ids", "identity_ids", "folder_ids", "source_ids", "group_ids", "files_agents")
_OWN = ("id", "messages", "in_context_message_ids", "message_ids", "secrets", "tool_exec_environment_variables")
_TEMPLATES = ("project_id", "template_id", "base_template_id", "from_template", "memory_variables", "project")
NOT_OF_A_BODY = frozenset(
    (*_RELATIONS, *_OWN, *_TEMPLATES, "initial_message_sequence", "include_default_source", "tools", "memory_blocks")
)
"""Fields of an agent in a file that are no fields of a new agent's body here, or are given another value."""

_AGENT_FIELDS = (
    *("name", "system", "agent_type", "description", "metadata", "tags", "tool_rules", "llm_config", "model"),
    *("embedding_config", "embedding", "model_settings", "compaction_settings", "response_format", "timezone"),
    *("message_buffer_autoclear", "enable_sleeptime", "max_files_open", "per_file_view_window_char_limit", "hidden"),
    *("auto_recall", "auto_capture", "facts", "guards", "summaries", "tool_output", "context_engine", "limits"),
    "untrusted_writes",
)
"""Fields that an agent has in a file and in answers."""


@dataclass(frozen=True, slots=True)
class AgentFile:
    """The lists of a file, each member by its id."""

    agents: Mapping[str, Mapping[str, Any]]
    blocks: Mapping[str, Mapping[str, Any]]
    tools: Mapping[str, Mapping[str, Any]]
    left_out: Sequence[str] = ()
    """Kinds that the file has and that are not imported."""

    def used(self, kind: str) -> Mapping[str, Sequence[str]]:
        """Id of a block or tool -> the agents that have it."""
        found: dict[str, list[str]] = {}
        for agent_id, agent in self.agents.items():
            for id_ in agent.get(f"{kind}_ids") or ():
                found.setdefault(id_, []).append(agent_id)
        return found


def read_agent_file(content: bytes) -> AgentFile:
    """Parse a file. Raises: AgentFileInvalid: what is wrong with it."""
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AgentFileInvalid(f"the file is no JSON ({error}): give an agent file, such as `agent.af`") from error
    if isinstance(document, str):  # a program wrote the text of an export as JSON once more
        return read_agent_file(document.encode("utf-8", "replace"))
    if not isinstance(document, dict) or not isinstance(document.get("agents"), list):
        hint = "it has no list `agents`"
        if isinstance(document, dict) and "core_memory" in document:
            hint = "it has the first layout, of one agent with `core_memory`"
        raise AgentFileInvalid(f"the file is no agent file of the second layout: {hint}. Export the agent again")
    lists = {name: _members(document, name) for name in LISTS}
    if not lists["agents"]:
        raise AgentFileInvalid("the file has no agents")
    for agent in lists["agents"].values():
        for kind in ("block", "tool"):
            for id_ in agent.get(f"{kind}_ids") or ():
                if id_ not in lists[f"{kind}s"]:
                    raise AgentFileInvalid(
                        f"agent {agent.get('name')!r:.80} has {id_!r:.80}, which the file does not hold"
                    )
    left_out = [name for name in ("groups", "files", "sources", "mcp_servers") if lists[name]]
    return AgentFile(lists["agents"], lists["blocks"], lists["tools"], left_out)


def _refuse_constant(name: str) -> None:
    """Refuse NaN and infinities, which are no JSON."""
    raise ValueError(f"{name} is no number of JSON")


def _members(document: Mapping[str, Any], name: str) -> Mapping[str, Mapping[str, Any]]:
    """The members of a list, by their ids. Raises: AgentFileInvalid."""
    members = document.get(name) or []
    if not isinstance(members, list) or len(members) > _ENTRIES_MAX:
        raise AgentFileInvalid(f"`{name}` of the agent file must be a list of at most {_ENTRIES_MAX:,} objects")
    found: dict[str, Mapping[str, Any]] = {}
    for place, member in enumerate(members):
        if not isinstance(member, dict) or not isinstance(member.get("id", ""), str):
            raise AgentFileInvalid(f"`{name}[{place}]` of the agent file must be an object with an `id`")
        found[member.get("id") or f"{name}-{place}"] = member
    return found


# --- messages of a file


@dataclass(slots=True)
class _Open:
    """An answer whose calls still lack results."""

    answer: Mapping[str, Any]
    parts: list[Part]
    calls: dict[str, str]
    results: dict[str, tuple[ToolResult, Mapping[str, Any]]] = field(default_factory=dict)
    """Id of a call -> its result, and the message that held it."""


def messages_in(agent: Mapping[str, Any]) -> Sequence[ImportedMessage]:
    """The messages of an agent in a file, oldest first, each answer followed by the results of all its calls.

    Compiled system messages and results without a call are left out. Raises: AgentFileInvalid.
    """
    found: list[ImportedMessage] = []
    current: _Open | None = None
    messages = agent.get("messages") or []
    if not isinstance(messages, list):
        raise AgentFileInvalid("`messages` of an agent must be a list")
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise AgentFileInvalid(f"`messages[{place}]` of an agent must be an object")
        if results := _results_of(message):
            if current is not None:
                for id_ in results.keys() & current.calls.keys():
                    current.results[id_] = (_result(id_, current.calls[id_], *results[id_]), message)
            continue
        if current is not None:
            found += _close(current)
            current = None
        parts, calls = _parts_of(message), _calls_of(message)
        if calls:
            current = _Open(message, [*parts, *calls], {call.call_id: call.name for call in calls})
        elif message.get("role") in ("user", "assistant") and parts:
            found.append(_imported(message, message["role"], parts))
        elif message.get("role") == "system" and place and "<memory_blocks>" not in _text(parts) and parts:
            found.append(_imported(message, "system", parts))
    if current is not None:
        found += _close(current)
    return found


def _close(current: _Open) -> Iterable[ImportedMessage]:
    """The answer, and a message for the result of each of its calls, in their order."""
    yield _imported(current.answer, "assistant", current.parts)
    for id_, name in current.calls.items():
        missing = ToolResult(id_, name, _NO_RESULT, "error"), current.answer
        result, message = current.results.get(id_, missing)
        yield _imported({**message, "name": name, "id": f"{message.get('id')}/{id_}"}, "tool", [result])


def _imported(message: Mapping[str, Any], role: Any, parts: Sequence[Part]) -> ImportedMessage:
    name, id_ = message.get("name"), message.get("id")
    return ImportedMessage(
        role=role,
        text=_text(parts),
        parts=tuple(parts),
        occurred_at=_time_of(message),
        name=name[:NAME_MAX_CHARS] if isinstance(name, str) and name else None,
        id=id_ if isinstance(id_, str) and id_ else None,
    )


def _time_of(message: Mapping[str, Any]) -> datetime:
    """When a message was sent; a time without a zone is UTC. Raises: InvalidInput."""
    value = message.get("created_at")
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return parse_time("created_at", value)
        value = found if found.utcoffset() is not None else found.replace(tzinfo=UTC)
    return parse_time("created_at", value)


def _text(parts: Iterable[Part]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _parts_of(message: Mapping[str, Any]) -> list[Part]:
    """What a message says. Images are left out: a file only names them."""
    content = message.get("content")
    contents = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    parts: list[Part] = []
    for one in contents if isinstance(contents, list) else ():
        match one:
            case {"type": "text", "text": str(text)} if text.strip():
                parts.append(Text(_unpacked(text) if message.get("role") == "user" else text))
            case {"type": "reasoning", "reasoning": str(text)} if text.strip():
                parts.append(Reasoning(text))
    return parts


def _unpacked(text: str) -> str:
    """What a person wrote, of a message that older agents packed into JSON."""
    packed = _object_in(text)
    if packed.get("type") == "user_message" and isinstance(packed.get("message"), str):
        return str(packed["message"])
    return text


def _object_in(text: str) -> Mapping[str, Any]:
    """The JSON object that a text is; empty if it is none."""
    try:
        value = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _calls_of(message: Mapping[str, Any]) -> list[ToolCall]:
    """The calls of an answer, also of one that waited for approval."""
    calls: list[ToolCall] = []
    for call in message.get("tool_calls") or ():
        match call:
            case {"id": str(id_), "function": {"name": str(name), "arguments": str(arguments)}} if name:
                calls.append(ToolCall(id_, name, arguments))
    return calls


def _results_of(message: Mapping[str, Any]) -> Mapping[str, tuple[str, bool]]:
    """Id of a call -> its result, and whether it succeeded."""
    found: dict[str, tuple[str, bool]] = {}
    for result in [*(message.get("tool_returns") or ()), *(message.get("approvals") or ())]:
        match result:
            case {"tool_call_id": str(id_)}:
                text = result.get("func_response", result.get("tool_return"))
                found[id_] = (text if isinstance(text, str) else "", result.get("status", "success") == "success")
    if not found and message.get("role") == "tool" and isinstance(message.get("tool_call_id"), str):
        found[message["tool_call_id"]] = (_text(_parts_of(message)), True)
    return found


def _result(call_id: str, name: str, packed: str, succeeded: bool) -> ToolResult:
    """A result, whose text Letta packs into JSON with a status and a time."""
    text, value = packed, _object_in(packed)
    if {"status", "message"} <= value.keys() and isinstance(value["message"], str):
        text, succeeded = value["message"], succeeded and value["status"] != "Failed"
    return ToolResult(call_id, name, text, "success" if succeeded else "error")


# --- writing a file


def write_agent_file(
    agent: Mapping[str, Any], messages: Sequence[Message], *, shown: frozenset[str], at: datetime
) -> dict[str, Any]:
    """The file of one agent.

    Args:
        agent: as answers have it.
        messages: of a conversation, oldest first; those that models never see are left out.
        shown: the ids of messages that the model is shown.
    """
    blocks = [
        {**_without(block, "created_by_id", "last_updated_by_id"), "id": f"block-{number}"}
        for number, block in enumerate(agent["blocks"])
    ]
    tools = [{**tool, "id": f"tool-{number}"} for number, tool in enumerate(agent["tools"])]
    secrets = {secret["key"]: "" for secret in agent["secrets"]}
    settings = dict(agent["model_settings"])
    if agent["llm_config"].get("reasoning_effort") is None:
        settings.pop("reasoning", None)  # answers have a value where none is set
    lines = [_system_line(agent)] if messages else []
    in_context = ["message-0"] if messages else []
    for message in messages:
        if message.kind == "message" and message.role != "system":
            if message.id in shown:
                in_context.append(f"message-{len(lines)}")
            lines.append(_line(message, len(lines)))
    return {
        "agents": [
            {
                **{name: agent[name] for name in _AGENT_FIELDS if name in agent},
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
                **{name: [] for name in ("memory_blocks", "tools", "source_ids", "files_agents", "group_ids")},
            }
        ],
        **{name: [] for name in ("groups", "files", "sources", "mcp_servers", "skills")},
        "blocks": blocks,
        "tools": tools,
        "metadata": {},
        "created_at": at.isoformat(),
    }


def _without(members: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name not in names}


def _system_line(agent: Mapping[str, Any]) -> dict[str, Any]:
    """The system message, with which a history begins."""
    content = [{"type": "text", "text": agent["system"]}]
    return {"type": "message", "id": "message-0", "role": "system", "content": content, "agent_id": "agent-0"} | {
        "created_at": agent["created_at"]
    }


def _line(message: Message, number: int) -> dict[str, Any]:
    """A message in a file."""
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Reasoning):
            content.append({"type": "reasoning", "reasoning": part.text, "is_native": True})
    calls = [
        {"id": part.call_id, "type": "function", "function": {"name": part.name, "arguments": part.arguments}}
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    results = [
        {"tool_call_id": one.call_id, "status": one.status, "func_response": one.text, "stdout": [*one.stdout]}
        | {"stderr": [*one.stderr]}
        for one in message.results
    ]
    return {
        "type": "message",
        "id": f"message-{number}",
        "role": message.role,
        "content": content or [{"type": "text", "text": one.text} for one in message.results[:1]],
        "name": message.name,
        "otid": message.otid,
        "sender_id": message.sender_id,
        "agent_id": "agent-0",
        "tool_calls": calls or None,
        "tool_call_id": results[0]["tool_call_id"] if results else None,
        "tool_returns": results,
        "created_at": message.occurred_at.isoformat(),
    }
