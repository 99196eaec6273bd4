"""A chat: texts come in, each is a command or a message, and one message is one run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from perdure.cli.chat.agent_choice import ModelElsewhere, shell_word
from perdure.cli.chat.approvals import ask_about
from perdure.cli.chat.source import Source
from perdure.cli.chat.turn import Turn
from perdure.cli.views.view import View
from perdure.core.answers import PendingCall
from perdure.core.conversations import Reset
from perdure.core.errors import AnswerInvalid, ApprovalPending, PerdureError
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import ConversationId
from perdure.core.messages import ToolDecision
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.library.reply import Reply

__all__ = ["WAITING", "Session"]

FAILED = 1
WAITING = 3
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
        run_command: Callable[[Session, str], Awaitable[None]] | None = None,
    ) -> None:
        """A chat in a conversation. `run_command` carries out a text that begins with /; without it none is taken."""
        self.perdure, self.agent, self.view = perdure, agent, view
        self.conversation = conversation
        self._approvals = perdure.services.approvals
        self._source = source
        self._run_command = run_command
        self._turn: Turn | None = None
        self._options: tuple[str, ...] = ()  # of the question that is to be answered
        self._waiting: set[ConversationId | None] = set()  # where calls wait at which runs have stopped
        self._leaving = self._interrupted = self._failed = self._left = False

    async def run(self) -> int:
        """Take texts until there are no more; the exit code: 0 if all went well or a person was there to see it, 1
        if something failed, 3 if calls wait for a decision."""
        with self._interruptible():
            if self._source.interactive:  # what an earlier chat left undecided
                with self._told():
                    await self.settle()
            while not self._leaving and (text := await self._source.read()) is not None:
                if not self._leaving:
                    await self._take(text)
        return self._exit_code()

    async def once(self, text: str) -> int:
        """Say this one text, whatever it begins with; the exit code."""
        with self._interruptible(), self._told():
            await self._say(text)
        return self._exit_code()

    async def go_on_in(self, conversation: ConversationId) -> None:
        """Have what is said from now on go to another conversation. A person is asked about calls that wait there.
        Raises: PerdureError."""
        self.conversation = conversation
        self._options = ()
        if self._source.interactive:
            await self.settle()

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
        with self._told():
            if self._run_command and text.startswith("/") and not text.startswith("//"):
                await self._run_command(self, text)
            else:
                await self._say(self._answered(text.removeprefix("/") if text.startswith("//") else text))

    def _answered(self, text: str) -> str:
        """What a person means who types the number of an option."""
        options, self._options = self._options, ()
        number = int(text) if text.strip().isdecimal() and len(text.strip()) < 4 else 0
        return options[number - 1] if 0 < number <= len(options) else text

    async def _say(self, text: str) -> None:
        await self._check_model()
        self.view.goes_on_with(())
        try:
            reply = await self._follow(self.agent.stream(text, conversation=self.conversation))
        except ApprovalPending as error:
            if self._source.interactive:
                self.view.note("not sent: decide first what waits, then say it again")
                await self.settle()
            else:
                self._fail(error)
                self.view.hint(self._how_to_decide())
            return
        if reply is not None and reply.stop_reason == "requires_approval":
            await self.settle()

    async def decided(
        self, approve: bool, call_id: str | None, *, reason: str | None = None, arguments: str | None = None
    ) -> int:
        """Decide what waits, see what comes of it, and be done; the exit code."""
        with self._interruptible(), self._told():
            await self.decide(approve, call_id, reason=reason, arguments=arguments)
        return self._exit_code()

    async def decide(
        self, approve: bool, call_id: str | None, *, reason: str | None = None, arguments: str | None = None
    ) -> None:
        """Answer the calls that wait for a person in this conversation, or one of them. What was decided before may be
        said again: then what came of it is shown. Raises: PerdureError."""
        waiting = [call for call in await self.agent.pending(conversation=self.conversation) if not call.awaits_client]
        chosen = [call for call in waiting if call_id in (None, call.call_id)]
        ids = [call.call_id for call in chosen]
        if not ids:
            ids += await self._approvals.find_decisions(self.agent.id, self.conversation, call_id)
        if not ids:
            there = ", ".join(f"{call.call_id} ({call.name})" for call in waiting)
            raise AnswerInvalid(f"no such call waits: there are {there}" if waiting else "no call waits for you")
        if arguments is not None and len(ids) > 1:
            raise AnswerInvalid("several calls wait: name the one that these arguments are for")
        await self._answer([ToolDecision(one, approve, reason, arguments) for one in ids], chosen)
        await self.settle()

    async def approvals(self) -> None:
        """Show what waits, and have a person decide it. Raises: PerdureError."""
        waiting = await self.agent.pending(conversation=self.conversation)
        if waiting and self._source.interactive:
            await self.settle()
        else:
            self.view.pending(waiting)

    async def reset(self) -> Sequence[Reset] | None:
        """Have this conversation begin anew, if the person who is there agrees; None: they don't. Raises:
        PerdureError."""
        if self._source.interactive:
            self.view.note("what was said here will be out of view, for good; memory blocks, archives and files stay")
            said = await self._source.ask("reset? [y]es / [n]o: ")
            if said is None or said.strip().lower() not in ("y", "yes"):
                self.view.hint("nothing was changed")
                return None
        line = await self.agent.find_conversation(self.conversation)
        resets = await self.agent.reset(conversation=line.id)
        self._waiting.discard(self.conversation)
        self._options = ()
        return resets

    async def settle(self) -> None:
        """Have a person decide what waits, as often as runs stop at such calls; without a person, say what waits.
        Raises: PerdureError."""
        while waiting := await self.agent.pending(conversation=self.conversation):
            mine = [call for call in waiting if not call.awaits_client]
            if not mine or not self._source.interactive:
                self.view.stopped_at(waiting)
                break
            decisions = await ask_about(mine, self._source, self.view, self._check_edited)
            if decisions is None:
                self.view.note("nothing is decided: " + ("the call waits" if len(mine) == 1 else "the calls wait"))
                break
            if not await self._answer(decisions, mine):
                return
        if waiting:
            self._waiting.add(self.conversation)
            self.view.hint(self._how_to_decide())
        else:
            self._waiting.discard(self.conversation)

    def _how_to_decide(self) -> str:
        if self._source.interactive:
            return "/approvals asks again; /approve [CALL] lets them run, /deny [CALL] [REASON] refuses them"
        name = shell_word(self.agent.name)
        return f"`perdure approve {name}` lets them run, `perdure deny {name} --reason TEXT` refuses them"

    async def _check_edited(self, call: PendingCall, arguments: str) -> None:
        await self._approvals.check_arguments(call, arguments)

    async def _answer(self, decisions: Sequence[ToolDecision], asked: Sequence[PendingCall]) -> bool:
        """Whether what came of the decisions about these calls was waited for. Raises: PerdureError."""
        await self._check_model()
        calls = await self._approvals.list_open(self.agent.id, self.conversation)
        edited = {one.call_id: one.arguments for one in decisions if one.arguments is not None}
        # Somebody else may have decided the same meanwhile: then they are not open, and what came of them is shown.
        shown = {one.call_id: one for one in (*(call.call for call in asked), *calls)}
        self.view.goes_on_with(
            [replace(one, arguments=edited.get(one.call_id, one.arguments), awaits=None) for one in shown.values()]
        )
        self._left = False
        await self._follow(self.agent.stream_answer(decisions, conversation=self.conversation))
        return not self._left

    async def _follow(self, sent: AsyncIterator[StoredEvent | Delta]) -> Reply | None:
        """Show a run to its end; None: it is not waited for any longer, or nothing was run. Raises: PerdureError."""
        self._turn = turn = Turn(self.agent, sent)
        try:
            reply = await turn.follow(self.view.saw)
        finally:
            self._turn = None
        self.view.idle()
        self._left = turn.left
        if turn.left:
            self.view.note("not waited for any longer; the run ends by itself, and your message is kept")
        if reply is not None:
            self._failed = self._failed or reply.failure is not None
            self._options = reply.questions[0].options if len(reply.questions) == 1 else ()
            self.view.replied(self.agent, reply)
            if self._options:
                self.view.hint("a number chooses; so does an answer in your own words")
        return reply

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
        if self._interrupted:
            return INTERRUPTED
        return FAILED if self._failed else WAITING if self._waiting else 0

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors end what is done in here, and are shown."""
        try:
            yield
        except PerdureError as error:
            self._fail(error)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
