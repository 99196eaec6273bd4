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


NAME = "perdure"
VERSION = 1

_COPY = functools.cache(lambda: TypeAdapter(AgentCopy))  # not built by a server that is asked for no file


def own_part(copy: AgentCopy) -> dict[str, Any]:
    """The part of a file with one agent."""
    own = _COPY().dump_python(replace(copy, parts={}), mode="json")
    del own["parts"]
    kinds = {part.name: TypeAdapter(part.kind) for part in copy_parts()}
    own |= {name: kinds[name].dump_python(part, mode="json") for name, part in copy.parts.items()}
    return {NAME: {"version": VERSION, "agents": {"agent-0": own}}}


def own_copies(document: Mapping[str, Any]) -> Mapping[str, AgentCopy]:
    """Id of an agent in the file -> its copy; none of a file that Perdure did not write. Raises: AgentFileInvalid."""
    metadata = document.get("metadata")
    part = metadata.get(NAME) if isinstance(metadata, dict) else None
    if part is None:
        return {}
    agents = part.get("agents") if isinstance(part, dict) else None
    if not isinstance(agents, dict) or part.get("version") != VERSION:
        raise AgentFileInvalid(f"`metadata.{NAME}` of the file has another version than {VERSION}: upgrade Perdure")
    try:
        return {id_: _with_zones(_read_copy(copy)) for id_, copy in agents.items()}
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise AgentFileInvalid(f"`metadata.{NAME}` of the file: {place}: {problem['msg']:.200}") from error


def _read_copy(shape: Any) -> AgentCopy:
    """The copy of an agent, with what features have of it. Raises: ValidationError."""
    copy = _COPY().validate_python(shape)
    parts = {
        part.name: TypeAdapter(part.kind).validate_python(shape[part.name])
        for part in copy_parts()
        if part.name in shape
    }
    return replace(copy, parts=parts)


def _parts_of_missing_features(document: Mapping[str, Any]) -> Sequence[str]:
    """What agents have in Perdure's part of a file that was read, and nothing here restores."""
    known = {*(one.name for one in fields(AgentCopy)), *(part.name for part in copy_parts())}
    return sorted({name for copy in document["metadata"][NAME]["agents"].values() for name in copy} - known)


def _with_zones(value: Any) -> Any:
    """A value of a copy with all its times in a zone, those without one in UTC."""
    match value:
        case datetime(tzinfo=None):
            return value.replace(tzinfo=UTC)
        case Mapping():
            return {name: _with_zones(inner) for name, inner in value.items()}
        case list() | tuple():
            return type(value)(map(_with_zones, value))
        case _ if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{one.name: _with_zones(getattr(value, one.name)) for one in fields(value)})
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
        fields: all that the file has of it.
        block_ids, tool_ids, folder_ids: ids of the file, each once.
        rules: its tool rules.
    """

    fields: Mapping[str, Any]
    block_ids: Sequence[str]
    tool_ids: Sequence[str]
    folder_ids: Sequence[str]
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
class FileFolder:
    """A folder of a file.

    Attributes:
        fields: all that the file has of it.
        texts: name of a file in it -> its text.
    """

    fields: Mapping[str, Any]
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """A group of a file.

    Attributes:
        agent_ids, block_ids: ids of the file: its agents, and the blocks that they share.
        manager: by which rule they speak: the fields that have a value.
    """

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
    """What is read of a file.

    Attributes:
        agents, blocks, tools, folders: by their ids in the file.
        copies: what only Perdure writes of agents.
        warnings: what of the file is not imported.
    """

    agents: Mapping[str, FileAgent]
    blocks: Mapping[str, Mapping[str, Any]]
    tools: Mapping[str, Mapping[str, Any]]
    folders: Mapping[str, FileFolder]
    groups: Sequence[FileGroup]
    copies: Mapping[str, AgentCopy] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def rules_of(self, agent: FileAgent, tool_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """The rules of an agent that are about these of its tools."""
        names = [self.tools[id_].get("name") for id_ in tool_ids]
        return [rule for rule in agent.rules if rule.get("tool_name") in names]


def read_agent_file(content: bytes) -> AgentDocument:
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
    if isinstance(document, dict) and "agents" not in document and isinstance(document.get("core_memory"), list):
        document = of_first_layout(document)
    if not isinstance(document, dict) or not isinstance(document.get("agents"), list):
        raise AgentFileInvalid("the file is no agent file: it has neither a list `agents` nor a list `core_memory`")
    lists = {name: _members(document, name) for name in _LISTS}
    if not lists["agents"]:
        raise AgentFileInvalid("the file has no agents")
    agents = {id_: _agent(fields, lists) for id_, fields in lists["agents"].items()}
    texts = _texts(lists["files"])
    folders = {id_: FileFolder(fields, texts.get(id_, {})) for id_, fields in lists["sources"].items()}
    groups = [_group(one, lists) for one in lists["groups"].values()]
    _check_companions(agents, groups)
    used = {id_ for agent in agents.values() for id_ in agent.folder_ids}
    warnings = []
    if lists["mcp_servers"]:
        warnings.append("`mcp_servers` of the file are not imported")
    if unused := len(folders.keys() - used):
        warnings.append(f"{unused} of `sources` are left out: no agent of the file has them")
    if without := len(lists["files"]) - sum(len(folder.texts) for folder in folders.values()):
        warnings.append(f"{without} of `files` are left out: they have no text, or no name or folder of their own")
    copies = own_copies(document)
    if copies and (missing := _parts_of_missing_features(document)):
        warnings.append(f"{', '.join(missing)} of agents are left out: this program lacks the features that have them")
    return AgentDocument(agents, lists["blocks"], lists["tools"], folders, groups, copies, warnings)


def _check_companions(agents: Mapping[str, FileAgent], groups: Sequence[FileGroup]) -> None:
    """Raises: AgentFileInvalid: an agent is the companion of itself, of a companion, or of nobody."""
    companions = {id_ for group in groups for id_ in group.companions}
    for group in groups:
        of = group.manager.get("manager_agent_id")
        if group.companions and (of not in agents or of in companions):
            helps = "give `manager_agent_id` an agent of the file that is no companion"
            raise AgentFileInvalid(f"{group.companions[0]!r:.80} is the companion of {of or 'nobody'!s:.80}: {helps}")


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


def _agent(fields: Mapping[str, Any], lists: Mapping[str, Mapping[str, Any]]) -> FileAgent:
    """An agent, whose ids are all in the file. Raises: AgentFileInvalid."""
    block_ids = _ids(fields, "block_ids", lists["blocks"], of="an agent")
    tool_ids = _ids(fields, "tool_ids", lists["tools"], of="an agent")
    folders = "folder_ids" if fields.get("folder_ids") else "source_ids"
    folder_ids = _ids(fields, folders, lists["sources"], of="an agent")
    labels = [str(lists["blocks"][id_].get("label")) for id_ in block_ids]
    if len(set(labels)) < len(labels):
        raise AgentFileInvalid("two blocks of an agent have one label")
    rules = objects(fields.get("tool_rules"), "tool_rules of an agent")
    if not all(isinstance(rule.get("tool_name"), str) for rule in rules):
        raise AgentFileInvalid("each of `tool_rules` of an agent needs a `tool_name`")
    return FileAgent(fields, block_ids, tool_ids, folder_ids, rules)


def _ids(fields: Mapping[str, Any], name: str, members: Mapping[str, Any], *, of: str) -> Sequence[str]:
    """The ids in a field, each once. Raises: AgentFileInvalid: they are not all of members of the file."""
    ids = fields.get(name) or []
    if not isinstance(ids, list) or not all(isinstance(id_, str) for id_ in ids):
        raise AgentFileInvalid(f"`{name}` of {of} must be a list of ids")
    missing = [id_ for id_ in ids if id_ not in members]
    if missing:
        raise AgentFileInvalid(f"{of} has {missing[0]!r:.80}, which the file does not hold")
    return list(dict.fromkeys(ids))


def _texts(files: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, str]]:
    """Folder -> the texts of its files by their names; of two of one name, that of the first."""
    texts: dict[str, dict[str, str]] = {}
    for file in files.values():
        folder_id = file.get("source_id") or file.get("folder_id")
        name, text = file.get("file_name") or file.get("original_file_name"), file.get("content")
        if isinstance(folder_id, str) and isinstance(name, str) and isinstance(text, str):
            texts.setdefault(folder_id, {}).setdefault(name, text)
    return texts


def _group(fields: Mapping[str, Any], lists: Mapping[str, Mapping[str, Any]]) -> FileGroup:
    """A group, whose ids are all in the file. Raises: AgentFileInvalid."""
    manager = fields.get("manager_config") or {}
    if not isinstance(manager, dict):
        raise AgentFileInvalid("`manager_config` of a group must be an object")
    manager_id = manager.get("manager_agent_id")
    if manager_id is not None:
        _ids({"manager_agent_id": [manager_id]}, "manager_agent_id", lists["agents"], of="a group")
    return FileGroup(
        _ids(fields, "agent_ids", lists["agents"], of="a group"),
        _ids(fields, "shared_block_ids", lists["blocks"], of="a group"),
        {name: value for name, value in manager.items() if value is not None},
        str(fields.get("description") or ""),
    )
