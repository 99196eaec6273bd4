"""The tools by which an agent writes to other agents: each message begins an ordinary run of the other agent; and the
`Sender`, by which any tool begins such runs and waits for them.

A call that is repeated after a crash finds the runs that it began, by an idempotency key made of its own run and call:
so nobody gets a message twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from perdure.app import App
from perdure.core.agents import AgentFilter
from perdure.core.errors import (
    AgentAwaitsApproval,
    AgentFailed,
    CircularWait,
    NoReply,
    NotFound,
    PerdureError,
    ReplyTimeout,
    ToolError,
    TooManyHops,
    TooManyMessages,
)
from perdure.core.events import MessageAdded, RunEnded, StoredEvent
from perdure.core.ids import AgentId, RunId, is_id
from perdure.core.messages import Text
from perdure.core.ports import CallContext
from perdure.core.runs import Run, RunFilter
from perdure.core.specs import Tool, ToolOutcome
from perdure.engine.compaction.engine_turns import subagent_call
from perdure.engine.ports import Ports
from perdure.engine.records.run_request import NewMessage, RunRequest, with_run
from perdure.engine.run.accept import Accepted
from perdure.engine.run.runner import Runner
from perdure.settings import Settings
from perdure.storage.tx import Tx

WAIT_TOOL = "send_message_to_agent_and_wait_for_reply"
ASYNC_TOOL = "send_message_to_agent_async"
TAGS_TOOL = "send_message_to_agents_matching_tags"
ALL_TAGS_TOOL = "send_message_to_agents_matching_all_tags"

AGENTS_MAX = 500
"""The most agents that one call writes to."""

HOPS_MAX = 10
"""How often agents may pass a message on, one because of the other."""

MESSAGES_MAX = 1_000
"""How many runs of messages between agents may go back to one run. Agents that each write to many others would else
begin more with every hop."""

REPLY_MAX_CHARS = 50_000
"""The most of one agent's reply that a call returns, so that 500 long ones do not fill the memory."""

_UNENDED_MAX = 1_000
"""The unended runs of one conversation that are looked at."""


class AgentMessages:
    """`FeatureToolbox` of these tools."""

    def __init__(self, app: App) -> None:
        self._app = app

    def missing(self, tool: Tool) -> str | None:
        return None

    async def close(self) -> None:
        """Nothing is held open."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        ports = self._app.ports
        if not context.agent_id:
            raise ToolError(f"{tool.spec.name} writes to other agents in an agent's name: run it as a tool of an agent")
        sender = await Sender.of(self._app, context)
        if not arguments["message"].strip():
            raise ToolError("the message is empty: say something")
        sending = _AgentMessageCall(sender, arguments["message"])
        name = tool.spec.name
        if name == TAGS_TOOL:
            return await sending.ask_all(arguments["match_all"], arguments["match_some"])
        if name == ALL_TAGS_TOOL:
            return await sending.ask_all(arguments["tags"], ())
        target = _agent_id(arguments["other_agent_id"])
        if name == ASYNC_TOOL:
            async with subagent_call(ports, context, target, sending.message):
                await sending.send(target, waits=False)
            return ToolOutcome(text="Successfully sent message")
        return ToolOutcome(text=_render({"agent_id": target, "response": await sending.ask(target)}))


@dataclass(frozen=True, slots=True)
class _AgentMessageCall:
    """One call of a tool that writes to agents, and its message."""

    sender: Sender
    message: str

    async def ask_all(self, match_all: Sequence[str], match_some: Sequence[str]) -> ToolOutcome:
        """Send the message to all agents with these tags; return their replies as JSON, each or why there is none."""
        targets = await self.sender.ports.store.read(_list_targets, self.sender.context.agent_id, match_all, match_some)
        places = asyncio.Semaphore(self.sender.settings.agent_sends_at_once)

        async def ask(target: AgentId, name: str) -> dict[str, Any]:
            """Ask one agent, and return its answer or why there is none."""
            answer: dict[str, Any] = {"agent_id": target, "name": name}
            async with places:
                try:
                    return answer | {"response": await self.ask(target)}
                except PerdureError as error:
                    run = {"run_id": error.run_id} if isinstance(error, NoReply) else {}
                    return answer | {"error": str(error), "type": type(error).__name__, **run}

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(target, name)) for target, name in targets.items()]
        answers = [task.result() for task in tasks]
        replied = any("response" in answer for answer in answers)
        return ToolOutcome(text=_render(answers), status="success" if replied else "error")

    async def ask(self, target: AgentId) -> list[str]:
        """Send the message to an agent and return its answer, message by message. Raises: NoReply; as `send`."""
        async with subagent_call(self.sender.ports, self.sender.context, target, self.message) as reply:
            accepted = await self.send(target, waits=True)
            texts, _ = await self.sender.reply_to(accepted, limit_s=self.sender.settings.agent_reply_s)
            reply += texts
        return reply

    async def send(self, target: AgentId, *, waits: bool) -> Accepted:
        """Accept the message as a run of the other agent's first conversation; `waits`: its reply is waited for.

        Raises: ToolError, NotFound, ApprovalPending, ModelNotFound, MessageTooLarge, StoreError.
        """
        sender = self.sender.context.agent_id
        if target == sender:
            raise ToolError("other_agent_id is your own: write to another agent")
        note = (
            "your answer goes back to it"
            if waits
            else "it does not wait for an answer; to send one, use a tool that writes to agents"
        )
        text = f"[Incoming message from agent with ID '{sender}' - {note}]\n\n{self.message}"
        request = RunRequest(
            agent_id=target,
            messages=(NewMessage((Text(text),), sender_id=sender),),
            max_steps=self.sender.settings.max_steps,
            sent_chars=len(self.message),
        )
        return await self.sender.accept(request, waits=waits)


def _agent_id(text: str) -> AgentId:
    """The id in an argument. Raises: ToolError."""
    if not is_id("agent", text.strip()):
        raise ToolError(f"other_agent_id is {text[:80]!r}: give the id of an agent, agent- and a uuid")
    return AgentId(text.strip())


def _render(answer: Any) -> str:
    return json.dumps(answer, ensure_ascii=False)


def _list_targets(tx: Tx, me: AgentId, match_all: Sequence[str], match_some: Sequence[str]) -> Mapping[AgentId, str]:
    """The ids and names of agents with these tags, oldest first, without hidden ones and `me`, the sender.

    Raises: ToolError: none, or too many.
    """
    if not match_all and not match_some:
        raise ToolError("no tags: name at least one")
    where = AgentFilter(tags=tuple(match_all or match_some), all_tags=bool(match_all), hidden=False)
    targets = dict[AgentId, str]()
    after: AgentId | None = None
    while page := tx.agents.page(where=where, ascending=True, limit=AGENTS_MAX, after=after):
        after = page[-1].id
        for agent in page:
            if agent.id != me and (not match_some or not set(match_some).isdisjoint(agent.tags)):
                targets[agent.id] = agent.name
        if len(targets) > AGENTS_MAX:
            raise ToolError(f"more than {AGENTS_MAX} agents have these tags, the limit of a call: name more tags")
    if not targets:
        raise ToolError(f"no other agent has these tags: {', '.join([*match_all, *match_some])}")
    return targets


# --- what all tools that begin runs of other agents have in common


@dataclass(frozen=True, slots=True)
class Sender:
    """A tool call that begins runs of other agents, with the number of such calls before it in one chain (`hops`), and
    the run in which that chain began (`origin`)."""

    ports: Ports
    runner: Runner
    settings: Settings
    context: CallContext
    hops: int
    origin: RunId | None

    @classmethod
    async def of(cls, app: App, context: CallContext) -> Self:
        """Return the sender for a tool call; a call by hand belongs to no run. Raises: TooManyHops, StoreError."""
        hops, origin = 0, None
        if context.run_id:
            options = (await app.ports.store.read(lambda tx: tx.runs.get(context.run_id))).options
            hops, origin = 1 + options.hops, options.origin or context.run_id
        if hops > HOPS_MAX:
            raise TooManyHops(HOPS_MAX)
        return cls(app.ports, app.runner, app.settings, context, hops, origin)

    @property
    def key(self) -> str | None:
        """The idempotency key of the runs that the call begins; None: it is in no run, and is never repeated."""
        if not self.context.run_id:
            return None
        call = f"{self.context.run_id}/{self.context.call_id}"
        return "agent-message-" + hashlib.sha256(call.encode()).hexdigest()

    async def accept(self, request: RunRequest, *, waits: bool) -> Accepted:
        """Accept a request in the call's name, noting the call with its options; `waits`: its reply is waited for.

        Raises: CircularWait, TooManyMessages, NotFound, ApprovalPending, ModelNotFound, MessageTooLarge, StoreError.
        """
        caller = (self.context.run_id or None) if waits else None
        options = replace(request.options, caller=caller, hops=self.hops, origin=self.origin)
        request = replace(request, idempotency_key=self.key, options=options)
        return await self.runner.accept(with_run(request, self.ports))

    async def reply_to(
        self, accepted: Accepted, *, limit_s: float, through_approval: bool = False
    ) -> tuple[list[str], Run]:
        """Wait until a run has ended; return its answer's texts, and the run that gave them.

        Args:
            limit_s: the most seconds; those in which a person is waited for do not count.
            through_approval: where the run stops at a call that a person has to approve, go on with the run after it.
        Raises: NoReply; NotFound: its agent is gone.
        """
        run, loop = accepted.run, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_s) as timeout:
                while True:
                    try:
                        return await self._follow(accepted), run
                    except AgentAwaitsApproval:
                        if not through_approval:
                            raise
                    timeout.reschedule(None)
                    run = await self._wait_for_answer(run)
                    accepted = Accepted(run, ())
                    timeout.reschedule(loop.time() + limit_s)
        except TimeoutError as error:
            raise ReplyTimeout(run.key.agent_id, run.id, after_s=limit_s) from error
        except asyncio.CancelledError:
            # Nobody waits for it any more; a run that only moves to another process finds it again.
            with contextlib.suppress(PerdureError):
                if await self.ports.store.read(_is_given_up, self.context.run_id):
                    await self.runner.cancel(run.id)
            raise

    async def _follow(self, accepted: Accepted) -> list[str]:
        """Wait until a run has ended, and return its answer's texts. Raises: NoReply; NotFound: its agent is gone."""
        texts, room, end = list[str](), REPLY_MAX_CHARS, None
        agent_id, run_id = accepted.run.key.agent_id, accepted.run.id
        async with contextlib.aclosing(self.runner.follow(accepted.run, known=accepted.events)) as sent:
            async for one in sent:
                if isinstance(one, StoredEvent) and isinstance(one.event, RunEnded):
                    end = one.event
                elif isinstance(one, StoredEvent) and isinstance(one.event, MessageAdded):
                    message = one.event.message
                    if message is not None and message.role == "assistant" and message.text and room:
                        texts.append(clip_reply(message.text, run_id, room))
                        room = max(0, room - len(message.text))
        if end is not None and end.failure is not None:
            raise AgentFailed(agent_id, run_id, f"failed: {end.failure.message}")
        if end is not None and end.stop_reason == "requires_approval":
            raise AgentAwaitsApproval(agent_id, run_id)
        if not texts:
            reason = "" if end is None else f": its run ended with {end.stop_reason}"
            raise NoReply(agent_id, run_id, f"gave no reply{reason}")
        return texts

    async def _wait_for_answer(self, run: Run) -> Run:
        """Return the run that continues one which stopped at calls, once these are answered. Raises: NoReply: they were
        given up; NotFound: its agent is gone."""
        while True:
            waits, following = await self.ports.store.read(_find_following, run)
            if following is not None:
                return following
            if not waits:
                raise NoReply(run.key.agent_id, run.id, "gave no reply: the calls that it waited for were given up")
            await asyncio.sleep(self.ports.signals.look_s(self.ports.settings.poll_s))


def _find_following(tx: Tx, run: Run) -> tuple[bool, Run | None]:
    """Return whether calls of a run wait still, and the run that goes on with their answers."""
    conversation = tx.conversations.get_by_seq(run.key.agent_id, run.conversation_seq)
    if conversation.pending_run_seq == run.key.seq:
        return True, None
    where = RunFilter(agent_ids=(run.key.agent_id,), conversation_seq=run.conversation_seq)
    later = tx.runs.page(where, newest_first=False, after=run, limit=_UNENDED_MAX)
    return False, next((one for one in later if one.resumes == run.key.seq), None)


def _is_given_up(tx: Tx, caller: str) -> bool:
    """Return whether a run that waits was cancelled, or deleted with its agent. A call by hand has no run."""
    if not caller:
        return False
    try:
        return tx.runs.get(RunId(caller)).cancel_requested
    except NotFound:
        return True


def clip_reply(text: str, run_id: RunId, room: int = REPLY_MAX_CHARS) -> str:
    """Return the text, cut to `room` characters, with a note in which run the rest is."""
    if len(text) <= room:
        return text
    return f"{text[:room]}… [{len(text) - room:,} more characters in {run_id}]"


def check_asked(tx: Tx, request: RunRequest) -> None:
    """Check that a run may ask for another one. Raises: TooManyMessages; as `check_wait`."""
    origin = request.options.origin
    if origin is not None and tx.runs.count_by_origin(origin) >= MESSAGES_MAX:
        raise TooManyMessages(origin, MESSAGES_MAX)
    if request.options.caller is not None:
        check_wait(tx, tx.runs.get(request.options.caller), request)


def check_wait(tx: Tx, run: Run, request: RunRequest) -> None:
    """Check that a run may wait for a new run of a conversation: the conversation must not wait for the run's own.

    The target is locked already. With the caller's agent locked too, of two agents that begin to wait for each other at
    the same time the second one is refused: one run of a conversation goes on at a time, so neither would end.

    Raises: CircularWait; ToolError: an agent's own message, and nobody waits any more.
    """
    tx.agents.lock(run.key.agent_id)
    if (run.ended or run.cancel_requested) and request.options.origin is not None:  # a hook may send at the end
        raise ToolError("the run that would wait for the answer is to stop")
    end, seen = (request.agent_id, request.conversation_seq), set[tuple[AgentId, int]]()
    ahead = [(run.key.agent_id, run.conversation_seq)]
    while ahead:
        line = ahead.pop()
        if line == end:
            raise CircularWait(request.agent_id)
        if line not in seen:
            seen.add(line)
            ahead += [(one.key.agent_id, one.conversation_seq) for one in _waiting_for(tx, *line)]


def _waiting_for(tx: Tx, agent_id: AgentId, conversation_seq: int) -> Iterator[Run]:
    """The unended runs that wait for a run of this conversation."""
    where = RunFilter(agent_ids=(agent_id,), conversation_seq=conversation_seq, statuses=("queued", "running"))
    for run in tx.runs.page(where, limit=_UNENDED_MAX):
        if run.options.caller is None:
            continue
        try:
            caller = tx.runs.get(run.options.caller)
        except NotFound:  # it was deleted with its agent
            continue
        if not caller.ended:
            yield caller
