"""Units of work of snapshots: an agent is brought to a moment, in one transaction that ends only if the next request
of the agent is that of the moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from perdure.context.sections.envelopes import is_block_key
from perdure.context.sections.stubs import row_tokens
from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.conversations import Conversation
from perdure.core.errors import AlreadyExists, BlockLimitExceeded, ConversationBusy, NotFound, SnapshotDiffers
from perdure.core.ids import AgentId, BlockId, MessageId, RunId, ToolId, id_in_run
from perdure.core.messages import Message
from perdure.core.runs import Prefix, RunOptions
from perdure.domain.agents.units import without_own
from perdure.domain.blocks.units import BLOCKS_CHANGED
from perdure.domain.conversations.agent_copies import Forgotten, forgotten_texts
from perdure.domain.corrections import MEMORY_CORRECTED
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.prefixes import build_system_message, read_memory
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.engine.records.rows import NEWEST, decode_drafts, encode_drafts
from perdure.features.snapshots.copied_rows import NewIds
from perdure.features.snapshots.moments import hash_of_request, next_request, request_of, take
from perdure.features.snapshots.tables import Snapshots
from perdure.features.snapshots.values import BlockRef, Restored, SavePoint, Snapshot, SnapshotReason
from perdure.storage.tx import Tx

STALE = -1
"""The settings revision of a prefix that the next request writes anew."""


@dataclass(slots=True)
class _RestoreWork:
    """One restore. `versions`: block -> the version that it has now in place of the moment's; `left`: what is not as it
    was, a sentence each; `forgotten`: texts that are not brought back."""

    tx: Tx
    agent_id: AgentId
    moment: SavePoint
    inputs: UnitInputs
    author: Author
    shared: bool
    forgotten: Forgotten = ()
    versions: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def keep(
    tx: Tx, moment: SavePoint, reason: SnapshotReason, inputs: UnitInputs, *, note: str = "", author: Author
) -> Snapshot:
    """Keep a moment of an agent, and return its snapshot. Raises: NotFound."""
    snapshot = Snapshot(
        agent_id=moment.agent_id, reason=reason, moment=moment, note=note, created_by=author.id, created_at=inputs.now
    )
    return tx.of(Snapshots).add(snapshot)


def restore(tx: Tx, moment: SavePoint, inputs: UnitInputs, *, author: Author, shared: bool) -> Restored:
    """Bring an agent back to one of its moments, after keeping what it is now. Messages after the moment leave the
    view, and stay in the log.

    Args:
        shared: whether blocks are changed that other agents have too.
    Raises: NotFound: the agent or conversation; ConversationBusy: a run goes on; SnapshotDiffers: nothing is changed.
    """
    agent_id, seq = moment.agent_id, moment.conversation_seq
    tx.agents.lock(agent_id)
    while tx.resets.carry_out(agent_id):  # what a reset left to do counts on all its messages being out of view
        pass
    before = take(tx, agent_id, seq)
    if before.queue:
        raise ConversationBusy(RunId(before.queue[0].run_id))
    count = tx.messages.count(agent_id)
    undo = keep(tx, before, "before_restore", inputs, author=author)
    left = apply_moment(tx, agent_id, moment, inputs, author=author, shared=shared)
    return Restored(
        agent_id=agent_id,
        conversation_id=moment.conversation_id,
        undo=undo.number,
        hidden=max(0, count - tx.messages.count(agent_id)),
        left=left,
    )


def moment_of_copy(tx: Tx, moment: SavePoint, conversation_seq: int, ids: NewIds) -> SavePoint:
    """Return a moment for a copy of the agent, whose rows have these new ids, and for one of its conversations.
    Everything beside blocks counts as shown."""
    conversation = tx.conversations.get_by_seq(ids.target, conversation_seq)
    memory = read_memory(tx, tx.conversations.get_state(ids.target, conversation_seq)).versions
    # A block that was detached keeps its id: the next request says that it is gone.
    seen = {ids.blocks.get(key, key): version for key, version in moment.seen.items() if is_block_key(key)}
    return replace(
        moment,
        agent_id=ids.target,
        conversation_id=conversation.id,
        conversation_seq=conversation_seq,
        seen=seen | {key: version for key, version in memory.items() if key not in ids.blocks.values()},
        blocks=[replace(at, id=ids.blocks[at.id]) for at in moment.blocks if at.id in ids.blocks],
    )


def apply_moment(
    tx: Tx,
    agent_id: AgentId,
    moment: SavePoint,
    inputs: UnitInputs,
    *,
    author: Author,
    shared: bool = False,
    expected: str | None = None,
    forgotten: Forgotten | None = None,
) -> Sequence[str]:
    """Bring an agent whose log has the messages of a moment to this moment; return what is not as it was.

    Args:
        forgotten: texts that are not brought back; None: those that the agent has forgotten.
        expected: the hash of what the next request begins with; None: of what the log says.
    Raises: NotFound, SnapshotDiffers.
    """
    forgotten = forgotten_texts(tx, agent_id) if forgotten is None else forgotten
    work = _RestoreWork(tx, agent_id, moment, inputs, author, shared, forgotten=forgotten)
    expected = hash_of_request(request_of(tx, moment)) if expected is None else expected
    _restore_agent(work)
    _restore_tools(work)
    _restore_blocks(work)
    conversation = tx.conversations.get_by_seq(agent_id, moment.conversation_seq)
    settings = moment.conversation_settings
    conversation = tx.conversations.put(replace(conversation, settings=settings), at=inputs.now, shapes_requests=True)
    agent = tx.agents.get(agent_id)
    is_fresh = _restore_view(work, agent, conversation)
    _restore_queue(work)
    MEMORY_CORRECTED(tx, agent_id)
    renew_system_message(tx, agent_id, conversation.seq, inputs)
    if is_fresh and not work.left and hash_of_request(next_request(tx, agent_id, conversation.seq)) != expected:
        raise SnapshotDiffers
    return work.left


def _restore_agent(work: _RestoreWork) -> None:
    """Give the agent the settings that it had. Those that only features change stay."""
    tx, moment = work.tx, work.moment
    agent = tx.agents.get(work.agent_id)
    own = {name: value for name, value in agent.settings.items() if name not in without_own(agent.settings)}
    model, follows_default = moment.model, moment.follows_default
    if work.inputs.models.find(model) is None and model != agent.model:
        work.left.append(f"its model {model} is not here: it keeps {agent.model}")
        model, follows_default = agent.model, agent.follows_default
    settings = {**without_own(moment.settings), **own}
    system = moment.system
    for redactor, _ in work.forgotten:
        settings = redactor.redact_choices(settings)
        system = system and redactor.redact(system)
    after = replace(
        agent,
        agent_type=moment.agent_type,
        model=model,
        follows_default=follows_default,
        timezone=moment.timezone,
        system=system,
        settings=settings,
    )
    if after != agent:
        tx.agents.put(replace(after, updated_at=work.inputs.now, updated_by=work.author.id))


def _restore_tools(work: _RestoreWork) -> None:
    """Give the agent the tools that it had."""
    tx, had = work.tx, dict(zip(work.moment.tool_ids, work.moment.tool_names, strict=True))
    now = {tool.id: tool.spec.name for tool in tx.tools.list_by_agent(work.agent_id)}
    tx.tools.detach(work.agent_id, *(now[tool_id] for tool_id in now.keys() - had.keys()))
    missing = [ToolId(one) for one in had if one not in now]
    there = tx.tools.list_by_ids(missing)
    work.left += [f"its tool {had[one]} was deleted" for one in missing if one not in there]
    tx.tools.attach(work.agent_id, *(tool.spec.name for tool in there.values()))


def _restore_blocks(work: _RestoreWork) -> None:
    """Give the agent the blocks that it had, each with its value, as a new version."""
    tx, agent_id, moment = work.tx, work.agent_id, work.moment
    own = {block.id: block for block in moment.blocks if not block.isolated}
    attached = {block.id: block for block in tx.blocks.list_by_agents([agent_id])[agent_id]}
    isolated = tx.blocks.list_isolated(agent_id, moment.conversation_seq)
    for block_id, block in attached.items():
        at = own.get(block_id)
        label = tx.blocks.version(block_id, at.version).label if at and at.version != block.version else block.label
        if (block.label not in isolated) if at is None else label != block.label:
            tx.blocks.detach(agent_id, block_id)  # also one whose old label another one may have until below
    kept = {block.id for block in tx.blocks.list_by_agents([agent_id])[agent_id]}
    there = tx.blocks.list_by_ids([at.id for at in moment.blocks])
    work.left += [f"its block {at.label} was deleted" for at in moment.blocks if at.id not in there]
    for at in (at for at in moment.blocks if at.id in there):
        try:
            if there[at.id].version != at.version:
                _restore_value(work, at)
            if not at.isolated and at.id not in kept:
                tx.blocks.attach(agent_id, there[at.id].id)
        except AlreadyExists:
            work.left.append(f"its block {at.label} is not as it was, for another one has its label")
    if {*attached} != {*own}:
        BLOCKS_CHANGED(tx, agent_id)


def unforgotten_value(tx: Tx, at: BlockRef, forgotten: Forgotten) -> str | None:
    """Return the value of a version of a block, without what was forgotten since; None: the block is gone."""
    try:
        version = tx.blocks.version(BlockId(at.id), at.version)
    except NotFound:
        return None
    value = version.value
    for redactor in (one for one, forgotten_at in forgotten if version.created_at <= forgotten_at):
        value = redactor.drop_lines(value)
    return value


def _restore_value(work: _RestoreWork, at: BlockRef) -> None:
    """Give a block the value of a version, without what was forgotten since, unless others have the block too."""
    tx, block = work.tx, work.tx.blocks.get(BlockId(at.id))
    before = tx.blocks.version(block.id, at.version)
    value = unforgotten_value(tx, at, work.forgotten) or ""
    if (value, before.label) == (block.value, block.label):
        work.versions[at.id] = block.version
        return
    others = [agent for agent in tx.owners.list_agents("blocks", block.id) if agent != work.agent_id]
    if others and not work.shared:
        work.left.append(f"its block {block.label} stays as it is, for other agents have it too")
        return
    try:
        after = tx.blocks.put(
            replace(block, label=before.label, value=value, limit_chars=max(block.limit_chars, len(value))),
            expected=block.version,
            author=work.author,
            at=work.inputs.now,
        )
    except BlockLimitExceeded as error:
        work.left.append(f"its block {block.label} stays as it is: {error}")
        return
    work.versions[at.id] = after.version


def _restore_view(work: _RestoreWork, agent: Agent, conversation: Conversation) -> bool:
    """Bring the conversation's view back, and what it waits for; return whether its prefix is the moment's."""
    tx, moment = work.tx, work.moment
    agent_id, seq = agent.id, conversation.seq
    tx.gaps.put_view(
        conversation,
        first_seq=moment.first_seq,
        upto_seq=moment.upto_seq,
        next_node=moment.next_node,
        gaps=moment.gaps,
        revision=agent.settings_revision,
    )
    tx.conversations.put_pending(agent_id, seq, run_seq=moment.pending_run_seq, from_seq=moment.pending_from)
    seen = {key: _version_now(work, key, version) for key, version in moment.seen.items()}
    if moment.prefix_seq is None:
        tx.conversations.remove_prefix(agent_id, seq)
        tx.conversations.put_seen_versions(agent_id, seq, seen)
        rows = tx.messages.view(agent_id, seq, from_seq=moment.first_seq, upto_seq=NEWEST)
        _put_view(work, conversation, rows, moment.overcount)
        return True
    before = tx.prefixes.get(agent_id, moment.prefix_seq)
    is_fresh = before.settings_revision == moment.settings_revision and not _is_outdated(work, before)
    revision = agent.settings_revision if is_fresh else STALE
    prefix = _copy_prefix(work, before, conversation, revision)
    tx.conversations.put_seen_versions(agent_id, seq, seen, prefix=prefix)
    pinned = tx.messages.list_by_seqs(agent_id, prefix.pinned) if prefix.pinned else ()
    rows = tx.messages.view(agent_id, seq, from_seq=prefix.from_message_seq, upto_seq=NEWEST)
    _put_view(work, conversation, [*pinned, *rows], moment.overcount if is_fresh else 0)
    tx.system_messages.put(build_system_message(conversation, prefix))
    return is_fresh


def _put_view(work: _RestoreWork, conversation: Conversation, rows: Sequence[Message], overcount: int) -> None:
    """Store how the rows in view are shown, and their tokens."""
    stubs = work.moment.stubs
    tokens = sum(row_tokens(row, stubs, work.inputs.counter) for row in rows)
    work.tx.conversations.put_view(
        work.agent_id, conversation.seq, view_tokens=tokens, stubs=stubs, overcount=overcount
    )


def _version_now(work: _RestoreWork, key: str, version: int) -> int:
    """Return the version of a block to note as shown, if a new version restores the moment's value."""
    at = next((block for block in work.moment.blocks if block.id == key), None)
    return work.versions.get(key, version) if at is not None and at.version == version else version


def _copy_prefix(work: _RestoreWork, before: Prefix, conversation: Conversation, revision: int) -> Prefix:
    """Store the moment's prefix again, for the agent as it is from now on, and return it."""
    seen = {key: _version_now(work, key, version) for key, version in before.seen.items()}
    parts = dict(before.parts)
    for name, part in parts.items():
        block_id, _, version = part.partition("@")
        if name.startswith("block:") and version and is_block_key(block_id):
            parts[name] = f"{block_id}@{seen.get(block_id, version)}"
    return work.tx.prefixes.add(
        replace(
            before,
            conversation_seq=conversation.seq,
            reason="restore",
            settings_revision=revision,
            seen=seen,
            parts=parts,
            changes=(),
        )
    )


def _is_outdated(work: _RestoreWork, prefix: Prefix) -> bool:
    """Return whether a prefix may repeat what must not be said again: since it was made, a text was forgotten, or a
    message in view or behind a summary has changed."""
    if any(forgotten_at >= prefix.created_at for _, forgotten_at in work.forgotten):
        return True
    nodes = work.tx.nodes.list_by_seqs(prefix.agent_id, prefix.conversation_seq, prefix.nodes)
    return any(node.revised_at is not None and node.revised_at >= prefix.created_at for node in nodes)


def _restore_queue(work: _RestoreWork) -> None:
    """Let the requests wait again that waited at the moment."""
    tx, moment, inputs = work.tx, work.moment, work.inputs
    for waiting in moment.queue:
        opening = tx.conversations.get_state(work.agent_id, moment.conversation_seq)
        run_id = RunId(inputs.ids.new("run"))
        text, options = waiting.waiting_input, waiting.options
        for redactor, _ in work.forgotten:
            text, options = redactor.redact_record(text), redactor.redact_value(options)
        drafts, tokens = decode_drafts(text)
        renamed = [
            replace(draft, id=MessageId(id_in_run(run_id, "input", place, inputs.ids)))
            for place, draft in enumerate(drafts, 1)
        ]
        tx.runs.add(
            opening,
            run_id,
            at=inputs.now,
            max_steps=waiting.max_steps,
            background=waiting.background,
            waiting_input=encode_drafts(renamed, tokens),
            options=replace(RunOptions(**options), caller=None, origin=None),  # nobody waits for it any more
        )
