"""Requests that were sent before: a client gives up waiting for a slow model, and sends its message again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from perdure.core.errors import IdempotencyMismatch
from perdure.core.ids import AgentId
from perdure.core.messages import Draft, Message
from perdure.core.runs import Run, RunOptions
from perdure.engine.run.rows import decode_drafts
from perdure.storage.tx import Tx

OTID_KEY = "otid:"
"""The beginning of a key that is made of a client's own ids of messages."""
OTID_COUNTS = timedelta(minutes=1)
"""How long after a run's end such a key still names it."""


def find_known(
    tx: Tx, agent_id: AgentId, conversation_seq: int, key: str | None, digest: str, answers: bool, *, now: datetime
) -> Run | None:
    """The run of the same request that came before. Raises: IdempotencyMismatch: it had the key with another text.

    Some clients send one constant `otid` with everything. So another text with it is another message, and so is the
    same text later than a client would try again; not answers to calls, which wait no more.
    """
    known = None if key is None else tx.runs.find_by_key(agent_id, conversation_seq, key)
    if key is None or known is None:
        return None
    run, digest_before = known
    if not key.startswith(OTID_KEY):
        if digest_before != digest:
            raise IdempotencyMismatch(key)
        return run
    is_late = not answers and run.ended_at is not None and now > run.ended_at + OTID_COUNTS
    return None if is_late or digest_before != digest else run


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
