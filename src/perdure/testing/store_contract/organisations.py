"""Organisations: a transaction sees its own only, whatever number or id it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.agents import Agent
from perdure.core.blocks import Block
from perdure.core.conversations import Conversation
from perdure.core.errors import AlreadyExists, LeaseLost, NotFound
from perdure.core.events import RunQueued
from perdure.core.files import File, FilePart, Folder
from perdure.core.ids import ConversationId, McpServerId, OrgId, StepId, ToolId
from perdure.core.mcp import McpServer, McpTool
from perdure.core.messages import Message
from perdure.core.models import Exchange
from perdure.core.passages import Archive, Passage
from perdure.core.runs import Lease, Prefix, Recipe, Run, Step, Usage
from perdure.core.secrets import ORGANISATION
from perdure.core.text import query_of
from perdure.core.tools import Tool, ToolCode, ToolSpec
from perdure.core.tx import MessageFilter, PassageFilter, ToolFilter, Tx
from perdure.core.tx.conversations import ConversationFilter
from perdure.testing.store_contract.base import ADA, AT, LATER, UNTIL, Contract, claimed, raises
from perdure.testing.store_contract.nodes import node_of

__all__ = ["OrganisationContract"]

OTHER_ORG = OrgId("org-11111111-1111-4111-8111-111111111111")


@dataclass(frozen=True)
class Property:
    """One of everything, of one organisation."""

    agent: Agent
    conversation: Conversation
    message: Message
    reset_message: Message
    block: Block
    archive: Archive
    passage: Passage
    run: Run
    step: Step
    prefix: Prefix
    tool: Tool
    server: McpServer
    folder: Folder
    file: File
    worked_on: File


class OrganisationContract(Contract):
    def fill(self, tx: Tx) -> Property:
        agent = self.add_agent(tx)
        run = claimed(tx, self.add_run(tx, agent.id).key)
        (message,) = self.say(tx, agent.id, "a walrus", run=run)
        tx.runs.remember_key(run.key, 0, "key", digest="digest")
        tx.runs.start_calls(run.key, ["call"], lease=Lease("here", 1), at=AT)
        tx.events.add(run.key, [RunQueued(run.id)], at=AT)
        block = self.add_block(tx, "human", "Ada", agent_id=agent.id)
        archive = self.add_archive(tx, agent_id=agent.id)
        passage = self.add_passage(tx, archive.id, "a walrus", "sea")
        prefix = tx.prefixes.add(
            Prefix(agent_id=agent.id, seq=0, conversation_seq=0, reason="first", system="s", tools=(), created_at=AT)
        )
        step = tx.steps.add(
            run,
            StepId(self.ids.new("step")),
            index=0,
            model="m",
            recipe=Recipe(prefix_seq=0, upto_message_seq=0, tail="", settings_revision=0),
            lease=Lease("here", 1),
            at=AT,
        )
        spec = ToolSpec(name="look", description="Look.", parameters={})
        code = ToolCode(source="def look(): ...", function="look")
        tool = tx.tools.add(Tool(id=ToolId(self.ids.new("tool")), spec=spec), code=code, at=AT)
        tx.tools.attach(agent.id, "look")
        second = tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
        (forgotten,) = self.say(tx, agent.id, "forgotten", conversation_seq=1)
        tx.resets.add(second, author=ADA, at=AT)
        tx.nodes.add(node_of(agent.id))
        for owner in (ORGANISATION, agent.id):
            tx.secrets.put(owner, "TOKEN", b"sealed", at=AT)
        server = tx.mcp.add(
            McpServer(
                id=McpServerId(self.ids.new("mcp_server")),
                org_id=tx.org_id,
                name="files",
                transport="sse",
                url="https://files.example",
                created_at=AT,
                updated_at=AT,
            )
        )
        tx.mcp.put_tool(McpTool(server_id=server.id, name="look", local_name="files__look", tool_id=tool.id))
        folder, file, worked_on = self.fill_folder(tx, agent)
        return Property(
            agent=tx.agents.get(agent.id),
            conversation=tx.conversations.at(agent.id, 0),
            message=message,
            reset_message=forgotten,
            block=block,
            archive=tx.archives.get(archive.id),
            passage=passage,
            run=tx.runs.at(run.key),
            step=step,
            prefix=prefix,
            tool=tool,
            server=server,
            folder=folder,
            file=file,
            worked_on=worked_on,
        )

    def fill_folder(self, tx: Tx, agent: Agent) -> tuple[Folder, File, File]:
        """A folder of the agent, a file of it that can be read and is open, and one that is being read."""
        folder = self.add_folder(tx, "docs")
        file, other = (self.add_file(tx, folder.id, name, digest=name) for name in ("plan.md", "other.md"))
        tx.files.put_bytes(file.id, 0, b"walrus", at=AT)
        tx.folders.attach(agent.id, folder.id, opens=True)
        claim = tx.files.claim(owner="here", at=AT, until=UNTIL)
        assert claim is not None
        assert claim.id == file.id
        tx.files.put_parts(file.id, [FilePart(seq=0, first_line=1, first_char=0, text="walrus")], [1])
        tx.files.end(replace(claim, status="completed", line_count=1))
        tx.agent_files.open(agent.id, file.id, 1, 1, at=AT)
        worked_on = tx.files.claim(owner="here", at=AT, until=UNTIL)
        assert worked_on is not None
        assert worked_on.id == other.id
        return tx.folders.get(folder.id), tx.files.get(file.id), worked_on

    def readers(self, p: Property) -> dict[str, Callable[[Tx], Any]]:
        """Every way to read what is there, by name."""
        agent_id, archive_id, key = p.agent.id, p.archive.id, p.run.key
        query = query_of("walrus")
        anything, any_passage = MessageFilter(), PassageFilter()
        return {
            "agents.get": lambda tx: tx.agents.get(agent_id),
            "agents.model": lambda tx: tx.agents.model(agent_id),
            "agents.find_by_name": lambda tx: tx.agents.find_by_name(p.agent.name),
            "agents.list": lambda tx: tx.agents.list(),
            "agents.last_used": lambda tx: tx.agents.last_used(),
            "blocks.get": lambda tx: tx.blocks.get(p.block.id),
            "blocks.list": lambda tx: tx.blocks.list(),
            "blocks.of_agent": lambda tx: tx.blocks.of_agent(agent_id),
            "blocks.find": lambda tx: tx.blocks.find(agent_id, "human"),
            "blocks.agents_of": lambda tx: tx.blocks.agents_of(p.block.id),
            "blocks.versions": lambda tx: tx.blocks.versions(p.block.id),
            "blocks.version": lambda tx: tx.blocks.version(p.block.id, 0),
            "archives.get": lambda tx: tx.archives.get(archive_id),
            "archives.of_agent": lambda tx: tx.archives.of_agent(agent_id),
            "archives.tags": lambda tx: tx.archives.tags(archive_id),
            "passages.get": lambda tx: tx.passages.get(p.passage.id),
            "passages.known": lambda tx: tx.passages.known([p.passage.id]),
            "passages.list": lambda tx: tx.passages.list(archive_id),
            "passages.newest": lambda tx: tx.passages.newest(archive_id, where=any_passage, limit=9),
            "passages.seqs": lambda tx: tx.passages.seqs(archive_id, where=any_passage),
            "archives.list": lambda tx: tx.archives.list(agent_id=agent_id),
            "passages.match": lambda tx: tx.passages.match(archive_id, query, where=any_passage, limit=9).seqs,
            "passages.by_seqs": lambda tx: tx.passages.by_seqs(archive_id, [0]),
            "conversations.get": lambda tx: tx.conversations.get(p.conversation.id),
            "conversations.at": lambda tx: tx.conversations.at(agent_id, 0),
            "conversations.opening": lambda tx: tx.conversations.opening(agent_id, 0),
            "conversations.list": lambda tx: tx.conversations.list(agent_id),
            "messages.get": lambda tx: tx.messages.get(p.message.id),
            "messages.place": lambda tx: tx.messages.place(p.message.id),
            "messages.known": lambda tx: tx.messages.known([p.message.id]),
            "messages.reset_among": lambda tx: tx.messages.reset_among([p.reset_message.id]),
            "messages.list": lambda tx: tx.messages.list(agent_id),
            "messages.view": lambda tx: tx.messages.view(agent_id, 0, from_seq=0, upto_seq=9),
            "messages.of_run": lambda tx: tx.messages.of_run(p.run),
            "messages.count": lambda tx: tx.messages.count(agent_id),
            "messages.count_after": lambda tx: tx.messages.count_after(agent_id, -1),
            "messages.match": lambda tx: tx.messages.match(agent_id, query, where=anything, limit=9).seqs,
            "messages.newest": lambda tx: tx.messages.newest(agent_id, where=anything, limit=9),
            "messages.by_seqs": lambda tx: tx.messages.by_seqs(agent_id, [0]),
            "runs.get": lambda tx: tx.runs.get(p.run.id),
            "runs.at": lambda tx: tx.runs.at(key),
            "runs.list": lambda tx: tx.runs.list(agent_id),
            "runs.active": lambda tx: tx.runs.active(agent_id, 0),
            "runs.claimable": lambda tx: tx.runs.claimable(at=LATER),
            "runs.held": lambda tx: tx.runs.held(),
            "runs.find_by_key": lambda tx: tx.runs.find_by_key(agent_id, 0, "key"),
            "runs.started_calls": lambda tx: tx.runs.started_calls(key),
            "steps.get": lambda tx: tx.steps.get(p.step.id),
            "steps.of_run": lambda tx: tx.steps.of_run(key),
            "steps.last_at": lambda tx: tx.steps.last_at(agent_id),
            "nodes.get": lambda tx: tx.nodes.get(agent_id, 0, 0),
            "nodes.by_seqs": lambda tx: tx.nodes.by_seqs(agent_id, 0, [0]),
            "nodes.list": lambda tx: tx.nodes.list(agent_id, 0),
            "conversations.page": lambda tx: tx.conversations.page(ConversationFilter()),
            "conversations.shown": lambda tx: tx.conversations.shown(agent_id, 0),
            "resets.list": lambda tx: tx.resets.list(agent_id),
            "resets.counted": lambda tx: tx.resets.counted(agent_id),
            "resets.unfinished": lambda tx: tx.resets.unfinished(),
            "resets.out_of_view": lambda tx: tx.resets.out_of_view(agent_id),
            "resets.taken": lambda tx: tx.resets.taken(agent_id),
            "prefixes.at": lambda tx: tx.prefixes.at(agent_id, 0),
            "events.list": lambda tx: tx.events.list(key),
            "tools.get": lambda tx: tx.tools.get(p.tool.id),
            "tools.page": lambda tx: tx.tools.page(where=ToolFilter()),
            "tools.page of agent": lambda tx: tx.tools.page(where=ToolFilter(agent_id=agent_id)),
            "tools.count": lambda tx: tx.tools.count(ToolFilter()),
            "tools.code": lambda tx: tx.tools.code(p.tool.id),
            "tools.codes": lambda tx: tx.tools.codes([p.tool.id]),
            "tools.agents_of": lambda tx: tx.tools.agents_of(p.tool.id),
            "tools.find_by_name": lambda tx: tx.tools.find_by_name("look"),
            "tools.list": lambda tx: tx.tools.list(),
            "tools.of_agent": lambda tx: tx.tools.of_agent(agent_id),
            **self.readers_of_files(p),
            "secrets.find": lambda tx: tx.secrets.find(agent_id, "TOKEN"),
            "secrets.list": lambda tx: tx.secrets.list(agent_id),
            "mcp.get": lambda tx: tx.mcp.get(p.server.id),
            "mcp.find_by_name": lambda tx: tx.mcp.find_by_name("files"),
            "mcp.list": lambda tx: tx.mcp.list(),
            "mcp.tools": lambda tx: tx.mcp.tools(p.server.id),
            "mcp.find_tool": lambda tx: tx.mcp.find_tool(p.tool.id),
            "secrets.list of all": lambda tx: tx.secrets.list(ORGANISATION),
        }

    def readers_of_files(self, p: Property) -> dict[str, Callable[[Tx], Any]]:
        agent_id, folder_id, file_id = p.agent.id, p.folder.id, p.file.id
        return {
            "folders.get": lambda tx: tx.folders.get(folder_id),
            "folders.find": lambda tx: tx.folders.find("docs"),
            "folders.of_archive": lambda tx: tx.folders.of_archive(p.folder.archive_id),
            "folders.list": lambda tx: tx.folders.list(),
            "folders.count": lambda tx: tx.folders.count(),
            "folders.of_agent": lambda tx: tx.folders.of_agent(agent_id),
            "folders.agents": lambda tx: tx.folders.agents(folder_id),
            "files.get": lambda tx: tx.files.get(file_id),
            "files.find": lambda tx: tx.files.find(folder_id, "plan.md"),
            "files.same_content": lambda tx: tx.files.same_content("plan.md", suffix=".md"),
            "files.list": lambda tx: tx.files.list(folder_id),
            "files.count": lambda tx: tx.files.count(folder_id),
            "files.bytes_of": lambda tx: tx.files.bytes_of(file_id, 0),
            "files.unended": lambda tx: tx.files.unended(),
            "files.holders": lambda tx: tx.files.holders(),
            "files.parts": lambda tx: tx.files.parts(file_id),
            "files.page_starts": lambda tx: tx.files.page_starts(file_id),
            "agent_files.shown": lambda tx: tx.agent_files.shown(agent_id),
            "agent_files.get": lambda tx: tx.agent_files.get(agent_id, file_id),
            "agent_files.opened": lambda tx: tx.agent_files.opened(agent_id),
            "agent_files.named": lambda tx: tx.agent_files.named(agent_id, "plan.md"),
            "agent_files.list": lambda tx: tx.agent_files.list(agent_id),
        }

    def writers_of_files(self, p: Property, their_agent: Agent, their_folder: Folder) -> dict[str, Callable[[Tx], Any]]:
        folder, file = p.folder, p.file
        return {
            "folders.put": lambda tx: tx.folders.put(replace(folder, name="stolen")),
            "folders.delete": lambda tx: tx.folders.delete(folder.id),
            "folders.attach theirs": lambda tx: tx.folders.attach(p.agent.id, their_folder.id, opens=True),
            "folders.attach ours": lambda tx: tx.folders.attach(their_agent.id, folder.id, opens=True),
            "folders.detach": lambda tx: tx.folders.detach(p.agent.id, folder.id),
            "files.add": lambda tx: self.add_file(tx, folder.id, "stolen.md"),
            "files.delete": lambda tx: tx.files.delete(file.id),
            "files.forget": lambda tx: tx.files.forget(p.worked_on),
            "files.put_bytes": lambda tx: tx.files.put_bytes(file.id, 1, b"stolen", at=AT),
            "files.drop_bytes": lambda tx: tx.files.drop_bytes(file.id),
            "files.drop_abandoned": lambda tx: tx.files.drop_abandoned(before=UNTIL),
            "files.claim": lambda tx: tx.files.claim(owner="there", at=UNTIL, until=UNTIL, dead_owners=["here"]),
            "files.hold": lambda tx: tx.files.hold(p.worked_on, until=UNTIL, done=9, total=9),
            "files.end": lambda tx: tx.files.end(replace(p.worked_on, status="error", problem="stolen")),
            "files.release": lambda tx: tx.files.release("here"),
            "files.put_parts": lambda tx: tx.files.put_parts(
                file.id, [FilePart(seq=1, first_line=2, first_char=0, text="stolen")], [2]
            ),
            "files.drop_parts": lambda tx: tx.files.drop_parts(file.id),
            "agent_files.open": lambda tx: tx.agent_files.open(p.agent.id, file.id, 1, 1, at=LATER),
            "agent_files.close": lambda tx: tx.agent_files.close(p.agent.id, file.id),
        }

    async def test_another_organisation_sees_nothing(self) -> None:
        """Every reading verb, given the very ids and numbers of another organisation, finds nothing."""
        async with self.opened() as ours, self.opened(org_id=OTHER_ORG) as theirs:
            readers = self.readers(await ours.write(self.fill))
            blind, leaks = [], []
            for name, reader in readers.items():
                if not await ours.read(reader):
                    blind.append(name)  # then this test would show nothing
                with contextlib.suppress(NotFound):
                    if await theirs.read(reader):
                        leaks.append(name)

            assert blind == []
            assert leaks == []

    async def test_another_organisation_changes_nothing(self) -> None:
        """Every writing verb, given the very ids and numbers of another organisation, leaves all as it was."""
        async with self.opened() as ours, self.opened(org_id=OTHER_ORG) as theirs:
            p = await ours.write(self.fill)
            key, lease = p.run.key, Lease("here", 1)
            their_agent = await theirs.write(self.add_agent)
            their_block = await theirs.write(self.add_block, "persona")
            their_archive = await theirs.write(self.add_archive)
            their_folder = await theirs.write(self.add_folder, "theirs")
            their_tool = await theirs.write(
                lambda tx: tx.tools.put(
                    replace(p.tool, id=ToolId(self.ids.new("tool")), spec=replace(p.tool.spec, description="Peek.")),
                    at=AT,
                )
            )
            readers = self.readers(p)

            async def everything() -> dict[str, Any]:
                return {name: await ours.read(reader) for name, reader in readers.items()}

            writers: dict[str, Callable[[Tx], Any]] = {
                "agents.lock": lambda tx: tx.agents.lock(p.agent.id),
                "agents.put": lambda tx: tx.agents.put(replace(p.agent, name="stolen")),
                "agents.delete": lambda tx: tx.agents.delete(p.agent.id),
                "blocks.put": lambda tx: tx.blocks.put(replace(p.block, value="x"), expected=0, author=ADA, at=AT),
                "blocks.delete": lambda tx: tx.blocks.delete(p.block.id),
                "blocks.attach theirs": lambda tx: tx.blocks.attach(p.agent.id, their_block.id),
                "blocks.attach ours": lambda tx: tx.blocks.attach(their_agent.id, p.block.id),
                "blocks.detach": lambda tx: tx.blocks.detach(p.agent.id, p.block.id),
                "archives.attach theirs": lambda tx: tx.archives.attach(p.agent.id, their_archive.id),
                "archives.attach ours": lambda tx: tx.archives.attach(their_agent.id, p.archive.id),
                "archives.detach": lambda tx: tx.archives.detach(p.agent.id, p.archive.id),
                "archives.detach_all": lambda tx: tx.archives.detach_all(p.archive.id),
                "archives.put": lambda tx: tx.archives.put(replace(p.archive, name="stolen")),
                "archives.delete": lambda tx: tx.archives.delete(p.archive.id),
                "passages.put": lambda tx: tx.passages.put(replace(p.passage, text="stolen")),
                "passages.add": lambda tx: self.add_passage(tx, p.archive.id, "a walrus"),
                "passages.delete": lambda tx: tx.passages.delete(p.archive.id, [p.passage.seq]),
                "conversations.show": lambda tx: tx.conversations.show(p.agent.id, 0, {p.block.id: 9}),
                "conversations.fit": lambda tx: tx.conversations.fit(
                    p.agent.id, 0, view_tokens=1, stubs={0: 1}, overcount=1
                ),
                "conversations.put": lambda tx: tx.conversations.put(replace(p.conversation, summary="x"), at=AT),
                "conversations.remove": lambda tx: tx.conversations.remove(p.conversation, at=AT),
                "nodes.add": lambda tx: tx.nodes.add(node_of(p.agent.id)),
                "messages.append": lambda tx: self.say(tx, p.agent.id, "hello"),
                "messages.revise": lambda tx: tx.messages.revise(p.message.id, None, author=ADA, at=AT),
                "resets.add": lambda tx: tx.resets.add(p.conversation, author=ADA, at=AT),
                "resets.carry_out": lambda tx: tx.resets.carry_out(p.agent.id),
                "runs.add": lambda tx: self.add_run(tx, p.agent.id),
                "runs.claim": lambda tx: tx.runs.claim(key, owner="there", at=LATER, until=LATER),
                "runs.hold": lambda tx: tx.runs.hold(key, lease, until=LATER),
                "runs.release": lambda tx: tx.runs.release("here"),
                "runs.remember_key": lambda tx: tx.runs.remember_key(key, 0, "key 2", digest="digest"),
                "runs.start_calls": lambda tx: tx.runs.start_calls(key, ["call 2"], lease=lease, at=AT),
                "runs.begin_input": lambda tx: tx.runs.begin_input(key, first_message_seq=7),
                "runs.request_cancel": lambda tx: tx.runs.request_cancel(key),
                "runs.spend": lambda tx: tx.runs.spend(key, Usage(input_tokens=1)),
                "runs.end": lambda tx: tx.runs.end(
                    p.run, reason="end_turn", usage=Usage(), step_count=0, failure=None, at=UNTIL
                ),
                "steps.add": lambda tx: tx.steps.add(
                    p.run, StepId("step-x"), index=1, model="m", recipe=p.step.recipe, lease=lease, at=AT
                ),
                "steps.end": lambda tx: tx.steps.end(p.step, status="failed", at=AT),
                "steps.put_exchange": lambda tx: tx.steps.put_exchange(p.step, Exchange(request={}, response={})),
                "prefixes.add": lambda tx: tx.prefixes.add(p.prefix),
                "events.add": lambda tx: tx.events.add(key, [RunQueued(p.run.id)], at=AT),
                "events.trim_deltas": lambda tx: tx.events.trim_deltas(key, keep=0, since=LATER),
                "tools.put": lambda tx: tx.tools.put(replace(their_tool, tags=("new",)), at=AT),
                "tools.add": lambda tx: tx.tools.add(replace(p.tool, spec=replace(p.tool.spec, name="peek")), at=AT),
                "tools.update": lambda tx: tx.tools.update(replace(p.tool, tags=("stolen",)), at=AT),
                "tools.delete": lambda tx: tx.tools.delete(p.tool.id),
                "tools.attach": lambda tx: tx.tools.attach(p.agent.id, "look"),
                "tools.detach": lambda tx: tx.tools.detach(p.agent.id, "look"),
                "mcp.put": lambda tx: tx.mcp.put(replace(p.server, name="stolen")),
                "mcp.read": lambda tx: tx.mcp.read(p.server.id, failure="stolen", at=AT),
                "mcp.delete": lambda tx: tx.mcp.delete(p.server.id),
                "mcp.put_tool": lambda tx: tx.mcp.put_tool(
                    McpTool(server_id=p.server.id, name="look", local_name="stolen")
                ),
                "mcp.delete_tool": lambda tx: tx.mcp.delete_tool(p.server.id, "look"),
                **self.writers_of_files(p, their_agent, their_folder),
                "secrets.put": lambda tx: tx.secrets.put(p.agent.id, "TOKEN", b"stolen", at=AT),
                "secrets.put for all": lambda tx: tx.secrets.put(ORGANISATION, "TOKEN", b"stolen", at=AT),
                "secrets.delete": lambda tx: tx.secrets.delete(p.agent.id, "TOKEN"),
                "secrets.delete for all": lambda tx: tx.secrets.delete(ORGANISATION, "TOKEN"),
            }
            before = await everything()
            changed = []
            for name, writer in writers.items():
                with contextlib.suppress(NotFound, LeaseLost, AlreadyExists):
                    await theirs.write(writer)
                if await everything() != before:
                    changed.append(name)
                    before = await everything()

            assert changed == []

    async def test_organisations_may_use_the_same_names(self) -> None:
        """Names of agents and tools and labels of blocks are each organisation's own."""
        async with self.opened() as ours, self.opened(org_id=OTHER_ORG) as theirs:
            mine, yours = await ours.write(self.fill), await theirs.write(self.fill)

            assert await ours.read(lambda tx: tx.agents.find_by_name("ada")) == mine.agent
            assert await theirs.read(lambda tx: tx.agents.find_by_name("ada")) == yours.agent
            assert await ours.read(lambda tx: tx.tools.list()) == [mine.tool]
            assert await theirs.read(lambda tx: tx.tools.list()) == [yours.tool]
            with raises(NotFound):
                await theirs.read(lambda tx: tx.agents.get(mine.agent.id))
