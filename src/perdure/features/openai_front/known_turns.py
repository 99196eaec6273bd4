"""A turn of a chat that is known, as its conversation has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from perdure.context.sections.envelopes import KEEP_ALIVE
from perdure.core.conversations import Conversation
from perdure.core.errors import NotFound
from perdure.core.ids import MessageId, RunId, is_id
from perdure.core.messages import Message
from perdure.core.runs import Run
from perdure.features.openai_front.values import ChatTurn, KnownChain, in_one_form, is_sent_again
from perdure.storage.tx import Tx

CLAIM_S = 60
"""So long another process may take from finding the conversation of a request to beginning its run."""
ROWS = 200


@dataclass(frozen=True, slots=True)
class KnownTurn:
    """A turn of a chat as its conversation has it. Without a run: none was begun for it, or another process is about
    to; without messages: they wait behind another run; `is_last`: nothing was said after it."""

    row: KnownChain
    conversation: Conversation
    run: Run | None
    messages: Sequence[Message]
    is_last: bool

    @property
    def answer(self) -> str:
        """What the agent said in it."""
        texts = [message.text for message in self.messages if message.role == "assistant" and message.text.strip()]
        return in_one_form("\n".join(texts))

    @property
    def is_open(self) -> bool:
        """Whether the answer is still being made."""
        return not self.messages or (self.run is not None and not self.run.ended)

    @property
    def waits_for_model(self) -> bool:
        """Whether it was kept for a model outside, which has given no answer."""
        return self.is_last and self.run is None and bool(self.messages) and not self.answer

    def matches(self, turn: ChatTurn) -> bool:
        """Whether the answer is what the program sends again."""
        return self.is_open or is_sent_again(self.answer, turn.answer)


def find_turn(tx: Tx, row: KnownChain, now: datetime) -> KnownTurn | None:
    """Return a known turn as its conversation has it; None: it is gone, or was never begun."""
    try:
        conversation = tx.conversations.get(row.conversation_id)
    except NotFound:
        return None
    try:
        run = tx.runs.get(RunId(row.said_in), hidden=True) if is_id("run", row.said_in) else None
        seq = tx.messages.place(MessageId(row.said_in))[1] if run is None else run.first_message_seq
    except NotFound:
        is_claimed = now < row.created_at + timedelta(seconds=CLAIM_S)
        return KnownTurn(row, conversation, None, (), True) if is_claimed else None
    if seq is None:
        return KnownTurn(row, conversation, run, (), True)
    messages, is_last = read_turn(tx, conversation, seq)
    return KnownTurn(row, conversation, run, messages, is_last) if messages else None


def read_turn(tx: Tx, conversation: Conversation, seq: int) -> tuple[Sequence[Message], bool]:
    """Return (the messages of the turn that begins with number `seq`, whether it is the last one)."""
    turn: list[Message] = []
    answered = False
    for message in _messages_from(tx, conversation, seq):
        if message.role in ("user", "system") and (answered or (turn and message.run_id != turn[0].run_id)):
            return turn, False
        answered = answered or message.role == "assistant"
        turn.append(message)
    return turn, True


def _messages_from(tx: Tx, conversation: Conversation, seq: int) -> Iterator[Message]:
    """Yield the messages of a conversation from number `seq` on."""
    count = ROWS
    while count == ROWS:
        agent_id, line = conversation.key
        rows = tx.messages.list(agent_id, conversation_seq=line, after_seq=seq - 1, limit=ROWS, kinds=("message",))
        yield from (row for row in rows if row.text != KEEP_ALIVE)  # said when an answer that failed is tried again
        count, seq = len(rows), rows[-1].seq + 1 if rows else seq
