"""Answers that are made again, and messages that are taken back before their turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perdure.core.conversations import Conversation
from perdure.core.errors import Conflict
from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.messages import TRY_AGAIN, Draft, Image, Message, Text
from perdure.core.runs import Run, RunFilter, RunKey, RunOptions
from perdure.engine.records.rows import decode_drafts
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.engine.run.accept import Accepted
from perdure.library.messages.conversations import AsyncConversations
from perdure.library.messages.requests import AsyncRequests
from perdure.library.parts.part import find_conversation, find_run, list_run_messages, reads
from perdure.library.parts.providers import ModelHandles
from perdure.storage.tx import Tx

_AFTER_FAILURE = "No answer came to the last message. Answer it now."
_AFTER_STOP = "The last answer was stopped before its end. Answer the last message again, from the beginning."


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """A run of a conversation that has not ended, and its messages, if they wait behind another run."""

    run: Run
    drafts: Sequence[Draft] = ()


class AsyncRetries(AsyncRequests, AsyncConversations):
    """Answers again, and messages taken back; `AsyncAgent` has these methods."""

    @reads
    def waiting(self, tx: Tx, conversation: ConversationId | None = None) -> Sequence[WaitingRun]:
        """The unended runs of a conversation (default: the agent's first), oldest first. Raises: NotFound."""
        found = find_conversation(tx, self._agent_id, conversation)
        where = RunFilter(agent_ids=(found.agent_id,), conversation_seq=found.seq, statuses=("queued", "running"))
        texts = [(run, tx.runs.waiting_input(run.key)) for run in tx.runs.page(where, newest_first=False)]
        return [WaitingRun(run, () if text is None else decode_drafts(text)[0]) for run, text in texts]

    async def take_back(self, run_id: RunId) -> str:
        """Take back a message that waits behind another run, and return its text: it is never answered, and in no
        history. Raises: NotFound; Conflict: it is being answered, or was."""
        await self._ports.store.read(find_run, run_id, self._agent_id)
        return await self._app.runner.withdraw(run_id)

    async def try_again(self, run_id: RunId, *, background: bool = True) -> Accepted:
        """Have the last message of a conversation answered again, whose run failed or was stopped, without sending it a
        second time. It takes the same model and tools. The same call again is the same run.

        Raises: NotFound; Conflict: the run has an answer, or is not the last of its conversation; as `send_request`.
        """
        run = await self._ports.store.read(_find_last, run_id, self._agent_id)
        text = _AFTER_STOP if run.status == "cancelled" else _AFTER_FAILURE
        own = run.options
        return await self.send_request(
            RunRequest(
                agent_id=run.key.agent_id,
                conversation_seq=run.conversation_seq,
                messages=(NewMessage((Text(text),), role="system", name=TRY_AGAIN),),
                idempotency_key=f"again-{run_id}",
                background=background,
                options=RunOptions(model=own.model, model_reason=own.model_reason, tools=own.tools),
            )
        )

    async def answer_again(
        self, run_id: RunId, *, model: str | None = None, background: bool = True
    ) -> tuple[Conversation, Accepted]:
        """Have the message that a run answered answered by another model (None: the agent's), in a new conversation
        with a copy of what was said before it. Raises: NotFound; Conflict: nobody sent a message; ModelNotFound; as
        `send_request`."""

        def read(tx: Tx) -> tuple[Run, Sequence[Message]]:
            """Return the first run for the message, and what the user said."""
            run = _find_first_try(tx, find_run(tx, run_id, self._agent_id))
            return run, [message for message in list_run_messages(tx, run) if message.role == "user"]

        if model is not None:  # before there is a conversation that would stay empty
            model = await ModelHandles(self._app).resolve(model)

        run, asked = await self._ports.store.read(read)
        if not asked:
            raise Conflict(f"{run_id} answers no message of a user")
        made = await self.fork_conversation(run.conversation_id, before=asked[0].id)
        messages = tuple(
            NewMessage(tuple(part for part in one.parts if isinstance(part, Text | Image)), name=one.name)
            for one in asked
        )
        options = RunOptions(model=model, tools=run.options.tools)
        request = RunRequest(agent_id=run.key.agent_id, conversation_seq=made.seq, messages=messages)
        return made, await self.send_request(replace(request, background=background, options=options))


def _find_first_try(tx: Tx, run: Run) -> Run:
    """Return the run that first tried to answer the message of this run."""
    said = list_run_messages(tx, run)
    while said and said[0].name == TRY_AGAIN and said[0].role == "system":
        place, first = run.conversation_seq, said[0].seq
        before = tx.messages.list(
            run.key.agent_id, conversation_seq=place, before_seq=first, limit=1, newest_first=True, reset=True
        )
        if not before or before[0].run_seq is None:
            break
        run = tx.runs.get_by_key(RunKey(run.key.agent_id, before[0].run_seq))
        said = list_run_messages(tx, run)
    return run


def _find_last(tx: Tx, run_id: RunId, agent_id: AgentId | None) -> Run:
    """Return a run that failed and that only its own retry has followed. Raises: NotFound, Conflict."""
    run = find_run(tx, run_id, agent_id)
    if run.status not in ("failed", "cancelled"):
        raise Conflict(f"{run_id} is {run.status}: only an answer that failed or was stopped can be tried again")
    known = tx.runs.find_by_key(run.key.agent_id, run.conversation_seq, f"again-{run_id}")
    last = tx.messages.list(run.key.agent_id, conversation_seq=run.conversation_seq, limit=1, newest_first=True)
    is_last = bool(last) and last[0].run_seq == run.key.seq
    if known is None and (not is_last or tx.runs.find_active(run.key.agent_id, run.conversation_seq) is not None):
        raise Conflict(f"{run_id} is not the last of its conversation any more: send the message again")
    return run
