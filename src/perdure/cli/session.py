"""A chat: texts come in, each is a command or a message, and one message is one run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perdure.cli.approvals import told
from perdure.cli.opening import ModelElsewhere
from perdure.cli.slash import run_command
from perdure.cli.source import Source
from perdure.cli.view import View
from perdure.core.errors import AnswerInvalid, PerdureError
from perdure.core.events import Delta, RunQueued, StoredEvent
from perdure.core.ids import ConversationId, RunId
from perdure.core.messages import ToolDecision
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.library.reply import Reply

__all__ = ["INTERRUPTED", "Session"]

INTERRUPTED = 130  # what shells report for a program that SIGINT ended


class Session:
    """One person or program, talking to one agent.

    SIGINT asks the run to stop; a second one leaves it to end by itself. A person goes on with the next message, a
    program is ended.
    """

    def __init__(
        self,
        perdure: AsyncPerdure,
        agent: AsyncAgent,
        source: Source,
        view: View,
        *,
        conversation: ConversationId | None = None,
    ) -> None:
        self.perdure, self.agent, self.view = perdure, agent, view
        self.conversation = conversation
        self._source = source
        self._turn: _Turn | None = None
        self._options: tuple[str, ...] = ()  # of the question that is to be answered
        self._leaving = self._interrupted = self._failed = False

    async def run(self) -> int:
        """Take texts until there are no more; the exit code: 0 if all went well or a person was there to see it."""
        with self._interruptible():
            while not self._leaving and (text := await self._source.read()) is not None:
                if not self._leaving:
                    await self._take(text)
        return self._exit_code()

    async def once(self, text: str) -> int:
        """Say this one text, whatever it begins with; the exit code."""
        with self._interruptible():
            await self._say(text)
        return self._exit_code()

    def leave(self) -> None:
        """Take no more texts."""
        self._leaving = True

    def interrupt(self) -> None:
        """What SIGINT does."""
        if not self._source.interactive:
            self._leaving = self._interrupted = True
        if self._turn is not None:
            self._turn.interrupt()
        else:
            self._source.interrupt()

    async def _take(self, text: str) -> None:
        if not text.strip():
            return
        if text.startswith("/") and not text.startswith("//"):
            try:
                await run_command(self, text)
            except PerdureError as error:
                self._fail(error)
        else:
            await self._say(self._answered(text.removeprefix("/") if text.startswith("//") else text))

    def _answered(self, text: str) -> str:
        """What a person means who types the number of an option."""
        options, self._options = self._options, ()
        number = int(text) if text.strip().isdecimal() and len(text.strip()) < 4 else 0
        return options[number - 1] if 0 < number <= len(options) else text

    async def _say(self, text: str) -> None:
        try:
            await self._check_model()
        except PerdureError as error:
            self._fail(error)
            return
        self._turn = _Turn(self.agent, text, self.conversation)
        try:
            reply = await self._turn.follow(self.view.saw)
        except PerdureError as error:
            self._fail(error)
        else:
            self.view.idle()
            if reply is None:
                self.view.note("not waited for any longer; the run ends by itself, and your message is kept")
            else:
                self._failed = self._failed or reply.failure is not None
                self._options = reply.questions[0].options if len(reply.questions) == 1 else ()
                self.view.replied(self.agent, reply)
                if reply.stop_reason == "requires_approval":
                    await self._tell_pending()
        finally:
            self._turn = None

    async def decide(self, approve: bool, call_id: str | None, reason: str | None) -> None:
        """Answer the calls that wait for a person in this conversation, or one of them. Raises: PerdureError."""
        waiting = [call for call in await self.agent.pending(conversation=self.conversation) if not call.awaits_client]
        chosen = [call for call in waiting if call_id in (None, call.call_id)]
        if not chosen:
            raise AnswerInvalid("no such call waits" if waiting else "no call waits for you")
        answers = [ToolDecision(call.call_id, approve, None if approve else reason) for call in chosen]
        events = []
        async for sent in self.agent.stream_answer(answers, conversation=self.conversation):
            self.view.saw(sent)
            if isinstance(sent, StoredEvent):
                events.append(sent)
        self.view.idle()
        if events:
            reply = Reply.of(events)
            self._failed = self._failed or reply.failure is not None
            self.view.replied(self.agent, reply)
        await self._tell_pending()

    async def _tell_pending(self) -> None:
        """Show the calls that wait, and what helps."""
        waiting = await self.agent.pending(conversation=self.conversation)
        for call in waiting:
            self.view.note(told(call))
        if waiting:
            self.view.hint(
                "/approve lets them run, /deny REASON refuses them; one of them: /approve CALL, /deny CALL REASON"
            )

    async def _check_model(self) -> None:
        """Nothing, when the agent can be answered from here. Raises: ModelElsewhere, NotFound, StoreError."""
        await self.perdure.app.models.look_for(self.agent.info.model)
        if self.agent.info.model in self.perdure.models:
            return
        self.agent = await self.perdure.agent(self.agent.id)  # it may have got another model since
        await self.perdure.app.models.look_for(self.agent.info.model)
        if self.agent.info.model not in self.perdure.models:
            raise ModelElsewhere(self.agent, self.perdure)

    def _fail(self, error: PerdureError) -> None:
        self._failed = True
        self.view.idle()
        self.view.error(error)

    def _exit_code(self) -> int:
        if self._source.interactive:
            return 0
        return INTERRUPTED if self._interrupted else int(self._failed)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)


class _Turn:
    """One message and its run, that can be interrupted while it is followed."""

    def __init__(self, agent: AsyncAgent, text: str, conversation: ConversationId | None) -> None:
        self._agent, self._text, self._conversation = agent, text, conversation
        self._run_id: RunId | None = None
        self._interruptions = 0
        self._following: asyncio.Task[Reply] | None = None
        self._cancelling: asyncio.Task[object] | None = None

    async def follow(self, saw: Callable[[StoredEvent | Delta], None]) -> Reply | None:
        """The reply, its events given to `saw`; None if it is not waited for any longer. Raises: PerdureError."""
        self._following = asyncio.create_task(self._follow(saw))
        try:
            await asyncio.wait([self._following])
        finally:
            self._following.cancel()
        if self._cancelling is not None:
            await self._cancelling
        return None if self._following.cancelled() else self._following.result()

    def interrupt(self) -> None:
        """Ask the run to stop; the second time, stop waiting for it."""
        self._interruptions += 1
        if self._interruptions == 1:
            self._cancel()
        elif self._following is not None:
            self._following.cancel()

    async def _follow(self, saw: Callable[[StoredEvent | Delta], None]) -> Reply:
        events: list[StoredEvent] = []
        async for sent in self._agent.stream(self._text, conversation=self._conversation):
            saw(sent)
            if isinstance(sent, StoredEvent):
                events.append(sent)
                if isinstance(sent.event, RunQueued):
                    self._run_id = sent.event.run_id
                    self._cancel()
        return Reply.of(events)

    def _cancel(self) -> None:
        """Cancel the run once it is both wanted and known, which may come in any order."""
        if self._interruptions and self._run_id is not None and self._cancelling is None:
            self._cancelling = asyncio.create_task(self._agent.cancel(self._run_id))
