"""Transcripts: what was said, with the edits of memory that each message made and the failures of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core.blocks import BlockVersion
from perdure.core.ids import AgentId, ConversationId, MessageId
from perdure.core.messages import Message
from perdure.core.runs import Failure, Run, RunKey
from perdure.core.text.reprs import short_repr
from perdure.library.memory.search import Moment, period
from perdure.library.parts.checks import check_limit, check_number
from perdure.library.parts.part import AsyncAgentPart, find_conversation, reads
from perdure.storage.tx import Tx

VERSIONS_PAGE = 50


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """A message, and the edits of memory that its calls made, oldest first.

    Args:
        failure: why the message's run failed, where no later message of that run follows.
        stopped: whether the message's run was stopped, where no later message of that run follows.
    """

    __repr__ = short_repr("message", "edits", "failure", "stopped")

    message: Message
    edits: Sequence[BlockVersion] = ()
    failure: Failure | None = None
    stopped: bool = False


class AsyncTranscripts(AsyncAgentPart):
    """What was said to an agent and by it, as people read it; `AsyncAgent` has this method."""

    @reads
    def transcript(
        self,
        tx: Tx,
        *,
        conversation: ConversationId | None = None,
        since: Moment = None,
        limit: int = 100,
        before_seq: int | None = None,
    ) -> Sequence[TranscriptEntry]:
        """The newest messages of one conversation, or of all, oldest first, each with its edits of memory, and
        where no answer came, why the run failed.

        Args:
            since: only messages from this time on: a time with a zone, or an ISO date or time, where the agent lives.
        Raises: InvalidInput, NotFound.
        """
        check_limit(limit)
        check_number("before_seq", before_seq)
        first, _ = period(since, None, tx.agents.get(self.id).timezone)
        seq = None if conversation is None else find_conversation(tx, self.id, conversation).seq
        messages = tx.messages.list(
            self.id, conversation_seq=seq, before_seq=before_seq, limit=limit, newest_first=True, since=first
        )
        edits, broken = _edits_of(tx, self.id, seq or 0, messages), _broken_runs(tx, self.id, messages)
        return [
            TranscriptEntry(
                message,
                edits.get(message.id, ()),
                None if (run := broken.get(message.id)) is None else run.failure,
                stopped=run is not None and run.status == "cancelled",
            )
            for message in reversed(messages)
        ]


def _broken_runs(tx: Tx, agent_id: AgentId, messages: Sequence[Message]) -> dict[MessageId, Run]:
    """Id of its last message -> each failed or stopped run among those of these messages, newest first."""
    last: dict[RunKey, MessageId] = {}
    for message in messages:
        if message.run_seq is not None:
            last.setdefault(RunKey(agent_id, message.run_seq), message.id)
    runs = tx.runs.list_by_keys(list(last))
    return {last[run.key]: run for run in runs.values() if run.status in ("failed", "cancelled") and not run.hidden}


def _edits_of(
    tx: Tx, agent_id: AgentId, conversation_seq: int, messages: Sequence[Message]
) -> dict[MessageId, list[BlockVersion]]:
    """Id of a message -> the versions of the agent's blocks that its calls made, oldest first."""
    callers = {message.id: message.created_at for message in messages if message.calls}
    found: dict[MessageId, list[BlockVersion]] = {}
    if not callers:
        return found
    oldest = min(callers.values())
    for block in tx.blocks.list_by_agent(agent_id, conversation_seq):
        before: int | None = None
        while page := tx.blocks.versions(block.id, limit=VERSIONS_PAGE, before=before):
            for version in page:
                if version.author.message_id in callers and version.diff:
                    found.setdefault(version.author.message_id, []).insert(0, version)
            before = page[-1].version
            if page[-1].created_at < oldest:
                break
    return found
