"""Requests that were sent before: a client gives up waiting for a slow model, and sends its message again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from perdure.core.messages import Draft, Message
from perdure.core.runs import Run, RunOptions
from perdure.engine.run.rows import decode_drafts
from perdure.storage.tx import Tx


def is_sent_again(tx: Tx, active: Run, drafts: Sequence[Draft], options: RunOptions) -> bool:
    """Whether the run that goes on in a conversation was begun by exactly these messages, which have no id of their
    client's that would tell them from the first ones."""
    if options != active.options or active.resumes is not None or any(draft.otid for draft in drafts):
        return False
    sent = _contents(drafts)
    return bool(sent) and sent == _contents(_input_of(tx, active))


def _input_of(tx: Tx, run: Run) -> Sequence[Draft | Message]:
    """The messages that a run was begun by, in the log or still waiting."""
    if run.input_waits:
        return decode_drafts(tx.runs.waiting_input(run.key) or "[]")[0]
    return list(takewhile(lambda row: row.role != "assistant", tx.messages.list_by_run(run)))


def _contents(rows: Sequence[Draft | Message]) -> list[tuple[object, ...]]:
    """What somebody has said in these rows."""
    return [(row.role, row.name, row.sender_id, row.parts) for row in rows if row.kind == "message"]
