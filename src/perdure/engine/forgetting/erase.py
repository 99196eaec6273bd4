"""Removing a text from the store itself: from logs, old versions, recorded requests, indexes and free space.

Rows are changed in small transactions that also store the progress, so a killed process's erasure is finished by the
next recovery of any process. Then the full-text index is merged, and the file written anew.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from perdure.core.blocks import Author
from perdure.core.errors import Conflict, NotFound, PerdureError
from perdure.core.features import Point
from perdure.core.forgetting.redaction import Redactor
from perdure.core.forgetting.values import Erasure, ForgetResult, Key, Place
from perdure.core.ids import AgentId, ArchiveId, BlockId
from perdure.domain.texts import TEXTS_DELETED, keepers
from perdure.engine.compaction.revise import revise_nodes
from perdure.engine.conversations.reset import delete
from perdure.engine.forgetting.find import Progress, find_mentions, targets_of
from perdure.engine.forgetting.forget import check_idle, put_block_value
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.engine.records.leases import is_dead
from perdure.storage.tx import TEXT_TABLES, Tx

log = logging.getLogger(__name__)

PAGE = 200
TARGETS_A_STEP = 20
CHANGES_A_STEP = 20
PASSES_MAX = 4
"""After a pass that changed something another one looks whether runs have written the text again."""
LEFT_AFTER = timedelta(minutes=15)
"""An erasure without a step for this long was left by its process, also one on a machine that nothing is known of."""

AUTHOR = Author(kind="user", id="erase")

STILL_READ: Point[[Tx, str, str], bool] = Point("still_read")
"""Whether more texts of an owner in a table are still to be stored."""
ERASE_ROWS: Point[[Tx, str, str, Redactor, Key | None], tuple[int, Key | None] | None] = Point("erase_rows")
"""Takes a text out of the next rows of a table that this owner has, as `_erase_page`; None: as out of others."""
ERASED: Point[[Ports, str, str], Awaitable[None]] = Point("erased")
"""A text was taken out of the rows of a table that this owner has; what lies outside the store is left. Raises:
StoreError."""


async def erase(
    ports: Ports, agent_id: AgentId, text_or_id: str, *, progress: Progress = lambda what, done, total: None
) -> ForgetResult:
    """Remove a text from the store, also from the history of agents that share a block, archive or folder with it.

    Raises: NotFound, InvalidInput; ConversationBusy: a run has not ended; Conflict: a file is still to be read;
        StoreError: the rest is done later.
    """
    preview = await find_mentions(ports, agent_id, text_or_id, progress=progress)
    agents = [agent_id, *preview.shared_with]
    owners = await ports.store.read(lambda tx: tx.mentions.owners(agent_id))
    targets = targets_of([*owners, *(("agents", one) for one in agents)])
    now = ports.clock.now()

    def begin(tx: Tx) -> Erasure:
        check_idle(tx, agents)
        for kind, owner_id in owners:
            if any(STILL_READ(tx, kind, owner_id)):
                raise Conflict("a file of the agent is still being read: `perdure file list` says when it is done")
        for left in tx.erasures.list_unended(agent_id):
            if left.text in (preview.text, ""):  # it was interrupted, and begins anew
                anew = replace(left, text=preview.text, targets=targets, target=0, after=None, changed=0, passes=0)
                return tx.erasures.put(replace(anew, updated_at=now, owner=ports.owner))
        return tx.erasures.add(agent_id, preview.text, targets, at=now, owner=ports.owner)

    erasure = await ports.store.write(begin)
    erasure = await _finish(ports, erasure, progress)
    return ForgetResult(erasure.counts, erased=True)


async def finish_erasures(ports: Ports, is_dead: Callable[[str], bool] = is_dead) -> None:
    """Finish the erasures that no living process carries out. Raises: StoreError."""
    for seen in await ports.store.read(lambda tx: tx.erasures.list_unended()):
        if not seen.owner or is_dead(seen.owner) or seen.updated_at < ports.clock.now() - LEFT_AFTER:
            erasure = await ports.store.write(_claim, seen, ports.owner, ports.clock.now())
            if erasure is not None:
                log.warning("an erasure of %s was left unfinished, and goes on", erasure.agent_id)
                await _finish(ports, erasure, lambda what, done, total: None)


def _claim(tx: Tx, seen: Erasure, owner: str, now: datetime) -> Erasure | None:
    """The erasure, which this process goes on with; None: another one does."""
    erasure = tx.erasures.get(seen.agent_id, seen.number)
    if erasure.ended_at is not None or (erasure.owner, erasure.updated_at) != (seen.owner, seen.updated_at):
        return None
    return tx.erasures.put(replace(erasure, owner=owner, updated_at=now))


async def _finish(ports: Ports, erasure: Erasure, progress: Progress) -> Erasure:
    """Carry out the rest of an erasure. If that is interrupted, the next recovery goes on."""
    try:
        return await _carry_out(ports, erasure, progress)
    except BaseException:
        with contextlib.suppress(PerdureError):
            await ports.store.write(_release, erasure, ports.owner)
        raise


def _release(tx: Tx, erasure: Erasure, owner: str) -> None:
    now = tx.erasures.get(erasure.agent_id, erasure.number)
    if now.owner == owner:
        tx.erasures.put(replace(now, owner=""))


def _end(tx: Tx, erasure: Erasure, owner: str, at: datetime) -> Erasure:
    """Mark it as ended, unless another process has begun it anew."""
    now = tx.erasures.get(erasure.agent_id, erasure.number)
    return tx.erasures.put(replace(now, ended_at=at)) if now.owner == owner and not now.text else now


async def _carry_out(ports: Ports, erasure: Erasure, progress: Progress) -> Erasure:
    store, agent_id, number = ports.store, erasure.agent_id, erasure.number
    while erasure.text:
        progress("erasing", erasure.target, len(erasure.targets))
        erasure = await store.write(_erase_step, agent_id, number, ports.inputs())
    progress("erasing", len(erasure.targets), len(erasure.targets))
    for table, owner_id in erasure.targets:
        for done in ERASED(ports, table, owner_id):
            await done
    await remove_traces(ports, progress)
    return await store.write(_end, erasure, ports.owner, ports.clock.now())


async def remove_traces(ports: Ports, progress: Progress) -> None:
    """Remove what is left of deleted rows: their words in the indexes, vectors of recent texts, and bytes in the free
    space of the file and in its log. All but the last is done in small steps. Raises: StoreError."""
    store = ports.store
    await delete(ports, lambda tx: None)  # what was deleted before, and still has rows
    for kind in await store.read(lambda tx: tx.upkeep.rebuilding()):
        while await store.write(lambda tx, kind: tx.upkeep.rebuild_words(kind), kind):
            pass
    progress("merging the word index", 0, 1)
    begin = True
    while await store.write(lambda tx, begin: tx.upkeep.merge_words(begin=begin), begin):
        begin = False
    while await store.write(lambda tx: tx.upkeep.drop_vector_cache()):
        pass
    progress("writing the file anew", 0, 1)
    await store.scrub(partial(progress, "writing the file anew"))
    progress("writing the file anew", 1, 1)


def _erase_step(tx: Tx, agent_id: AgentId, number: int, inputs: UnitInputs) -> Erasure:
    """Take the text out of some rows, and store how far that is."""
    erasure = tx.erasures.get(agent_id, number)
    if not erasure.text:
        return erasure
    redactor, counts = Redactor(erasure.text), Counter[Place](erasure.counts)
    target, after, changed, passes, text = erasure.target, erasure.after, 0, erasure.passes, erasure.text
    last = min(len(erasure.targets), target + TARGETS_A_STEP)
    while target < last and changed < CHANGES_A_STEP:
        table, owner_id = erasure.targets[target]
        try:
            rows, after = _erase_page(tx, table, owner_id, redactor, after, inputs)
        except NotFound:  # deleted since; its rows are removed at the end
            rows, after = 0, None
        changed += rows
        counts[cast(Place, TEXT_TABLES[table].place)] += rows
        if after is None:
            target += 1
            if table == [*TEXT_TABLES][-1]:
                tx.mentions.revise_settings(AgentId(owner_id))
                with contextlib.suppress(NotFound):
                    renew_system_message(tx, AgentId(owner_id), 0, inputs)
    changed += erasure.changed
    targets = list(erasure.targets)
    if target == len(targets):
        passes += 1
        # What the agent has got meanwhile, such as a graph with its first facts, was not looked at yet.
        new = [one for one in targets_of(tx.mentions.owners(agent_id)) if one not in targets]
        targets = [*new, *targets]
        if not (changed or new) or passes == PASSES_MAX:
            text = ""
        target, changed = 0 if text else target, 0
    return tx.erasures.put(
        replace(
            erasure,
            text=text,
            targets=targets,
            target=target,
            after=after,
            changed=changed,
            passes=passes,
            counts={place: count for place, count in counts.items() if count},
            updated_at=inputs.now,
        )
    )


def _erase_page(
    tx: Tx, table: str, owner_id: str, redactor: Redactor, after: Key | None, inputs: UnitInputs
) -> tuple[int, Key | None]:
    """Take the text out of the next rows of an owner: how many had it, and where to go on."""
    for done in ERASE_ROWS(tx, table, owner_id, redactor, after):
        if done is not None:
            return done
    for keeper in keepers():
        if (erased := keeper.erase(tx, table, owner_id, redactor, after, inputs.now)) is not None:
            return erased
    match table:
        case "blocks":
            block = tx.blocks.get(BlockId(owner_id))
            if (value := redactor.drop_lines(block.value)) != block.value:
                put_block_value(tx, block.id, value, author=AUTHOR, at=inputs.now)
                tx.mentions.redact(table, owner_id, redactor)
                return 1, None
        case "passages":
            return _erase_passages(tx, ArchiveId(owner_id), redactor, after, at=inputs.now)
    page = tx.mentions.redact(table, owner_id, redactor, after=after, limit=PAGE)
    if table == "block_versions":
        tx.sources.delete(owner_id, [str(found.key[0]) for found in page.found])
    if table in ("messages", "message_revisions"):
        seqs = sorted({int(found.key[0]) for found in page.found})
        for keeper in keepers():
            keeper.erase_messages(tx, AgentId(owner_id), seqs, inputs.now)
        tx.agents.lock(AgentId(owner_id))
        revise_nodes(tx, tx.messages.list_by_seqs(AgentId(owner_id), seqs), inputs)
    return len(page.found), page.after


def _erase_passages(
    tx: Tx, archive_id: ArchiveId, redactor: Redactor, after: Key | None, *, at: datetime
) -> tuple[int, Key | None]:
    """Delete the passages with the text; take it out of tags, metadata and sources of others."""
    page = tx.mentions.scan("passages", archive_id, redactor, after=after, limit=PAGE)
    passages = tx.passages.list_by_seqs(archive_id, [int(found.key[0]) for found in page.found])
    deleted = [one for one in passages if redactor.finds(one.text)]
    TEXTS_DELETED(tx, [one.id for one in deleted], at)
    tx.passages.delete(archive_id, [one.seq for one in deleted])
    tx.sources.delete(archive_id, [one.id for one in deleted])
    for passage in passages:
        if not redactor.finds(passage.text):
            tx.passages.put(
                replace(
                    passage,
                    tags=tuple(redactor.redact_value(list(passage.tags))),
                    metadata=redactor.redact_value(dict(passage.metadata)),
                    source=redactor.redact_fields(dict(passage.source)),
                )
            )
    return len(page.found), page.after
