"""A new agent from a moment of another one: its log is copied in steps, then checked, and only then shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from perdure.core.agents import OWN_TAGS, AgentFilter, check_name
from perdure.core.blocks import Author
from perdure.core.forgetting.corrections import Correction
from perdure.core.ids import AgentId, BlockId, derived_id
from perdure.core.passages import Passage
from perdure.core.tasks import to_the_end
from perdure.domain.archives.passages import find_own_archive
from perdure.domain.conversations.agent_copies import (
    FileRows,
    Forgotten,
    copy_agent,
    list_forgotten,
    read_rows_of_copy,
    redactors_of,
    restore_agent,
)
from perdure.domain.conversations.copy_values import AgentCopy
from perdure.domain.values import BATCH_CHARS
from perdure.engine.conversations.reset import delete_agent
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.reading import AGAIN_MAX, ModelInputChanged
from perdure.features.snapshots.copied_rows import ROWS_AT_ONCE, TABLES, AgentRows, BlockCopy, NewIds, Row
from perdure.features.snapshots.moments import block_at, hash_of_request, request_of
from perdure.features.snapshots.units import apply_moment, moment_of_copy, unforgotten_value
from perdure.features.snapshots.values import BlockRef, SavePoint
from perdure.library.agents.agents import AGENT_STATES, RENAME_HELPS, SET_BELONGINGS, name_for
from perdure.library.runs.steps import HAS_ERASED
from perdure.library.transfer import copy_passages
from perdure.storage.tx import Tx

UNFINISHED = f"{OWN_TAGS}unfinished"
"""The tag of a clone that is not whole yet."""
OF = "clone_of"
"""Where the metadata of a clone hold the agent that it was made of, while it is not whole."""
GIVEN_UP_AFTER = timedelta(hours=1)
"""A clone that is not whole after so long was left by a process that died."""
_NEWEST, _NO_LINE = 1 << 32, -1
_LEFT_OUT_PARTS = ("schedules",)
"""Data of features that a clone does not get: it would do the same twice."""

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What a clone gets beside the log, read at one moment.

    Args:
        at: the time before it was read.
        revision: the settings revision of the agent.
        forgotten, redactors: what the agent has forgotten.
        request: the hash of what the next request of the moment begins with.
        ids: those of the copied rows.
    """

    at: datetime
    revision: int
    forgotten: Sequence[Correction]
    redactors: Forgotten
    request: str
    ids: NewIds
    blocks: Sequence[BlockCopy]
    copy: AgentCopy


async def clone_agent(
    moment: SavePoint, name: str, ports: Ports, *, author: Author, progress: Progress
) -> tuple[AgentId, Sequence[str]]:
    """Make an agent of this name from a moment of another one; return its id, and what it has not got, a sentence each.

    Raises: NotFound, NameInvalid, AlreadyExists; SnapshotDiffers: no agent is made.
    """
    await _remove_given_up(moment.agent_id, ports)
    for _ in range(AGAIN_MAX):
        target = AgentId(ports.ids.new("agent"))
        original = await ports.store.read(_read_original, moment, target, ports.clock.now())
        await ports.store.write(_begin, moment, target, name, ports.inputs(), author=author)
        try:
            await _copy_rows(moment, original.ids, ports, progress)
            await _copy_blocks(original, ports)
            passages = await copy_passages(ports, target, original.copy.passages)
            rows = await ports.store.read(_read_rows, original, passages)
            left = await ports.store.write(_finish, moment, original, rows, ports, ports.inputs(), author=author)
        except BaseException as error:
            await to_the_end(delete_agent(target, ports))
            if not isinstance(error, ModelInputChanged):  # a text was edited, forgotten or erased meanwhile
                raise
            continue
        return target, left
    raise ModelInputChanged


async def _remove_given_up(source: AgentId, ports: Ports) -> None:
    """Remove unfinished clones of an agent, left by a process that died."""
    before = ports.clock.now() - GIVEN_UP_AFTER
    where = AgentFilter(tags=(UNFINISHED,), hidden=True)
    found = await ports.store.read(lambda tx: tx.agents.page(where=where, limit=1_000))
    for agent in found:
        if agent.metadata.get(OF) == source and agent.created_at < before:
            await delete_agent(agent.id, ports)


def _begin(tx: Tx, moment: SavePoint, target: AgentId, name: str, inputs: UnitInputs, *, author: Author) -> None:
    """Add the hidden agent that becomes the clone."""
    check_name(name)
    name_for(tx, name, "refuse", helps=RENAME_HELPS)
    source = tx.agents.get(moment.agent_id)
    tx.agents.add(
        replace(
            source,
            id=target,
            name=name,
            hidden=True,
            tags=(UNFINISHED,),
            metadata={OF: source.id},
            settings={},
            settings_revision=0,
            created_at=inputs.now,
            updated_at=inputs.now,
            created_by=author.id,
            updated_by=author.id,
        )
    )


def _read_original(tx: Tx, moment: SavePoint, target: AgentId, at: datetime) -> _Source:
    """Read what a clone `target` gets beside the log, with the memory that the original has now."""
    source, upto = moment.agent_id, moment.upto_seq + 1
    forgotten, found = list_forgotten(tx, source), _copied_blocks(tx, moment)
    redactors = redactors_of(forgotten)
    ids = NewIds(target, {at.id: derived_id("block", target, at.id) for at, _ in found})
    values = [(at, line, unforgotten_value(tx, at, redactors)) for at, line in found]
    seqs = [one.seq for one in tx.conversations.list(source, limit=_NEWEST)]
    lines = {seq: tx.messages.list(source, conversation_seq=seq, limit=_NEWEST, before_seq=upto) for seq in seqs}
    copy = copy_agent(tx, source, lines)
    return _Source(
        at=at,
        revision=tx.agents.get(source).settings_revision,
        forgotten=forgotten,
        redactors=redactors,
        request=hash_of_request(request_of(tx, moment)),
        ids=ids,
        blocks=[
            BlockCopy(at, BlockId(ids.blocks[at.id]), value, line) for at, line, value in values if value is not None
        ],
        copy=replace(
            copy,
            block_values={},
            parts={name: part for name, part in copy.parts.items() if name not in _LEFT_OUT_PARTS},
            conversations=[replace(conversation, blocks={}) for conversation in copy.conversations],
        ),
    )


async def _copy_rows(moment: SavePoint, ids: NewIds, ports: Ports, progress: Progress) -> None:
    """Copy the log up to the moment, some rows at a time."""
    upto, done = await ports.store.read(_end_of, moment), 0

    def copy(tx: Tx, table: str, after: Sequence[Any] | None) -> list[Row]:
        """Copy the rows behind a key; return them."""
        rows = tx.of(AgentRows).read(table, moment.agent_id, after=after, upto=upto)
        tx.of(AgentRows).add(table, rows, ids)
        return rows

    for table, (key, _) in TABLES.items():
        after = None
        while rows := await ports.store.write(copy, table, after):
            after = [rows[-1][name] for name in key.split(", ")]
            done += len(rows)
            progress(done)


async def _copy_blocks(original: _Source, ports: Ports) -> None:
    """Copy the blocks with their versions, some at a time. Raises: ModelInputChanged: one of them was deleted."""
    blocks, place, after = original.blocks, 0, -1

    def begin(tx: Tx) -> None:
        """Add the blocks without their versions."""
        tx.of(AgentRows).add_blocks(blocks)
        tx.unfinished.link("blocks", original.ids.target, [copy.id for copy in blocks])

    def copy_some(tx: Tx, place: int, after: int) -> tuple[int, int]:
        """Copy versions from one of a block on; return the place of the next block, and the last version it has."""
        rows = chars = 0
        while place < len(blocks) and rows < ROWS_AT_ONCE and chars < BATCH_CHARS:
            found = tx.of(AgentRows).add_versions(blocks[place], after)
            if not found:
                raise ModelInputChanged
            rows, chars = rows + len(found), chars + sum(len(row["value"]) + len(row["diff"]) for row in found)
            is_whole = found[-1]["version"] == blocks[place].at.version
            place, after = (place + 1, -1) if is_whole else (place, found[-1]["version"])
        return place, after

    if blocks:
        await ports.store.write(begin)
    while place < len(blocks):
        place, after = await ports.store.write(copy_some, place, after)


def _copied_blocks(tx: Tx, moment: SavePoint) -> Sequence[tuple[BlockRef, int | None]]:
    """Return the blocks of a moment, and the present blocks that only other conversations show, each with the number of
    the conversation that it belongs to."""
    source, line, labels = moment.agent_id, moment.conversation_seq, [at.label for at in moment.blocks]
    alone = {at.label for at in moment.blocks if at.isolated}
    own = [at for at in moment.blocks if not at.isolated]
    own += [block_at(block) for block in tx.blocks.list_by_agent(source, _NO_LINE) if block.label in alone]
    found: list[tuple[BlockRef, int | None]] = [(at, None) for at in sorted(own, key=lambda at: labels.index(at.label))]
    found += [(at, line) for at in moment.blocks if at.isolated]
    for other in tx.conversations.list(source, limit=_NEWEST):
        for block_id in tx.blocks.list_isolated(source, other.seq).values() if other.seq != line else ():
            found += [] if block_id is None else [(block_at(tx.blocks.get(block_id)), other.seq)]
    return found


def _end_of(tx: Tx, moment: SavePoint) -> Mapping[str, int]:
    """Return the last numbers of what a moment holds, by the names in `LogTable.upto`."""
    last = {"last_run": _NEWEST, "last_step": _NEWEST, "last_prefix": _NEWEST}
    if moment.step_id is not None:
        step = tx.steps.get(moment.step_id)
        last = {"last_run": step.run_seq, "last_step": step.index, "last_prefix": step.recipe.prefix_seq}
    of_line = {"line": moment.conversation_seq, "next_node": moment.next_node}
    return {"upto": moment.upto_seq, "revision": moment.settings_revision, **of_line, **last}


def _read_rows(tx: Tx, original: _Source, passages: Mapping[str, Passage]) -> FileRows:
    """Return the rows that the clone has."""
    target = original.ids.target
    seqs = [conversation.seq for conversation in tx.conversations.list(target, limit=_NEWEST)]
    return read_rows_of_copy(tx, target, original.copy, seqs, passages)


def _finish(
    tx: Tx, moment: SavePoint, original: _Source, rows: FileRows, ports: Ports, inputs: UnitInputs, *, author: Author
) -> Sequence[str]:
    """Finish the clone, check its next request, and show it. Raises: ModelInputChanged: the original changed."""
    source_id, target = moment.agent_id, original.ids.target
    tx.agents.lock(source_id)
    source, forgotten = tx.agents.get(source_id), original.forgotten
    is_changed = source.settings_revision != original.revision or list_forgotten(tx, source_id) != forgotten
    if is_changed or any(HAS_ERASED(tx, source_id, original.at)):
        raise ModelInputChanged
    left = [*restore_agent(tx, target, original.copy, rows, author=author, ids=inputs.ids, at=inputs.now)]
    left += _copy_belongings(tx, moment, target, ports)
    for block in original.blocks:
        if block.line is not None:
            tx.blocks.detach(target, block.id)
            tx.blocks.isolate(target, block.line, block.at.label, block.id)
    tx.of(AgentRows).finish(target, moment)
    clone = tx.agents.get(target)
    tx.agents.put(
        replace(
            clone,
            hidden=source.hidden,
            tags=tuple(tag for tag in source.tags if tag != UNFINISHED),
            metadata={name: value for name, value in source.metadata.items() if name != OF},
        )
    )
    left += apply_moment(
        tx,
        target,
        moment_of_copy(tx, moment, moment.conversation_seq, original.ids),
        inputs,
        author=author,
        expected=original.request,
        forgotten=original.redactors,
    )
    return left


def _copy_belongings(tx: Tx, moment: SavePoint, target: AgentId, ports: Ports) -> Sequence[str]:
    """Give the clone the folders and the shared archives that the original has now; return what is left out."""
    source = moment.agent_id
    own = find_own_archive(tx, source)
    is_copied = own is not None and len(tx.owners.list_agents("archives", own.id)) == 1
    others = [archive.id for archive in tx.archives.list_by_agent(source) if not (is_copied and archive == own)]
    tx.archives.attach(target, *others)
    folders = [
        state["folders"] for found in AGENT_STATES(tx, [source]) for state in found.values() if "folders" in state
    ]
    if SET_BELONGINGS.functions:
        SET_BELONGINGS(tx, ports, target, {"folders": [one.id for some in folders for one in some]})
    names = [secret.name for secret in tx.secrets.list(source)]
    return [f"its secrets are not copied: {', '.join(names)}"] if names else []
