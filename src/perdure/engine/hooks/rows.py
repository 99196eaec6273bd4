"""What hooks add, as rows of the log: JSON envelopes that stand where no call waits for its result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from perdure.context.request.authorship import engine_tokens
from perdure.core.ids import Ids, MessageId
from perdure.core.messages import Draft, Message, Text
from perdure.core.ports import TokenCounter
from perdure.core.runs import Run
from perdure.storage.tx import Tx


def hook_draft(text: str, ids: Ids) -> Draft:
    return Draft(id=MessageId(ids.new("message")), role="system", kind="hook", parts=(Text(text),))


def hook_tokens(text: str, counter: TokenCounter) -> int:
    return engine_tokens(text, counter)


def add_context_rows(tx: Tx, run: Run, *, ids: Ids, counter: TokenCounter, now: datetime) -> Sequence[Message]:
    """The rows of what waits on the run's row; then nothing waits there."""
    rows = tx.messages.append(
        run.key.agent_id,
        [hook_draft(text, ids) for text in run.context],
        conversation_seq=run.conversation_seq,
        at=now,
        tokens=[hook_tokens(text, counter) for text in run.context],
        run=run,
    )
    tx.runs.set_context(run, ())
    return rows
