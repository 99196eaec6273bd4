"""Reading an agent file (`.af`): agents with their blocks, tools, folders and messages in one JSON document.

The second layout is written: one list of each kind, whose members name each other by ids of the file (`agent-0`,
`block-3`). The first one, which most files in the wild have, is read too: of one agent with `core_memory`, it has the
things themselves where the second has lists and ids, and other names for some fields. See
https://github.com/letta-ai/agent-file.

Only Perdure reads `metadata.perdure` of the document, which goes by ids of the file. It has what makes the agent of the
file the same agent: its own settings, facts with their deletions and corrections, passages, schedules, and the values
that its blocks had.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from perdure.core.errors import DataTooLarge
from perdure.core.incoming.json_limits import JsonLimits, check_json
from perdure.domain.conversations.agent_copies import copy_parts
from perdure.domain.conversations.copy_values import AgentCopy
from perdure.features.agent_files.messages import objects
from perdure.server.wire.errors import AgentFileInvalid

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


def convert_first_layout(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of the first layout, whose top is the agent, in the second layout. Raises: AgentFileInvalid."""
    blocks = [
        _numbered("block", place, one) for place, one in enumerate(objects(document["core_memory"], "core_memory"))
    ]
    tools = [_numbered("tool", place, one) for place, one in enumerate(objects(document.get("tools"), "tools"))]
    messages = [
        _message_with_id(place, one, document)
        for place, one in enumerate(objects(document.get("messages"), "messages"))
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
        "tags": [tag.get("tag") if isinstance(tag, dict) else tag for tag in tags] if isinstance(tags, list) else [],
        "tool_rules": rules,
        "block_ids": [block["id"] for block in blocks],
        "tool_ids": [tool["id"] for tool in tools],
        "messages": messages,
    }
    return {"agents": [agent], "blocks": blocks, "tools": tools}


def _numbered(kind: str, place: int, member: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block or tool of the first layout with the fields of the second, and an id such as `block-0`."""
    old = ("metadata_", "template_name", "organization_id")
    fields = {name: value for name, value in member.items() if name not in old}
    return {**fields, "id": f"{kind}-{place}", "metadata": member.get("metadata_") or {}}


def _message_with_id(place: int, message: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """A message of the first layout with an id, a time, and its text as content, which holds results without a call."""
    content = message.get("content") if message.get("content") is not None else message.get("text")
    returns = [one for one in objects(message.get("tool_returns"), "tool_returns") if one.get("tool_call_id")]
    times = (message.get("created_at"), message.get("updated_at"), document.get("created_at"))
    return {
        **message,
        "id": f"message-{place}",
        "content": content,
        "tool_returns": returns,
        "created_at": next((time for time in times if isinstance(time, str)), None),
    }


NAME = "perdure"
VERSION = 1

_COPY = functools.cache(lambda: TypeAdapter(AgentCopy))  # not built by a server that is asked for no file


def build_own_metadata(copy: AgentCopy) -> dict[str, Any]:
    """Build the `metadata` of a file with one agent from `copy`, the data that only Perdure reads."""
    own = _COPY().dump_python(replace(copy, parts={}), mode="json")
    del own["parts"]
    kinds = {part.name: TypeAdapter(part.kind) for part in copy_parts()}
    own |= {name: kinds[name].dump_python(part, mode="json") for name, part in copy.parts.items()}
    return {NAME: {"version": VERSION, "agents": {"agent-0": own}}}


def parse_own_metadata(document: Mapping[str, Any]) -> Mapping[str, AgentCopy]:
    """Map ids of agents in a file to what Perdure wrote of them in `metadata`, if it did. Raises: AgentFileInvalid."""
    metadata = document.get("metadata")
    part = metadata.get(NAME) if isinstance(metadata, dict) else None
    if part is None:
        return {}
    agents = part.get("agents") if isinstance(part, dict) else None
    if not isinstance(agents, dict) or part.get("version") != VERSION:
        raise AgentFileInvalid(f"`metadata.{NAME}` of the file has another version than {VERSION}: upgrade Perdure")
    try:
        return {id_: _with_zones(_parse_copy(copy)) for id_, copy in agents.items()}
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise AgentFileInvalid(f"`metadata.{NAME}` of the file: {place}: {problem['msg']:.200}") from error


def _parse_copy(shape: Any) -> AgentCopy:
    """Parse the copy of an agent, with the parts that features store in it. Raises: ValidationError."""
    copy = _COPY().validate_python(shape)
    parts = {
        part.name: TypeAdapter(part.kind).validate_python(shape[part.name])
        for part in copy_parts()
        if part.name in shape
    }
    return replace(copy, parts=parts)


def _parts_of_missing_features(document: Mapping[str, Any]) -> Sequence[str]:
    """The names of parts in `metadata.perdure` of a file that no feature of this program can restore, sorted."""
    known = {*(field.name for field in fields(AgentCopy)), *(part.name for part in copy_parts())}
    return sorted({name for copy in document["metadata"][NAME]["agents"].values() for name in copy} - known)


def _with_zones(value: Any) -> Any:
    """Return a value of a copy, such as a dataclass or a list, in which every time without a zone is one in UTC."""
    match value:
        case datetime(tzinfo=None):
            return value.replace(tzinfo=UTC)
        case Mapping():
            return {name: _with_zones(inner) for name, inner in value.items()}
        case list() | tuple():
            return type(value)(map(_with_zones, value))
        case _ if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{field.name: _with_zones(getattr(value, field.name)) for field in fields(value)})
    return value


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

_COMPANION_KINDS = ("sleeptime", "voice_sleeptime")


@dataclass(frozen=True, slots=True)
class FileAgent:
    """An agent of a file.

    Attributes:
        fields: all fields that the agent has in the file.
        block_ids, tool_ids, folder_ids: ids of members of the file, each once.
        rules: its tool rules, as objects that name a tool in `tool_name`.
    """

    fields: Mapping[str, Any]
    block_ids: Sequence[str]
    tool_ids: Sequence[str]
    folder_ids: Sequence[str]
    rules: Sequence[Mapping[str, Any]]

    @property
    def body(self) -> dict[str, Any]:
        """The agent's fields that can be passed on unchanged in a request for a new agent."""
        return {
            name: value
            for name, value in self.fields.items()
            if name not in _NOT_OF_A_BODY and name != "tool_rules" and value is not None
        }


@dataclass(frozen=True, slots=True)
class FileFolder:
    """A folder in a file: all its fields, such as `name`, and name -> text of the files in it."""

    fields: Mapping[str, Any]
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """A group in an agent file; the ids of agents and shared blocks are those of the file. `manager`: the non-empty
    fields of its manager, which decides who speaks next."""

    agent_ids: Sequence[str]
    block_ids: Sequence[str]
    manager: Mapping[str, Any]
    description: str

    @property
    def companions(self) -> Sequence[str]:
        """The ids of agents of the file that tidy another one's memory."""
        return self.agent_ids if self.manager.get("manager_type") in _COMPANION_KINDS else ()


@dataclass(frozen=True, slots=True)
class AgentDocument:
    """An agent file that was read and checked.

    Attributes:
        agents, blocks, tools, folders: id in the file -> what has it; of blocks and tools all their fields.
        copies: id of an agent in the file -> what only Perdure writes and reads of it.
        warnings: one line for each thing in the file that is not imported.
    """

    agents: Mapping[str, FileAgent]
    blocks: Mapping[str, Mapping[str, Any]]
    tools: Mapping[str, Mapping[str, Any]]
    folders: Mapping[str, FileFolder]
    groups: Sequence[FileGroup]
    copies: Mapping[str, AgentCopy] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def rules_of(self, agent: FileAgent, tool_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """The tool rules of an agent that are about tools with one of these ids in the file."""
        names = [self.tools[id_].get("name") for id_ in tool_ids]
        return [rule for rule in agent.rules if rule.get("tool_name") in names]


def read_agent_file(content: bytes) -> AgentDocument:
    """Parse and check the bytes of an agent file. Raises: AgentFileInvalid."""
    try:
        check_json(content, JsonLimits(size_bytes=len(content), containers=_CONTAINERS_MAX))
    except DataTooLarge as error:
        raise AgentFileInvalid(f"the file is {error}") from error
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AgentFileInvalid(f"the file is not JSON ({error}): give an agent file, such as `agent.af`") from error
    if isinstance(document, str):  # a program wrote the text of an export as JSON once more
        return read_agent_file(document.encode("utf-8", "replace"))
    if isinstance(document, dict) and "agents" not in document and isinstance(document.get("core_memory"), list):
        document = convert_first_layout(document)
    if not isinstance(document, dict) or not isinstance(document.get("agents"), list):
        raise AgentFileInvalid("the file is not an agent file: it has neither a list `agents` nor a list `core_memory`")
    lists = {name: _members(document, name) for name in _LISTS}
    if not lists["agents"]:
        raise AgentFileInvalid("the file has no agents")
    agents = {id_: _parse_agent(fields, lists) for id_, fields in lists["agents"].items()}
    texts = _texts_by_folder(lists["files"])
    folders = {id_: FileFolder(fields, texts.get(id_, {})) for id_, fields in lists["sources"].items()}
    groups = [_parse_group(fields, lists) for fields in lists["groups"].values()]
    _check_companions(agents, groups)
    used = {id_ for agent in agents.values() for id_ in agent.folder_ids}
    warnings = []
    if lists["mcp_servers"]:
        warnings.append("`mcp_servers` of the file are not imported")
    if unused := len(folders.keys() - used):
        warnings.append(f"{unused} of `sources` are left out: no agent of the file has them")
    if without := len(lists["files"]) - sum(len(folder.texts) for folder in folders.values()):
        warnings.append(f"{without} of `files` are left out: they have no text, or no name or folder of their own")
    copies = parse_own_metadata(document)
    if copies and (missing := _parts_of_missing_features(document)):
        warnings.append(f"{', '.join(missing)} of agents are left out: this program lacks the features that have them")
    return AgentDocument(agents, lists["blocks"], lists["tools"], folders, groups, copies, warnings)


def _check_companions(agents: Mapping[str, FileAgent], groups: Sequence[FileGroup]) -> None:
    """Raises: AgentFileInvalid: a companion's manager is another companion, itself, or no agent of the file."""
    companions = {id_ for group in groups for id_ in group.companions}
    for group in groups:
        manager = group.manager.get("manager_agent_id")
        if group.companions and (manager not in agents or manager in companions):
            problem = f"{group.companions[0]!r:.80} is the companion of {manager or 'nobody'!s:.80}"
            raise AgentFileInvalid(f"{problem}: give `manager_agent_id` an agent of the file that is not a companion")


def _refuse_constant(name: str) -> None:
    """Refuse NaN and infinities, which are no JSON."""
    raise ValueError(f"{name} is not a number of JSON")


def _members(document: Mapping[str, Any], name: str) -> Mapping[str, Mapping[str, Any]]:
    """Map the ids of the members of a list of the file, such as `blocks`, to their fields. Raises: AgentFileInvalid."""
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


def _parse_agent(fields: Mapping[str, Any], lists: Mapping[str, Mapping[str, Any]]) -> FileAgent:
    """Check an agent's fields; `lists`: list of the file -> id -> member. Raises: AgentFileInvalid."""
    block_ids = _parse_ids(fields, "block_ids", lists["blocks"], owner="an agent")
    tool_ids = _parse_ids(fields, "tool_ids", lists["tools"], owner="an agent")
    folders = "folder_ids" if fields.get("folder_ids") else "source_ids"
    folder_ids = _parse_ids(fields, folders, lists["sources"], owner="an agent")
    labels = [str(lists["blocks"][id_].get("label")) for id_ in block_ids]
    if len(set(labels)) < len(labels):
        raise AgentFileInvalid("two blocks of an agent have one label")
    rules = objects(fields.get("tool_rules"), "tool_rules of an agent")
    if not all(isinstance(rule.get("tool_name"), str) for rule in rules):
        raise AgentFileInvalid("each of `tool_rules` of an agent needs a `tool_name`")
    return FileAgent(fields, block_ids, tool_ids, folder_ids, rules)


def _parse_ids(fields: Mapping[str, Any], name: str, members: Mapping[str, Any], *, owner: str) -> Sequence[str]:
    """The ids in a field of `owner`, such as "an agent", each once. Raises: AgentFileInvalid: not all are `members`."""
    ids = fields.get(name) or []
    if not isinstance(ids, list) or not all(isinstance(id_, str) for id_ in ids):
        raise AgentFileInvalid(f"`{name}` of {owner} must be a list of ids")
    missing = [id_ for id_ in ids if id_ not in members]
    if missing:
        raise AgentFileInvalid(f"{owner} has {missing[0]!r:.80}, which the file does not hold")
    return list(dict.fromkeys(ids))


def _texts_by_folder(files: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, str]]:
    """Map the id of each folder to the texts of its files by their names; of two files of one name the first counts."""
    texts: dict[str, dict[str, str]] = {}
    for file in files.values():
        folder_id = file.get("source_id") or file.get("folder_id")
        name, text = file.get("file_name") or file.get("original_file_name"), file.get("content")
        if isinstance(folder_id, str) and isinstance(name, str) and isinstance(text, str):
            texts.setdefault(folder_id, {}).setdefault(name, text)
    return texts


def _parse_group(fields: Mapping[str, Any], lists: Mapping[str, Mapping[str, Any]]) -> FileGroup:
    """Check the fields of a group as `_parse_agent` does those of an agent. Raises: AgentFileInvalid."""
    manager = fields.get("manager_config") or {}
    if not isinstance(manager, dict):
        raise AgentFileInvalid("`manager_config` of a group must be an object")
    manager_id = manager.get("manager_agent_id")
    if manager_id is not None:
        _parse_ids({"manager_agent_id": [manager_id]}, "manager_agent_id", lists["agents"], owner="a group")
    return FileGroup(
        _parse_ids(fields, "agent_ids", lists["agents"], owner="a group"),
        _parse_ids(fields, "shared_block_ids", lists["blocks"], owner="a group"),
        {name: value for name, value in manager.items() if value is not None},
        str(fields.get("description") or ""),
    )
