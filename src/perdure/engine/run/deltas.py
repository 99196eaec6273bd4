"""The pieces of an answer as readers receive them, the previews of background runs, and the runner's units of work."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from perdure.core.agents import Agent
from perdure.core.conversations import ConversationKey
from perdure.core.errors import Conflict
from perdure.core.events import Delta, DeltaStreamed, RunCancelRequested, RunEnded, StoredEvent
from perdure.core.ids import MessageId, RunId
from perdure.core.loops import FREE, THINKING, AgentLoop
from perdure.core.messages import SEND_MESSAGE, Part, Text, ToolCall, Waits, text_of
from perdure.core.models import ModelDelta
from perdure.core.runs import NO_USAGE, Failure, Run, RunKey, Step
from perdure.core.specs import bare_name
from perdure.core.tasks import to_the_end
from perdure.core.text.json_strings import StringMember, compact_json, read_string
from perdure.engine.approvals.answers import give_up_pending, recent_approval_ids, tools_of, waits_by_tool, write_waits
from perdure.engine.log.next_action import EndRun
from perdure.engine.log.run_log import Progress, RunLog, run_log_of
from perdure.engine.log.tool_rules import expected_states
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.records.rows import CallIds, decode_drafts, end_run
from perdure.storage.tx import Tx

PAGE = 1_000
RECOVERED_RUNS = 10_000  # unended runs in one round of recovery: more than any process leaves, also of unknown models


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A run, the run of its conversation whose turn it is, the agent, and whether calls wait for an answer."""

    run: Run
    active: Run | None
    agent: Agent
    waits: bool


def turn_of(tx: Tx, key: RunKey, conversation_key: ConversationKey) -> QueuePlace:
    """Load who is next in the queue of a conversation; `key`: one of its runs. Raises: NotFound."""
    waits = tx.conversations.get_by_seq(*conversation_key).pending_run_seq is not None
    return QueuePlace(
        tx.runs.get_by_key(key),
        tx.runs.find_active(*conversation_key),
        tx.conversations.get_agent(*conversation_key),
        waits,
    )


def events_after(tx: Tx, key: RunKey, after: int) -> Sequence[StoredEvent]:
    """Return a page of a run's events. Raises: NotFound."""
    events = tx.events.list(key, after=after, limit=PAGE)
    if not events:
        tx.runs.get_by_key(key)  # a run that was deleted with its agent has no more to tell, and no end to wait for
    return events


Cancelled = tuple[Run, Sequence[StoredEvent], Run | None]
"""A run that was asked to stop, its new events, and the run that may begin now because of it."""


def request_cancel(tx: Tx, run_id: RunId, inputs: UnitInputs) -> Sequence[Cancelled]:
    """Ask a run to stop, and the runs it waits for, or give up the calls at which it stopped. It comes first."""
    run = tx.runs.get(run_id)
    cancelled, stopped = [_request_cancel(tx, run, inputs)], {run.id}
    for one in () if run.ended else tx.runs.list_by_origin(run.options.origin or run.id):
        if one.options.caller in stopped:
            stopped.add(one.id)
            if not one.ended or one.stop_reason == "requires_approval":
                cancelled.append(_request_cancel(tx, one, inputs))
    return cancelled


def withdraw(tx: Tx, run_id: RunId, inputs: UnitInputs) -> tuple[Run, Sequence[StoredEvent], str]:
    """End a run that waits behind another one, so that its messages never enter the log; return it, its new events and
    the text of its messages. Raises: NotFound; Conflict: it does not wait any more."""
    tx.agents.lock(tx.runs.get(run_id).key.agent_id)
    run = tx.runs.get(run_id)
    waiting = tx.runs.waiting_input(run.key)
    if run.status != "queued" or run.resumes is not None or waiting is None:
        raise Conflict(f"{run_id} does not wait any more: its message is being answered, or was; stop it instead")
    drafts, _ = decode_drafts(waiting)
    return *_end_waiting(tx, run, inputs), "\n\n".join(text_of(one.parts) for one in drafts if one.kind == "message")


def _end_waiting(tx: Tx, run: Run, inputs: UnitInputs) -> tuple[Run, Sequence[StoredEvent]]:
    """End a run that waits behind another one, and drop its input; return it and its new events."""
    tx.runs.begin_input(run.key, first_message_seq=None)
    run = tx.runs.end(run, reason="cancelled", usage=NO_USAGE, step_count=0, failure=None, at=inputs.now)
    return run, tx.events.add(run.key, [RunEnded(run.id, "cancelled", NO_USAGE, 0)], at=inputs.now)


def _request_cancel(tx: Tx, run: Run, inputs: UnitInputs) -> Cancelled:
    """As `request_cancel`, for one run. One that waits behind another ends now: that one may wait for a person."""
    if not run.ended and tx.runs.request_cancel(run.key):  # nobody begins or ends it now
        run = tx.runs.get_by_key(run.key)
        if run.status == "queued" and run.resumes is None and run.first_message_seq is None:
            return *_end_waiting(tx, run, inputs), None
        return run, tx.events.add(run.key, [RunCancelRequested(run.id)], at=inputs.now), None
    tx.agents.lock(run.key.agent_id)
    run = tx.runs.get_by_key(run.key)  # it may have stopped at calls meanwhile
    conversation = tx.conversations.get_by_seq(run.key.agent_id, run.conversation_seq)
    if conversation.pending_run_seq == run.key.seq:
        given_up = give_up_pending(tx, conversation, "the request was cancelled", inputs)
        if given_up is not None:
            return *given_up, tx.runs.find_active(run.key.agent_id, run.conversation_seq)
    return run, (), None


def unended(tx: Tx, *, now: datetime) -> list[tuple[Run, Agent]]:
    """Load the oldest unended run of each conversation, with its agent; those without a valid lease first."""
    free, all_runs = (tx.runs.list_oldest(free_at=at, limit=RECOVERED_RUNS) for at in (now, None))
    runs = {run.key: run for run in (*free, *all_runs)}
    return [(run, tx.conversations.get_agent(run.key.agent_id, run.conversation_seq)) for run in runs.values()]


def fail(tx: Tx, key: RunKey, inputs: UnitInputs, *, dead_owner: str | None, failure: Failure) -> Progress | None:
    """End a run with a failure, if this process holds it or can claim it; return its last progress, else None."""
    run = tx.runs.get_by_key(key)
    if run.ended:
        return None
    if run.status != "running" or run.lease_owner != inputs.owner:
        claimed = tx.runs.claim(key, owner=inputs.owner, at=inputs.now, until=inputs.now, dead_owner=dead_owner)
        if claimed is None:
            return None
        run = claimed
    return end_run(tx, run_log_of(tx, run), EndRun("error", failure), [], inputs)


ARGUMENTS = "tool_arguments"
"""The kind of a delta."""


@dataclass(slots=True)
class Deltas:
    """The deltas of one answer: its calls under the ids that they are stored under, and with what they wait for, as far
    as that is known before they are whole. Thoughts in a call are reasoning.

    Args:
        waits: tool -> what its calls wait for.
        loop_arguments: tool -> the arguments that the loop adds.
        names: the tools of the calls so far.
        recent_ids: ids of recent calls that waited for a person or the caller; None: not loaded yet.
        thoughts: number of a call -> the reader of its thoughts.
        thinker: the number of the call that the newest reasoning stands in, -1: in none; None: there is no reasoning.
        held: number of a call -> its arguments so far, which wait for the end of its thoughts.
        said: the pieces of its text.
        speeches: number of a call of `send_message` that can be run -> (the call's id, the pieces of its arguments).
    """

    log: RunLog
    agent: Agent
    step: Step
    message_id: MessageId
    ports: Ports
    call_ids: CallIds
    waits: Mapping[str, Waits] = field(default_factory=dict)
    loop_arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    has_read_tools: bool = False
    names: list[str] = field(default_factory=list)
    recent_ids: Collection[str] | None = None
    thoughts: dict[int, StringMember] = field(default_factory=dict)
    thinker: int | None = None
    held: dict[int, Delta] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    speeches: dict[int, tuple[str, list[str]]] = field(default_factory=dict)

    def said_parts(self) -> Sequence[Part]:
        """Return what the agent has said so far: text, and each `send_message` call reduced to its words."""
        words = [(call_id, read_string("".join(pieces), "message")) for call_id, pieces in self.speeches.values()]
        calls = [ToolCall(call_id, SEND_MESSAGE, compact_json({"message": text})) for call_id, text in words if text]
        return (Text("".join(self.said)), *calls) if self.said else calls

    async def of(self, piece: ModelDelta) -> Sequence[Delta]:
        """Return the readers' deltas for a piece of the answer; a call's arguments come after the thoughts in it."""
        before = [self.held.pop(index) for index in [*self.held] if (piece.kind, piece.index) != (ARGUMENTS, index)]
        if piece.kind == "text":
            self.said.append(piece.text)
            return (*before, Delta(self.step.id, self.message_id, piece.kind, piece.text))
        if piece.kind == "reasoning":
            return (*before, self._reasoning(piece.text, -1))
        awaits: Waits | None = None
        avoid: Collection[str] = ()
        loop_arguments: Sequence[str] = ()
        text, refused = piece.text, False
        if piece.kind == "tool_name":
            text = bare_name(text)
            if not self.has_read_tools:
                self.waits, self.loop_arguments = await self.ports.store.read(self._read_tools)
                self.has_read_tools = True
            loop_arguments = self.loop_arguments.get(text, self._loop.arguments)
            refused = self._refuses(text)
            if THINKING in loop_arguments:
                self.thoughts[piece.index] = StringMember(THINKING)
            if (awaits := self.waits.get(text)) is not None:
                if self.recent_ids is None:
                    self.recent_ids = await self.ports.store.read(recent_approval_ids, self.log)
                avoid = self.recent_ids
        call_id = self.call_ids.id_of_delta(piece.index, piece.call_id, avoid=avoid)
        delta = Delta(self.step.id, self.message_id, piece.kind, text, piece.index, call_id)
        delta = replace(delta, awaits=awaits, loop_arguments=loop_arguments, refused=refused)
        if (piece.kind, text, awaits, refused) == ("tool_name", SEND_MESSAGE, None, False):
            self.speeches[piece.index] = call_id, []
        elif piece.kind == ARGUMENTS and piece.index in self.speeches:
            self.speeches[piece.index][1].append(text)
        return (*before, *(self._with_thoughts(delta) if piece.kind == ARGUMENTS else (delta,)))

    def _refuses(self, name: str) -> bool:
        """Return whether the next call can't be run, as far as its name tells: no such tool, or rules forbid it."""
        self.names.append(name)
        scope = self.log.rule_scope
        if name not in self.loop_arguments or scope is None:
            return name not in self.loop_arguments
        return expected_states(scope, self.log.past_calls, self.names)[-1].violation(name) is not None

    def _with_thoughts(self, delta: Delta) -> Sequence[Delta]:
        """Return the deltas for a piece of arguments and the thoughts in it; arguments wait until the thoughts end."""
        reader = self.thoughts.get(delta.index)
        if reader is None or reader.has_ended:
            return (delta,)
        thought = reader.read(delta.text)
        reasoning = (self._reasoning(thought, delta.index),) if thought else ()
        if (held := self.held.pop(delta.index, None)) is not None:
            delta = replace(delta, text=held.text + delta.text)
        if reader.has_ended:
            return (*reasoning, delta)
        self.held[delta.index] = delta
        return reasoning

    def _reasoning(self, text: str, thinker: int) -> Delta:
        """Return the delta of reasoning, on a new line if it stands in another call. `thinker`: the call's number."""
        is_elsewhere = self.thinker not in (None, thinker)
        self.thinker = thinker
        return Delta(self.step.id, self.message_id, "reasoning", f"\n{text}" if is_elsewhere else text)

    @property
    def _loop(self) -> AgentLoop:
        """The loop of the agent."""
        return FREE if self.log.rule_scope is None else self.log.rule_scope.loop

    def _read_tools(self, tx: Tx) -> tuple[Mapping[str, Waits], Mapping[str, Sequence[str]]]:
        """Load (tool -> for whom its calls wait, tool -> the arguments that the loop adds to its calls)."""
        tools = tools_of(tx, self.log.run)
        added = {name: self._loop.extra_arguments(tool.spec.parameters) for name, tool in tools.items()}
        untrusted: dict[str, Waits] = dict.fromkeys(write_waits(tx, self.log.run, tools), "approval")
        return {**untrusted, **waits_by_tool(tools, self.agent.settings)}, added


class Previews:
    """A background run's deltas, stored before they are sent (T4) for readers who reconnect; close ones are joined."""

    def __init__(self, log: RunLog, ports: Ports) -> None:
        self._log, self._ports = log, ports
        self._waiting: dict[tuple[str, int], Delta] = {}  # by kind and call number
        self._since: datetime | None = None  # when the oldest of them came

    async def add(self, deltas: Sequence[Delta]) -> Sequence[StoredEvent]:
        """Join the deltas to those that wait; return the stored events that are to be sent now."""
        now = self._ports.clock.now()
        self._since = self._since or now
        for delta in deltas:
            key = (delta.kind, delta.index)
            before = self._waiting.get(key)
            self._waiting[key] = delta if before is None else replace(before, text=before.text + delta.text)
        settings = self._ports.settings
        due = (now - self._since).total_seconds() >= settings.delta_flush_s
        if due or sum(len(waiting.text) for waiting in self._waiting.values()) >= settings.delta_flush_chars:
            return await self.flush()
        return ()

    async def flush(self) -> Sequence[StoredEvent]:
        """Store all that waits; return the events to send."""
        waiting, self._waiting, self._since = list(self._waiting.values()), {}, None
        if not waiting:
            return ()
        now = self._ports.clock.now()
        until = now + timedelta(seconds=self._ports.settings.lease_s)
        run = self._log.run

        def store(tx: Tx) -> Sequence[StoredEvent]:
            """Store the waiting previews as events, and renew the lease."""
            tx.runs.keep_lease(run, until=until)
            return tx.events.add(run.key, [DeltaStreamed(delta) for delta in waiting], at=now)

        return await to_the_end(self._ports.store.write(store))
