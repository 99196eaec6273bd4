"""The agents of manifests: their fields, their own blocks, and what they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.agents import DEFAULT_AGENT_TYPE, DISCARDED, Agent, AgentFilter
from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId
from perdure.core.tools.engine_specs import ARCHIVAL_TOOLS, DEFAULT_TOOLS
from perdure.domain.agents.units import KNOWN_SETTINGS, AgentChanges, NewAgent, create_agent, update_agent
from perdure.domain.blocks.units import BLOCKS_CHANGED, create_block, update_block
from perdure.features.groups.companions import find_companion, kind_of_companion, set_companion
from perdure.features.manifests.things import (
    attach_archives,
    changed_fields,
    check_forgotten,
    describe_block,
    new_block,
)
from perdure.features.manifests.values import ManifestObject, flatten, path_of
from perdure.features.manifests.work import ApplyWork, Kind, only_id
from perdure.features.mcp.tables import Servers
from perdure.storage.tx import Tx

_FIELDS = ("model", "system", "description", "timezone", "tags", "metadata")
_SAME_NAME = 10


class AgentKind(Kind):
    """Agents."""

    def find(self, work: ApplyWork, thing: ManifestObject) -> str | None:
        """Return the id of the agent with the file's id or name, active ones first."""
        if (id_ := super().find(work, thing)) is not None:
            return id_
        found = work.tx.agents.page(where=AgentFilter(name=thing.name), limit=_SAME_NAME)
        return only_id("agents", thing.name, [one for one in found if DISCARDED not in one.tags] or found)  # type: ignore[no-any-return]

    def describe(self, work: ApplyWork, id_: str) -> dict[str, Any]:
        """Return the fields of an agent, as a manifest has them."""
        return describe_agent(work, work.tx.agents.get(AgentId(id_)))

    def create(self, work: ApplyWork, thing: ManifestObject) -> str:
        """Create the agent that a manifest describes; return its id."""
        fields = thing.fields
        agent_type = fields.get("agent_type", DEFAULT_AGENT_TYPE)
        base = (*DEFAULT_TOOLS.get(agent_type, ()), *ARCHIVAL_TOOLS) if fields.get("base_tools", True) else ()
        new = NewAgent(
            name=thing.name,
            agent_type=agent_type,
            model=fields.get("model", work.default_model),
            follows_default="model" not in fields,
            timezone=work.ports.settings.timezone,
            blocks=() if "blocks" in fields else (new_block({}, "persona"), new_block({}, "human")),
            tools=base,
        )
        agent = create_agent(work.tx, new, ids=work.ports.ids, author=work.author, at=work.inputs.now)
        return self.change(work, agent.id, thing, {*flatten(fields)} - {"model"})

    def change(self, work: ApplyWork, id_: str, thing: ManifestObject, changed: set[str]) -> str:
        """Give the agent the changed fields of the manifest; return its id."""
        agent_id, fields = AgentId(id_), thing.fields
        check_forgotten(work.tx, agent_id, thing)
        changes: Any = changed_fields(fields, changed & {*_FIELDS})
        if "settings" in fields:
            changes["settings"] = {**work.tx.agents.get(agent_id).settings, **fields["settings"]}
        update_agent(work.tx, agent_id, changes, author=work.author, at=work.inputs.now)
        for label, block in fields.get("blocks", {}).items():
            self._put_block(work, agent_id, label, block, changed)
        if missing := [one for one in work.blocks(thing) if one not in work.tx.blocks.list_versions(agent_id)]:
            work.tx.blocks.attach(agent_id, *missing)
        present = {tool.spec.name for tool in work.tx.tools.list_by_agent(agent_id)}
        if new := [one for one in _tools(work, thing) if one not in present]:
            work.tx.tools.attach(agent_id, *new)
        self._give(work, agent_id, thing)
        return id_

    def _put_block(self, work: ApplyWork, agent_id: AgentId, label: str, fields: Any, changed: set[str]) -> None:
        """Create the agent's own block with this label, or change it."""
        own: Any = {"author": work.author, "at": work.inputs.now}
        block = work.tx.blocks.find(agent_id, label)
        if block is None:
            create_block(work.tx, work.new_id("block"), new_block(fields, label), agent_id=agent_id, **own)
        else:
            changes: Any = {name: one for name, one in fields.items() if path_of("blocks", label, name) in changed}
            update_block(work.tx, block.id, changes, **own)

    def _give(self, work: ApplyWork, agent_id: AgentId, thing: ManifestObject) -> None:
        """Give an agent its archives and its companion."""
        attach_archives(work, agent_id, thing)
        kind = thing.fields.get("companion")
        if kind is not None and kind != _companion_of(work.tx, agent_id):
            if kind:
                set_companion(work.tx, agent_id, False, work.author, work.inputs)
            set_companion(work.tx, agent_id, kind, work.author, work.inputs)
        BLOCKS_CHANGED(work.tx, agent_id)
        work.touch(agent_id)

    def is_removed(self, work: ApplyWork, id_: str) -> bool:
        """Whether an earlier apply took the agent out of use."""
        return DISCARDED in work.tx.agents.get(AgentId(id_)).tags

    def restore(self, work: ApplyWork, id_: str) -> None:
        """Show a hidden agent again, without the mark."""
        tags = tuple(tag for tag in work.tx.agents.get(AgentId(id_)).tags if tag != DISCARDED)
        changes: AgentChanges = {"hidden": False, "tags": tags}
        update_agent(work.tx, AgentId(id_), changes, author=work.author, at=work.inputs.now)

    def remove(self, work: ApplyWork, id_: str) -> str:
        """Hide the agent, and mark it with a tag."""
        tags = work.tx.agents.get(AgentId(id_)).tags
        changes: AgentChanges = {"hidden": True, "tags": (*tags, DISCARDED)}
        update_agent(work.tx, AgentId(id_), changes, author=work.author, at=work.inputs.now)
        return f"lists leave it out, and no schedule wakes it; {id_} keeps its memory until it is deleted"

    def detach(self, work: ApplyWork, id_: str, path: str) -> None:
        """Take what a path of `LISTS` or `blocks` names from an agent; the thing itself stays."""
        agent_id, (name, _, key) = AgentId(id_), path.partition(".")
        work.touch(agent_id)
        if name == "tools":
            if key in {tool.spec.name for tool in work.tx.tools.list_by_agent(agent_id)}:
                work.tx.tools.detach(agent_id, key)
        elif name == "archives":
            for archive in work.tx.archives.list_by_agent(agent_id):
                if work.name_of("archives", archive.id, archive.name) == key:
                    work.tx.archives.detach(agent_id, archive.id)
        else:
            for block in work.tx.blocks.list_by_agent(agent_id):
                shared = work.name_of("blocks", block.id, "")
                if shared == key if name == "shared_blocks" else path_of("blocks", block.label) == path:
                    work.tx.blocks.detach(agent_id, block.id)
            BLOCKS_CHANGED(work.tx, agent_id)


def describe_agent(work: ApplyWork, agent: Agent) -> dict[str, Any]:
    """The fields of an agent as a file has them; `shared_blocks` has the names of the files, or ids."""
    tx, tags = work.tx, [tag for tag in agent.tags if tag != DISCARDED]
    found: dict[str, Any] = {name: getattr(agent, name) for name in _FIELDS} | {"tags": tags}
    settings = {name: value for name, value in agent.settings.items() if name in KNOWN_SETTINGS}
    found |= {"metadata": dict(agent.metadata), "settings": settings, "agent_type": agent.agent_type}
    found["tools"] = [tool.spec.name for tool in tx.tools.list_by_agent(agent.id)]
    archives = tx.archives.list_by_agent(agent.id)
    found["archives"] = [work.name_of("archives", archive.id, archive.name) for archive in archives]
    blocks = tx.blocks.list_by_agent(agent.id)
    shared = {one.id: name for one in blocks if (name := work.name_of("blocks", one.id, ""))}
    found["shared_blocks"] = [*shared.values()]
    own = {block.label: describe_block(block) for block in blocks if block.id not in shared}
    found["blocks"] = {label: {k: v for k, v in one.items() if k != "label"} for label, one in own.items()}
    return found | {"companion": _companion_of(tx, agent.id)}


def _companion_of(tx: Tx, agent_id: AgentId) -> Any:
    """The kind of an agent's companion; False: it has none."""
    group = find_companion(tx, agent_id)
    return False if group is None else kind_of_companion(tx.agents.get(group.agent_ids[0]))


def _tools(work: ApplyWork, thing: ManifestObject) -> Sequence[str]:
    """The names of an agent's tools; those of unread MCP servers wait. Raises: InvalidInput: a name has no tool."""
    names: Sequence[str] = thing.fields.get("tools", ())
    there = work.tx.tools.find_named(names)
    for name in (one for one in names if one not in there):
        server = work.tx.of(Servers).find_by_name(name.partition("__")[0])
        if server is None or server.listed_at is not None:
            raise InvalidInput(f"{thing.place(f'tools.{name}')}: there is no tool {name!r}, in the files or the store")
        work.waiting.add(server.name)
    return [name for name in names if name in there]
