"""Taking writes of memory back: one, or all that came from a source. It is a correction, so it can be undone.

A block loses what the write put into it, and gets back what it took away. If the block was edited since, that is merged
by lines; where both changed the same lines, nothing is done and the conflict is told. Passages and facts go as when
they are forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from types import MappingProxyType
from typing import Any, TypeVar

from perdure.core.blocks import Author, Block
from perdure.core.errors import InvalidInput
from perdure.core.forgetting.corrections import Correction, CorrectionItem
from perdure.core.ids import AgentId, ArchiveId, BlockId, PassageId
from perdure.core.sources import MemoryWrite, WriteKind
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

T = TypeVar("T")

MOST = 10_000
"""How many writes one revert takes back."""


@dataclass(slots=True)
class _Progress:
    """What a revert has done so far."""

    writes: list[str] = field(default_factory=list)
    conflicts: list[RevertConflict] = field(default_factory=list)
    blocks: int = 0
    passages: int = 0
    facts: int = 0
    correction: Correction | None = None

    def add(self, step: _Progress) -> None:
        """Add what one transaction has done."""
        self.writes += step.writes
        self.conflicts += step.conflicts
        self.blocks += step.blocks
        self.passages += step.passages
        self.facts += step.facts
        self.correction = step.correction or self.correction

    def result(self, *, is_dry_run: bool) -> RevertResult:
        return RevertResult(
            writes=tuple(self.writes),
            conflicts=tuple(self.conflicts),
            blocks=self.blocks,
            passages=self.passages,
            facts=self.facts,
            correction=None if self.correction is None else self.correction.number,
            is_dry_run=is_dry_run,
        )


async def revert(
    ports: Ports, agent_id: AgentId, writes: Sequence[MemoryWrite], *, title: str, author: Author, dry_run: bool
) -> RevertResult:
    """Take writes of an agent's memory back, in steps of bounded size; with `dry_run` only say what that would do.

    Raises: NotFound; ConversationBusy: a run has not ended; InvalidInput: too many writes.
    """
    left = [write for write in writes if write.reverted_by is None]
    if len(left) > MOST:
        raise InvalidInput(f"{len(left):,} writes are more than one revert takes back: name at most {MOST:,}")
    if not dry_run:
        await ports.store.read(check_idle, [agent_id])
    progress = _Progress()
    blocks = [write for write in left if write.kind == "block"]
    blocks.sort(key=lambda write: (write.owner_id, -int(write.ref)))
    for _, of_block in groupby(blocks, key=lambda write: write.owner_id):
        for part in _parts(list(of_block), STEP):
            if dry_run:
                progress.add(await ports.store.read(lambda tx, part: _step_of(plan_block(tx, part), None), part))
            else:
                step = await ports.store.write(
                    _revert_block, agent_id, part, ports.inputs(), progress.correction, title, author
                )
                progress.add(step)
    for part in _parts([write for write in left if write.kind != "block"], STEP):
        if dry_run:
            progress.add(await ports.store.read(_count_others, part))
        else:
            step = await ports.store.write(_revert_others, agent_id, part, ports.inputs(), progress.correction, title)
            progress.add(step)
    return progress.result(is_dry_run=dry_run)


def _parts(values: Sequence[T], size: int) -> Sequence[Sequence[T]]:
    return [values[at : at + size] for at in range(0, len(values), size)]


# --- blocks


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A block without some writes: its value then, the versions that are taken back, and those that can't be."""

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


def _step_of(plan: BlockPlan, correction: Correction | None) -> _Progress:
    """What carrying out a plan does."""
    writes = [f"{plan.block.id}@{ref}" for ref in plan.refs]
    return _Progress(writes=writes, conflicts=[*plan.conflicts], blocks=len(plan.refs), correction=correction)


def _revert_block(
    tx: Tx,
    agent_id: AgentId,
    writes: Sequence[MemoryWrite],
    inputs: UnitInputs,
    correction: Correction | None,
    title: str,
    author: Author,
) -> _Progress:
    """Take these writes of one block back, and record it."""
    tx.agents.lock(agent_id)
    plan = plan_block(tx, writes)
    items: list[CorrectionItem] = []
    if plan.value != plan.block.value:
        items.append(put_block_value(tx, plan.block.id, plan.value, author=author, at=inputs.now))
    if plan.refs:
        correction = record(tx, agent_id, "revert", title, items, at=inputs.now, correction=correction)
        tx.of(Journal).mark_reverted(plan.block.id, plan.refs, reverted_by(correction))
        tx.of(TextMentions).revise_settings(agent_id)
        renew_system_message(tx, agent_id, 0, inputs)
    return _step_of(plan, correction)


def reverted_by(correction: Correction) -> str:
    """Return how a write names the correction that took it back."""
    return f"{correction.agent_id}/{correction.number}"


# --- passages and facts


def _count_others(tx: Tx, writes: Sequence[MemoryWrite]) -> _Progress:
    progress = _Progress()
    for write in writes:
        if write.kind == "passage" and tx.passages.find_places([PassageId(write.ref)]):
            progress.passages += 1
            progress.writes.append(write.id)
        elif write.kind == "fact" and (count := len(keeper_of("fact").list_alone(tx, write))):
            progress.facts += count
            progress.writes.append(write.id)
    return progress


def _revert_others(
    tx: Tx,
    agent_id: AgentId,
    writes: Sequence[MemoryWrite],
    inputs: UnitInputs,
    correction: Correction | None,
    title: str,
) -> _Progress:
    """Take these passages out of their archives, and the episodes with what only they support out of graphs."""
    tx.agents.lock(agent_id)
    progress, items = _Progress(), list[CorrectionItem]()
    done: list[MemoryWrite] = []
    for write in writes:
        if write.kind == "passage":
            archive_id = ArchiveId(write.owner_id)
            places = tx.passages.find_places([PassageId(write.ref)])
            passages = tx.passages.list_by_seqs(archive_id, [seq for _, seq in places.values()])
            for passage in passages:
                delete_passage(tx, passage, at=inputs.now)
                items.append(passage_item(passage, None))
                progress.passages += 1
        else:
            keeper = keeper_of(write.kind)
            progress.facts += len(keeper.list_alone(tx, write))
            if (item := keeper.take_back(tx, write, inputs.now)) is None:
                continue
            items.append(item)
        done.append(write)
    if not items:
        return progress
    correction = record(tx, agent_id, "revert", title, items, at=inputs.now, correction=correction)
    for write in done:
        tx.of(Journal).mark_reverted(write.owner_id, [write.ref], reverted_by(correction))
    renew_system_message(tx, agent_id, 0, inputs)
    progress.correction = correction
    progress.writes += [write.id for write in done]
    return progress


def write_of_version(tx: Tx, block_id: BlockId, version: int) -> MemoryWrite:
    """Return a version of a block as a write, also of one whose sources are not known. Raises: NotFound."""
    stored = tx.blocks.version(block_id, version)
    author = stored.author
    made_by = {"agent_id": author.agent_id, "run_id": author.run_id, "message_id": author.message_id}
    return _write_of(tx, "block", block_id, str(version), at=stored.created_at, made_by=made_by)


def write_of_passage(tx: Tx, passage_id: PassageId) -> MemoryWrite:
    """Return the making of a passage as a write. Raises: NotFound."""
    passage = tx.passages.get(passage_id)
    return _write_of(tx, "passage", passage.archive_id, passage_id, at=passage.created_at)


def write_of_episode(tx: Tx, episode_id: str) -> MemoryWrite:
    """Return what was extracted from an episode as a write. Raises: NotFound."""
    owner_id, at = keeper_of("fact").find_write(tx, episode_id)
    return _write_of(tx, "fact", owner_id, episode_id, at=at)


def _write_of(
    tx: Tx, kind: WriteKind, owner_id: str, ref: str, *, at: datetime, made_by: Mapping[str, Any] = MappingProxyType({})
) -> MemoryWrite:
    """Return a write as it is known, or else without sources."""
    new = MemoryWrite(kind=kind, owner_id=owner_id, ref=ref, sources=(), created_at=at, **made_by)
    return next(iter(tx.sources.list_by_refs(owner_id, [ref])), new)
