"""Taking a text out of an agent's view, and undoing that and other corrections."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from perdure.core.blocks import Author
from perdure.core.errors import ConversationBusy, NotFound, PerdureError
from perdure.core.features import Point
from perdure.core.forgetting.corrections import Correction, CorrectionItem, Place
from perdure.core.forgetting.redaction import Redactor
from perdure.core.ids import AgentId, ArchiveId, BlockId, MessageId, PassageId
from perdure.core.messages import parts_from_json, parts_to_json
from perdure.core.passages import Passage
from perdure.domain.archives.passages import delete_passage
from perdure.domain.corrections import checksum, message_item, passage_fields, passage_item, put_block_value, record
from perdure.domain.texts import TEXTS_CHANGED, keeper_of, keepers
from perdure.domain.values import BATCH_CHARS
from perdure.engine.compaction.revise import revise_nodes
from perdure.engine.conversations.edit import renew_note, revise_message
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.features.origins.find import TextLocation, resolve_text, scan
from perdure.features.origins.mentions import TextMentions
from perdure.features.origins.tables import Journal
from perdure.features.origins.values import IN_FILES, IN_VIEW, ForgetResult, UndoResult
from perdure.storage.tx import Tx

STEP = 50
"""How many things one transaction changes."""

FORGET_IN_FILE: Point[[Tx, str, str, int, Redactor], CorrectionItem] = Point("forget_in_file")
"""Masks the text in the row of this table, owner and number: a part or passage of a file."""
RESTORE_FILE: Point[[Tx, CorrectionItem], str] = Point("restore_file")
"""Restores a part of a file; returns why not."""


async def forget(ports: Ports, agent_id: AgentId, text_or_id: str, *, author: Author) -> ForgetResult:
    """Take a text out of the agent's blocks, passages, messages, summaries and facts; `undo` brings all of it back.

    A block loses the line, an archive the passage, and facts are no longer believed; messages and summaries read
    "[redacted]", files are masked. It goes on after an interruption when it is called again. Where the text stands out
    of view only, it is noted as forgotten for agent files.
    Raises: NotFound, InvalidInput; ConversationBusy: a run has not ended.
    """
    text = await ports.store.read(resolve_text, agent_id, text_or_id)
    redactor = Redactor(text)
    await ports.store.read(check_idle, [agent_id])
    # First what waits to be read: else it might become a fact behind the place that the scan has come to.
    now, unread = ports.clock.now, partial(_forget_waiting, agent_id=agent_id, redactor=redactor)
    correction, places = await ports.store.write(unread, at=now(), correction=None, news=False)
    counts: Counter[Place] = Counter(places)
    is_out_of_view = False
    async for found in scan(ports, agent_id, redactor, places=(*IN_VIEW, *IN_FILES)):
        spots = [spot for spot in found if spot.mention.place in IN_VIEW]
        is_out_of_view = is_out_of_view or len(spots) < len(found)
        while spots:
            correction, places, count = await ports.store.write(
                _forget_step, agent_id, spots[:STEP], redactor, correction, ports.inputs(), author=author
            )
            counts.update(places)
            spots = spots[count:]
    correction, places = await ports.store.write(unread, at=now(), correction=correction, news=True)
    counts.update(places)
    if correction is None and is_out_of_view:
        await ports.store.write(record, agent_id, "forget", text, (), at=now())
    return ForgetResult(dict(counts), correction if counts else None)


def check_idle(tx: Tx, agent_ids: Sequence[AgentId]) -> None:
    """Raises: ConversationBusy: a run of one of these agents has not ended."""
    for agent_id in agent_ids:
        if (run_id := tx.of(TextMentions).find_unended_run(agent_id)) is not None:
            raise ConversationBusy(run_id)


def _forget_step(
    tx: Tx,
    agent_id: AgentId,
    spots: Sequence[TextLocation],
    redactor: Redactor,
    correction: Correction | None,
    inputs: UnitInputs,
    *,
    author: Author,
) -> tuple[Correction | None, Sequence[Place], int]:
    """Take the text out of the first rows; return the correction that records it, by default a new one, the rows'
    places, and how many rows were looked at: fewer if they are large."""
    tx.agents.lock(agent_id)
    done: list[CorrectionItem] = []
    changed: list[MessageId] = []
    count = 0
    while count < len(spots) and sum(len(item.before) for item in done) < BATCH_CHARS:
        spot, count = spots[count], count + 1
        item = _forget_spot(tx, spot, redactor, inputs, author=author)
        if item is not None:
            done.append(item)
            if item.kind == "message":
                changed.append(MessageId(item.id))
                for keeper in keepers():
                    done += keeper.forget_message(tx, AgentId(spot.owner_id), int(spot.key[0]), inputs.now)
    # Recorded first: what is undone last finds the messages as they were.
    done[:0] = [
        CorrectionItem(kind="summary", id=f"{node.conversation_seq}:{node.seq}", before="")
        for node in revise_nodes(tx, map(tx.messages.get, changed), inputs)
        if redactor.redact_summary(node.text) != node.text
    ]
    if done:
        correction = record(tx, agent_id, "forget", redactor.text, done, at=inputs.now, correction=correction)
        tx.of(TextMentions).revise_settings(agent_id)
        renew_system_message(tx, agent_id, 0, inputs)
    return correction, [item.kind for item in done], count


def _forget_waiting(
    tx: Tx, agent_id: AgentId, redactor: Redactor, at: datetime, correction: Correction | None, *, news: bool
) -> tuple[Correction | None, Sequence[Place]]:
    """Take the text out of what features have not read yet, with `news` also of what they will tell the agent."""
    tx.agents.lock(agent_id)
    items = [item for keeper in keepers() for item in keeper.forget_unread(tx, agent_id, redactor, at, news=news)]
    if items:
        correction = record(tx, agent_id, "forget", redactor.text, items, at=at, correction=correction)
    return correction, [item.kind for item in items]


def _forget_spot(
    tx: Tx, spot: TextLocation, redactor: Redactor, inputs: UnitInputs, *, author: Author
) -> CorrectionItem | None:
    """Take the text out of a row, and return what undoing that needs; None: the row has it no more."""
    match spot.mention.place:
        case "block":
            block = tx.blocks.get(BlockId(spot.owner_id))
            value = redactor.drop_lines(block.value)
            return None if value == block.value else put_block_value(tx, block.id, value, author=author, at=inputs.now)
        case "passage":
            passages = tx.passages.list_by_seqs(ArchiveId(spot.owner_id), [int(spot.key[0])])
            if not passages:
                return None
            delete_passage(tx, passages[0], at=inputs.now)
            return passage_item(passages[0], None)
        case "fact":
            return keeper_of("fact").forget(tx, ArchiveId(spot.owner_id), int(spot.key[0]), inputs.now)
        case "file":
            return next(iter(FORGET_IN_FILE(tx, spot.table, spot.owner_id, int(spot.key[0]), redactor)), None)
        case "message":
            message = tx.messages.get(MessageId(spot.mention.id))
            parts = parts_to_json(message.parts)
            redacted, name = redactor.redact_parts(parts), redactor.redact(message.name or "")
            if (redacted, name) == (parts, message.name or ""):
                return None
            after = revise_message(tx, message, parts_from_json(redacted), inputs, author=author, name=name)
            return message_item(message, after)
        case "summary":
            (node,) = tx.nodes.list_by_seqs(AgentId(spot.owner_id), int(spot.key[0]), [int(spot.key[1])])
            text = redactor.redact_summary(node.text)
            tx.nodes.put_text(node, text)
            if text == node.text:
                return None
            return CorrectionItem(kind="summary", id=spot.mention.id, before=node.text, after=checksum(text))
    return None


async def undo(ports: Ports, agent_id: AgentId, number: int | None, *, author: Author) -> UndoResult:
    """Undo a correction of the agent, by default the last that was not undone.

    What was changed again since then stays as it is, and is named among the conflicts.
    Raises: NotFound: there is none; ConversationBusy: a run has not ended.
    """
    correction = await ports.store.read(find_correction, agent_id, number)
    await ports.store.read(check_idle, [agent_id])
    restored, conflicts = 0, list[str]()
    while True:
        step = await ports.store.write(_undo_step, correction, ports.inputs(), author=author)
        if step is None:
            break
        restored += step[0]
        conflicts += step[1]
    correction = await ports.store.read(lambda tx: tx.corrections.get(agent_id, correction.number))
    return UndoResult(correction, restored, conflicts)


def find_correction(tx: Tx, agent_id: AgentId, number: int | None) -> Correction:
    """The correction of this number, or the last one; it is not undone yet. Raises: NotFound."""
    tx.agents.model(agent_id)
    if number is not None:
        correction = tx.corrections.get(agent_id, number)
        if correction.undone_at is not None:
            raise NotFound("correction", str(number), hint="it is undone already")
        return correction
    newest = tx.corrections.list(agent_id, limit=1, undone=False)
    if not newest:
        raise NotFound("correction", "the last", hint="nothing of this agent was corrected")
    return newest[0]


def _undo_step(
    tx: Tx, correction: Correction, inputs: UnitInputs, *, author: Author
) -> tuple[int, Sequence[str]] | None:
    """Undo the last items of a correction; return how many were undone, and why others were not. None: none is left."""
    tx.agents.lock(correction.agent_id)
    items = tx.corrections.items(correction, limit=STEP)
    if not items:
        tx.corrections.end(correction, at=inputs.now)
        tx.of(Journal).unmark_reverted(correction.agent_id, f"{correction.agent_id}/{correction.number}")
        return None
    restored, conflicts = 0, list[str]()
    changed = [MessageId(item.id) for item in items if item.kind == "message"]
    for item in items:
        try:
            problem = _restore(tx, correction.agent_id, item, inputs, author)
        except PerdureError as error:
            problem = str(error)
        restored += not problem
        conflicts += [problem] if problem else []
    seqs = [tx.messages.place(one)[1] for one in tx.messages.find_existing(changed)]
    for node in revise_nodes(tx, tx.messages.list_by_seqs(correction.agent_id, seqs), inputs):
        if correction.kind == "message":  # what was forgotten was taken out of the note itself
            renew_note(tx, node, inputs, author=author)
    tx.corrections.drop_items(correction, len(items))
    tx.of(TextMentions).revise_settings(correction.agent_id)
    renew_system_message(tx, correction.agent_id, 0, inputs)
    return restored, conflicts


def _restore(tx: Tx, agent_id: AgentId, item: CorrectionItem, inputs: UnitInputs, author: Author) -> str:
    """Restore a thing that a correction changed; return why it can't be, or an empty text. Raises: PerdureError."""
    match item.kind:
        case "block":
            block = tx.blocks.get(BlockId(item.id))
            if checksum(block.value) != item.after:
                return f"block {block.label!r} was changed again: its history has version {item.before}"
            value = tx.blocks.version(block.id, int(item.before)).value
            tx.blocks.put(replace(block, value=value), expected=block.version, author=author, at=inputs.now)
        case "passage":
            return _restore_passage(tx, item, at=inputs.now)
        case "message":
            message = tx.messages.get(MessageId(item.id))
            if checksum(parts_to_json(message.parts)) != item.after:
                return f"{message.id} was changed again"
            before, _, name = item.before.partition("\n")  # JSON on one line
            revise_message(tx, message, parts_from_json(before), inputs, author=author, name=name or None)
        case "summary" if item.after is not None:  # else it was written again as its messages were, and is once more
            conversation_seq, _, seq = item.id.partition(":")
            (node,) = tx.nodes.list_by_seqs(agent_id, int(conversation_seq), [int(seq)])
            if checksum(node.text) != item.after:
                return f"summary {item.id} was changed again"
            tx.nodes.put_text(node, item.before)
        case "file":
            return next(iter(RESTORE_FILE(tx, item)), f"{item.id} is not here")
        case "fact":
            return keeper_of("fact").restore(tx, item, inputs.now)
    return ""


def _restore_passage(tx: Tx, item: CorrectionItem, *, at: datetime) -> str:
    """Restore a passage, or remove one that was added; return why that can't be, or an empty text."""
    id_ = PassageId(item.id)
    now = tx.passages.get(id_) if tx.passages.find_places([id_]) else None
    if (None if now is None else checksum(passage_fields(now))) != item.after:
        return f"{id_} was {'deleted' if now is None else 'changed'} since"
    if not item.before:
        assert now is not None  # one that was added has a checksum
        delete_passage(tx, now, at=at)
        return ""
    fields = json.loads(item.before)
    fields |= {name: datetime.fromisoformat(fields[name]) for name in ("created_at", "occurred_at")}
    passage = Passage(id=id_, **fields | {"tags": tuple(fields["tags"])})
    if now is None:
        tx.passages.add([passage])
    else:
        TEXTS_CHANGED(tx, [id_], at)
        tx.passages.put(passage)
    return ""
