"""Repeated answers: the first decision about a call counts, and the same answer again changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.context.sections.stubs import cut_stored
from perdure.core.conversations import Conversation
from perdure.core.errors import AnswerInvalid, NotFound
from perdure.core.ids import MessageId
from perdure.core.messages import Message, ToolDecision, ToolResult
from perdure.core.runs import Run, RunFilter
from perdure.core.text.json_strings import json_or
from perdure.core.tools.answers import Answer, ToolReturn
from perdure.engine.approvals.answers import LATEST_ANSWERS, WaitingCalls, find_pending
from perdure.storage.tx import Tx

StoredAnswers = Mapping[str, ToolDecision | ToolResult]


def split_repeated_answers(
    tx: Tx,
    conversation: Conversation,
    pending: WaitingCalls | None,
    answers: Sequence[Answer],
    *,
    message_digest: str | None,
    most_chars: int,
) -> tuple[tuple[Answer, ...], Run | None]:
    """Return the answers that are new, and if none is, the run that uses the stored ones or waits for more.

    Args:
        message_digest: of the messages that come with the answers; None: without messages.
        most_chars: how much of a result from the caller is stored.
    Raises: AnswerInvalid: an answer contradicts the stored one, or other messages came with that.
    """
    waiting = () if pending is None else [one.call.call_id for one in pending.waiting]
    new = tuple(answer for answer in answers if answer.call_id in waiting)
    repeated = [answer for answer in answers if answer.call_id not in waiting]
    ids = {answer.call_id for answer in repeated}
    if not repeated:
        return new, None
    if pending is not None and ids <= {*(stored := _answers_in(pending.rows))}:
        _check_same(repeated, stored, waiting=waiting, most_chars=most_chars)
        return new, None if new else pending.run
    if not new:
        for key, answer in tx.runs.answers(conversation.agent_id, conversation.seq, limit=LATEST_ANSWERS):
            if ids <= {*answer["calls"]}:
                run = tx.runs.get_by_key(key)
                if not ids <= {*(stored := _answers_in(_rows_to_resume(tx, run, len(answer["calls"]))))}:
                    break
                _check_same(repeated, stored, waiting=waiting, most_chars=most_chars)
                if message_digest is not None and answer.get("said") != message_digest:
                    raise AnswerInvalid(
                        "these answers were given before, without this message: send it by itself, as any message"
                    )
                return (), run
    return tuple(answers), None


def last_decisions(tx: Tx, conversation: Conversation) -> tuple[str, ...]:
    """Return the calls a person decided last: of the waiting ones, else before the newest run if it resumed there."""
    pending = find_pending(tx, conversation)
    if pending is not None:
        return _decision_ids(pending.rows)
    where = RunFilter(agent_ids=(conversation.agent_id,), conversation_seq=conversation.seq)
    newest = next(iter(tx.runs.page(where, limit=1)), None)
    if newest is None or newest.resumes is None:
        return ()
    answers = tx.runs.answers(conversation.agent_id, conversation.seq, limit=1)
    return _decision_ids(_rows_to_resume(tx, newest, len(answers[0][1]["calls"])))


def find_decisions(tx: Tx, conversation: Conversation, call_id: str | None) -> tuple[str, ...]:
    """Return the ids of calls that a person decided: this call, if it is decided; for None the last decided ones."""
    if call_id is None:
        return last_decisions(tx, conversation)
    pending = find_pending(tx, conversation)
    if pending is not None and call_id in _answers_in(pending.rows):
        return (call_id,)
    answers = tx.runs.answers(conversation.agent_id, conversation.seq, limit=LATEST_ANSWERS)
    return (call_id,) if any(call_id in answer["calls"] for _, answer in answers) else ()


def calls_of_request(tx: Tx, conversation: Conversation, request: str) -> tuple[str, ...]:
    """Return the calls of a request for approval by its message's id; for "" those that wait, else the last decided."""
    pending = find_pending(tx, conversation)
    if pending is not None and pending.waiting and request in ("", pending.message.id):
        return tuple(one.call.call_id for one in pending.waiting)
    if not request:
        return last_decisions(tx, conversation)
    try:
        message = tx.messages.get(MessageId(request))
    except NotFound:
        return ()
    if (message.agent_id, message.conversation_seq) != (conversation.agent_id, conversation.seq):
        return ()
    return tuple(call.call_id for call in message.calls if call.awaits is not None)


def _rows_to_resume(tx: Tx, run: Run, calls: int) -> Sequence[Message]:
    """Return the rows from the calls that a run resumes with to the last row of their answers."""
    begins_at = run.begins_at or 0
    last = max(begins_at, run.first_message_seq or 0) + calls + 1
    return tx.messages.view(run.key.agent_id, run.conversation_seq, from_seq=begins_at, upto_seq=last)


def _answers_in(rows: Iterable[Message]) -> StoredAnswers:
    """Return call id -> its stored answer, from the rows that begin with the calls."""
    stored: dict[str, ToolDecision | ToolResult] = {}
    for row in rows:
        stored |= {decision.call_id: decision for decision in row.decisions}
        for result in row.results:
            stored.setdefault(result.call_id, result)
    return stored


def _decision_ids(rows: Iterable[Message]) -> tuple[str, ...]:
    """Return the ids of the calls that a person decided, in these rows."""
    return tuple(decision.call_id for row in rows for decision in row.decisions)


def _check_same(answers: Iterable[Answer], stored: StoredAnswers, *, waiting: Sequence[str], most_chars: int) -> None:
    """Check that all answers say the same as the stored ones. Raises: AnswerInvalid."""
    for answer in answers:
        first = stored[answer.call_id]
        if not _is_same(answer, first, most_chars):
            none = "No tool call is currently awaiting approval in this conversation"
            why = f"Invalid tool call IDs. Expected '{list(waiting)}'" if waiting else none
            raise AnswerInvalid(
                f"Cannot process approval response: {why}: call {answer.call_id} was {_describe(first)} already, and"
                " another answer comes too late"
            )


def _is_same(answer: Answer, stored: ToolDecision | ToolResult, most_chars: int) -> bool:
    """Return whether an answer says the same as the stored one; of a result, `most_chars` are stored at most."""
    match answer, stored:
        case ToolDecision(), ToolDecision():
            return (
                answer.approve == stored.approve
                and answer.reason in (None, stored.reason)
                and _parse_arguments(answer.arguments) == _parse_arguments(stored.arguments)
            )
        case ToolReturn(), ToolResult():
            return answer.status == stored.status and stored.text in (answer.text, cut_stored(answer.text, most_chars))
        case _:
            return False


def _parse_arguments(arguments: str | None) -> Any:
    """Return arguments as a value, to compare them; the text if it is no JSON."""
    return None if arguments is None else json_or(arguments, arguments)


def _describe(stored: ToolDecision | ToolResult) -> str:
    """Return a stored answer in words."""
    if isinstance(stored, ToolResult):
        return f"answered with {stored.text!r:.80} ({stored.status})"
    if not stored.approve:
        return f"denied with the reason {stored.reason!r:.80}" if stored.reason else "denied"
    return "approved" if stored.arguments is None else f"approved with the arguments {stored.arguments:.200}"
