"""Units of work that find the conversation of a request, by what the program names or sends again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from perdure.context.sections.envelopes import KEEP_ALIVE
from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput, MessageTooLarge, NotFound
from perdure.core.ids import PREFIXES, AgentId, ConversationId, MessageId, RunId, derived_id, is_id
from perdure.core.messages import Message
from perdure.core.runs import FAILED_REASONS, Run
from perdure.domain.conversations.importing import ImportedMessage, Importer, imported_message
from perdure.engine.approvals.answers import pending_calls
from perdure.engine.conversations.importing import fork, import_in_unit
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.features.openai_front.known_turns import KnownTurn, find_turn, read_turn
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

RETRY_S = 600
"""So long after an answer a program that lost it on the way, and says so, gets the same one."""
WINDOW_ROWS = 1_000
WAITING = 50
"""Turns that are alike among which the one is looked for whose calls wait."""
NEWEST = 4
"""Turns of a chat that are looked up at first."""


def find_place(
    tx: Tx,
    agent_id: AgentId,
    chat: Chat,
    said_in: str,
    new_id: ConversationId,
    inputs: UnitInputs,
    *,
    answer: str = "",
    most_chars: int | None = None,
) -> ChatPlace:
    """Return where a request goes on; note that it does, and add what that conversation lacks of what was said before.

    Args:
        said_in: the id of the run that is to answer it; empty: none is, and the request's messages are added, too.
        new_id: the id of a conversation that has to be made.
        answer: an answer that is there already, which is added behind the request.
        most_chars: so many characters may be added.
    Raises: NotFound: the conversation or run that the request names; InvalidInput: a text is too long;
        ConversationBusy, ApprovalPending: it takes no messages now.
    """
    tx.agents.lock(agent_id)
    turns, habit = chat.turns, chat.habit_digest
    digests = [turn.digest for turn in turns if turn.users]
    # Most chats go on where they were: the newest turns tell.
    rows = dict(tx.of(OpenaiHistories).find(agent_id, [chat.request_digest, habit, *digests[-NEWEST:]]))
    if has_habit := bool(rows.pop(habit, ())):
        chat = replace(chat, is_by_user=False)
    for row in rows.pop(chat.request_digest, ()):
        known = find_turn(tx, row, inputs)
        if known is not None and _is_sent_again(known, chat, inputs):
            return ChatPlace(conversation=known.conversation, said_in=known.row.said_in, is_repeat=True)
    if not rows and len(digests) > NEWEST:
        rows = dict(tx.of(OpenaiHistories).find(agent_id, digests[:-NEWEST]))
    conversation, before, missing, with_users = _choose(
        tx, agent_id, chat, rows, new_id, inputs, is_kept=(is_kept := not said_in)
    )
    said_in = said_in or message_id_of(agent_id, conversation.id, turns[-1])
    system = digest_of(chat.system)
    told = tx.of(OpenaiHistories).newest_system(agent_id, conversation.id) if before is None else before
    added = [(turn.digest, message_id_of(agent_id, conversation.id, turn)) for turn in turns[missing:-1] if turn.users]
    shows_habit = len(turns) > 1 and not has_habit
    own = (turns[-1].digest, chat.window_digest(len(turns) - 1), chat.request_digest, habit if shows_habit else "")
    tx.of(OpenaiHistories).add(
        agent_id,
        [
            KnownChain(
                digest=digest, said_in=id_, conversation_id=conversation.id, system_digest=system, created_at=inputs.now
            )
            for digest, id_ in (*added, *((digest, said_in) for digest in own))
            if digest
        ],
    )
    lacking = turns[missing:-1]
    if is_kept:
        lacking = [*lacking, replace(turns[-1], answer=in_one_form(answer))]
    count = add_turns(tx, conversation, lacking, inputs, with_users=with_users, most_chars=most_chars)
    is_new = system not in ("", told)
    return ChatPlace(conversation=conversation, said_in=said_in, added=count, system_is_new=is_new)


def _choose(
    tx: Tx,
    agent_id: AgentId,
    chat: Chat,
    rows: Mapping[str, Sequence[KnownChain]],
    new_id: ConversationId,
    inputs: UnitInputs,
    *,
    is_kept: bool,
) -> tuple[Conversation, str | None, int, bool]:
    """Return (the conversation of a request, the digest of what the program has said beside it, the first turn that it
    lacks, whether it lacks the users' words too). No digest: that of the conversation holds. `rows`: what is known of
    its chain."""
    turns = chat.turns
    last = len(turns) - 1
    if chat.anchor.behind is not None:
        return _behind_run(tx, agent_id, chat.anchor.behind, new_id, inputs), None, last, True
    named = None
    if chat.name:
        named, is_made = _named(tx, agent_id, chat, inputs)
        if is_made:
            return named, None, 0, True
        if not last or _ends_with(tx, named, turns[:-1]):
            return named, None, last, True
    same = [one for row in rows.get(turns[-1].digest, ()) if (one := find_turn(tx, row, inputs)) is not None]
    if is_kept and same and same[0].waits_for_model:
        return same[0].conversation, same[0].row.system_digest, last, True
    if same:  # a new try, or another request with the same words: what was said before goes on in another conversation
        known = next((one for one in same if one.is_last), same[0])
        first = known.messages[0] if known.messages else None
        made = fork(tx, known.conversation, new_id, inputs, before=None if first is None else first.id)
        return made, "" if first is None or first.role == "system" else known.row.system_digest, last, True
    if named is None and not rows and (found := _find_window(tx, agent_id, chat, last - 1, inputs)) is not None:
        return found.conversation, found.row.system_digest, last, True
    if (place := _behind_known(tx, turns, rows, new_id, inputs)) is not None:
        return place
    if named is not None and not _has_answer_of(tx, named, turns):
        return named, None, last, True
    return _add_conversation(tx, agent_id, new_id, inputs), "", 0, True


def add_turns(
    tx: Tx,
    conversation: Conversation,
    turns: Sequence[ChatTurn],
    inputs: UnitInputs,
    *,
    with_users: bool = True,
    most_chars: int | None = None,
) -> int:
    """Add those messages of turns that a conversation lacks; return how many. `with_users`: also what users say in the
    first turn. Raises: as `find_place`."""
    messages = list(_messages_of(turns, inputs, with_users=with_users))
    if not messages:
        return 0
    if most_chars is not None and (size := sum(len(one.text) for one in messages)) > most_chars:
        helps = "ask an administrator for a key with a higher message_chars"
        raise MessageTooLarge(size=size, limit=most_chars, whose="this key", helps=helps)
    importer = Importer(conversation.agent_id, conversation.id)
    limit = inputs.settings.message_limit_chars
    drafts = [importer.draft(imported_message(one, limit_chars=limit)) for one in messages]
    return import_in_unit(tx, conversation.agent_id, conversation.seq, drafts, inputs).new


def keep_answer(
    tx: Tx,
    agent_id: AgentId,
    chat: Chat,
    place: ChatPlace | None,
    answer: str,
    new_id: ConversationId,
    inputs: UnitInputs,
) -> Conversation:
    """Add an answer that somebody else gave to a chat: behind what was kept of it at `place`, or with all of it; return
    its conversation. Raises: as `find_place`."""
    said = [replace(chat.turns[-1], answer=in_one_form(answer))]
    if not chat.new:  # it goes on behind the results of tools
        conversation = find_answered(tx, agent_id, chat, inputs)
        text = said[0].answer
        id_ = f"{said[0].digest}:{digest_of(text)}"
        message = ImportedMessage(role="assistant", text=text, occurred_at=inputs.now, id=id_)
        draft = Importer(agent_id, conversation.id).draft(message)
        import_in_unit(tx, agent_id, conversation.seq, [draft], inputs)
        return conversation
    if place is not None:
        with contextlib.suppress(NotFound):
            conversation = tx.conversations.get(place.conversation.id)
            turn, is_last = read_turn(tx, conversation, tx.messages.place(MessageId(place.said_in))[1])
            if is_last and not any(one.role == "assistant" for one in turn):
                add_turns(tx, conversation, said, inputs, with_users=False)
                return conversation
    return find_place(tx, agent_id, chat, "", new_id, inputs, answer=answer).conversation


def _messages_of(turns: Sequence[ChatTurn], inputs: UnitInputs, *, with_users: bool) -> Iterator[ImportedMessage]:
    """Yield the messages of turns; each has the same id whenever it is imported."""
    for number, turn in enumerate(turns):
        users = turn.users if with_users or number else ()
        texts = [*(("user", text) for text in users), *([("assistant", turn.answer)] if turn.answer else [])]
        first = len(turn.users) - len(users)
        for count, (role, text) in enumerate(texts, start=first):
            yield ImportedMessage(
                role="user" if role == "user" else "assistant",
                text=text,
                occurred_at=inputs.now,
                id=f"{turn.digest}:{count}",
            )


def find_answered(tx: Tx, agent_id: AgentId, chat: Chat, inputs: UnitInputs) -> Conversation:
    """Return the conversation whose calls a request without new messages answers: of those that it may go on, the one
    that waits for these results, or else has the calls. Raises: NotFound, InvalidInput."""
    if chat.anchor.behind is not None:
        return tx.conversations.get(_run_of(tx, agent_id, chat.anchor.behind).conversation_id)
    ids = {answer.call_id for answer in chat.answers}
    last = len(chat.turns) - 1
    found = {one.conversation.id: one for one in _find_last(tx, agent_id, chat, last, inputs, most=WAITING)}
    conversations = [one.conversation for one in found.values()]
    if chat.name or chat.anchor.user:
        with contextlib.suppress(NotFound):
            conversations.insert(0, _get_named(tx, agent_id, chat))
    for one in conversations:
        if ids & {call.call_id for call in pending_calls(tx, one)}:
            return one
    for known in found.values():
        if ids & {call.call_id for message in known.messages for call in message.calls}:
            return known.conversation
    if not conversations:
        if chat.anchor.name:
            return _get_named(tx, agent_id, chat)
        raise InvalidInput("messages: no answer is known that made the calls to which these are the results")
    return conversations[0]


def find_earlier(tx: Tx, agent_id: AgentId, chat: Chat, inputs: UnitInputs) -> ConversationId | None:
    """Return the conversation that has what a chat said before its newest message; None: none is known."""
    if chat.name and not chat.anchor.name and tx.of(OpenaiHistories).find(agent_id, [chat.habit_digest]):
        return None
    if chat.name:
        with contextlib.suppress(NotFound):
            return _get_named(tx, agent_id, chat).id
    return next((one.conversation.id for one in _find_last(tx, agent_id, chat, len(chat.turns) - 2, inputs)), None)


def find_earlier_texts(tx: Tx, agent_id: AgentId, chat: Chat, behind: str) -> Sequence[ChatText]:
    """Return what was said up to the answer with this id, of a run or to a message, or else in the conversation that a
    chat names. Raises: NotFound: there is no such answer."""
    upto: int | None = None
    if behind:
        conversation, upto = _end_of_answer(tx, agent_id, behind)
    else:
        try:
            conversation = _get_named(tx, agent_id, chat)
        except NotFound:
            return ()
    return [
        ChatText(one.role, one.text)
        for one in _newest(tx, conversation)
        if one.role in ("user", "assistant") and (upto is None or one.seq <= upto)
    ]


def _end_of_answer(tx: Tx, agent_id: AgentId, response_id: str) -> tuple[Conversation, int]:
    """Return (the conversation of an answer, the number of its last message). Raises: NotFound."""
    try:
        owner, seq = tx.messages.place(MessageId(f"{PREFIXES['message']}-{response_id}"))
    except NotFound:
        run = _run_of(tx, agent_id, RunId(f"{PREFIXES['run']}-{response_id}"))
        owner, seq = agent_id, run.first_message_seq or 0
    rows = tx.messages.list_by_seqs(agent_id, [seq]) if owner == agent_id else ()
    if not rows:
        raise NotFound("response", response_id)
    conversation = tx.conversations.get_by_seq(agent_id, rows[0].conversation_seq)
    return conversation, read_turn(tx, conversation, seq)[0][-1].seq


def _find_last(
    tx: Tx, agent_id: AgentId, chat: Chat, place: int, inputs: UnitInputs, *, most: int = 8
) -> Iterator[KnownTurn]:
    """Yield the turns at a place of a chat as they are known, by its chain or else its window."""
    if place < 0:
        return
    digest, is_known = chat.turns[place].digest, False
    for row in tx.of(OpenaiHistories).find(agent_id, [digest], most=most).get(digest, ()):
        if (known := find_turn(tx, row, inputs)) is not None:
            is_known = True
            yield known
    if not is_known and (window := _find_window(tx, agent_id, chat, place, inputs)) is not None:
        yield window


def named_id(tx: Tx, agent_id: AgentId, chat: Chat) -> ConversationId:
    """Return the id of the conversation that a request names: equal names of one key always mean the same, until that
    is deleted."""
    name = chat.name or chat.anchor.user
    if is_id("conversation", name):
        return ConversationId(name)
    derived, seed = "", [agent_id, chat.key, name]
    while not derived or _is_deleted(tx, ConversationId(derived)):
        derived, seed = derived_id("conversation", *seed), [*seed, "again"]
    return ConversationId(derived)


def _is_deleted(tx: Tx, conversation_id: ConversationId) -> bool:
    """Whether there was such a conversation."""
    try:
        tx.conversations.get(conversation_id)
    except NotFound as error:
        return "it was deleted" in str(error)
    return False


def _get_named(tx: Tx, agent_id: AgentId, chat: Chat) -> Conversation:
    """Return the conversation that a request names. Raises: NotFound."""
    conversation = tx.conversations.get(named_id(tx, agent_id, chat))
    if conversation.agent_id != agent_id:
        raise NotFound("conversation", conversation.id, hint="another agent has it")
    return conversation


def message_id_of(agent_id: AgentId, conversation_id: ConversationId, turn: ChatTurn) -> MessageId:
    """Return the id that the first message of a turn gets where it is imported."""
    return MessageId(derived_id("message", agent_id, conversation_id, "id", f"{turn.digest}:0"))


def _is_sent_again(known: KnownTurn, chat: Chat, inputs: UnitInputs) -> bool:
    """Return whether a request that is known is sent once more, and is no new try: its answer is still being made, or
    was lost on the way."""
    if not known.is_last or known.waits_for_model:
        return False
    if known.is_open:
        return True
    if not chat.is_retry or (known.run is not None and known.run.stop_reason in FAILED_REASONS):
        return False
    ended_at = known.messages[-1].created_at if known.run is None else known.run.ended_at
    return ended_at is not None and inputs.now < ended_at + timedelta(seconds=RETRY_S)


def _behind_known(
    tx: Tx,
    turns: Sequence[ChatTurn],
    rows: Mapping[str, Sequence[KnownChain]],
    new_id: ConversationId,
    inputs: UnitInputs,
) -> tuple[Conversation, str, int, bool] | None:
    """Return the conversation behind the longest chain that is known, as `_choose` does; None: none is known."""
    for place in range(len(turns) - 2, -1, -1):
        known = [one for row in rows.get(turns[place].digest, ()) if (one := find_turn(tx, row, inputs)) is not None]
        known.sort(key=lambda one: (one.matches(turns[place]), one.is_last), reverse=True)
        if not known:
            continue
        best = known[0]
        if not best.matches(turns[place]):  # the answer was edited
            made = fork(tx, best.conversation, new_id, inputs, upto=best.last_said)
            return made, best.row.system_digest, place, False
        if best.is_last:
            return best.conversation, best.row.system_digest, place + 1, True
        made = fork(tx, best.conversation, new_id, inputs, upto=best.messages[-1].id)
        return made, best.row.system_digest, place + 1, True
    return None


def _find_window(tx: Tx, agent_id: AgentId, chat: Chat, place: int, inputs: UnitInputs) -> KnownTurn | None:
    """Return the turn at a place of a chat that is not sent from its beginning any more; None: none is known whose
    conversation ends with all that is sent up to there."""
    if place < 1 or not (digest := chat.window_digest(place)):
        return None
    rows = tx.of(OpenaiHistories).find(agent_id, [digest]).get(digest, ())
    for row in rows:
        known = find_turn(tx, row, inputs)
        if known is not None and not known.is_open and _ends_with(tx, known.conversation, chat.turns[: place + 1]):
            return known
    return None


def _ends_with(tx: Tx, conversation: Conversation, turns: Sequence[ChatTurn]) -> bool:
    """Whether all of these turns are the last ones of a conversation."""
    pairs = list(zip(reversed(_own_turns(tx, conversation)), reversed(turns), strict=False))
    return len(pairs) == len(turns) and all(
        mine.answer.startswith(sent.answer) and (sent.users == mine.users or (sent is turns[0] and not sent.users))
        for mine, sent in pairs
    )


def _has_answer_of(tx: Tx, conversation: Conversation, turns: Sequence[ChatTurn]) -> bool:
    """Whether a conversation has an answer of these turns: their beginning was edited."""
    return bool({one.answer for one in _own_turns(tx, conversation)} & {one.answer for one in turns if one.answer})


def _own_turns(tx: Tx, conversation: Conversation) -> Sequence[ChatTurn]:
    """Return the newest turns of a conversation; the first of them may have lost its beginning."""
    rows = _newest(tx, conversation)
    return chain_of([ChatText(one.role, one.text) for one in rows if one.role in ("user", "assistant")])


def _newest(tx: Tx, conversation: Conversation) -> Sequence[Message]:
    """Return the newest messages of a conversation, in order, without the engine's."""
    agent_id, seq = conversation.key
    rows = tx.messages.list(agent_id, conversation_seq=seq, newest_first=True, limit=WINDOW_ROWS, kinds=("message",))
    return [one for one in reversed(rows) if one.text != KEEP_ALIVE]


def _behind_run(tx: Tx, agent_id: AgentId, run_id: RunId, new_id: ConversationId, inputs: UnitInputs) -> Conversation:
    """Return the conversation of a run; a fork behind it, if others follow its answer already. Raises: NotFound."""
    run = _run_of(tx, agent_id, run_id)
    conversation = tx.conversations.get(run.conversation_id)
    if run.first_message_seq is None:
        return conversation
    messages, is_last = read_turn(tx, conversation, run.first_message_seq)
    return conversation if is_last else fork(tx, conversation, new_id, inputs, upto=messages[-1].id)


def _named(tx: Tx, agent_id: AgentId, chat: Chat, inputs: UnitInputs) -> tuple[Conversation, bool]:
    """Return (the conversation that a request names, whether it was made for it). Raises: NotFound."""
    try:
        return _get_named(tx, agent_id, chat), False
    except NotFound:
        if is_id("conversation", chat.name):
            raise
        return _add_conversation(tx, agent_id, named_id(tx, agent_id, chat), inputs), True


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
