"""An agent and what it uses as a file that can be applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perdure.core.agents import DEFAULT_AGENT_TYPE, AgentFilter
from perdure.core.blocks import DEFAULT_LIMIT_CHARS
from perdure.core.ids import AgentId
from perdure.core.secrets import HIDDEN_QUERY, may_hold_secret
from perdure.features.groups.companions import find_companion
from perdure.features.manifests.agents import describe_agent
from perdure.features.manifests.groups_and_schedules import describe_schedule
from perdure.features.manifests.things import NOT_SHOWN, ArchiveKind, McpServerKind, ToolKind, describe_block
from perdure.features.manifests.values import KINDS, ThingKind
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


def agent_document(work: ApplyWork, agent_id: AgentId) -> tuple[dict[str, Any], Sequence[str]]:
    """Return an agent and what it uses as manifest sections, and which secrets are left out. Raises: NotFound."""
    tx, agent = work.tx, work.tx.agents.get(agent_id)
    group = find_companion(tx, agent_id)
    own_ids = {agent_id, *(() if group is None else group.agent_ids)}
    sections: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    hidden: list[str] = []

    def add(kind: ThingKind, name: str, id_: str, fields: dict[str, Any]) -> None:
        """Add a thing under its name, or another free one if that is taken."""
        name = name if name not in sections[kind] else f"{name} {id_}"
        work.ids_of[kind, name] = id_
        sections[kind][name] = {"id": id_} | fields

    for block in tx.blocks.list_by_agent(agent_id):
        if {*tx.owners.list_agents("blocks", block.id)} - own_ids:
            add("blocks", block.label, block.id, _seeded(describe_block(block)))
    for archive in tx.archives.list_by_agent(agent_id):
        add("archives", archive.name, archive.id, _short(ArchiveKind().describe(work, archive.id)))
    for tool in tx.tools.list_by_agent(agent_id):
        if tool.spec.kind == "custom" and (found := ToolKind().fields(work, tool.id)) is not None:
            sections["tools"][tool.spec.name] = _short(found)
        elif (of_server := tx.of(Servers).find_tool(tool.id)) is not None:
            server = tx.of(Servers).get(of_server.server_id)
            if server.name not in sections["mcp_servers"]:
                described = McpServerKind().describe(work, server.id)
                hidden += [f"{secret} of MCP server {server.name!r}" for secret in _remove_secrets(described)]
                sections["mcp_servers"][server.name] = _short(described)
    fields = describe_agent(work, agent)
    fields["blocks"] = {label: _seeded(block) for label, block in fields["blocks"].items()}
    if agent.follows_default:
        del fields["model"]
    several = len(tx.agents.page(where=AgentFilter(name=agent.name), limit=2)) > 1
    own_id = {"id": agent_id} if several else {}
    sections["agents"][agent.name] = {**own_id, "base_tools": False} | _short(fields, keep=("blocks",))
    for one in tx.of(Schedules).page(agent_id, statuses=("active", "paused"), limit=1_000):
        add("schedules", one.name or one.id, one.id, {"agent": agent.name} | _short(describe_schedule(one)))
    return {"version": 1, **{kind: section for kind, section in sections.items() if section}}, hidden


def _remove_secrets(server: dict[str, Any]) -> Iterator[str]:
    """Take what is not shown, or may be a secret, out of the fields of an MCP server, and yield what that is."""
    if (url := server.get("url", "")).endswith(HIDDEN_QUERY):
        server["url"] = url.removesuffix(HIDDEN_QUERY)
        yield "the key in the url"
    if any(map(may_hold_secret, server.get("args", ()))):
        del server["args"]
        yield "args"
    if server.get("token") == NOT_SHOWN:
        del server["token"]
        yield "token"
    for name in ("headers", "environment"):
        for key in [key for key, value in server.get(name, {}).items() if value == NOT_SHOWN]:
            del server[name][key]
            yield f"{name}.{key}"


def _seeded(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block whose text is only for new agents: it does not overwrite an existing text."""
    return {"seed": block["value"]} | _short({name: value for name, value in block.items() if name != "value"})


def _short(fields: dict[str, Any], keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields that differ from the defaults, and only variables whose values may be shown."""
    fields = fields | {"environment": {name: one for name, one in fields.get("environment", {}).items() if one}}
    return {
        name: value
        for name, value in fields.items()
        if name in keep or (value not in _NOTHING and _USUAL.get(name) != value)
    }


def write_yaml(document: dict[str, Any], hidden: Sequence[str]) -> str:
    """Return a document as YAML, long texts as blocks, in its order; and above it what is not written."""
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
    helps = "# Store each by `perdure secret set NAME`, and write `secret:NAME` here; behind a url `?secret:NAME`.\n"
    return "".join(f"# Not written: {one}\n" for one in hidden) + (helps if hidden else "") + text
