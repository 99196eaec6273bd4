"""One prompt of an editor, from its message to the reason why the answer ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import acp
from acp import schema

from perdure.core.errors import AnswerInvalid
from perdure.core.events import Delta, RunEnded, StoredEvent
from perdure.core.ids import ConversationId
from perdure.core.messages import ToolDecision
from perdure.core.runs import FAILED_REASONS, Usage
from perdure.core.tools.answers import PendingCall
from perdure.features.acp.transport import INTERNAL_ERROR
from perdure.features.acp.updates import SessionUpdates
from perdure.library.agent import AsyncAgent

ALLOW, ALWAYS, REJECT = "allow", "allow_always", "reject"
_STOP_REASONS: dict[str, schema.StopReason] = {
    "cancelled": "cancelled",
    "max_steps": "max_turn_requests",
    "max_tokens_exceeded": "max_tokens",
}
"""Why a run ended -> the protocol's word for it; any other end that is no failure is `end_turn`."""


class PromptTurn:
    """A prompt while it is answered: the editor is shown its pieces, calls and changes of memory, and asked about calls
    that need a person."""

    def __init__(self, agent: AsyncAgent, conversation: ConversationId, client: Any) -> None:
        self._agent, self._conversation, self._client = agent, conversation, client
        self._updates = SessionUpdates()
        self._cancelled = asyncio.Event()
        self._usage = Usage()

    @property
    def is_cancelled(self) -> bool:
        """Whether the editor asked for its end."""
        return self._cancelled.is_set()

    async def cancel(self) -> None:
        """Stop the answer; the prompt then ends with `cancelled`. Calls that wait for a person are given up."""
        self._cancelled.set()
        await self._agent.cancel_all(conversation=self._conversation)

    async def answer(self, text: str, images: Sequence[bytes]) -> schema.PromptResponse:
        """Send a message, after the calls that wait in its conversation are decided, and return why the answer ended.

        Raises: RequestError: the model failed; PerdureError.
        """
        try:
            ended = await self._decide(None)
            if not self.is_cancelled:
                sent = self._agent.stream(text, conversation=self._conversation, images=images)
                ended = await self._decide(await self._show(sent))
        finally:
            for update in self._updates.close():
                await self.update(update)
        return self._response(ended)

    async def update(self, update: Any) -> None:
        """Send an update of the session."""
        await self._client.session_update(session_id=self._conversation, update=update)

    async def _show(self, events: AsyncIterator[StoredEvent | Delta]) -> RunEnded | None:
        """Send the updates of a run, and return its end; None: it does not go on, as other calls wait."""
        ended: RunEnded | None = None
        is_first = True
        async for sent in events:
            if is_first and self.is_cancelled:  # it was asked for while there was no run yet
                await self._agent.cancel_all(conversation=self._conversation)
            is_first = False
            for update in self._updates.of(sent):
                await self.update(update)
            if isinstance(sent, StoredEvent) and isinstance(sent.event, RunEnded):
                ended = sent.event
                self._usage += ended.usage
        return ended

    async def _decide(self, ended: RunEnded | None) -> RunEnded | None:
        """Ask about the calls that wait, as long as runs stop at some; return the end of the last run."""
        while not self.is_cancelled and (waiting := await self._agent.pending(conversation=self._conversation)):
            decisions = await self._ask(waiting)
            if not self.is_cancelled:
                ended = await self._show(self._agent.stream_answer(decisions, conversation=self._conversation))
        return ended

    async def _ask(self, waiting: Sequence[PendingCall]) -> list[ToolDecision]:
        """Ask the person in the editor about each call; the answers, none if they cancelled.

        Raises: AnswerInvalid: only calls wait that are not theirs to decide.
        """
        asked = [call for call in waiting if not call.awaits_client]
        if not asked:
            names = ", ".join(call.name for call in waiting)
            raise AnswerInvalid(f"the conversation waits for the program that runs {names}: answer it there first")
        decisions = list[ToolDecision]()
        for pending in asked:
            choice = await self._choice(pending)
            if choice is None:
                return []
            if choice == ALWAYS:
                await self._agent.require_approval(pending.name, required=False)
            is_allowed = choice in (ALLOW, ALWAYS)
            reason = None if is_allowed else "the user rejected it in the editor"
            decisions.append(ToolDecision(pending.call_id, is_allowed, reason))
        return decisions

    async def _choice(self, pending: PendingCall) -> str | None:
        """The option that a person chose for a call; None: the prompt was cancelled meanwhile, or by this answer."""
        call, options = self._updates.permission(pending), _options(pending)
        asking = asyncio.ensure_future(
            self._client.request_permission(session_id=self._conversation, tool_call=call, options=options)
        )
        end = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait({asking, end}, return_when=asyncio.FIRST_COMPLETED)
            if self.is_cancelled:
                return None
            outcome = (await asking).outcome
        finally:
            asking.cancel()
            end.cancel()
        if isinstance(outcome, schema.AllowedOutcome):
            return outcome.option_id
        await self.cancel()
        return None

    def _response(self, ended: RunEnded | None) -> schema.PromptResponse:
        """What the editor gets at the end. Raises: RequestError: the run failed."""
        reason, failure = (ended.stop_reason, ended.failure) if ended is not None else ("end_turn", None)
        stop_reason = "cancelled" if self.is_cancelled else _STOP_REASONS.get(reason)
        if stop_reason is None and reason in FAILED_REASONS:
            text = failure.message if failure is not None else f"the run ended: {reason}"
            raise acp.RequestError(INTERNAL_ERROR, text, {"stop_reason": reason})
        used = self._usage
        usage = schema.Usage(
            total_tokens=used.total_tokens, input_tokens=used.input_tokens, output_tokens=used.output_tokens
        )
        return schema.PromptResponse(stop_reason=stop_reason or "end_turn", usage=usage)


def _options(pending: PendingCall) -> list[schema.PermissionOption]:
    """What a person may answer: not always, where the call itself is why they are asked, and not a rule of its tool."""
    always = schema.PermissionOption(option_id=ALWAYS, name=f"Always allow {pending.name}", kind="allow_always")
    return [
        schema.PermissionOption(option_id=ALLOW, name="Allow", kind="allow_once"),
        *([] if pending.reason else [always]),
        schema.PermissionOption(option_id=REJECT, name="Reject", kind="reject_once"),
    ]
