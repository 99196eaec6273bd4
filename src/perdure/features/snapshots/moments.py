"""An agent at one moment: now, or at the end of a step; and what its next request begins with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from perdure.context.sections.assemble import View, canonical
from perdure.context.sections.envelopes import is_block_key
from perdure.core.agents import Agent
from perdure.core.blocks import Block, BlockVersion
from perdure.core.conversations import Conversation
from perdure.core.errors import ConversationBusy, NotFound
from perdure.core.ids import AgentId, BlockId, ToolId
from perdure.core.messages import Message, parts_to_json
from perdure.core.runs import Prefix, Run, RunFilter, RunKey, Step, StepFilter
from perdure.engine.compaction.room import without_open_calls
from perdure.engine.records.rows import NEWEST
from perdure.features.snapshots.values import BlockRef, QueuedRequest, SavePoint
from perdure.storage.tx import Tx

SHAPING = ("agent_type", "model", "follows_default", "timezone", "system", "settings")
"""The fields of an agent that a moment has."""
ALL = 1_000_000
VERSIONS = 1_000
"""The newest versions of a block among which that of a step is looked for."""
LATER_STEPS = 50
"""Steps behind one among which the next of its conversation is looked for."""


def take(tx: Tx, agent_id: AgentId, conversation_seq: int, step: Step | None = None) -> SavePoint:
    """Return the agent and a conversation as they are now, or as a step of the conversation left them. The caller has
    locked the agent. Raises: NotFound; ConversationBusy: a run has not ended."""
    conversation = tx.conversations.get_state(agent_id, conversation_seq).conversation
    agent = tx.agents.get(agent_id)
    line = _now(tx, agent, conversation) if step is None else _at_step(tx, agent, conversation, step)
    before = tx.agent_revisions.find(agent.id, line["settings_revision"])
    shaping: Any = before or agent
    tool_ids = [tool.id for tool in tx.tools.list_by_agent(agent.id)] if before is None else before.tool_ids
    tools = tx.tools.list_by_ids([ToolId(tool_id) for tool_id in tool_ids])
    return SavePoint(
        agent_id=agent.id,
        conversation_id=conversation.id,
        conversation_seq=conversation.seq,
        conversation_settings=conversation.settings,
        tool_ids=tool_ids,
        tool_names=[tools[one].spec.name if one in tools else one for one in map(ToolId, tool_ids)],
        **{name: getattr(shaping, name) for name in SHAPING},
        **line,
    )


def _now(tx: Tx, agent: Agent, conversation: Conversation) -> dict[str, Any]:
    """Return the conversation as it is, by fields of a `SavePoint`. Raises: ConversationBusy."""
    waiting: list[QueuedRequest] = []
    where = RunFilter(agent_ids=(agent.id,), conversation_seq=conversation.seq, statuses=("queued", "running"))
    for run in tx.runs.page(where, limit=ALL, newest_first=False):
        text = tx.runs.waiting_input(run.key)
        if run.status == "running" or text is None or run.resumes is not None:
            raise ConversationBusy(run.id)
        waiting.append(
            QueuedRequest(
                run_id=run.id,
                waiting_input=text,
                max_steps=run.max_steps,
                background=run.background,
                options=run.options.values,
            )
        )
    names = ("first_seq", "prefix_seq", "seen", "stubs", "overcount", "pending_run_seq", "pending_from")
    return {name: getattr(conversation, name) for name in names} | {
        "upto_seq": tx.messages.next_seq(agent.id) - 1,
        "settings_revision": agent.settings_revision,
        "next_node": tx.nodes.next_seq(agent.id, conversation.seq),
        "gaps": tx.gaps.list(agent.id, conversation.seq),
        "blocks": [block_at(block, isolated) for block, isolated in _blocks(tx, agent.id, conversation.seq)],
        "queue": waiting,
    }


def block_at(block: Block, isolated: bool = False) -> BlockRef:
    """Return a block at its version."""
    return BlockRef(id=block.id, label=block.label, version=block.version, isolated=isolated)


def _blocks(tx: Tx, agent_id: AgentId, conversation_seq: int) -> Iterator[tuple[Block, bool]]:
    """Yield the blocks of the agent in a conversation, each with whether only the conversation has it."""
    isolated = {*tx.blocks.list_isolated(agent_id, conversation_seq).values()}
    for block in tx.blocks.list_by_agent(agent_id, conversation_seq):
        yield block, block.id in isolated


def _at_step(tx: Tx, agent: Agent, conversation: Conversation, step: Step) -> dict[str, Any]:
    """Return the conversation as a step left it: with the model's answer, and the results of its calls. An answer whose
    calls waited for a person waits again; one that was broken off is left out."""
    run = tx.runs.get_by_key(RunKey(agent.id, step.run_seq))
    recipe, seq = step.recipe, conversation.seq
    rows = [
        row
        for row in tx.messages.list(
            agent.id, conversation_seq=seq, after_seq=recipe.upto_message_seq, limit=ALL, kinds=None, reset=True
        )
        if row.step_id == step.id and row.run_seq == step.run_seq
    ]
    answered = {result.call_id for row in rows for result in row.results}
    is_open = any(call.call_id not in answered for row in rows for call in row.calls)
    waits = is_open and any(call.awaits for row in rows for call in row.calls) and run.step_count == step.index + 1
    if is_open and not waits:
        rows = []
    upto_seq = rows[-1].seq if rows else recipe.upto_message_seq
    at = rows[-1].created_at if rows else step.created_at
    prefix = tx.prefixes.get(agent.id, recipe.prefix_seq)
    resets = [reset.upto_seq for reset in tx.resets.list(agent.id, conversation_seq=seq, limit=ALL)]
    first_seq = max((upto + 1 for upto in resets if upto < upto_seq), default=0)
    later = _next_step(tx, conversation, step)
    blocks, seen = _blocks_at(tx, agent, conversation, prefix, run, step, at)
    return {
        "step_id": step.id,
        "upto_seq": upto_seq,
        "first_seq": min(first_seq, prefix.from_message_seq, *prefix.pinned),
        "prefix_seq": prefix.seq,
        "settings_revision": recipe.settings_revision,
        "seen": {key: version for key, version in conversation.seen.items() if not is_block_key(key)} | {**seen},
        "stubs": recipe.stubs,
        "overcount": recipe.overcount if later is None else later.recipe.overcount,
        "pending_run_seq": run.key.seq if waits else None,
        "pending_from": rows[0].seq if waits else None,
        "next_node": tx.nodes.next_seq(agent.id, seq, at=at),
        "gaps": tx.gaps.list(agent.id, seq, revision=recipe.settings_revision),
        "blocks": blocks,
    }


def _next_step(tx: Tx, conversation: Conversation, step: Step) -> Step | None:
    """Return the next step of the conversation if it has the same prefix; None: there is none near."""
    later = tx.steps.page(StepFilter(agent_id=step.agent_id), after=step, newest_first=False, limit=LATER_STEPS)
    runs = tx.runs.list_by_keys([RunKey(step.agent_id, one.run_seq) for one in later])
    found = (one for one in later if runs[RunKey(one.agent_id, one.run_seq)].conversation_seq == conversation.seq)
    following = next(found, None)
    return following if following and following.recipe.prefix_seq == step.recipe.prefix_seq else None


def _blocks_at(
    tx: Tx, agent: Agent, conversation: Conversation, prefix: Prefix, run: Run, step: Step, at: datetime
) -> tuple[Sequence[BlockRef], Mapping[str, int]]:
    """Return the blocks that the agent had at the end of a step, and which of their versions the log had shown.

    Args:
        at: the end of the step.
    """
    found = {block.id: (block, isolated) for block, isolated in _blocks(tx, agent.id, conversation.seq)}
    for key in filter(is_block_key, prefix.seen):
        if BlockId(key) not in found:
            try:
                found[BlockId(key)] = (tx.blocks.get(BlockId(key)), False)
            except NotFound:
                continue
    blocks: list[BlockRef] = []
    seen: dict[str, int] = {}
    for block, isolated in found.values():
        versions = tx.blocks.versions(block.id, limit=VERSIONS)
        known = [one for one in versions if one.created_at <= at and not _is_of_later_run(tx, one, run)]
        if not known:
            continue
        shown = [one for one in known if one.created_at <= step.created_at or one.author.run_id == run.id]
        version, label = known[0].version, known[0].label
        blocks.append(BlockRef(id=block.id, label=label, version=version, isolated=isolated))
        if shown:
            seen[block.id] = shown[0].version
    return blocks, seen


def _is_of_later_run(tx: Tx, version: BlockVersion, run: Run) -> bool:
    """Return whether a version was written by a run of the agent that began after this one."""
    author = version.author
    if author.run_id in (None, run.id) or author.agent_id != run.key.agent_id:
        return False
    try:
        return tx.runs.get(author.run_id, hidden=True).key.seq > run.key.seq
    except NotFound:
        return False


def rows_of(tx: Tx, moment: SavePoint, from_seq: int) -> Sequence[Message]:
    """Return the messages in view at a moment, from one on, as they are shown now: without what was removed since, but
    including those that have left the view."""
    rows = tx.messages.list(
        moment.agent_id,
        conversation_seq=moment.conversation_seq,
        after_seq=from_seq - 1,
        before_seq=moment.upto_seq + 1,
        limit=ALL,
        kinds=None,
        reset=True,
    )
    return [row for row in rows if not any(first <= row.seq <= last for first, last, *_ in moment.gaps)]


def request_of(tx: Tx, moment: SavePoint) -> bytes:
    """Return what the request that follows a moment begins with, read from the log."""
    if moment.prefix_seq is None:
        return _plain_bytes(rows_of(tx, moment, moment.first_seq))
    prefix = tx.prefixes.get(moment.agent_id, moment.prefix_seq)
    pinned = [row for seq in prefix.pinned for row in rows_of(tx, moment, seq) if row.seq == seq]
    return _bytes(prefix, pinned, rows_of(tx, moment, prefix.from_message_seq), moment.stubs, moment.model)


def next_request(tx: Tx, agent_id: AgentId, conversation_seq: int) -> bytes:
    """Return what the next request of a conversation begins with, as the engine builds it."""
    conversation = tx.conversations.get_by_seq(agent_id, conversation_seq)
    model = tx.agents.get(agent_id).model
    if conversation.prefix_seq is None:
        view = tx.messages.view(agent_id, conversation_seq, from_seq=conversation.first_seq, upto_seq=NEWEST)
        return _plain_bytes(view)
    prefix = tx.prefixes.get(agent_id, conversation.prefix_seq)
    pinned = tx.messages.list_by_seqs(agent_id, prefix.pinned) if prefix.pinned else ()
    rows = tx.messages.view(agent_id, conversation_seq, from_seq=prefix.from_message_seq, upto_seq=NEWEST)
    return _bytes(prefix, pinned, rows, conversation.stubs, model)


def _bytes(
    prefix: Prefix, pinned: Sequence[Message], rows: Sequence[Message], stubs: Mapping[int, int], model: str
) -> bytes:
    """Return a request of these rows, and behind it the rows with calls that wait."""
    closed = without_open_calls([*rows])
    view = View.of(prefix, pinned, stubs).with_rows(closed)
    return canonical(view.request(model)) + _plain_bytes(rows[len(closed) :])


def hash_of_request(request: bytes) -> str:
    """Return the SHA-256 of what a request begins with."""
    return hashlib.sha256(request).hexdigest()


def _plain_bytes(rows: Sequence[Message]) -> bytes:
    """Return the roles and parts of rows."""
    lines = [f"{row.role} {row.kind} {parts_to_json(row.parts)}\n" for row in rows]
    return "".join(lines).encode("utf-8", "surrogatepass")
