"""A new agent from a moment of another one: its log is copied in steps, then checked, and only then shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.agents import OWN_TAGS, AgentFilter, check_name
from perdure.core.blocks import Author
from perdure.core.ids import AgentId, BlockId, derived_id
from perdure.domain.archives.passages import find_own_archive
from perdure.domain.conversations.agent_copies import copy_agent, forgotten_texts, restore_agent
from perdure.engine.conversations.reset import delete_agent
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.reading import AGAIN_MAX, ReadingChanged
from perdure.features.snapshots.copied_rows import TABLES, AgentRows, NewIds, Row
from perdure.features.snapshots.moments import block_at, hash_of_request, request_of
from perdure.features.snapshots.units import apply_moment, moment_of_copy, unforgotten_value
from perdure.features.snapshots.values import BlockAt, Moment
from perdure.library.agents.agents import AGENT_STATES, RENAME_HELPS, SET_BELONGINGS, name_for
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


async def clone_agent(
    moment: Moment, name: str, ports: Ports, *, author: Author, progress: Progress
) -> tuple[AgentId, Sequence[str]]:
    """Make an agent of this name from a moment of another one; return its id, and what it has not got, a sentence each.

    Raises: NotFound, NameInvalid, AlreadyExists; SnapshotDiffers: no agent is made.
    """
    await _remove_given_up(moment.agent_id, ports)
    for _ in range(AGAIN_MAX):
        target = AgentId(ports.ids.new("agent"))
        revision = await ports.store.write(_begin, moment, target, name, ports.inputs(), author=author)
        try:
            await _copy_rows(moment, target, ports, progress)
            left = await ports.store.write(_finish, moment, target, revision, ports, ports.inputs(), author=author)
        except ReadingChanged:  # a message was edited or forgotten meanwhile
            await delete_agent(target, ports)
            continue
        except BaseException:
            await delete_agent(target, ports)
            raise
        return target, left
    raise ReadingChanged


async def _remove_given_up(source: AgentId, ports: Ports) -> None:
    """Remove the clones of an agent that a process which died has left."""
    before = ports.clock.now() - GIVEN_UP_AFTER
    where = AgentFilter(tags=(UNFINISHED,), hidden=True)
    found = await ports.store.read(lambda tx: tx.agents.page(where=where, limit=1_000))
    for agent in found:
        if agent.metadata.get(OF) == source and agent.created_at < before:
            await delete_agent(agent.id, ports)


def _begin(tx: Tx, moment: Moment, target: AgentId, name: str, inputs: UnitInputs, *, author: Author) -> int:
    """Add the hidden agent that becomes the clone; return the settings revision of the original."""
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
    return source.settings_revision


async def _copy_rows(moment: Moment, target: AgentId, ports: Ports, progress: Progress) -> None:
    """Copy the log up to the moment, some rows at a time."""
    upto = await ports.store.read(_end_of, moment)
    ids, done = await ports.store.read(_new_ids, moment, target), 0

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


def _new_ids(tx: Tx, moment: Moment, target: AgentId) -> NewIds:
    """Return the ids of the rows of the clone `target`."""
    return NewIds(target, {at.id: _block_id(target, at.id) for at, _ in _copied_blocks(tx, moment)})


def _copied_blocks(tx: Tx, moment: Moment) -> Sequence[tuple[BlockAt, int | None]]:
    """Return the blocks of a moment, and as they are now those that only other conversations show, each with the number
    of the conversation that alone has it."""
    source, line, labels = moment.agent_id, moment.conversation_seq, [at.label for at in moment.blocks]
    alone = {at.label for at in moment.blocks if at.isolated}
    own = [at for at in moment.blocks if not at.isolated]
    own += [block_at(block) for block in tx.blocks.list_by_agent(source, _NO_LINE) if block.label in alone]
    found: list[tuple[BlockAt, int | None]] = [(at, None) for at in sorted(own, key=lambda at: labels.index(at.label))]
    found += [(at, line) for at in moment.blocks if at.isolated]
    for other in tx.conversations.list(source, limit=_NEWEST):
        for block_id in tx.blocks.list_isolated(source, other.seq).values() if other.seq != line else ():
            found += [] if block_id is None else [(block_at(tx.blocks.get(block_id)), other.seq)]
    return found


def _block_id(target: AgentId, block_id: str) -> BlockId:
    """Return the id of a copied block."""
    return BlockId(derived_id("block", target, block_id))


def _end_of(tx: Tx, moment: Moment) -> Mapping[str, int]:
    """Return the last numbers of what a moment holds, by the names in `LogTable.upto`."""
    last = {"last_run": _NEWEST, "last_step": _NEWEST, "last_prefix": _NEWEST}
    if moment.step_id is not None:
        step = tx.steps.get(moment.step_id)
        last = {"last_run": step.run_seq, "last_step": step.index, "last_prefix": step.recipe.prefix_seq}
    of_line = {"line": moment.conversation_seq, "next_node": moment.next_node}
    return {"upto": moment.upto_seq, "revision": moment.settings_revision, **of_line, **last}


def _finish(
    tx: Tx, moment: Moment, target: AgentId, revision: int, ports: Ports, inputs: UnitInputs, *, author: Author
) -> Sequence[str]:
    """Give the clone what is no log, check its next request, and show it. Raises: ReadingChanged: the original was
    changed since it was copied."""
    tx.agents.lock(moment.agent_id)
    source = tx.agents.get(moment.agent_id)
    if source.settings_revision != revision:
        raise ReadingChanged
    ids, isolated = _new_ids(tx, moment, target), []
    tx.of(AgentRows).finish(target, moment)
    forgotten = forgotten_texts(tx, moment.agent_id)
    for at, line in _copied_blocks(tx, moment):
        block_id, value = _block_id(target, at.id), unforgotten_value(tx, at, forgotten)
        if value is None:
            continue
        tx.of(AgentRows).add_block(at, block_id, value=value)
        if line is None:
            tx.blocks.attach(target, block_id)
        else:
            isolated.append((line, at.label, block_id))
    left = [*_copy_memory(tx, moment, target, ports, inputs, author=author)]
    for one in isolated:
        tx.blocks.isolate(target, *one)
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
        moment_of_copy(tx, moment, moment.conversation_seq, ids),
        inputs,
        author=author,
        expected=hash_of_request(request_of(tx, moment)),
        original=moment.agent_id,
    )
    return left


def _copy_memory(
    tx: Tx, moment: Moment, target: AgentId, ports: Ports, inputs: UnitInputs, *, author: Author
) -> Sequence[str]:
    """Give the clone the archives, folders and other memory that the original has now; return what is left out."""
    source, upto = moment.agent_id, moment.upto_seq + 1
    seqs = [one.seq for one in tx.conversations.list(target, limit=_NEWEST)]
    pages = {seq: tx.messages.list(source, conversation_seq=seq, limit=_NEWEST, before_seq=upto) for seq in seqs}
    copy = copy_agent(tx, source, {seq: [row.id for row in rows] for seq, rows in pages.items()})
    copy = replace(
        copy,
        block_values={},
        parts={name: part for name, part in copy.parts.items() if name not in _LEFT_OUT_PARTS},
        conversations=[replace(one, blocks={}) for one in copy.conversations],
    )
    left = [*restore_agent(tx, target, copy, seqs, author=author, ids=inputs.ids, at=inputs.now)]
    own = find_own_archive(tx, source)
    for archive in tx.archives.list_by_agent(source):
        if own is None or archive.id != own.id or len(tx.owners.list_agents("archives", own.id)) > 1:
            tx.archives.attach(target, archive.id)
    folders = [
        state["folders"] for found in AGENT_STATES(tx, [source]) for state in found.values() if "folders" in state
    ]
    if SET_BELONGINGS.functions:
        SET_BELONGINGS(tx, ports, target, {"folders": [one.id for some in folders for one in some]})
    if names := [secret.name for secret in tx.secrets.list(source)]:
        left.append(f"its secrets are not copied: {', '.join(names)}")
    return left
