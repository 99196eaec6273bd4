"""Units of work that find the conversation of a request, by what the program names or sends again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ConversationId, MessageId, RunId, derived_id, is_id
from perdure.core.messages import Message
from perdure.core.runs import Run
from perdure.engine.conversations.importing import fork
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.features.openai_front.tables import OpenaiHistories
from perdure.features.openai_front.values import (
    Chat,
    ChatPlace,
    ChatText,
    ChatTurn,
    KnownChain,
    chain_of,
    digest_of,
    in_one_form,
)
from perdure.storage.tx import Tx

RETRY_S = 3
"""A request that comes again so soon after its answer was sent again by the program, not by a person."""
CLAIM_S = 60
"""So long another process may take from finding the conversation of a request to beginning its run."""
ROWS, WINDOW_ROWS = 200, 1_000
NEWEST = 4
"""Turns of a chat that are looked up at first."""


@dataclass(frozen=True, slots=True)
class _KnownTurn:
    """A turn of a chain that is known, as its conversation has it.

    Args:
        run: that was begun for it; None: none was, or another process is about to.
        messages: the turn's own; empty: they wait behind another run.
        is_last: whether nothing was said behind it.
    """

    row: KnownChain
    conversation: Conversation
    run: Run | None
    messages: Sequence[Message]
    is_last: bool

    @property
    def answer(self) -> str:
        """What the agent said in it."""
        texts = [one.text for one in self.messages if one.role == "assistant" and one.text.strip()]
        return in_one_form("\n".join(texts))

    @property
    def is_open(self) -> bool:
        """Whether the answer is still being made."""
        return not self.messages or (self.run is not None and not self.run.ended)

    def matches(self, turn: ChatTurn) -> bool:
        """Whether the answer is what the program sends again, which may be cut where a person stopped it."""
        return self.is_open or self.answer.startswith(turn.answer)

    @property
    def last_said(self) -> MessageId:
        """The last message of the users."""
        said = [one for one in self.messages if one.role in ("user", "system")]
        return said[-1].id


def find_place(
    tx: Tx, agent_id: AgentId, chat: Chat, said_in: str, new_id: ConversationId, inputs: UnitInputs
) -> ChatPlace:
    """Return where a request goes on, and note that it does.

    Args:
        said_in: the id of the run that is to answer it; empty: none is, and the request's messages are imported.
        new_id: the id of a conversation that has to be made.
    Raises: NotFound: the conversation or run that the request names.
    """
    tx.agents.lock(agent_id)
    turns = chat.turns
    digests = [turn.digest for turn in turns if turn.users]
    # Most chats go on where they were: the newest turns tell.
    rows = tx.of(OpenaiHistories).find(agent_id, digests[-NEWEST:])
    if not rows and len(digests) > NEWEST:
        rows = tx.of(OpenaiHistories).find(agent_id, digests[:-NEWEST])
    known: _KnownTurn | None
    same = [one for row in rows.get(turns[-1].digest, ()) if (one := _find_turn(tx, row, inputs)) is not None]
    for known in same:
        if _is_sent_again(known, chat, inputs):
            return ChatPlace(conversation=known.conversation, said_in=known.row.said_in, is_repeat=True)
    if chat.anchor.name or chat.anchor.behind is not None:
        conversation, before = _named(tx, agent_id, chat, new_id, inputs), None
        missing, with_users = len(turns) - 1, True
    elif same:  # a new try: what was said before it goes on in a conversation of its own
        known = next((one for one in same if one.is_last), same[0])
        conversation = fork(tx, known.conversation, new_id, inputs, before=known.messages[0].id)
        before, missing, with_users = known.row, len(turns) - 1, True
    elif (known := _find_window(tx, agent_id, chat, inputs) if not rows else None) is not None:
        conversation, before, missing, with_users = known.conversation, known.row, len(turns) - 1, True
    else:
        conversation, before, missing, with_users = _behind_known(tx, agent_id, turns, rows, new_id, inputs)
    said_in = said_in or message_id_of(agent_id, conversation.id, turns[-1])
    system = digest_of(chat.system)
    told = tx.of(OpenaiHistories).newest_system(agent_id, conversation.id) if before is None else before.system_digest
    added = [(turn.digest, message_id_of(agent_id, conversation.id, turn)) for turn in turns[missing:-1] if turn.users]
    tx.of(OpenaiHistories).add(
        agent_id,
        [
            KnownChain(
                digest=digest, said_in=id_, conversation_id=conversation.id, system_digest=system, created_at=inputs.now
            )
            for digest, id_ in (*added, (turns[-1].digest, said_in), (chat.window_digest(len(turns) - 1), said_in))
            if digest
        ],
    )
    is_new = system not in ("", told)
    return ChatPlace(
        conversation=conversation, said_in=said_in, missing=missing, with_users=with_users, system_is_new=is_new
    )


def find_answered(tx: Tx, agent_id: AgentId, chat: Chat, inputs: UnitInputs) -> Conversation:
    """Return the conversation whose calls a request without new messages answers. Raises: NotFound, InvalidInput."""
    if chat.anchor.behind is not None:
        return tx.conversations.get(_run_of(tx, agent_id, chat.anchor.behind).conversation_id)
    if chat.anchor.name:
        found = tx.conversations.get(named_id(agent_id, chat))
        if found.agent_id != agent_id:
            raise NotFound("conversation", found.id, hint="another agent has it")
        return found
    if chat.turns and (known := _find_last(tx, agent_id, chat, len(chat.turns) - 1, inputs)) is not None:
        return known.conversation
    raise InvalidInput("messages: no answer is known that made the calls to which these are the results")


def find_earlier(tx: Tx, agent_id: AgentId, chat: Chat, inputs: UnitInputs) -> ConversationId | None:
    """Return the conversation that has what a chat said before its newest message; None: none is known."""
    if chat.anchor.name:
        with contextlib.suppress(NotFound):
            return tx.conversations.get(named_id(agent_id, chat)).id
    known = _find_last(tx, agent_id, chat, len(chat.turns) - 2, inputs)
    return None if known is None else known.conversation.id


def _find_last(tx: Tx, agent_id: AgentId, chat: Chat, place: int, inputs: UnitInputs) -> _KnownTurn | None:
    """Return the turn at a place of a chat where it is known, by its chain or its window; None: it is not."""
    if place < 0:
        return None
    digests = [one for one in (chat.turns[place].digest, chat.window_digest(place)) if one]
    rows = tx.of(OpenaiHistories).find(agent_id, digests)
    known = (_find_turn(tx, row, inputs) for digest in digests for row in rows.get(digest, ()))
    return next((one for one in known if one is not None), None)


def named_id(agent_id: AgentId, chat: Chat) -> ConversationId:
    """Return the id of the conversation that a request names: equal names of one key always mean the same."""
    name = chat.anchor.name
    return ConversationId(name if is_id("conversation", name) else derived_id("conversation", agent_id, chat.key, name))


def message_id_of(agent_id: AgentId, conversation_id: ConversationId, turn: ChatTurn) -> MessageId:
    """Return the id that the first message of a turn gets where it is imported."""
    return MessageId(derived_id("message", agent_id, conversation_id, "id", f"{turn.digest}:0"))


def _is_sent_again(known: _KnownTurn, chat: Chat, inputs: UnitInputs) -> bool:
    """Return whether a request whose whole chain is known is the same one once more, and no new try."""
    if not known.is_last:
        return False
    if known.is_open or chat.is_retry:
        return True
    ended_at = known.messages[-1].created_at if known.run is None else known.run.ended_at
    return ended_at is not None and inputs.now < ended_at + timedelta(seconds=RETRY_S)


def _find_turn(tx: Tx, row: KnownChain, inputs: UnitInputs) -> _KnownTurn | None:
    """Return a known turn as its conversation has it; None: it is gone, or was never begun."""
    try:
        conversation = tx.conversations.get(row.conversation_id)
    except NotFound:
        return None
    try:
        if not is_id("run", row.said_in):
            _, seq = tx.messages.place(MessageId(row.said_in))
            run = None
        else:
            run = tx.runs.get(RunId(row.said_in), hidden=True)
            if run.first_message_seq is None:
                return _KnownTurn(row, conversation, run, (), True)
            seq = run.first_message_seq
    except NotFound:
        is_claimed = inputs.now < row.created_at + timedelta(seconds=CLAIM_S)
        return _KnownTurn(row, conversation, None, (), True) if is_claimed else None
    messages, is_last = _read_turn(tx, conversation, seq)
    return _KnownTurn(row, conversation, run, messages, is_last) if messages else None


def _read_turn(tx: Tx, conversation: Conversation, seq: int) -> tuple[Sequence[Message], bool]:
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
    rows: Sequence[Message] = ()
    while not rows or len(rows) == ROWS:
        rows = tx.messages.list(
            conversation.agent_id,
            conversation_seq=conversation.seq,
            after_seq=rows[-1].seq if rows else seq - 1,
            limit=ROWS,
            kinds=("message",),
        )
        yield from rows
        if not rows:
            return


def _behind_known(
    tx: Tx,
    agent_id: AgentId,
    turns: Sequence[ChatTurn],
    rows: Mapping[str, Sequence[KnownChain]],
    new_id: ConversationId,
    inputs: UnitInputs,
) -> tuple[Conversation, KnownChain | None, int, bool]:
    """Return (the conversation behind the longest chain that is known, the row of that, the first turn that it lacks,
    whether it lacks the users' words too); a new conversation, if none is known."""
    for place in range(len(turns) - 2, -1, -1):
        known = [one for row in rows.get(turns[place].digest, ()) if (one := _find_turn(tx, row, inputs)) is not None]
        known.sort(key=lambda one: (one.matches(turns[place]), one.is_last), reverse=True)
        if not known:
            continue
        best = known[0]
        if not best.matches(turns[place]):  # the answer was edited
            made = fork(tx, best.conversation, new_id, inputs, upto=best.last_said)
            return made, best.row, place, False
        if best.is_last:
            return best.conversation, best.row, place + 1, True
        return fork(tx, best.conversation, new_id, inputs, upto=best.messages[-1].id), best.row, place + 1, True
    return _add_conversation(tx, agent_id, new_id, inputs), None, 0, True


def _find_window(tx: Tx, agent_id: AgentId, chat: Chat, inputs: UnitInputs) -> _KnownTurn | None:
    """Return the turn behind which a chat goes on that is not sent from its beginning any more; None: none is known."""
    place = len(chat.turns) - 2
    if not (digest := chat.window_digest(place)):
        return None
    rows = tx.of(OpenaiHistories).find(agent_id, [digest]).get(digest, ())
    known = (_find_turn(tx, row, inputs) for row in rows)
    return next((one for one in known if one is not None and _ends_with(tx, one, chat.turns[:-1])), None)


def _ends_with(tx: Tx, known: _KnownTurn, turns: Sequence[ChatTurn]) -> bool:
    """Whether a conversation ends with these turns, the last of which is known."""
    if known.is_open or not known.is_last:
        return known.is_last and len(turns) == 1
    agent_id, seq = known.conversation.key
    rows = tx.messages.list(agent_id, conversation_seq=seq, newest_first=True, limit=WINDOW_ROWS, kinds=("message",))
    own = chain_of([ChatText(one.role, one.text) for one in reversed(rows) if one.role in ("user", "assistant")])
    pairs = list(zip(reversed(own), reversed(turns), strict=False))
    return len(pairs) == len(turns) and all(
        mine.answer.startswith(sent.answer) and sent.users in ((), mine.users) for mine, sent in pairs
    )


def _named(tx: Tx, agent_id: AgentId, chat: Chat, new_id: ConversationId, inputs: UnitInputs) -> Conversation:
    """Return the conversation that a request names, which is made if it is not there; a fork, if it names an answer
    that others follow already. Raises: NotFound."""
    if chat.anchor.behind is not None:
        run = _run_of(tx, agent_id, chat.anchor.behind)
        conversation = tx.conversations.get(run.conversation_id)
        if run.first_message_seq is None:
            return conversation
        messages, is_last = _read_turn(tx, conversation, run.first_message_seq)
        return conversation if is_last else fork(tx, conversation, new_id, inputs, upto=messages[-1].id)
    conversation_id = named_id(agent_id, chat)
    try:
        conversation = tx.conversations.get(conversation_id)
    except NotFound:
        if is_id("conversation", chat.anchor.name):
            raise
        return _add_conversation(tx, agent_id, conversation_id, inputs)
    if conversation.agent_id != agent_id:
        raise NotFound("conversation", conversation_id, hint="another agent has it")
    return conversation


def _run_of(tx: Tx, agent_id: AgentId, run_id: RunId) -> Run:
    run = tx.runs.get(run_id)
    if run.key.agent_id != agent_id:
        raise NotFound("run", run_id, hint="another agent has it")
    return run


def _add_conversation(tx: Tx, agent_id: AgentId, conversation_id: ConversationId, inputs: UnitInputs) -> Conversation:
    """Add a conversation, and return it. Raises: NotFound: there is no such agent."""
    made = tx.conversations.add(agent_id, conversation_id, at=inputs.now)
    renew_system_message(tx, agent_id, made.seq, inputs)
    return tx.conversations.get(conversation_id)


def find_texts(tx: Tx, agent_id: AgentId, ids: Sequence[MessageId]) -> Mapping[MessageId, str]:
    """Return the texts of those of these messages that the agent has."""
    seqs: list[int] = []
    for message_id in ids:
        with contextlib.suppress(NotFound):
            owner, seq = tx.messages.place(message_id)
            seqs += [seq] if owner == agent_id else []
    return {message.id: message.text for message in tx.messages.list_by_seqs(agent_id, seqs)}
