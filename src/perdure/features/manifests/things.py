"""Tools, blocks, archives and MCP servers of manifests."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from perdure.core.blocks import DEFAULT_LIMIT_CHARS
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, BlockId, McpServerId, ToolId
from perdure.core.secrets import HIDDEN_QUERY, REFERENCE, hide_secret, with_secret
from perdure.domain.archives.passages import NewPassage, insert_passage
from perdure.domain.archives.units import attach_archive, create_archive, update_archive
from perdure.domain.blocks.units import BLOCKS_CHANGED, NewBlock, create_block, update_block
from perdure.domain.conversations.agent_copies import forgotten_texts
from perdure.domain.tools.units import NewTool, create_tool, delete_tool, update_tool
from perdure.features.manifests.values import ManifestObject
from perdure.features.manifests.work import ApplyWork, Kind, only_id
from perdure.features.mcp.tables import Servers
from perdure.features.mcp.units import build_server, change_server, register_server, remove_server_rows
from perdure.features.mcp.values import unseal_server
from perdure.storage.tx import Tx

SERVER_TOOLS = 100_000
NOT_SHOWN = "(not shown)"
_BLOCK_FIELDS = ("label", "value", "description", "limit_chars", "read_only", "tags", "metadata")
_SPEC_FIELDS = ("return_limit_chars", "requires_approval", "idempotent", "parallel", "timeout_s")
_CODE_FIELDS = ("requirements", "network", "memory_mb")


def describe_block(block: Any) -> dict[str, Any]:
    """The fields of a block as files have them."""
    found = {name: getattr(block, name) for name in _BLOCK_FIELDS}
    return found | {"tags": [*block.tags], "metadata": dict(block.metadata)}


def new_block(fields: Any, label: str) -> NewBlock:
    """A new block of the fields in a file."""
    own = {name: value for name, value in fields.items() if name not in ("seed", "id")}
    return NewBlock(**{"label": label, "limit_chars": DEFAULT_LIMIT_CHARS, "value": fields.get("seed", ""), **own})


def changed_fields(fields: Any, changed: set[str]) -> dict[str, Any]:
    """The fields of a file that differ."""
    return {name: value for name, value in fields.items() if name in changed - {"id", "seed"}}


class ToolKind(Kind):
    """Tools of Python."""

    def find(self, work: ApplyWork, thing: ManifestObject) -> str | None:
        """Return the id of the custom tool of this name."""
        tool = work.tx.tools.find_by_name(thing.name)
        return None if tool is None or tool.spec.kind != "custom" else tool.id

    def describe(self, work: ApplyWork, id_: str) -> dict[str, Any]:
        """Return the source and options of a custom tool, as a manifest has them."""
        tool, code = work.tx.tools.get(ToolId(id_)), work.tx.tools.code(ToolId(id_))
        if code is None:
            raise NotFound("tool", id_)
        found: dict[str, Any] = {"source": code.source, "description": tool.spec.description}
        found |= {name: getattr(tool.spec, name) for name in _SPEC_FIELDS}
        found |= {name: getattr(code, name) for name in _CODE_FIELDS}
        lists = {"requirements": [*code.requirements], "network": [*code.network], "tags": [*tool.tags]}
        return found | lists | {"environment": code.visible_environment, "metadata": dict(tool.metadata)}

    def create(self, work: ApplyWork, thing: ManifestObject) -> str:
        new = NewTool(name=thing.name, **thing.fields)
        return create_tool(work.tx, new, work.new_id("tool"), cipher=work.ports.cipher, at=work.inputs.now).id

    def change(self, work: ApplyWork, id_: str, thing: ManifestObject, changed: set[str]) -> str:
        """Update the changed fields of a tool; a new source also brings name and description."""
        changes: Any = changed_fields(thing.fields, changed)
        if "source" in changes:  # it brings a description and a name, unless they are given
            changes |= {"name": thing.name, "description": thing.fields.get("description")}
            changes = {name: value for name, value in changes.items() if value is not None}
        return update_tool(work.tx, ToolId(id_), changes, cipher=work.ports.cipher, at=work.inputs.now).id

    def remove(self, work: ApplyWork, id_: str) -> str:
        """Delete the tool."""
        delete_tool(work.tx, ToolId(id_))
        return "it is deleted, and no agent has it any more; a file that has it makes it again"


class BlockKind(Kind):
    """Blocks that several agents share."""

    def describe(self, work: ApplyWork, id_: str) -> dict[str, Any]:
        return describe_block(work.tx.blocks.get(BlockId(id_)))

    def create(self, work: ApplyWork, thing: ManifestObject) -> str:
        new = new_block(thing.fields, thing.name)
        return create_block(work.tx, work.new_id("block"), new, author=work.author, at=work.inputs.now).id

    def change(self, work: ApplyWork, id_: str, thing: ManifestObject, changed: set[str]) -> str:
        """Update the changed fields of a block, unless its agents have forgotten a text in them."""
        for agent_id in work.tx.owners.list_agents("blocks", id_):
            check_forgotten(work.tx, agent_id, thing)
        changes = changed_fields(thing.fields, changed)
        update_block(work.tx, BlockId(id_), changes, author=work.author, at=work.inputs.now)
        work.touch_owners("blocks", id_)
        return id_

    def remove(self, work: ApplyWork, id_: str) -> str:
        """Detach the block from all agents; it stays in the store."""
        work.touch_owners("blocks", id_)
        for agent_id in work.tx.owners.list_agents("blocks", id_):
            with suppress(NotFound):  # a companion has lost it with its agent
                work.tx.blocks.detach(agent_id, BlockId(id_))
            BLOCKS_CHANGED(work.tx, agent_id)
        return f"no agent has it any more; {id_} stays in the store"


class ArchiveKind(Kind):
    """Archives."""

    def find(self, work: ApplyWork, thing: ManifestObject) -> str | None:
        """Return the id of the file's archive, by its id or name."""
        return super().find(work, thing) or find_archive(work, thing.name)

    def describe(self, work: ApplyWork, id_: str) -> dict[str, Any]:
        """Return the fields of an archive, as a manifest has them."""
        archive = work.tx.archives.get(ArchiveId(id_))
        return {"description": archive.description, "metadata": dict(archive.metadata)}

    def create(self, work: ApplyWork, thing: ManifestObject) -> str:
        fields: Any = {"name": thing.name, **changed_fields(thing.fields, {"description", "metadata"})}
        archive = create_archive(work.tx, work.new_id("archive"), fields, at=work.inputs.now)
        for text in thing.fields.get("seed", ()):
            insert_passage(work.tx, archive.id, NewPassage(text=text), ids=work.ports.ids, at=work.inputs.now)
        return archive.id

    def change(self, work: ApplyWork, id_: str, thing: ManifestObject, changed: set[str]) -> str:
        """Update the changed fields of an archive."""
        changes: Any = changed_fields(thing.fields, changed)
        update_archive(work.tx, ArchiveId(id_), changes, at=work.inputs.now)
        return id_

    def remove(self, work: ApplyWork, id_: str) -> str:
        """Detach the archive from all agents; it stays in the store."""
        work.touch_owners("archives", id_)
        work.tx.archives.detach_all(ArchiveId(id_), limit=SERVER_TOOLS)
        return f"no agent has it any more; {id_} stays in the store with its texts"


class McpServerKind(Kind):
    """MCP servers. None is asked for its tools here."""

    def find(self, work: ApplyWork, thing: ManifestObject) -> str | None:
        """Return the id of the server of this name."""
        server = work.tx.of(Servers).find_by_name(thing.name)
        return None if server is None else server.id

    def describe(self, work: ApplyWork, id_: str) -> dict[str, Any]:
        """Return the fields of a server, as a manifest has them, with references in place of secrets."""
        server = work.tx.of(Servers).get(McpServerId(id_))
        secrets = unseal_server(server, cipher=work.ports.cipher)
        found: dict[str, Any] = {"transport": server.transport, "trusted": server.trusted}
        if server.url:
            is_named = secrets.query.startswith(REFERENCE)
            found["url"] = with_secret(server.url, secrets.query) if is_named else server.shown_url
        else:
            found |= {"command": server.command, "args": [*server.args]}
        for name, values in (("headers", secrets.headers), ("environment", secrets.environment)):
            if values:
                found[name] = {key: _reference(one) for key, one in values.items()}
        if secrets.token is not None:
            found |= {"token": _reference(secrets.token), "auth_header": server.auth_header}
        return found

    def create(self, work: ApplyWork, thing: ManifestObject) -> str:
        options: Any = {**thing.fields, "private": work.private.get(thing.name)}
        id_, at = work.new_id("mcp_server"), work.inputs.now
        server = build_server(work.tx, thing.name, options, server_id=id_, cipher=work.ports.cipher, at=at)
        return register_server(work.tx, server, None, ids=work.ports.ids, at=at).id

    def change(self, work: ApplyWork, id_: str, thing: ManifestObject, changed: set[str]) -> str:
        """Update the changed fields of a server. Raises: InvalidInput: the transport differs."""
        fields: Any = changed_fields(thing.fields, changed)
        if "url" in fields and _keeps_key(fields["url"], work.tx.of(Servers).get(McpServerId(id_)).shown_url):
            del fields["url"]
        if "transport" in fields:
            raise InvalidInput(
                f"{thing.place('transport')}: the transport of a server can't change: take it out of the file,"
                " apply that with --prune, and put it back"
            )
        if "url" in fields:
            fields["private"] = work.private.get(thing.name)
        change_server(
            work.tx, McpServerId(id_), fields, ids=work.ports.ids, cipher=work.ports.cipher, at=work.inputs.now
        )
        return id_

    def remove(self, work: ApplyWork, id_: str) -> str:
        remove_server_rows(work.tx, McpServerId(id_), limit=SERVER_TOOLS)
        return "it is deleted with its tools; a file that has it registers it again"


def _reference(value: str) -> str:
    """A reference to a secret as it is; another value is not shown."""
    return value if value.startswith(REFERENCE) else NOT_SHOWN


def _keeps_key(url: str, stored: str) -> bool:
    """Whether the url in a file is the stored one, whose key is not shown, and the file does not name another key."""
    base, key = hide_secret(url)
    is_same = stored.endswith(HIDDEN_QUERY) and base.removesuffix(HIDDEN_QUERY) == stored.removesuffix(HIDDEN_QUERY)
    return is_same and not key.startswith(REFERENCE)


def find_archive(work: ApplyWork, name: str) -> str | None:
    """The id of the archive of this name in the files, or in the store; None: there is none. Raises: InvalidInput."""
    return work.ids_of.get(("archives", name)) or only_id("archives", name, work.tx.archives.list(name=name, limit=2))


def attach_archives(work: ApplyWork, agent_id: Any, thing: ManifestObject) -> None:
    """Give an agent the archives that a file names. Raises: InvalidInput."""
    own = {archive.id for archive in work.tx.archives.list_by_agent(agent_id)}
    for name in thing.fields.get("archives", ()):
        if (id_ := find_archive(work, name)) is None:
            raise InvalidInput(f"{thing.place(f'archives.{name}')}: no archive has the name {name!r}")
        if id_ not in own:
            attach_archive(work.tx, agent_id, ArchiveId(id_))


def check_forgotten(tx: Tx, agent_id: AgentId, thing: ManifestObject) -> None:
    """Check that a file brings nothing back that the agent has forgotten. Raises: InvalidInput."""
    for redactor, forgotten_at in forgotten_texts(tx, agent_id):
        for name, value in thing.fields.items():
            if name not in ("id", "seed") and redactor.redact_value(value) != value:
                raise InvalidInput(
                    f"{thing.place(name)}: {name} has a text that the agent has forgotten on"
                    f" {forgotten_at:%Y-%m-%d}: take it out of the file"
                )
