"""Taking writes of memory back: one, or all that came from a source. It is a correction, so it can be undone.

A block loses what the write put into it, and gets back what it took away. If the block was edited since, that is merged
by lines; where both changed the same lines, nothing is done and the conflict is told. Passages and facts go as when
they are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from perdure.core.blocks import Author, Block
from perdure.core.errors import InvalidInput
from perdure.core.forgetting.corrections import CorrectionItem
from perdure.core.ids import AgentId, ArchiveId, BlockId, PassageId
from perdure.core.sources import MemoryWrite
from perdure.core.text.line_diff import merge_lines
from perdure.domain.archives.passages import delete_passage
from perdure.domain.corrections import passage_item, put_block_value, record
from perdure.domain.texts import keeper_of
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.features.origins.forget import STEP, check_idle
from perdure.features.origins.mentions import TextMentions
from perdure.features.origins.tables import Journal
from perdure.features.origins.values import RevertConflict, RevertResult
from perdure.storage.tx import Tx

MOST = 10_000
"""How many writes one revert takes back."""


async def revert(
    ports: Ports, agent_id: AgentId, writes: Sequence[MemoryWrite], *, title: str, author: Author, dry_run: bool
) -> RevertResult:
    """Take writes of an agent's memory back, in steps of bounded size; with `dry_run` only say what that would do.
    Raises: NotFound; ConversationBusy: a run has not ended; InvalidInput: too many writes."""
    unreverted = [write for write in writes if write.reverted_by is None]
    if len(unreverted) > MOST:
        raise InvalidInput(f"{len(unreverted):,} writes are more than one revert takes back: name at most {MOST:,}")
    if not dry_run:
        await ports.store.read(check_idle, [agent_id])
    blocks = sorted(
        (write for write in unreverted if write.kind == "block"), key=lambda write: (write.owner_id, -int(write.ref))
    )
    groups = [list(of_block) for _, of_block in groupby(blocks, key=lambda write: write.owner_id)]
    groups.append([write for write in unreverted if write.kind != "block"])
    done = RevertResult(writes=(), is_dry_run=dry_run)
    for group in groups:
        for at in range(0, len(group), STEP):
            part = group[at : at + STEP]
            if dry_run:
                step = await ports.store.read(lambda tx, part: _take_back(tx, part, None, author)[0], part)
            else:
                step = await ports.store.write(
                    _revert_step, agent_id, part, ports.inputs(), done.correction, title, author
                )
            done = replace(
                done,
                writes=(*done.writes, *step.writes),
                conflicts=(*done.conflicts, *step.conflicts),
                blocks=done.blocks + step.blocks,
                passages=done.passages + step.passages,
                facts=done.facts + step.facts,
                correction=step.correction or done.correction,
            )
    return done


def _revert_step(
    tx: Tx,
    agent_id: AgentId,
    writes: Sequence[MemoryWrite],
    inputs: UnitInputs,
    number: int | None,
    title: str,
    author: Author,
) -> RevertResult:
    """Take back writes, all of one block or none of a block, and record it in the correction `number`, or a new one."""
    tx.agents.lock(agent_id)
    result, items = _take_back(tx, writes, inputs, author)
    is_block = writes[0].kind == "block"
    if not (result.writes if is_block else items):
        return replace(result, writes=())
    correction = None if number is None else tx.corrections.get(agent_id, number)
    correction = record(tx, agent_id, "revert", title, items, at=inputs.now, correction=correction)
    for write in writes:
        if write.id in result.writes:
            tx.of(Journal).mark_reverted(write.owner_id, [write.ref], f"{agent_id}/{correction.number}")
    if is_block:
        tx.of(TextMentions).revise_settings(agent_id)
    renew_system_message(tx, agent_id, 0, inputs)
    return replace(result, correction=correction.number)


def _take_back(
    tx: Tx, writes: Sequence[MemoryWrite], inputs: UnitInputs | None, author: Author
) -> tuple[RevertResult, Sequence[CorrectionItem]]:
    """Undo writes, all of one block or none of a block; without `inputs` only find out what that would do. Return the
    result, and the data to undo it again. Raises: NotFound."""
    if writes[0].kind == "block":
        plan = plan_block(tx, writes)
        ids = [f"{plan.block.id}@{ref}" for ref in plan.refs]
        result = RevertResult(writes=ids, conflicts=plan.conflicts, blocks=len(ids))
        if inputs is None or plan.value == plan.block.value:
            return result, ()
        return result, [put_block_value(tx, plan.block.id, plan.value, author=author, at=inputs.now)]
    done, items, passages, facts = list[str](), list[CorrectionItem](), 0, 0
    for write in writes:
        if write.kind == "passage":
            places = tx.passages.find_places([PassageId(write.ref)])
            found = tx.passages.list_by_seqs(ArchiveId(write.owner_id), [seq for _, seq in places.values()])
            if inputs is None and not found:
                continue
            passages += len(found)
            if inputs is not None:
                for passage in found:
                    delete_passage(tx, passage, at=inputs.now)
                    items.append(passage_item(passage, None))
        else:
            keeper = keeper_of(write.kind)
            alone = len(keeper.list_alone(tx, write))
            item = None if inputs is None else keeper.take_back(tx, write, inputs.now)
            if not (alone if inputs is None else item):
                continue
            facts += alone
            items += [] if item is None else [item]
        done.append(write.id)
    return RevertResult(writes=done, passages=passages, facts=facts), items


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A block when some writes are undone: its value, the versions undone (`refs`), those that conflict."""

    block: Block
    value: str
    refs: Sequence[str]
    conflicts: Sequence[RevertConflict]


def plan_block(tx: Tx, writes: Sequence[MemoryWrite]) -> BlockPlan:
    """Return what a block becomes without these writes, the newest of which comes first. Raises: NotFound."""
    block = tx.blocks.get(BlockId(writes[0].owner_id))
    value, refs, conflicts = block.value, list[str](), list[RevertConflict]()
    for write in writes:
        number = int(write.ref)
        after = tx.blocks.version(block.id, number).value
        before = tx.blocks.version(block.id, number - 1).value if number else ""
        merge = merge_lines(after, value, before)
        if merge.is_clean:
            value = merge.text
            refs.append(write.ref)
        else:
            reason = f"block {block.label!r} was edited in the same lines after version {number}"
            conflicts.append(
                RevertConflict(write_id=write.id, name=block.label, reason=reason, value=block.value, merged=merge.text)
            )
    return BlockPlan(block, value, refs, conflicts)
