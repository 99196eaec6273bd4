"""Whose user is asked where a call of a helper waits: that of the agent at the beginning of the line of callers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from perdure.core.conversations import Conversation, ConversationKey
from perdure.core.errors import NotFound
from perdure.core.runs import Run, RunKey
from perdure.core.tools.answers import ToolReturn
from perdure.engine.approvals.answers import pending_calls
from perdure.engine.records.run_request import RunRequest
from perdure.storage.tx import Tx

LISTED_MAX = 1_000
"""The conversations with calls that wait that are looked at."""


def helpers_waiting(tx: Tx, keys: Collection[ConversationKey]) -> Mapping[ConversationKey, Sequence[Conversation]]:
    """Return conversation -> those of its helpers in which calls wait, of the conversations with these keys."""
    found: dict[ConversationKey, list[Conversation]] = {}
    for conversation in tx.conversations.list_pending(limit=LISTED_MAX):
        if conversation.pending_run_seq is None:
            continue
        run = tx.runs.get_by_key(RunKey(conversation.agent_id, conversation.pending_run_seq))
        if run.options.helper:
            asker = find_asker(tx, run)
            key = asker.key.agent_id, asker.conversation_seq
            if key in keys:
                found.setdefault(key, []).append(conversation)
    return found


def find_asker(tx: Tx, run: Run) -> Run:
    """Return the run that called a helper's run, through all helpers between; another run is returned itself."""
    while run.options.helper and run.options.caller is not None:
        with suppress(NotFound):  # it was deleted with its agent
            run = tx.runs.get(run.options.caller, hidden=True)
            continue
        break
    return run


def to_helper(tx: Tx, request: RunRequest) -> RunRequest:
    """Return the request; if it answers calls of a helper, addressed to the helper's conversation."""
    key = request.agent_id, request.conversation_seq
    if not request.answers or tx.conversations.get_by_seq(*key).pending_run_seq is not None:
        return request
    named = {answer.call_id for answer in request.answers}
    for conversation in helpers_waiting(tx, [key]).get(key, ()):
        ids = {""} if not all(isinstance(one, ToolReturn) for one in request.answers) else set[str]()
        for call in pending_calls(tx, conversation):
            ids |= {call.call_id, call.message_id}
        if named & ids:
            return replace(request, agent_id=conversation.agent_id, conversation_seq=conversation.seq)
    return request
