"""One prompt of an editor, from its blocks to the reason why the answer ends."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from typing import Any

import acp
from acp import schema

from perdure.core.errors import AnswerInvalid, InvalidInput
from perdure.core.events import Delta, RunEnded, RunQueued, RunStarted, StoredEvent
from perdure.core.ids import ConversationId
from perdure.core.messages import ToolDecision
from perdure.core.runs import FAILED_REASONS, RunFilter, Usage
from perdure.core.tools.answers import PendingCall
from perdure.features.acp.transport import INTERNAL_ERROR
from perdure.features.acp.updates import SessionUpdates
from perdure.library.agent import AsyncAgent
from perdure.library.parts.checks import Page

ALLOW, REJECT, ALWAYS = "allow_once", "reject_once", "allow_always"
_OPTIONS = [
    schema.PermissionOption.model_validate({"optionId": kind, "kind": kind, "name": name})
    for kind, name in ((ALLOW, "Allow"), (REJECT, "Reject"), (ALWAYS, "Always allow this tool"))
]
"""What a person may answer. The last is left out where the call itself is why they are asked, and no rule of its tool.
"""
LOOK_S = 0.5
"""How often a prompt that asks a person looks whether somebody decided in the terminal, the dashboard or elsewhere."""
_STOP_REASONS: dict[str, schema.StopReason] = {
    "cancelled": "cancelled",
    "max_steps": "max_turn_requests",
    "max_tokens_exceeded": "max_tokens",
}
"""Why a run ended -> the protocol's word for it; any other end that is no failure is `end_turn`."""


class PromptTurn:
    """A prompt while it is answered: the editor is shown its pieces, calls and changes of memory, and asked about calls
    that need a person. `cancelled` is set when the editor asked for its end."""

    def __init__(self, agent: AsyncAgent, conversation: ConversationId, client: Any) -> None:
        self._agent, self._conversation, self._client = agent, conversation, client
        self._updates = SessionUpdates()
        self.cancelled = asyncio.Event()
        self._usage = Usage()

    async def cancel(self) -> None:
        """Stop the answer; the prompt then ends with `cancelled`. Calls that wait for a person are given up."""
        self.cancelled.set()
        await self._agent.cancel_all(conversation=self._conversation)

    async def answer(self, text: str, images: Sequence[bytes]) -> schema.PromptResponse:
        """Send a message, after the calls that wait in its conversation are decided, and return why the answer ended.

        Raises: RequestError: the model failed; PerdureError.
        """
        try:
            ended = await self._decide(None)
            if not self.cancelled.is_set():
                sent = self._agent.stream(text, conversation=self._conversation, images=images)
                ended = await self._decide(await self._show(sent))
            if self.cancelled.is_set():  # `cancel` may still be at work: the next prompt must not find these calls
                await self._agent.cancel_all(conversation=self._conversation)
        finally:
            for update in self._updates.close():
                await self.update(update)
        return self._response(ended)

    async def update(self, update: Any) -> None:
        """Send an update of the session."""
        await self._client.session_update(session_id=self._conversation, update=update)

    async def _show(self, events: AsyncIterator[StoredEvent | Delta]) -> RunEnded | None:
        """Send the updates of a run, and return its end; None: it does not go on, as other calls wait."""
        last: RunEnded | None = None
        async for sent in events:
            for update in self._updates.of(sent):
                await self.update(update)
            match sent:
                case StoredEvent(event=RunQueued() | RunStarted()) if self.cancelled.is_set():
                    await self._agent.cancel_all(conversation=self._conversation)  # there was no run before to cancel
                case StoredEvent(event=RunEnded() as last):
                    self._usage += last.usage
        return last

    async def _decide(self, ended: RunEnded | None) -> RunEnded | None:
        """Ask about the calls that wait, as long as runs stop at some; return the end of the last run.

        Raises: AnswerInvalid: only calls wait that are not for a person to decide.
        """
        where = RunFilter(agent_ids=(self._agent.id,), conversation_id=self._conversation)
        while not self.cancelled.is_set() and (waiting := await self._agent.pending(conversation=self._conversation)):
            asked = [call for call in waiting if not call.awaits_client]
            if not asked:
                raise AnswerInvalid(
                    f"the conversation waits for the program that runs {waiting[0].name}: answer it there"
                )
            answers = [await self._ask(call) for call in asked if not self.cancelled.is_set()]
            decisions = [answer for answer in answers if answer is not None]
            if decisions and not self.cancelled.is_set():
                ended = await self._show(self._agent.stream_answer(decisions, conversation=self._conversation))
            elif not self.cancelled.is_set():
                # They were decided elsewhere, or given up; then no run goes on.
                next_one = Page(1, ascending=True, after=waiting[0].run_id)
                found = await self._agent.page_of_runs(where, next_one)
                ended = await self._show(self._agent.follow_run(found[0])) if found else None
        return ended

    async def _ask(self, pending: PendingCall) -> ToolDecision | None:
        """Ask the editor's user about a call; without an answer cancel the prompt. None: decided elsewhere."""
        edits, options = await self._agent.pending_edits(pending), _OPTIONS[: 2 if pending.reason else 3]
        call = self._updates.permission(pending, edits)
        asking = asyncio.ensure_future(
            self._client.request_permission(session_id=self._conversation, tool_call=call, options=options)
        )
        end = asyncio.ensure_future(self.cancelled.wait())
        try:
            while not (await asyncio.wait({asking, end}, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED))[0]:
                waiting = await self._agent.pending(conversation=self._conversation)
                if pending.call_id not in {call.call_id for call in waiting}:
                    return None
            outcome = None if self.cancelled.is_set() else (await asking).outcome
        finally:
            asking.cancel()
            end.cancel()
        choice = outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else ""
        if not choice and not self.cancelled.is_set():
            await self.cancel()
        if choice == ALWAYS:
            await self._agent.require_approval(pending.name, required=False)
        is_allowed = choice in (ALLOW, ALWAYS)
        return ToolDecision(pending.call_id, is_allowed, None if is_allowed else "the user rejected it in the editor")

    def _response(self, ended: RunEnded | None) -> schema.PromptResponse:
        """What the editor gets at the end. Raises: RequestError: the run failed."""
        reason, failure = (ended.stop_reason, ended.failure) if ended is not None else ("end_turn", None)
        stop_reason = "cancelled" if self.cancelled.is_set() else _STOP_REASONS.get(reason)
        if stop_reason is None and reason in FAILED_REASONS:
            text = failure.message if failure is not None else f"the run ended: {reason}"
            raise acp.RequestError(INTERNAL_ERROR, text, {"stop_reason": reason})
        names = ("total_tokens", "input_tokens", "output_tokens")
        usage = schema.Usage(**{name: getattr(self._usage, name) for name in names})
        return schema.PromptResponse(stop_reason=stop_reason or "end_turn", usage=usage)


def read_prompt(blocks: Sequence[Any]) -> tuple[str, list[bytes]]:
    """Return (text, images) of a prompt. A linked file is given in the text by its address, an embedded one by its
    text. Raises: InvalidInput: an unsupported block, or an image that is not base64."""
    texts, images = list[str](), list[str]()
    for block in blocks:
        match block:
            case schema.TextContentBlock(text=text):
                texts.append(text)
            case schema.ImageContentBlock(data=data):
                images.append(data)
            case schema.EmbeddedResourceContentBlock(
                resource=schema.BlobResourceContents(blob=data, mime_type=str() as kind)
            ) if kind.startswith("image/"):
                images.append(data)
            case schema.ResourceContentBlock(name=name, uri=uri):
                texts.append(f"[{' '.join(name.split())}]({uri})")  # the name of a file can have lines of its own
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents(uri=uri, text=text)):
                texts.append(f"Contents of {uri}:\n\n{text}")
            case _:
                kind = "a file that is not text" if block.type == "resource" else block.type
                raise InvalidInput(f"a prompt can't have {kind}: send text, images or files as text")
    try:
        decoded = [base64.b64decode(data, validate=True) for data in images]
    except ValueError as error:
        raise InvalidInput("an image of the prompt is not base64") from error
    return "\n\n".join(text for text in texts if text), decoded
