"""One of everything that an organisation may have, for tests of what organisations keep apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from perdure.core.agents import Agent, Identity
from perdure.core.blocks import Block
from perdure.core.conversations import Conversation, ConversationState, SystemMessage, system_message_id
from perdure.core.events import Delta, DeltaStreamed, RunQueued
from perdure.core.forgetting.corrections import Correction, CorrectionItem
from perdure.core.ids import ConversationId, GroupId, McpServerId, StepId, ToolId
from perdure.core.messages import Message
from perdure.core.models import Exchange, ModelProvider
from perdure.core.passages import Archive, Passage
from perdure.core.runs import Batch, Callback, DueCallback, Prefix, Recipe, Run, Step, Usage
from perdure.core.secrets import ORGANISATION, SandboxConfig, Variable
from perdure.core.sources import MemoryWrite, Source, WriteSource
from perdure.core.specs import Tool, ToolCode, ToolSpec
from perdure.core.vectors import EmbeddingClaim, IndexOwner, VectorScope
from perdure.features.facts.tables import Entities, Episodes, Facts, Graphs
from perdure.features.facts.values.facts import Community, Entity, Episode, Fact, FactFilter, FactRule, Graph
from perdure.features.files.file_tables import AgentFiles, Files
from perdure.features.files.folder_tables import Folders
from perdure.features.files.values import File, FilePart, Folder, file_tag
from perdure.features.groups.tables import GroupMessages, Groups
from perdure.features.groups.values import Group, GroupMember, GroupMessage, GroupPlan, GroupTurn, Pass
from perdure.features.groups.work_tables import GroupTurns, Passes
from perdure.features.helpers.tables import HelperAgent, HelperAgents
from perdure.features.imports.common.tables import ImportedItems
from perdure.features.manifests.tables import ManifestObjects
from perdure.features.mcp.tables import Servers
from perdure.features.mcp.values import McpServer, McpTool
from perdure.features.memory_git.tables import MemoryGit
from perdure.features.memory_git.values import GitHistory
from perdure.features.openai_front.tables import OpenaiHistories
from perdure.features.origins.tables import Erasures, Journal
from perdure.features.origins.values import Erasure
from perdure.features.proposals.tables import Proposals
from perdure.features.proposals.values import Proposal
from perdure.features.schedules.tables import Schedules
from perdure.features.schedules.values import Schedule
from perdure.features.skills.tables import Skills
from perdure.features.skills.values import Skill
from perdure.features.snapshots.tables import Snapshots
from perdure.features.snapshots.values import Snapshot
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, UNTIL, Contract, claimed
from tests.contracts.manifests import new_applied
from tests.contracts.memory_git import PACK, new_git_history
from tests.contracts.nodes import node_of
from tests.contracts.openai_histories import new_chain
from tests.contracts.proposals import new_proposal
from tests.contracts.schedules import firing_at, new_schedule
from tests.contracts.skills import new_skill, new_version
from tests.contracts.snapshots import new_snapshot

MODEL = "test/embedder"
VECTOR = b"\x00\x3c"
"""1.0 as a 16-bit float."""


@dataclass(frozen=True)
class Property:
    """One of everything, of one organisation."""

    agent: Agent
    conversation: Conversation
    second: Conversation
    message: Message
    reset_message: Message
    system_message: SystemMessage
    block: Block
    identity: Identity
    sandbox: SandboxConfig
    variable: Variable
    provider: ModelProvider
    archive: Archive
    bare_archive: Archive
    passage: Passage
    run: Run
    step: Step
    prefix: Prefix
    tool: Tool
    server: McpServer
    folder: Folder
    file: File
    worked_on: File
    deleted: File
    stopped_run: Run
    waiting_run: Run
    due: DueCallback
    batch: Batch
    opening: ConversationState
    owner: IndexOwner
    bare_owner: IndexOwner
    scope: VectorScope
    claim: EmbeddingClaim
    correction: Correction
    erasure: Erasure
    graph: Graph
    entity: Entity
    fact: Fact
    episode: Episode
    rule: FactRule
    community: Community
    group: Group
    turn: GroupTurn
    companion_pass: Pass
    schedule: Schedule
    skill: Skill
    proposal: Proposal
    snapshot: Snapshot
    git_history: GitHistory
    memory_write: MemoryWrite


def fill(contract: Contract, tx: Tx) -> Property:
    """One of everything, each with something in it, and with the same names in every organisation."""
    with tx.vectors.use_embedding(MODEL):
        agent = contract.add_agent(tx)
        archive = contract.add_archive(tx, agent_id=agent.id)
    bare_archive = contract.add_archive(tx, name="bare")
    run = claimed(tx, contract.add_run(tx, agent.id).key)
    (message,) = contract.say(tx, agent.id, "a walrus", run=run)
    tx.runs.remember_key(run.key, 0, "key", digest="digest")
    tx.runs.start_calls(run, ["call"], at=AT)
    delta = DeltaStreamed(Delta(StepId("step-1"), message.id, "text", "a"))
    tx.events.add(run.key, [RunQueued(run.id), delta, delta, RunQueued(run.id)], at=AT)
    block = contract.add_block(tx, "human", "Ada", agent_id=agent.id)
    tx.blocks.isolate(agent.id, 0, "persona", contract.add_block(tx, "persona", "a walrus").id)
    sandbox, provider = contract.add_sandbox(tx), contract.add_provider(tx)
    variable = contract.add_variable(tx, sandbox.id)
    identity = contract.add_identity(tx, "ann")
    tx.identities.attach_agent(agent.id, identity.id)
    tx.identities.attach_block(block.id, identity.id)
    passage = contract.add_passage(tx, archive.id, "a walrus", "sea")
    prefix = tx.prefixes.add(
        Prefix(agent_id=agent.id, seq=0, conversation_seq=0, reason="first", system="s", tools=(), created_at=AT)
    )
    step = tx.steps.add(
        run,
        StepId(contract.ids.new("step")),
        index=0,
        model="m",
        recipe=Recipe(prefix_seq=0, upto_message_seq=0, tail="", settings_revision=0),
        at=AT,
    )
    spec = ToolSpec(name="look", description="Look.", parameters={})
    code = ToolCode(source="def look(): ...", function="look")
    tool = tx.tools.add(Tool(id=ToolId(contract.ids.new("tool")), spec=spec), code=code, at=AT)
    tx.tools.attach(agent.id, "look")
    second = tx.conversations.add(agent.id, ConversationId(contract.ids.new("conversation")), at=AT)
    (forgotten,) = contract.say(tx, agent.id, "forgotten", conversation_seq=1)
    tx.resets.add(second, author=ADA, at=AT)
    tx.nodes.add(node_of(agent.id))
    for owner_id in (ORGANISATION, agent.id):
        tx.secrets.put(owner_id, "TOKEN", b"sealed", at=AT)
    server = tx.of(Servers).add(
        McpServer(
            id=McpServerId(contract.ids.new("mcp_server")),
            org_id=tx.org_id,
            name="files",
            transport="sse",
            url="https://files.example",
            created_at=AT,
            updated_at=AT,
        )
    )
    tx.of(Servers).put_tool(McpTool(server_id=server.id, name="look", local_name="files__look", tool_id=tool.id))
    tx.steps.put_exchange(step, Exchange(request={"a": 1}, response={}))
    tx.steps.put_factor("m", 0.9)
    tx.providers.put_traits("m", {"calling": "text"})
    tx.captures.put(agent.id, 0, 0, at=AT)
    tx.of(HelperAgents).put(agent.id, "sea:walrus", HelperAgent(agent.id, "digest"))
    tx.of(ImportedItems).put(agent.id, {"passage-1": "digest"})
    tx.of(OpenaiHistories).add(agent.id, [new_chain()])
    tx.passages.count(archive.id, [passage.seq], "uses")
    tx.passages.count(archive.id, [passage.seq], "recalls")
    run = tx.runs.put_client_tools(run, "digest", [{"name": "look"}])
    waiting_run = contract.add_run(tx, agent.id, waiting_input="more", origin=run.id)
    waiting_run = tx.runs.resume(
        waiting_run, resumes=0, begins_at=0, turn_from=0, answer={"yes": True}, waiting_input="more"
    )
    batch = contract.add_batch(tx)
    second_run = claimed(tx, contract.add_run(tx, agent.id, conversation_seq=1, batch_id=batch.id).key)
    contract.say(tx, agent.id, "an answer", role="assistant", run=second_run)
    stopped_run = tx.runs.end(second_run, reason="requires_approval", usage=Usage(), step_count=1, failure=None, at=AT)
    stopped_run = tx.callbacks.request(stopped_run, Callback(url="https://example.com/ended"), at=AT)
    (due,) = tx.callbacks.list_due(at=AT, limit=9)
    tx.conversations.put_pending(agent.id, 1, run_seq=0, from_seq=0)
    tx.agents.put(replace(agent, settings={"tool_rules": [{"type": "exit_loop", "tool_name": "look"}]}))
    folder, file, worked_on, deleted = _fill_folder(contract, tx, agent)
    owner, bare_owner = (one for one in tx.upkeep.owners() if one.id in (archive.id, bare_archive.id))
    tx.vectors.put(owner.number, [(passage.seq, VECTOR)], model=MODEL, dimensions=1)
    later = contract.add_passage(tx, archive.id, "a seal")
    (claim,) = (
        one
        for one in tx.vectors.claim(MODEL, at=AT, until=UNTIL, limit=9)
        if (one.number, one.seq) == (owner.number, later.seq)
    )
    tx.vectors.refill(next(one for one in tx.upkeep.owners() if one.id == agent.id).number)
    scope = tx.vectors.scope(owner.number)
    assert scope is not None
    _damage(tx, block, archive)
    schedule = _fill_schedules(contract, tx, agent)
    correction = tx.corrections.add(agent.id, "forget", "a walrus", at=AT)
    item = CorrectionItem(kind="block", id=block.id, before="0")
    correction = tx.corrections.add_items(correction, [item])
    erasure = tx.of(Erasures).add(agent.id, "a walrus", [("messages", agent.id)], at=AT)
    graph, rule, community = _fill_graph(contract, tx, agent)
    write = _fill_sources(tx, agent, block, message)
    tx.of(ManifestObjects).put(new_applied())
    group, turn = _fill_group(contract, tx, agent, block, message)
    return Property(
        agent=tx.agents.get(agent.id),
        memory_write=write,
        conversation=tx.conversations.get_by_seq(agent.id, 0),
        second=tx.conversations.get_by_seq(agent.id, 1),
        message=message,
        reset_message=forgotten,
        system_message=tx.system_messages.put(system_message_of(tx.conversations.get_by_seq(agent.id, 0))),
        block=block,
        identity=identity,
        sandbox=sandbox,
        variable=variable,
        provider=provider,
        archive=tx.archives.get(archive.id),
        bare_archive=bare_archive,
        passage=passage,
        run=tx.runs.get_by_key(run.key),
        step=step,
        prefix=prefix,
        tool=tool,
        server=server,
        folder=folder,
        file=file,
        worked_on=worked_on,
        deleted=deleted,
        stopped_run=stopped_run,
        waiting_run=tx.runs.get_by_key(waiting_run.key),
        due=due,
        batch=tx.batches.get(batch.id),
        opening=tx.conversations.get_state(agent.id, 0),
        owner=owner,
        bare_owner=bare_owner,
        scope=scope,
        claim=claim,
        correction=correction,
        erasure=erasure,
        graph=graph,
        entity=tx.of(Entities).list(graph.id)[0],
        fact=tx.of(Facts).page(graph.id, where=FactFilter())[0],
        episode=tx.of(Episodes).list(graph.id)[0],
        rule=rule,
        community=community,
        group=group,
        turn=turn,
        companion_pass=_add_pass(tx, group, run, message),
        schedule=schedule,
        skill=_fill_skills(tx, agent, run),
        proposal=_fill_proposals(tx, agent, block),
        snapshot=tx.of(Snapshots).add(new_snapshot(agent.id)),
        git_history=_fill_memory_git(tx, agent, block),
    )


def _add_pass(tx: Tx, group: Group, run: Run, message: Message) -> Pass:
    """A pass of a companion that goes on."""
    return tx.of(Passes).add(
        Pass(
            agent_id=run.key.agent_id,
            group_id=group.id,
            companion_id=run.key.agent_id,
            cause="turns",
            from_seq=0,
            upto_seq=message.seq,
            last_message_id=message.id,
            upto_run_seq=-1,
            run_id=run.id,
            created_at=AT,
        )
    )


def _fill_group(contract: Contract, tx: Tx, agent: Agent, block: Block, message: Message) -> tuple[Group, GroupTurn]:
    """A group of the agent, with a turn that runs, one that waits, and two entries of its transcript; the agent manages
    another one."""
    group_id, managed_id = GroupId(contract.ids.new("group")), GroupId(contract.ids.new("group"))
    tx.of(Groups).add(
        Group(
            id=managed_id, org_id=tx.org_id, kind="supervisor", manager_agent_id=agent.id, created_at=AT, updated_at=AT
        )
    )
    tx.of(Groups).add(
        Group(id=group_id, org_id=tx.org_id, kind="round_robin", agent_ids=(agent.id,), created_at=AT, updated_at=AT)
    )
    member = GroupMember(agent_id=agent.id, name=agent.name, conversation_seq=0)
    tx.of(Groups).put_conversation(group_id, member)
    tx.of(Groups).share_block(group_id, agent.id, block.id, attached=True)
    new = GroupTurn(group_id=group_id, created_at=AT)
    turns = [tx.of(GroupTurns).add(new, "input", idempotency_key=f"key{place}", digest="d") for place in range(2)]
    turn = tx.of(GroupTurns).claim((group_id, turns[0].seq), owner="here", at=AT, until=UNTIL)
    assert turn is not None
    turn, _ = tx.of(GroupTurns).begin(turn, GroupPlan(kind="round_robin", participants=(member,)))
    speech = GroupMessage(
        group_id=group_id,
        turn_seq=0,
        place=0,
        kind="speech",
        sender_id=agent.id,
        sender_name=agent.name,
        message_seq=0,
        seen_seq=0,
        created_at=AT,
    )
    said = replace(speech, message_id=message.id)
    tx.of(GroupMessages).append(group_id, [speech, said])
    return tx.of(Groups).get(group_id), turn


def _fill_sources(tx: Tx, agent: Agent, block: Block, message: Message) -> MemoryWrite:
    """A message that brought a page, and a write that may come from it and was reverted."""
    page = Source("web", "https://example.com")
    tx.sources.add_to_message(agent.id, 0, message.seq, [page])
    write = MemoryWrite(
        kind="block",
        owner_id=block.id,
        ref="1",
        sources=(WriteSource(page, (message.id,)),),
        agent_id=agent.id,
        created_at=AT,
    )
    tx.sources.add([write])
    tx.of(Journal).mark_reverted(block.id, ["1"], f"{agent.id}/1")
    return write


def _fill_schedules(contract: Contract, tx: Tx, agent: Agent) -> Schedule:
    """A schedule of the agent that was fired once and is due again, and an older one that ended."""
    old = new_schedule(contract, agent.id)
    tx.of(Schedules).cancel(tx.of(Schedules).add(old), at=AT)
    schedule = tx.of(Schedules).add(new_schedule(contract, agent.id, callback=Callback(url="https://example.com")))
    fired = tx.of(Schedules).advance(schedule, firing_at(AT, reason="a walrus"), next_at=UNTIL, at=AT)
    assert fired is not None
    return fired


def _fill_skills(tx: Tx, agent: Agent, run: Run) -> Skill:
    """A skill of two versions that a run used, and an archived one."""
    tx.of(Skills).add(new_skill(agent.id, name="seal", archived_at=AT), new_version())
    skill = tx.of(Skills).add(new_skill(agent.id, version=2), new_version())
    tx.of(Skills).add_version(skill, new_version(2))
    tx.of(Skills).add_use(agent.id, skill.name, run.key.seq, at=AT)
    return skill


def _fill_proposals(tx: Tx, agent: Agent, block: Block) -> Proposal:
    """A proposal for a block of the agent that waits, and an equal one that was refused."""
    new = new_proposal(agent.id, target_id=block.id)
    tx.of(Proposals).decide(tx.of(Proposals).add(new), "refused", at=AT, by="ada", decision="no")
    return tx.of(Proposals).add(new)


def _fill_memory_git(tx: Tx, agent: Agent, block: Block) -> GitHistory:
    """Two packs of commits, one of which is a version of the block, and a further file."""
    git = tx.of(MemoryGit)
    git.put_file(agent.id, "walrus.md", "a walrus", by="ada", at=AT)
    stored = git.advance(new_git_history(agent.id), PACK, {(block.id, 0): ("a", "a walrus")}, whole=False)
    return git.advance(stored, PACK, {}, whole=False)


def _fill_graph(contract: Contract, tx: Tx, agent: Agent) -> tuple[Graph, FactRule, Community]:
    """The graph of the agent, with two of everything."""
    with tx.vectors.use_embedding(MODEL):
        graph = contract.add_graph(tx, agent_id=agent.id)
    contract.add_entities(tx, graph.id, "Ada", "Turin")
    tx.of(Entities).set_community(graph.id, 1, 1)
    community = Community(graph_id=graph.id, seq=1, name="Ada", size=1, updated_at=AT)
    tx.of(Entities).put_community(community)
    tx.of(Entities).put_community(replace(community, seq=2, summary_due=False))
    fact, _ = tx.of(Facts).add(graph, [contract.new_fact(graph.id, text) for text in ("a walrus", "a seal")])
    tx.of(Facts).expire(graph.id, [fact.seq], at=AT)
    tx.of(Facts).add(graph, [replace(fact, text="an old walrus")])
    of_message = contract.new_episode(graph.id, "y", agent_id=agent.id, message_seq=0)
    tx.of(Episodes).add([contract.new_episode(graph.id, "x"), of_message])
    tx.of(Facts).add_sources(graph.id, [(1, 1), (2, 2)])
    tx.of(Episodes).mark_extracted(graph.id, [2], at=AT)
    tx.of(Episodes).put_last_seq(agent.id, 0, 0, at=AT)
    tx.of(Graphs).count_dropped(graph.id, {"pronoun": 1})
    rule, _ = (tx.of(Graphs).add_rule(FactRule(graph_id=graph.id, text="secret", created_at=AT)) for _ in range(2))
    return tx.of(Graphs).get(graph.id), rule, community


def system_message_of(conversation: Conversation, text: str = "s") -> SystemMessage:
    """The system message of a conversation."""
    return SystemMessage(
        id=system_message_id(conversation.id),
        agent_id=conversation.agent_id,
        conversation_seq=conversation.seq,
        text=text,
        compiled_at=AT,
        created_at=AT,
    )


def _damage(tx: Any, block: Block, archive: Archive) -> None:
    """A version of the block that is not its value, and passages without a checksum."""
    db = tx.agents._db
    db.run("UPDATE block_versions SET value = 'other' WHERE block_id = :id", {"id": block.id})
    db.run("UPDATE passages SET checksum = NULL WHERE archive_id = :id", {"id": archive.id})


def _fill_folder(contract: Contract, tx: Tx, agent: Agent) -> tuple[Folder, File, File, File]:
    """A folder of the agent, a file of it that can be read and is open, one that is being read, and one that goes."""
    with tx.vectors.use_embedding(MODEL):
        folder = contract.add_folder(tx, "docs")
    file, other = (contract.add_file(tx, folder.id, name, digest=name) for name in ("plan.md", "other.md"))
    tx.of(Files).put_bytes(file.id, 0, b"walrus", at=AT)
    tx.of(Folders).attach(agent.id, folder.id, opens=True)
    claim = tx.of(Files).claim(owner="here", at=AT, until=UNTIL)
    assert claim is not None
    assert claim.id == file.id
    tx.of(Files).put_parts(file.id, [FilePart(seq=0, first_line=1, first_char=0, text="walrus")], [1])
    tx.of(Files).end(replace(claim, status="completed", line_count=1))
    tx.of(AgentFiles).open(agent.id, file.id, 1, 1, at=AT)
    worked_on = tx.of(Files).claim(owner="here", at=AT, until=UNTIL)
    assert worked_on is not None
    assert worked_on.id == other.id
    contract.add_file(tx, folder.id, "gone.md", digest="gone.md")
    goes = tx.of(Files).claim(owner="here", at=AT, until=UNTIL)
    assert goes is not None
    tx.of(Files).delete(goes.id)
    goes = tx.of(Files).claim(owner="here", at=AT, until=UNTIL)
    assert goes is not None
    contract.add_passage(tx, folder.archive_id, "a walrus", file_tag(file.id))
    return tx.of(Folders).get(folder.id), tx.of(Files).get(file.id), worked_on, goes
