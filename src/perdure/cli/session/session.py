"""A chat: each text is a command or a message, and each message is a run."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from rich.text import Text

from perdure.cli.session.agent_choice import model_elsewhere, shell_word
from perdure.cli.session.exit_codes import FAILED, INTERRUPTED, WAITING
from perdure.cli.session.source import TextSource
from perdure.cli.views.text import pending_shape, pending_view, plain_json
from perdure.cli.views.view import Output
from perdure.core.conversations import Reset
from perdure.core.errors import AnswerInvalid, ApprovalPending, PerdureError
from perdure.core.events import Delta, RunQueued, StoredEvent
from perdure.core.features import Point
from perdure.core.ids import ConversationId, RunId
from perdure.core.messages import ToolDecision
from perdure.core.runs import NO_OPTIONS, RunOptions
from perdure.core.tools.answers import PendingCall
from perdure.library.agent import AsyncAgent
from perdure.library.messages.reply import Reply
from perdure.library.messages.sending import SendOptions
from perdure.library.perdure import AsyncPerdure

QUESTION = "[y]es / [n]o / [e]dit: "
HELP = "y lets it run, n refuses it, e changes its arguments first; Ctrl-C decides nothing, and it waits on"


class UpdateNotices(Protocol):
    """What a person is told of what happened meanwhile."""

    async def show_since_last_run(self, agent: AsyncAgent) -> None:
        """Show what happened after the agent's last run began. Raises: PerdureError."""

    async def show(self, agent: AsyncAgent) -> None:
        """Show what happened since the last look. Raises: PerdureError."""


CHAT_NEWS: Point[[Output], UpdateNotices] = Point("chat_news")
"""What features tell a person who chats."""


class ChatSession:
    """One person or program that talks to one agent.

    The first SIGINT cancels the run, the second stops waiting for it. Then a person goes on with the next message, and
    a program ends.
    """

    def __init__(
        self,
        perdure: AsyncPerdure,
        agent: AsyncAgent,
        source: TextSource,
        view: Output,
        *,
        conversation: ConversationId | None = None,
        run_command: Callable[[ChatSession, str], Awaitable[None]] | None = None,
    ) -> None:
        """`run_command` runs a text that begins with /; without it such a text is a message."""
        self.perdure, self.agent, self.view = perdure, agent, view
        self.conversation = conversation
        self._source = source
        self._run_command = run_command
        self._news = CHAT_NEWS(view)
        self._turn: FollowedRun | None = None
        self._options: tuple[str, ...] = ()  # of the agent's open question
        self._waiting: set[ConversationId | None] = set()  # conversations with calls that wait
        self._leaving = self._interrupted = self._failed = False

    @property
    def interactive(self) -> bool:
        """Whether a person is there."""
        return self._source.interactive

    async def run(self) -> int:
        """Handle texts until they end; return the exit code: without a person 1 for a failure, 3 for waiting calls."""
        with self._interruptible(), self._source.keep_keys(self.interrupt):
            if self._source.interactive:  # calls that wait since an earlier chat
                with self._show_errors():
                    await self.settle()
                    for one in self._news:
                        await one.show_since_last_run(self.agent)
            while not self._leaving and (text := await self._source.read()) is not None:
                if not self._leaving:
                    await self._handle(text)
        return self._exit_code()

    async def send(self, text: str, options: RunOptions = NO_OPTIONS) -> int:
        """Send a message, even one that begins with /; return the exit code. Of `options`, model and tools count."""
        with self._interruptible(), self._show_errors():
            await self.say(text, options)
        return self._exit_code()

    async def switch_to(self, conversation: ConversationId) -> None:
        """Switch to another conversation, and ask a person about calls that wait there. Raises: PerdureError."""
        self.conversation = conversation
        self._options = ()
        if self._source.interactive:
            await self.settle()

    def leave(self) -> None:
        """End the chat after the current text."""
        self._leaving = True

    def interrupt(self) -> None:
        """Handle SIGINT."""
        if not self._source.interactive:
            self._leaving = self._interrupted = True
        if self._turn is not None:
            self._turn.interrupt()
        else:
            self._source.interrupt()

    async def _handle(self, text: str) -> None:
        """Run the command or send the message that a text is."""
        if not text.strip():
            return
        with self._show_errors():
            if self._run_command and text.startswith("/") and not text.startswith("//"):
                await self._run_command(self, text)
            else:
                await self.say(self._resolve_option(text.removeprefix("/") if text.startswith("//") else text))

    def _resolve_option(self, text: str) -> str:
        """The option of the agent's question that a number names; any other text as it is."""
        options, self._options = self._options, ()
        number = int(text) if text.strip().isdecimal() and len(text.strip()) < 4 else 0
        return options[number - 1] if 0 < number <= len(options) else text

    async def say(self, text: str, options: RunOptions = NO_OPTIONS) -> None:
        """Send a message, and show its run; see `send`. Raises: PerdureError."""
        if options.model is None:
            await self._check_model()
        self.view.resume_with(())
        try:
            chosen: SendOptions = {"model": options.model, "model_reason": options.model_reason, "tools": options.tools}
            _, reply = await self._follow(self.agent.stream(text, conversation=self.conversation, **chosen))
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
        if self._source.interactive:
            for one in self._news:
                await one.show(self.agent)

    async def run_decision(
        self, approve: bool, call_id: str | None, *, reason: str | None = None, arguments: str | None = None
    ) -> int:
        """Decide waiting calls, follow the run, and return the exit code."""
        with self._interruptible(), self._show_errors():
            await self.decide(approve, call_id, reason=reason, arguments=arguments)
        return self._exit_code()

    async def decide(
        self, approve: bool, call_id: str | None, *, reason: str | None = None, arguments: str | None = None
    ) -> None:
        """Decide one or all waiting calls of this conversation. A repeated decision shows the run of the first one.

        Raises: PerdureError.
        """
        waiting = [call for call in await self.agent.pending(conversation=self.conversation) if not call.awaits_client]
        selected = [call for call in waiting if call_id in (None, call.call_id)]
        ids = [call.call_id for call in selected]
        if not ids:
            ids += await self.agent.find_decisions(self.conversation, call_id)
        if not ids:
            names = ", ".join(f"{call.call_id} ({call.name})" for call in waiting)
            which = "no call waits for you" if call_id is None else f"no call {call_id!r:.80} waits for you"
            raise AnswerInvalid(
                f"{which}: there are {names}"
                if waiting
                else f"{which}: `perdure approval list` lists those of all agents"
            )
        if arguments is not None and len(ids) > 1:
            raise AnswerInvalid(f"{len(ids)} calls wait ({', '.join(ids)}): name the one that these arguments are for")
        await self._answer([ToolDecision(id, approve, reason, arguments) for id in ids], selected)
        await self.settle()

    async def approvals(self) -> None:
        """Show the waiting calls, and ask a person about them. Raises: PerdureError."""
        waiting = await self.agent.pending(conversation=self.conversation)
        if waiting and self._source.interactive:
            await self.settle()
        else:
            parts = map(pending_view, waiting) if waiting else [Text("No call waits for anybody in this conversation.")]
            self.view.show({"pending": [pending_shape(call) for call in waiting]}, *parts)

    async def reset(self) -> Sequence[Reset] | None:
        """Reset this conversation after a question; None: the person says no. Raises: PerdureError."""
        if self._source.interactive:
            self.view.note("what was said here will be out of view, for good; memory blocks, archives and files stay")
            answer = await self._source.ask("reset? [y]es / [n]o: ")
            if answer is None or answer.strip().lower() not in ("y", "yes"):
                self.view.hint("nothing was changed")
                return None
        conversation = await self.agent.find_conversation(self.conversation)
        resets = await self.agent.reset(conversation=conversation.id)
        self._waiting.discard(self.conversation)
        self._options = ()
        return resets

    async def settle(self) -> None:
        """Ask a person about waiting calls until no run stops at one; without a person, show what waits.

        Raises: PerdureError.
        """
        while waiting := await self.agent.pending(conversation=self.conversation):
            undecided = [call for call in waiting if not call.awaits_client]
            if not undecided or not self._source.interactive:
                self.view.print_note(*map(pending_view, waiting))
                break
            decisions = await self._ask_decisions(undecided)
            if decisions is None:
                self.view.note("nothing is decided: " + ("the call waits" if len(undecided) == 1 else "the calls wait"))
                break
            if not await self._answer(decisions, undecided):
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
        command = "perdure approval"
        return f"`{command} approve {name}` lets them run, `{command} deny {name} --reason TEXT` refuses them"

    async def _answer(self, decisions: Sequence[ToolDecision], pending: Sequence[PendingCall]) -> bool:
        """Send the decisions and follow the run; False: the person stopped waiting for it. Raises: PerdureError."""
        await self._check_model()
        open_calls = await self.agent.open_calls(self.conversation)
        edits = {decision.call_id: decision.arguments for decision in decisions if decision.arguments is not None}
        # Somebody else can have decided the same calls meanwhile: then they are no longer open, and their run is shown.
        calls = {call.call_id: call for call in (*(waiting.call for waiting in pending), *open_calls)}
        self.view.resume_with(
            [replace(call, arguments=edits.get(call.call_id, call.arguments), awaits=None) for call in calls.values()]
        )
        turn, _ = await self._follow(self.agent.stream_answer(decisions, conversation=self.conversation))
        return not turn.abandoned

    async def _ask_decisions(self, calls: Sequence[PendingCall]) -> tuple[ToolDecision, ...] | None:
        """The decisions about all calls; None: the person gave up before the last one, so nothing is decided."""
        decisions: list[ToolDecision] = []
        for number, call in enumerate(calls, 1):
            self.view.print_note(pending_view(call, f"{number} of {len(calls)}" if len(calls) > 1 else ""))
            decision = await self._ask_decision(call)
            if decision is None:
                return None
            decisions.append(decision)
        return tuple(decisions)

    async def _ask_decision(self, call: PendingCall) -> ToolDecision | None:
        """The decision of a person about one call; None: the person gave up."""
        while (answer := await self._source.ask(QUESTION)) is not None:
            match answer.strip().lower():
                case "y" | "yes":
                    return ToolDecision(call.call_id, True)
                case "n" | "no":
                    reason = await self._source.ask("reason (Enter: none): ")
                    return None if reason is None else ToolDecision(call.call_id, False, reason.strip() or None)
                case "e" | "edit":
                    if (decision := await self._ask_arguments(call)) is not None:
                        return decision
                case _:
                    self.view.hint(HELP)
        return None

    async def _ask_arguments(self, call: PendingCall) -> ToolDecision | None:
        """An approval with other arguments; None: the person gave up the edit."""
        draft = plain_json(call.arguments)
        self.view.hint(
            "Enter runs it with these arguments; Ctrl-C leaves it as it was"
            if self._source.prefills
            else "type the arguments as JSON, in place of those above; Ctrl-C leaves them as they were"
        )
        while (text := await self._source.ask("arguments: ", prefill=draft)) is not None:
            draft = text
            try:
                arguments = json.loads(text)
                if not isinstance(arguments, dict):
                    raise AnswerInvalid("give a JSON object, as in {" + '"name": "value"' + "}")
                if _sorted_json(arguments) == _sorted_json(call.arguments):  # unlike ==, JSON tells 1 from true
                    return ToolDecision(call.call_id, True)
                await self.agent.check_arguments(call, text)
            except (ValueError, RecursionError) as error:
                self.view.error(AnswerInvalid(f"that is not valid JSON: {error}"))
            except AnswerInvalid as error:
                self.view.error(error)
            else:
                return ToolDecision(call.call_id, True, None, text)
        return None

    async def _follow(self, events: AsyncIterator[StoredEvent | Delta]) -> tuple[FollowedRun, Reply | None]:
        """Show a run to its end; the reply is None if the turn is abandoned or no run began. Raises: PerdureError."""
        self._turn = turn = FollowedRun(self.agent, events)
        try:
            reply = await turn.follow(self.view.show_event)
        finally:
            self._turn = None
        self.view.clear_status()
        if turn.abandoned:
            self.view.note("not waited for any longer; the run ends by itself, and your message is kept")
        if reply is not None:
            self._failed = self._failed or reply.failure is not None
            self._options = reply.questions[0].options if len(reply.questions) == 1 else ()
            self.view.show_reply(self.agent, reply)
            if self._options:
                self.view.hint("a number chooses; so does an answer in your own words")
        return turn, reply

    async def _check_model(self) -> None:
        """Check that the agent's model is available. Raises: ModelNotFound, NotFound, StoreError."""
        await self.perdure.app.models.look_for(self.agent.info.model)
        if not self.agent.info.follows_default and self.agent.info.model in self.perdure.models:
            return
        self.agent = await self.perdure.agent(self.agent.id)  # its model can have changed
        await self.perdure.app.models.look_for(self.agent.info.model)
        if self.agent.info.model not in self.perdure.models:
            raise model_elsewhere(self.agent, self.perdure)

    def _fail(self, error: PerdureError) -> None:
        """Show an error; the exit code says that something failed."""
        self._failed = True
        self.view.clear_status()
        self.view.error(error)

    def _exit_code(self) -> int:
        """The exit code so far; 0 for a person."""
        if self._source.interactive:
            return 0
        if self._interrupted:
            return INTERRUPTED
        return FAILED if self._failed else WAITING if self._waiting else 0

    @contextmanager
    def _show_errors(self) -> Iterator[None]:
        """Show an error in place of raising it."""
        try:
            yield
        except PerdureError as error:
            self._fail(error)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Have SIGINT call `interrupt` while the block runs."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)


class FollowedRun:
    """One message or answer and its run.

    Args:
        events: of the run, with previews, as they come.
    """

    def __init__(self, agent: AsyncAgent, events: AsyncIterator[StoredEvent | Delta]) -> None:
        self._agent, self._events = agent, events
        self._run_id: RunId | None = None
        self._interruptions = 0
        self._follow_task: asyncio.Task[Reply | None] | None = None
        self._cancel_task: asyncio.Task[object] | None = None
        self.abandoned = False
        """A second interruption ended the waiting; the run ends by itself."""

    async def follow(self, show: Callable[[StoredEvent | Delta], None]) -> Reply | None:
        """Give each event to `show` and return the reply; None if the turn is abandoned or no run began.

        Raises: PerdureError.
        """
        self._follow_task = asyncio.create_task(self._follow(show))
        try:
            await asyncio.wait([self._follow_task])
        finally:
            self._follow_task.cancel()
        if self._cancel_task is not None:
            await self._cancel_task
        self.abandoned = self._follow_task.cancelled()
        return None if self.abandoned else self._follow_task.result()

    def interrupt(self) -> None:
        """Cancel the run; the second time, stop waiting for it."""
        self._interruptions += 1
        if self._interruptions == 1:
            self._cancel()
        elif self._follow_task is not None:
            self._follow_task.cancel()

    async def _follow(self, show: Callable[[StoredEvent | Delta], None]) -> Reply | None:
        """Show the events, and build the reply of them; None if no run began."""
        stored: list[StoredEvent] = []
        async for event in self._events:
            show(event)
            if isinstance(event, StoredEvent):
                stored.append(event)
                if isinstance(event.event, RunQueued):
                    self._run_id = event.event.run_id
                    self._cancel()
        return Reply.of(stored) if stored else None

    def _cancel(self) -> None:
        """Cancel the run once it is both interrupted and known; these come in any order."""
        if self._interruptions and self._run_id is not None and self._cancel_task is None:
            self._cancel_task = asyncio.create_task(self._agent.cancel(self._run_id))


def _sorted_json(arguments: Mapping[str, Any]) -> str:
    """The arguments as JSON, in one order."""
    return json.dumps(arguments, sort_keys=True)
