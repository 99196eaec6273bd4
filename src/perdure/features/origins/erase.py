"""Removing a text from the store itself: from logs, old versions, recorded requests, indexes and free space.

Rows are changed in small transactions that also store the progress, so a killed process's erasure is finished by the
next recovery of any process. Then the full-text index is merged, and the file written anew.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from perdure.app import App
from perdure.core.blocks import Author
from perdure.core.errors import Conflict, NotFound, PerdureError, StoreError
from perdure.core.features import Point
from perdure.core.forgetting.corrections import Key, Place
from perdure.core.forgetting.redaction import Redactor
from perdure.core.ids import AgentId, ArchiveId, BlockId
from perdure.domain.corrections import put_block_value
from perdure.domain.texts import TEXTS_DELETED, keepers
from perdure.engine.compaction.revise import revise_nodes
from perdure.engine.conversations.reset import remove_traces
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.engine.records.leases import is_dead
from perdure.engine.run.runner import RECOVERY_S
from perdure.engine.workers.worker import Worker
from perdure.features.origins.find import Progress, find_mentions, targets_of
from perdure.features.origins.forget import check_idle
from perdure.features.origins.mentions import TEXT_TABLES, TextMentions
from perdure.features.origins.tables import Erasures
from perdure.features.origins.values import Erasure, ForgetResult
from perdure.storage.tx import Tx

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
    StoreError: the rest is done later."""
    preview = await find_mentions(ports, agent_id, text_or_id, progress=progress)
    agents = [agent_id, *preview.shared_with]
    owners = await ports.store.read(lambda tx: tx.owners.list(agent_id))
    targets = targets_of([*owners, *(("agents", agent) for agent in agents)])
    now = ports.clock.now()

    def begin(tx: Tx) -> Erasure:
        """Store the erasure, or restart an interrupted one. Raises: Conflict: a file or a run is not done."""
        check_idle(tx, agents)
        for kind, owner_id in owners:
            if any(STILL_READ(tx, kind, owner_id)):
                raise Conflict("a file of the agent is still being read: `perdure file list` says when it is done")
        for left in tx.of(Erasures).list_unended(agent_id):
            if left.text in (preview.text, ""):  # it was interrupted, and begins anew
                restarted = replace(left, text=preview.text, targets=targets, target=0, after=None, changed=0, passes=0)
                return tx.of(Erasures).put(replace(restarted, updated_at=now, owner=ports.owner))
        return tx.of(Erasures).add(agent_id, preview.text, targets, at=now, owner=ports.owner)

    erasure = await ports.store.write(begin)
    erasure = await _finish(ports, erasure, progress)
    return ForgetResult(erasure.counts, erased=True)


class ErasureWorker(Worker):
    """Finishes erasures whose process is gone; at its own end it releases those that it has."""

    def __init__(self, app: App) -> None:
        super().__init__("erasing texts", partial(finish_erasures, app.ports), RECOVERY_S)
        self._ports = app.ports

    async def close(self) -> None:
        await super().close()
        with contextlib.suppress(StoreError):
            await self._ports.store.write(lambda tx: tx.of(Erasures).release(self._ports.owner))


async def finish_erasures(ports: Ports, is_dead: Callable[[str], bool] = is_dead) -> None:
    """Finish the erasures that no living process carries out. Raises: StoreError."""
    for seen in await ports.store.read(lambda tx: tx.of(Erasures).list_unended()):
        if not seen.owner or is_dead(seen.owner) or seen.updated_at < ports.clock.now() - LEFT_AFTER:
            erasure = await ports.store.write(_claim, seen, ports.owner, ports.clock.now())
            if erasure is not None:
                log.warning("an erasure of %s was left unfinished, and goes on", erasure.agent_id)
                await _finish(ports, erasure, lambda what, done, total: None)


def _claim(tx: Tx, seen: Erasure, owner: str, now: datetime) -> Erasure | None:
    """Note that this process goes on with an erasure, and return it; None: another one has a step done since `seen`."""
    erasure = tx.of(Erasures).get(seen.agent_id, seen.number)
    if erasure.ended_at is not None or (erasure.owner, erasure.updated_at) != (seen.owner, seen.updated_at):
        return None
    return tx.of(Erasures).put(replace(erasure, owner=owner, updated_at=now))


async def _finish(ports: Ports, erasure: Erasure, progress: Progress) -> Erasure:
    """Carry out an erasure from where it is, and return it; if that is interrupted, another process may go on."""
    try:
        return await _carry_out(ports, erasure, progress)
    except BaseException:
        with contextlib.suppress(PerdureError):
            await ports.store.write(_release, erasure, ports.owner)
        raise


def _release(tx: Tx, erasure: Erasure, owner: str) -> None:
    """Let any process go on with an erasure, if `owner` still carries it out."""
    current = tx.of(Erasures).get(erasure.agent_id, erasure.number)
    if current.owner == owner:
        tx.of(Erasures).put(replace(current, owner=""))


def _end(tx: Tx, erasure: Erasure, owner: str, at: datetime) -> Erasure:
    """Mark an erasure as ended, unless another process has begun it again meanwhile; return it."""
    stored = tx.of(Erasures).get(erasure.agent_id, erasure.number)
    return tx.of(Erasures).put(replace(stored, ended_at=at)) if stored.owner == owner and not stored.text else stored


def has_erased(tx: Tx, agent_id: AgentId, since: datetime) -> bool:
    """Return whether a text was erased from the agent's history after this time, also on behalf of another agent."""
    return tx.of(Erasures).has_erased(agent_id, since=since)


async def _carry_out(ports: Ports, erasure: Erasure, progress: Progress) -> Erasure:
    """Erase from the rows step by step, then from what lies outside of them: objects, free space, indexes."""
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


def _erase_step(tx: Tx, agent_id: AgentId, number: int, inputs: UnitInputs) -> Erasure:
    """Take the text of an erasure out of its next rows, and return it as stored, without a `text` when all is done."""
    erasure = tx.of(Erasures).get(agent_id, number)
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
        counts[TEXT_TABLES[table].place] += rows
        if after is None:
            target += 1
            if table == [*TEXT_TABLES][-1]:
                tx.of(TextMentions).revise_settings(AgentId(owner_id))
                with contextlib.suppress(NotFound):
                    renew_system_message(tx, AgentId(owner_id), 0, inputs)
    changed += erasure.changed
    targets = list(erasure.targets)
    if target == len(targets):
        passes += 1
        # What the agent has got meanwhile, such as a graph with its first facts, was not looked at yet.
        new = [one for one in targets_of(tx.owners.list(agent_id)) if one not in targets]
        targets = [*new, *targets]
        if not (changed or new) or passes == PASSES_MAX:
            text = ""
        target, changed = 0 if text else target, 0
    return tx.of(Erasures).put(
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
    """Take the text out of an owner's next rows in a table; return how many had it, and the key to go on after."""
    for done in ERASE_ROWS(tx, table, owner_id, redactor, after):
        if done is not None:
            return done
    mentions = tx.of(TextMentions)
    if table == "blocks":
        block = tx.blocks.get(BlockId(owner_id))
        if (value := redactor.drop_lines(block.value)) != block.value:
            put_block_value(tx, block.id, value, author=AUTHOR, at=inputs.now)
            mentions.redact(table, owner_id, redactor, mentions.scan(table, owner_id, redactor).found)
            return 1, None
    if table == "events" and after is None:
        mentions.drop_deltas(owner_id)
    page = mentions.scan(table, owner_id, redactor, after=after, limit=PAGE)
    rows = [int(found.key[0]) for found in page.found if "seq" in TEXT_TABLES[table].key[:1]]
    if any(keeper.erase(tx, table, owner_id, redactor, rows, inputs.now) for keeper in keepers()):
        return len(page.found), page.after
    if table == "passages":
        _erase_passages(tx, ArchiveId(owner_id), redactor, rows, at=inputs.now)
        return len(page.found), page.after
    mentions.redact(table, owner_id, redactor, page.found)
    if table == "block_versions":
        tx.sources.delete(owner_id, [str(found.key[0]) for found in page.found])
    if table in ("messages", "message_revisions"):
        seqs = sorted({int(found.key[0]) for found in page.found})
        for keeper in keepers():
            keeper.erase_messages(tx, AgentId(owner_id), seqs, inputs.now)
        tx.agents.lock(AgentId(owner_id))
        revise_nodes(tx, tx.messages.list_by_seqs(AgentId(owner_id), seqs), inputs)
    return len(page.found), page.after


def _erase_passages(tx: Tx, archive_id: ArchiveId, redactor: Redactor, seqs: Sequence[int], *, at: datetime) -> None:
    """Delete passages that contain the text; redact tags, metadata and sources of the others."""
    passages = tx.passages.list_by_seqs(archive_id, seqs)
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
