"""Units of work that find the conversation of a request, by what the program names or sends again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple

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
from perdure.features.openai_front.response_bodies import RESPONSE
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
    is_sent_again,
)
from perdure.storage.tx import Tx

RETRY_S = 600
"""So long after an answer a program that lost it on the way, and says so, gets the same one."""
WINDOW_ROWS = 1_000
WAITING = 50
"""Turns that are alike among which the one is looked for whose calls wait."""
NEWEST = 4
"""Turns of a chat that are looked up at first."""


_Said = tuple[Literal["user", "assistant"], str, str]
"""Who says something, what, and the id of the message."""


class _Continuation(NamedTuple):
    """Where a request goes on: from turn number `lacking` on the conversation lacks what the chat says; of that turn
    only the answer, unless `with_users`. `told`: the digest of what the program has said beside it; None: see there."""

    conversation: Conversation
    lacking: int
    told: str | None = None
    with_users: bool = True


@dataclass(frozen=True, slots=True)
class ChatUnits:
    """The units of a request to an agent. `new_id`: the id of a conversation that has to be made."""

    agent_id: AgentId
    chat: Chat
    new_id: ConversationId
    inputs: UnitInputs

    def find_place(self, tx: Tx, said_in: str, *, answer: str = "", most_chars: int | None = None) -> ChatPlace:
        """Return in which conversation a request goes on; store that, and what the conversation lacks of the chat.

        Args:
            said_in: the id of the run that is to answer it; empty: none is, and the request's messages are added, too.
            answer: an answer that is there already, which is added behind the request.
            most_chars: so many characters may be added.
        Raises: NotFound: the conversation or run that the request names; InvalidInput: a text is too long;
            ConversationBusy, ApprovalPending: it takes no messages now.
        """
        tx.agents.lock(self.agent_id)
        chat, turns, table = self.chat, self.chat.turns, tx.of(OpenaiHistories)
        digests = [turn.digest for turn in turns if turn.users]
        # Most chats go on where they were: the newest turns tell.
        rows = dict(table.find(self.agent_id, [chat.request_digest, chat.habit_digest, *digests[-NEWEST:]]))
        has_habit = bool(rows.pop(chat.habit_digest, ()))
        for known in self._existing_turns(tx, rows.pop(chat.request_digest, ())):
            if self._is_sent_again(known):
                return ChatPlace(known.conversation, known.row.said_in, turns[-1], is_repeat=True)
        if not rows and len(digests) > NEWEST:
            rows = dict(table.find(self.agent_id, digests[:-NEWEST]))
        is_named = bool(chat.anchor.name or (chat.name and not has_habit))
        way = self._choose(tx, rows, is_kept=not said_in, is_named=is_named)
        conversation, lacking, told = way.conversation, turns[way.lacking : -1], way.told
        last = turns[-1]
        if not said_in:
            last = self._unused(tx, conversation, last)
            lacking = [*lacking, last._replace(answer=in_one_form(answer))]
        said_in = said_in or self._message_id(conversation, last)
        system = digest_of(chat.system)
        if told is None:
            told = table.newest_system(self.agent_id, conversation.id)
        noted: list[tuple[str, str]] = [
            (turn.digest, self._message_id(conversation, turn)) for turn in turns[way.lacking : -1] if turn.users
        ]
        habit = chat.habit_digest if len(turns) > 1 and not has_habit else ""
        own = (turns[-1].digest, chat.window_digest(len(turns) - 1), chat.request_digest, habit)
        noted += [(digest, said_in) for digest in own if digest]
        common: Any = {"conversation_id": conversation.id, "system_digest": system, "created_at": self.inputs.now}
        table.add(self.agent_id, [KnownChain(digest=digest, said_in=id_, **common) for digest, id_ in noted])
        is_full = self._add(tx, conversation, _messages_of(lacking, with_users=way.with_users), most_chars=most_chars)
        return ChatPlace(conversation, said_in, last, is_full=is_full, system_is_new=system not in ("", told))

    def keep_answer(self, tx: Tx, place: ChatPlace | None, answer: str) -> tuple[Conversation, bool]:
        """Add an answer that somebody else gave: behind what was kept of the chat at `place`, or with all of it; return
        (its conversation, whether its view may be too large now). Raises: as `find_place`."""
        text = in_one_form(answer)
        if not self.chat.new:  # it goes on behind the results of tools
            conversation, _ = self.find_answered(tx)
            id_ = f"{self.chat.turns[-1].digest}:{digest_of(text)}"
            return conversation, self._add(tx, conversation, [("assistant", text, id_)])
        if place is not None:
            with contextlib.suppress(NotFound):
                conversation = tx.conversations.get(place.conversation.id)
                if _waits(tx, conversation, MessageId(place.said_in)):
                    said = _messages_of([place.turn._replace(answer=text)], with_users=False)
                    return conversation, self._add(tx, conversation, said)
        place = self.find_place(tx, "", answer=answer)
        return place.conversation, place.is_full

    def find_answered(self, tx: Tx) -> tuple[Conversation, Run | None]:
        """Return (the conversation whose calls a request without new messages answers, preferring one where they still
        wait; the run that has answered them already, after a failed one). Raises: NotFound, InvalidInput."""
        ids, found = {*self.chat.results}, list[tuple[Conversation, Sequence[Message]]]()
        if self.chat.anchor.behind is not None:
            run = self._run(tx, self.chat.anchor.behind)
            conversation = tx.conversations.get(run.conversation_id)
            found.append((conversation, read_turn(tx, conversation, run.first_message_seq or 0)[0]))
        else:
            if (self.chat.anchor.name or self.chat.anchor.user) and (named := self._named(tx)[1]) is not None:
                found.append((named, ()))
            last = self._known_at(tx, len(self.chat.turns) - 1, most=WAITING)
            found += [(one.conversation, one.messages) for one in last]
        for one, _ in found:
            if ids & {call.call_id for call in pending_calls(tx, one)}:
                return one, None
        for one, messages in found:
            made = [row for row in messages if ids & {call.call_id for call in row.calls}]
            if made:
                return one, _run_behind(tx, made[-1], messages)
        if not found:
            raise InvalidInput("messages: no answer is known that made the calls to which these are the results")
        return found[0][0], None

    def find_earlier(self, tx: Tx) -> ConversationId | None:
        """Return the conversation with the chat's earlier messages; None: none is known."""
        chat, place = self.chat, len(self.chat.turns) - (2 if self.chat.new else 1)
        is_by_user = chat.name and not chat.anchor.name
        if chat.name and not (is_by_user and tx.of(OpenaiHistories).find(self.agent_id, [chat.habit_digest])):
            with contextlib.suppress(NotFound):
                named = self._named(tx)[1]
                return None if named is None else named.id
        return next((one.conversation.id for one in self._known_at(tx, place)), None)

    def find_earlier_texts(self, tx: Tx, behind: str) -> Sequence[ChatText]:
        """Return what was said up to the answer to the message with this id, or else in the conversation that the chat
        names by itself and does not send again. Raises: NotFound: there is no such answer."""
        if not behind:
            named = None
            if self.chat.anchor.name and not self.chat.sends_again:
                with contextlib.suppress(NotFound):
                    named = self._named(tx)[1]
            return [] if named is None else _texts(_newest(tx, named))
        owner, seq = tx.messages.place(MessageId(f"{PREFIXES['message']}-{behind}"))
        rows = tx.messages.list_by_seqs(self.agent_id, [seq]) if owner == self.agent_id else ()
        if not rows:
            raise NotFound("response", behind)
        conversation = tx.conversations.get_by_seq(self.agent_id, rows[0].conversation_seq)
        last = read_turn(tx, conversation, seq)[0][-1].seq
        return _texts(row for row in _newest(tx, conversation) if row.seq <= last)

    def _choose(
        self, tx: Tx, rows: Mapping[str, Sequence[KnownChain]], *, is_kept: bool, is_named: bool
    ) -> _Continuation:
        """Return where the request goes on. `rows`: what is known of its chain."""
        turns, last, named = self.chat.turns, len(self.chat.turns) - 1, None
        if self.chat.anchor.behind is not None:
            return _Continuation(self._behind_run(tx, self.chat.anchor.behind), last)
        if is_named:
            named_id, named = self._named(tx)
            if named is None:
                return _Continuation(self._make(tx, named_id), 0)
            if not last or _ends_with(tx, named, turns[:-1]):
                return _Continuation(named, last)
        if same := self._existing_turns(tx, rows.get(turns[-1].digest, ())):
            if is_kept and same[0].waits_for_model:
                return _Continuation(same[0].conversation, last, same[0].row.system_digest)
            # A new try, or another request with the same words.
            known = next((one for one in same if one.is_last), same[0])
            first = known.messages[0] if known.messages else None
            made = fork(tx, known.conversation, self.new_id, self.inputs, before=None if first is None else first.id)
            return _Continuation(made, last, "" if first is None or first.role == "system" else known.row.system_digest)
        if named is None and not rows and (window := self._window(tx, last - 1)) is not None:
            return _Continuation(window.conversation, last, window.row.system_digest)
        for place in range(last - 1, -1, -1):  # the longest chain that is known
            if behind := self._existing_turns(tx, rows.get(turns[place].digest, ())):
                best = max(behind, key=lambda one: (one.matches(turns[place]), one.is_last))
                return self._behind(tx, best, place)
        answers = {turn.answer for turn in turns} - {""}
        if named is not None and not answers & {one.answer for one in _own_turns(tx, named)}:
            return _Continuation(named, last)
        return _Continuation(self._make(tx, self.new_id), 0, "")

    def _behind(self, tx: Tx, known: KnownTurn, place: int) -> _Continuation:
        """Return where a chat continues whose turn at this index is known."""
        told = known.row.system_digest
        if not known.matches(self.chat.turns[place]):  # the answer was edited
            asked = [row.id for row in known.messages if row.role in ("user", "system")]
            made = fork(tx, known.conversation, self.new_id, self.inputs, upto=asked[-1])
            return _Continuation(made, place, told, with_users=False)
        if known.is_last:
            return _Continuation(known.conversation, place + 1, told)
        made = fork(tx, known.conversation, self.new_id, self.inputs, upto=known.messages[-1].id)
        return _Continuation(made, place + 1, told)

    def _existing_turns(self, tx: Tx, rows: Iterable[KnownChain]) -> Sequence[KnownTurn]:
        """Return the turns of these rows that still exist."""
        return [one for row in rows if (one := find_turn(tx, row, self.inputs.now)) is not None]

    def _known_at(self, tx: Tx, place: int, *, most: int = 8) -> Sequence[KnownTurn]:
        """Return the known turns at an index of the chat, found by its chain, else by its window."""
        if place < 0:
            return []
        digest = self.chat.turns[place].digest
        rows = tx.of(OpenaiHistories).find(self.agent_id, [digest], most=most).get(digest, ())
        if known := self._existing_turns(tx, rows):
            return known
        return [] if (window := self._window(tx, place)) is None else [window]

    def _window(self, tx: Tx, place: int) -> KnownTurn | None:
        """Return the known turn at an index of a chat whose beginning is no longer sent; None: no known conversation
        ends with all that is sent up to there."""
        if place < 1 or not (digest := self.chat.window_digest(place)):
            return None
        for known in self._existing_turns(tx, tx.of(OpenaiHistories).find(self.agent_id, [digest]).get(digest, ())):
            if not known.is_open and _ends_with(tx, known.conversation, self.chat.turns[: place + 1]):
                return known
        return None

    def _is_sent_again(self, known: KnownTurn) -> bool:
        """Return whether a known request is sent again since its answer is in progress or was lost on the way."""
        if not known.is_last or known.waits_for_model:
            return False
        if known.is_open:
            return True
        if not self.chat.is_retry or (known.run is not None and known.run.stop_reason in FAILED_REASONS):
            return False
        ended_at = known.messages[-1].created_at if known.run is None else known.run.ended_at
        return ended_at is not None and self.inputs.now < ended_at + timedelta(seconds=RETRY_S)

    def _named(self, tx: Tx) -> tuple[ConversationId, Conversation | None]:
        """Return (id of the conversation that the request names, the conversation; None: it does not exist yet). Equal
        names of one key mean the same one until that is deleted. Raises: NotFound: an unknown id."""
        name = self.chat.anchor.name or self.chat.anchor.user
        seed = [self.agent_id, self.chat.key, name]
        while True:
            named_id = ConversationId(name if is_id("conversation", name) else derived_id("conversation", *seed))
            try:
                found = tx.conversations.get(named_id)
            except NotFound as error:
                if named_id == name:
                    raise
                if "it was deleted" not in str(error):
                    return named_id, None
                seed.append("again")
                continue
            if found.agent_id != self.agent_id:
                raise NotFound("conversation", named_id, hint="another agent has it")
            return named_id, found

    def _make(self, tx: Tx, conversation_id: ConversationId) -> Conversation:
        """Add a conversation, and return it. Raises: NotFound: there is no such agent."""
        made = tx.conversations.add(self.agent_id, conversation_id, at=self.inputs.now)
        renew_system_message(tx, self.agent_id, made.seq, self.inputs)
        return made

    def _behind_run(self, tx: Tx, run_id: RunId) -> Conversation:
        """Return the conversation of a run; a fork behind it, if others follow its answer already. Raises: NotFound."""
        run = self._run(tx, run_id)
        conversation = tx.conversations.get(run.conversation_id)
        if run.first_message_seq is None:
            return conversation
        messages, is_last = read_turn(tx, conversation, run.first_message_seq)
        return conversation if is_last else fork(tx, conversation, self.new_id, self.inputs, upto=messages[-1].id)

    def _run(self, tx: Tx, run_id: RunId) -> Run:
        """Return a run of this agent. Raises: NotFound."""
        hint = ""
        with contextlib.suppress(NotFound):
            run = tx.runs.get(run_id)
            if run.key.agent_id == self.agent_id:
                return run
            hint = "another agent has it"
        raise NotFound("response", RESPONSE + run_id.partition("-")[2], hint=hint)

    def _message_id(self, conversation: Conversation, turn: ChatTurn) -> MessageId:
        """Return the id that the first message of a turn gets where it is imported."""
        return MessageId(derived_id("message", self.agent_id, conversation.id, "id", f"{turn.digest}:0"))

    def _unused(self, tx: Tx, conversation: Conversation, turn: ChatTurn) -> ChatTurn:
        """Return a turn with a digest that no message of the conversation is stored under yet, unless it waits for an
        answer, as the same words may be said again."""
        with contextlib.suppress(NotFound):
            while not _waits(tx, conversation, self._message_id(conversation, turn)):
                turn = turn._replace(digest=digest_of(turn.digest))
        return turn

    def _add(self, tx: Tx, conversation: Conversation, said: Iterable[_Said], *, most_chars: int | None = None) -> bool:
        """Add missing messages (role, text, id); return whether the view may be too large. Raises: see `find_place`."""
        now = self.inputs.now
        messages = [ImportedMessage(role=role, text=text, occurred_at=now, id=id_) for role, text, id_ in said]
        if most_chars is not None and (size := sum(len(one.text) for one in messages)) > most_chars:
            helps = "ask an administrator for a key with a higher message_chars"
            raise MessageTooLarge(size=size, limit=most_chars, whose="this key", helps=helps)
        importer, limit = Importer(self.agent_id, conversation.id), self.inputs.settings.message_limit_chars
        drafts = [importer.draft(imported_message(message, limit_chars=limit)) for message in messages]
        return bool(drafts) and import_in_unit(tx, self.agent_id, conversation.seq, drafts, self.inputs)


def find_texts(tx: Tx, agent_id: AgentId, ids: Sequence[MessageId]) -> Mapping[MessageId, str]:
    """Return the texts of those of these messages that the agent has."""
    seqs: list[int] = []
    for message_id in ids:
        with contextlib.suppress(NotFound):
            owner, seq = tx.messages.place(message_id)
            seqs += [seq] if owner == agent_id else []
    return {message.id: message.text for message in tx.messages.list_by_seqs(agent_id, seqs)}


def _messages_of(turns: Sequence[ChatTurn], *, with_users: bool) -> Iterator[_Said]:
    """Yield role, text and the lasting id of the turns' messages. `with_users`: also the users' of the first turn."""
    for number, turn in enumerate(turns):
        for place, text in enumerate(turn.users):
            if with_users or number:
                yield "user", text, f"{turn.digest}:{place}"
        if turn.answer:
            yield "assistant", turn.answer, f"{turn.digest}:{len(turn.users)}"


def _waits(tx: Tx, conversation: Conversation, message_id: MessageId) -> bool:
    """Return whether a message was kept for a model outside, which has given no answer. Raises: NotFound."""
    turn, is_last = read_turn(tx, conversation, tx.messages.place(message_id)[1])
    return is_last and not any(row.role == "assistant" for row in turn)


def _run_behind(tx: Tx, made: Message, turn: Sequence[Message]) -> Run | None:
    """Return the run that has answered the results of the calls in a message of a turn, by words or by new calls."""
    later = turn[turn.index(made) :]
    calling = (row for row in later[1:] if any(call.awaits == "client" for call in row.calls))
    last = next(calling, later[-1]).run_id
    if last is None or last == made.run_id:
        return None
    run = tx.runs.get(last, hidden=True)
    return None if run.stop_reason in ("cancelled", *FAILED_REASONS) else run


def _ends_with(tx: Tx, conversation: Conversation, turns: Sequence[ChatTurn]) -> bool:
    """Whether all of these turns are the last ones of a conversation."""
    pairs = list(zip(reversed(_own_turns(tx, conversation)), reversed(turns), strict=False))
    return len(pairs) == len(turns) and all(
        is_sent_again(mine.answer, sent.answer) and (sent.users == mine.users or (sent is turns[0] and not sent.users))
        for mine, sent in pairs
    )


def _own_turns(tx: Tx, conversation: Conversation) -> Sequence[ChatTurn]:
    """Return the newest turns of a conversation; the first of them may have lost its beginning."""
    return chain_of(_texts(_newest(tx, conversation)))


def _texts(rows: Iterable[Message]) -> Sequence[ChatText]:
    """Return the texts of users and assistant in these messages."""
    return [ChatText(row.role, row.text) for row in rows if row.role in ("user", "assistant")]


def _newest(tx: Tx, conversation: Conversation) -> Sequence[Message]:
    """Return the newest messages of a conversation, in order, without the engine's."""
    agent_id, seq = conversation.key
    rows = tx.messages.list(agent_id, conversation_seq=seq, newest_first=True, limit=WINDOW_ROWS, kinds=("message",))
    return [row for row in reversed(rows) if row.text != KEEP_ALIVE]
