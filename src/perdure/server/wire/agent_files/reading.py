"""Reading an agent file (`.af`): agents with their blocks, tools and messages in one JSON document.

The second layout is read and written: one list of each kind, whose members name each other by ids of the file
(`agent-0`, `block-3`). See https://github.com/letta-ai/agent-file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import DataTooLarge
from perdure.core.incoming.json_limits import JsonLimits, check_json
from perdure.server.errors import AgentFileInvalid
from perdure.server.wire.agent_files.messages import objects

_LISTS = ("agents", "groups", "blocks", "files", "sources", "tools", "mcp_servers")
_AGENTS_MAX, _MEMBERS_MAX = 100, 5_000
"""How many agents, and how many other members, a file may have."""

_CONTAINERS_MAX = 1_000_000
"""How many arrays and objects: a message has about six."""

_RELATIONS = ("block_ids", "tool_ids", "identity_ids", "folder_ids", "source_ids", "group_ids", "files_agents")
_OWN = ("id", "messages", "in_context_message_ids", "message_ids", "secrets", "tool_exec_environment_variables")
_TEMPLATES = ("project_id", "template_id", "base_template_id", "from_template", "memory_variables", "project")
_NOT_OF_A_BODY = frozenset(
    (*_RELATIONS, *_OWN, *_TEMPLATES, "initial_message_sequence", "include_default_source", "tools", "memory_blocks")
)
"""Fields of an agent in a file that are no fields of a new agent's body here, or are given another value."""


@dataclass(frozen=True, slots=True)
class FileAgent:
    """An agent of a file.

    Attributes:
        fields: all that the file has of it.
        block_ids, tool_ids: ids of the file, each once.
        rules: its tool rules.
    """

    fields: Mapping[str, Any]
    block_ids: Sequence[str]
    tool_ids: Sequence[str]
    rules: Sequence[Mapping[str, Any]]

    @property
    def body(self) -> dict[str, Any]:
        """The fields that a new agent's body has too."""
        return {
            name: value
            for name, value in self.fields.items()
            if name not in _NOT_OF_A_BODY and name != "tool_rules" and value is not None
        }


@dataclass(frozen=True, slots=True)
class AgentFile:
    """What is read of a file.

    Attributes:
        blocks, tools: by their ids in the file.
        left_out: names of lists that the file has and that are not imported.
    """

    agents: Sequence[FileAgent]
    blocks: Mapping[str, Mapping[str, Any]]
    tools: Mapping[str, Mapping[str, Any]]
    left_out: Sequence[str] = ()

    def rules_of(self, agent: FileAgent, tool_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """The rules of an agent that are about these of its tools."""
        names = [self.tools[id_].get("name") for id_ in tool_ids]
        return [rule for rule in agent.rules if rule.get("tool_name") in names]


def read_agent_file(content: bytes) -> AgentFile:
    """Parse a file. Raises: AgentFileInvalid: what is wrong with it."""
    try:
        check_json(content, JsonLimits(size_bytes=len(content), containers=_CONTAINERS_MAX))
    except DataTooLarge as error:
        raise AgentFileInvalid(f"the file is {error}") from error
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
    lists = {name: _members(document, name) for name in _LISTS}
    if not lists["agents"]:
        raise AgentFileInvalid("the file has no agents")
    agents = [_agent(fields, lists["blocks"], lists["tools"]) for fields in lists["agents"].values()]
    left_out = [name for name in ("groups", "files", "sources", "mcp_servers") if lists[name]]
    return AgentFile(agents, lists["blocks"], lists["tools"], left_out)


def _refuse_constant(name: str) -> None:
    """Refuse NaN and infinities, which are no JSON."""
    raise ValueError(f"{name} is no number of JSON")


def _members(document: Mapping[str, Any], name: str) -> Mapping[str, Mapping[str, Any]]:
    """The members of a list, by their ids. Raises: AgentFileInvalid."""
    members, most = objects(document.get(name), name), _AGENTS_MAX if name == "agents" else _MEMBERS_MAX
    if len(members) > most:
        raise AgentFileInvalid(f"`{name}` has {len(members):,} members: at most {most:,} are imported at once")
    found: dict[str, Mapping[str, Any]] = {}
    for place, member in enumerate(members):
        id_ = member.get("id", f"{name}-{place}")
        if not isinstance(id_, str) or id_ in found:
            raise AgentFileInvalid(f"`{name}[{place}]` needs an `id` of its own, such as `{name}-{place}`")
        found[id_] = member
    return found


def _agent(fields: Mapping[str, Any], blocks: Mapping[str, Any], tools: Mapping[str, Any]) -> FileAgent:
    """An agent, whose ids are all in the file. Raises: AgentFileInvalid."""
    named = {}
    for name, members in (("block_ids", blocks), ("tool_ids", tools)):
        ids = fields.get(name) or []
        if not isinstance(ids, list) or not all(isinstance(id_, str) for id_ in ids):
            raise AgentFileInvalid(f"`{name}` of an agent must be a list of ids")
        missing = [id_ for id_ in ids if id_ not in members]
        if missing:
            raise AgentFileInvalid(f"an agent has {missing[0]!r:.80}, which the file does not hold")
        named[name] = list(dict.fromkeys(ids))
    labels = [str(blocks[id_].get("label")) for id_ in named["block_ids"]]
    if len(set(labels)) < len(labels):
        raise AgentFileInvalid("two blocks of an agent have one label")
    rules = objects(fields.get("tool_rules"), "tool_rules of an agent")
    if not all(isinstance(rule.get("tool_name"), str) for rule in rules):
        raise AgentFileInvalid("each of `tool_rules` of an agent needs a `tool_name`")
    return FileAgent(fields, named["block_ids"], named["tool_ids"], rules)
