"""One import of a Letta server, planned or done: tools, MCP servers, folders, agents, then links of agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from perdure.app import App
from perdure.core.agents import IdentityFilter
from perdure.core.blocks import Block
from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, BlockId
from perdure.features.agent_files.importing import IMPORT_GROUP
from perdure.features.imports.common.tables import ImportedItems
from perdure.features.imports.letta import units
from perdure.features.imports.letta.agents import SLEEPTIME_KINDS, blocks_of, kept_blocks, new_block, plan_agent
from perdure.features.imports.letta.client import LettaRefused, LettaServer, Object, path_of
from perdure.features.imports.letta.context import LettaContext
from perdure.features.imports.letta.of_agent import AgentParts, import_archive_of, put_passages
from perdure.features.imports.letta.shared import import_folder, import_mcp_server, import_tool
from perdure.features.imports.letta.values import LettaReport
from perdure.features.imports.sources.items import COMPANIONS
from perdure.features.imports.sources.plain import list_in, object_in, text_in
from perdure.library.parts.checks import Page
from perdure.server.wire.identities import IdentityIn

FOREIGN = "agents whose ids agents of this store have that no import has made"
LONELY = "archives of no agent, whose passages the server does not give"
GROUP_FIELDS: Mapping[str, tuple[str, ...]] = {
    "round_robin": ("max_turns",),
    "supervisor": ("manager_agent_id",),
    "dynamic": ("manager_agent_id", "termination_token", "max_turns"),
    "sleeptime": ("manager_agent_id", "sleeptime_agent_frequency"),
    "voice_sleeptime": ("manager_agent_id", "max_message_buffer_length", "min_message_buffer_length"),
}
"""Kind of a group -> its own fields."""
_INCLUDE = ("blocks", "tools", "tags", "secrets", "managed_group", "identities", "sources")


class LettaWork:
    """One import of a server; `dry` only counts."""

    def __init__(self, app: App, server: LettaServer, *, dry: bool, progress: Callable[[int], None]) -> None:
        self._context = LettaContext(app, server, dry=dry, progress=progress)
        self._server, self._report, self._dry, self._ports = server, self._context.report, dry, app.ports
        self._companions: set[str] = set()
        self._made: set[str] = set()
        self._groups: list[Object] = []

    async def run(self) -> LettaReport:
        """Take everything. Raises: LettaUnreachable, StoreError: what was stored stays."""
        context = self._context
        await self._server.check()
        await context.each("/v1/groups/", "groups", self._note_group)
        await context.each("/v1/tools/", "tools", partial(import_tool, context))
        await context.each("/v1/mcp-servers/", "MCP servers", partial(import_mcp_server, context))
        await context.each("/v1/folders/", "folders", partial(import_folder, context))
        await context.each("/v1/agents/", "agents", self._agent)
        await context.each("/v1/archives/", "archives", self._lonely_archive)
        await context.each("/v1/blocks/", "blocks", self._lonely_block, {"connected_to_agents_count_eq": 0})
        await context.each("/v1/identities/", "identities", self._identity)
        for group in self._groups:
            await context.guard("groups", group, self._group)
        await context.each("/v1/providers/", "providers", self._provider)
        await context.each("/v1/sandbox-config/", "sandboxes", self._sandbox)
        return self._report

    # --- agents

    async def _agent(self, listed: Object) -> None:
        """Create an agent if it does not exist here, and copy what belongs to it."""
        source_id, report, context = listed["id"], self._report, self._context
        here = await context.store.read(lambda tx: tx.of(ImportedItems).find_owner(units.agent_key(source_id)))
        if source_id in self._companions:
            report.leave_out(COMPANIONS)
            return
        ids = [*map(AgentId, context.candidates("agent", source_id))]
        if here is None and await context.store.read(lambda tx: bool(tx.agents.list_by_ids(ids))):
            report.leave_out(FOREIGN)
            return
        params = {"include": [f"agent.{one}" for one in _INCLUDE]}
        whole = {**listed, **object_in(await self._server.get(path_of("agents", source_id), params))}
        state, agent_id = (whole, await self._make(source_id, whole)) if here is None else (listed, here)
        await self._note_unset(whole, agent_id)
        context.agents[source_id] = agent_id
        context.count("agents", new=here is None, already=here is not None)
        context.blocks.update(one["id"] for one in blocks_of(state))
        report.agents.append((text_in(state.get("name")), agent_id))
        await AgentParts(context, agent_id, state).take()

    async def _make(self, source_id: str, state: Object) -> AgentId:
        """Make an agent with its blocks; return its id, empty if it is only planned. Raises: InvalidInput,
        AlreadyExists."""
        context = self._context
        for tool in list_in(state.get("tools")):
            await import_tool(context, object_in(tool))
        plan = await plan_agent(
            context.library, state, await self._perdure_manifest(source_id), context.tools, self._report
        )
        self._note_companion(object_in(state.get("managed_group")))
        ids = {one["id"]: context.candidates("block", one["id"]) for one in blocks_of(state)}
        here = await context.store.read(units.find_blocks, [id_ for each in ids.values() for id_ in each])
        kept_blocks(state, here, context)  # raises if one can't be made

        async def create() -> AgentId:
            """Create the agent, with the ids kept for it and its blocks."""
            blocks, inputs = kept_blocks(state, here, context), self._ports.inputs()
            return await context.store.write(units.make_agent, source_id, plan, blocks, context.ids, inputs)

        agent_id = AgentId("") if self._dry else await context.make("agent", source_id, create)
        if agent_id:
            self._made.add(source_id)
        context.count(
            "blocks", new=sum(not {*here} & {*each} for id_, each in ids.items() if id_ not in context.blocks)
        )
        return agent_id

    async def _note_unset(self, state: Object, agent_id: AgentId) -> None:
        """Note the secrets of an agent that have no value here yet."""
        secrets = list_in(state.get("secrets")) or list_in(state.get("tool_exec_environment_variables"))
        here = {one.name for one in await self._context.store.read(lambda tx: tx.secrets.list(agent_id))}
        names = {text_in(object_in(secret).get("key")) for secret in secrets}
        self._report.note_secrets(f"agent {text_in(state.get('name'))!r}", names - here)

    async def _perdure_manifest(self, source_id: str) -> Object | None:
        """Return the agent's manifest if the server is another Perdure; else None."""
        with suppress(LettaRefused):
            found = await self._server.find(path_of("agents", source_id, "manifest"), {"as_json": "true"})
            return next((one for one in object_in(object_in(found).get("agents")).values()), None)
        return None

    # --- what is no agent's own

    async def _lonely_archive(self, found: Object) -> None:
        """Copy an archive that no agent has, with its passages if the server returns them."""
        context = self._context
        if found["id"] in context.archives:
            return
        await import_archive_of(context, found)
        path = path_of("archives", found["id"], "passages")
        if await self._server.find(path, {"limit": 1}) is None:
            self._report.leave_out(LONELY)
            return
        async for page in self._server.pages(path):
            await put_passages(context, AgentId(""), context.archives[found["id"]], page)

    async def _lonely_block(self, found: Object) -> None:
        """Take a block that no agent has."""
        context = self._context
        if found["id"] in context.blocks or found.get("is_template"):
            return

        async def get(id_: str) -> Block:
            """Return the block with this id. Raises: NotFound."""
            return await context.library.blocks.get(BlockId(id_))

        await context.take("block", found["id"], partial(context.library.blocks.add, new_block(found)), get)

    async def _identity(self, found: Object) -> None:
        """Take an identity with its agents and blocks; one that is here gets the agents that were made just now."""
        context, identities = self._context, self._context.library.identities
        key = text_in(found.get("identifier_key"))
        there = await identities.list(IdentityFilter(identifier_key=key), Page(1, ascending=True))
        agents = {one: context.agents.get(one) for one in map(str, list_in(found.get("agent_ids")))}
        if there or self._dry:
            context.count("identities", new=not there, already=bool(there))
            for source_id, agent_id in agents.items() if there else ():
                if source_id in self._made and agent_id:
                    await identities.attach(agent_id, there[0].identity.id)
            return
        ids = [id_ for one in map(str, list_in(found.get("block_ids"))) for id_ in context.candidates("block", one)]
        blocks = await context.store.read(units.find_blocks, ids)
        members = {"agent_ids": [agent for agent in agents.values() if agent], "block_ids": [*blocks]}
        fields = IdentityIn.model_validate({**found, **members}).fields
        create = partial(identities.create, fields, found.get("project_id"))
        await context.make("identity", found["id"], create)
        context.count("identities", new=1)

    async def _note_group(self, found: Object) -> None:
        """Note a group, which is taken when its agents are, and which agents are companions."""
        self._groups.append(found)
        self._note_companion(found)

    def _note_companion(self, group: Object) -> None:
        """Note which agents of a group are companions."""
        if group.get("manager_type") in SLEEPTIME_KINDS:
            self._companions |= {*map(str, list_in(group.get("agent_ids")))}

    async def _group(self, found: Object) -> None:
        """Take a group of agents that are here; of a companion's only how often it wakes."""
        context, kind = self._context, text_in(found.get("manager_type"))
        is_companion = kind in SLEEPTIME_KINDS
        manager = {name: found[name] for name in GROUP_FIELDS.get(kind, ()) if found.get(name) is not None}
        members = [] if is_companion else [*map(str, list_in(found.get("agent_ids")))]
        needed = [*members, *([manager["manager_agent_id"]] if manager.get("manager_agent_id") else [])]
        if kind not in GROUP_FIELDS or not needed or not {*needed} <= context.agents.keys():
            raise InvalidInput(f"it is of the kind {kind!r:.40}, or not all of its agents are taken")
        agents, key = [context.agents[one] for one in needed], f"letta group {found['id']}"
        known = await context.noted(agents[0], key) is not None
        if IMPORT_GROUP.functions and not is_companion:
            here = await context.find("group", found["id"], context.library.groups.get)
            # A group that is not here went with its manager, if that one is made anew now.
            is_gone = here is None and any(one in self._made or not context.agents[one] for one in needed)
            known = here is not None or (known and not is_gone)
            if here is not None and not self._made.isdisjoint(members):  # members that were deleted here are back
                before, in_order = here.info.agent_ids, [context.agents[one] for one in members]
                back = [context.agents[one] for one in members if one in self._made]
                there = [one for one in in_order if one in before or one in back]
                await here.update(agent_ids=[*there, *(one for one in before if one not in there)])
                await context.note(agents[0], key)
        if known or self._dry or not IMPORT_GROUP.functions:
            context.count("groups", new=not known and not is_companion, already=known and not is_companion)
            return
        if "manager_agent_id" in manager:
            manager["manager_agent_id"] = context.agents[manager["manager_agent_id"]]
        blocks = await context.store.read(units.find_blocks, [*map(str, list_in(found.get("shared_block_ids")))])
        body = {
            "agent_ids": [context.agents[member] for member in members],
            "description": text_in(found.get("description")),
            "shared_block_ids": [] if is_companion else [*blocks],
        }

        async def make() -> None:
            """Create the group, if the feature of groups is installed."""
            for one in IMPORT_GROUP(context.library, body, {**manager, "manager_type": kind}, is_companion):
                await one

        await (make() if is_companion else context.make("group", found["id"], make))
        context.count("groups", new=not is_companion)
        await context.note(agents[0], key)

    async def _provider(self, found: Object) -> None:
        """Note a provider that has a key, which is not copied."""
        if found.get("provider_category") == "byok" or "provider_category" not in found:
            self._report.note_secrets("providers", [text_in(found.get("name"))])

    async def _sandbox(self, found: Object) -> None:
        """Note the variables of a sandbox, which are not copied."""
        path = path_of("sandbox-config", found["id"], "environment-variable")
        names = [text_in(one.get("key")) async for one in self._server.items(path)]
        self._report.note_secrets("sandbox", names)
