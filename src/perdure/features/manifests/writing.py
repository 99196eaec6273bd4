"""An agent and what it uses as a file that can be applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.agents import DEFAULT_AGENT_TYPE, AgentFilter
from perdure.core.blocks import DEFAULT_LIMIT_CHARS
from perdure.core.ids import AgentId
from perdure.core.secrets import may_hold_secret
from perdure.features.groups.companions import find_companion
from perdure.features.manifests.agents import describe_agent
from perdure.features.manifests.groups_and_schedules import describe_schedule
from perdure.features.manifests.things import NOT_SHOWN, McpServerKind, ToolKind, describe_block
from perdure.features.manifests.work import ApplyWork
from perdure.features.mcp.tables import Servers
from perdure.features.schedules.tables import Schedules

_USUAL: dict[str, Any] = {
    "limit_chars": DEFAULT_LIMIT_CHARS,
    "return_limit_chars": 50_000,
    "transport": "streamable_http",
    "missed": "once",
    "missed_limit": 10,
    "role": "system",
    "agent_type": DEFAULT_AGENT_TYPE,
}
"""Values that a file leaves out: a new thing has them without."""
_NOTHING: Sequence[Any] = (None, False, "", [], {}, ())


def agent_document(work: ApplyWork, agent_id: AgentId) -> dict[str, Any]:
    """What a file says of an agent and of what it uses, by sections. Raises: NotFound."""
    tx, agent = work.tx, work.tx.agents.get(agent_id)
    group = find_companion(tx, agent_id)
    own_ids = {agent_id, *(() if group is None else group.agent_ids)}
    document: dict[str, Any] = {"version": 1}
    blocks, archives, tools, servers = dict[str, Any](), dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for block in tx.blocks.list_by_agent(agent_id):
        if {*tx.owners.list_agents("blocks", block.id)} - own_ids:
            name = _free_name(block.label, block.id, blocks)
            work.ids_of["blocks", name] = block.id
            blocks[name] = {"id": block.id} | _seeded(describe_block(block))
    for archive in tx.archives.list_by_agent(agent_id):
        name = _free_name(archive.name, archive.id, archives)
        work.ids_of["archives", name] = archive.id
        described = {"description": archive.description, "metadata": dict(archive.metadata)}
        archives[name] = {"id": archive.id} | _short(described)
    fields = describe_agent(work, agent)
    for tool in tx.tools.list_by_agent(agent_id):
        if tool.spec.kind == "custom" and (found := ToolKind().describe(work, tool.id)) is not None:
            tools[tool.spec.name] = _short(found)
        elif (of_server := tx.of(Servers).find_tool(tool.id)) is not None:
            server = tx.of(Servers).get(of_server.server_id)
            servers[server.name] = _short(McpServerKind().describe(work, server.id) or {})
            if any(map(may_hold_secret, server.args)):
                del servers[server.name]["args"]
    fields["blocks"] = {label: _seeded(block) for label, block in fields["blocks"].items()}
    if agent.follows_default:
        del fields["model"]
    schedules = dict[str, Any]()
    for one in tx.of(Schedules).page(agent_id, statuses=("active", "paused"), limit=1_000):
        name = _free_name(one.name or one.id, one.id, schedules)
        schedules[name] = {"id": one.id, "agent": agent.name} | _short(describe_schedule(one))
    several = len(tx.agents.page(where=AgentFilter(name=agent.name), limit=2)) > 1
    own_id = {"id": agent_id} if several else {}
    agents = {agent.name: {**own_id, "base_tools": False} | _short(fields, keep=("blocks",))}
    sections = {
        "mcp_servers": servers,
        "tools": tools,
        "blocks": blocks,
        "archives": archives,
        "agents": agents,
        "schedules": schedules,
    }
    return document | {name: section for name, section in sections.items() if section}


def _free_name(name: str, id_: str, section: Mapping[str, Any]) -> str:
    """A name that no other thing of a section has."""
    return name if name not in section else f"{name} {id_}"


def _seeded(block: dict[str, Any]) -> dict[str, Any]:
    """A block whose text is that of a new one only: what is there is not written over."""
    return {"seed": block["value"]} | _short({name: value for name, value in block.items() if name != "value"})


def _short(fields: dict[str, Any], keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields without those that a new thing has anyway, and without what is not shown."""
    return {
        name: _without_hidden(value)
        for name, value in fields.items()
        if name in keep or (value not in _NOTHING and _USUAL.get(name) != value and not _is_hidden(value))
    }


def _is_hidden(value: Any) -> bool:
    """Whether a value is a secret that is not shown."""
    return value in ("", NOT_SHOWN)


def _without_hidden(value: Any) -> Any:
    """A value without the secrets in it that are not shown."""
    return {name: one for name, one in value.items() if not _is_hidden(one)} if isinstance(value, dict) else value


def write_yaml(document: dict[str, Any]) -> str:
    """A document as YAML: texts of several lines as blocks, in the order of the document."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """Writes texts of several lines as they are, and no aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: Any, text: str) -> Any:
        """A text, as a block where it has several lines; half a character, which no file can hold, is a `?`."""
        text = text.encode("utf-8", "replace").decode()
        is_block = "\n" in text and not any(line != line.rstrip() for line in text.split("\n"))
        style = '"' if "\x85" in text else "|" if is_block else None  # only escaped it is no end of a line
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    text: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return text
