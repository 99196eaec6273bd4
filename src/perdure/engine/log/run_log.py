"""The log of one run: everything the next action is decided from, as it stands in the store; and what a transaction
leaves beside it for the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from operator import add
from typing import Any

from perdure.context.sections.assemble import View
from perdure.context.window.plan import Plan, Situation
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.errors import LeaseLost, ModelOverflow
from perdure.core.events import Delta, MemoryRecalled, StoredEvent
from perdure.core.loops import loop_of
from perdure.core.messages import Message, Question, ToolCall, ToolDecision, ToolResult
from perdure.core.nodes import SummaryNode
from perdure.core.runs import Run, Step, Usage
from perdure.core.tools.engine_specs import CONTEXT_TOOL_SPECS
from perdure.core.tools.rules import rules_in
from perdure.engine.log.tool_rules import PastCall, RuleScope, past_calls_in
from perdure.storage.tx import Tx

STOP = "No tool can be called any more in this turn: your calls keep failing. Answer in words, and say what is wrong."
"""The reason of the heartbeat before the last answer of a run whose model keeps making calls that fail."""

Tell = Callable[[Sequence[StoredEvent | Delta]], None]
"""Publishes what happens in a run, in order; it takes no time."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call without a result, its message, and a person's decision about it."""

    call: ToolCall
    message: Message
    decision: ToolDecision | None = None

    @property
    def waits(self) -> bool:
        """Whether a person has to decide, or the caller to run it, before it can have a result."""
        return self.call.awaits is not None and self.decision is None

    @property
    def is_approved(self) -> bool:
        """Whether a person has approved the call."""
        return self.decision is not None and self.decision.approve

    @property
    def arguments(self) -> str:
        """The arguments that the call is executed with, as JSON."""
        edited = None if self.decision is None else self.decision.arguments
        return self.call.own_arguments if edited is None else edited


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """A run, its messages and steps in order, and its started foreign calls (call id -> lease number).

    It is never changed. Every transaction of the loop returns the log that it leaves in the store. Most make it from
    the log before: under the lease nobody else writes to it, but for the run's own row, which
    `tx.runs.keep_lease` reads again.

    Args:
        rule_scope: what the run's calls are judged by; None: the agent has the usual loop, and no rules about what may
            follow what.
    """

    run: Run
    messages: tuple[Message, ...]
    steps: tuple[Step, ...]
    started: Mapping[str, int]
    rule_scope: RuleScope | None = None

    @property
    def last_answer(self) -> Message | None:
        """The newest answer of the model."""
        return next((message for message in reversed(self.messages) if message.role == "assistant"), None)

    @property
    def reminders(self) -> int:
        """How often the model was reminded of a call that its answer lacks, since a tool of it last ran."""
        count = waiting = 0
        for message in reversed(self.messages):
            if message.role == "tool" and not all(result.refused for result in message.results):
                break
            if message.role == "assistant":  # what came right behind a tool's result gave control back
                count, waiting = count + waiting, 0
            waiting += message.kind == "heartbeat"
        return count

    @property
    def past_calls(self) -> list[PastCall]:
        """The calls of the request that this run serves, as far as tool rules count them."""
        return [*(self.rule_scope.earlier if self.rule_scope is not None else ()), *past_calls_in(self.messages)]

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions that the newest answer's calls ask the user, in the order of their results."""
        newest_first: list[Question] = []
        for message in reversed(self.messages):
            if message.role == "assistant":
                break
            newest_first += [result.question for result in reversed(message.results) if result.question is not None]
        return tuple(reversed(newest_first))

    @property
    def steps_taken(self) -> int:
        """How many model calls count towards `max_steps`: those that a crash interrupted do not."""
        return sum([step.status != "abandoned" for step in self.steps])

    @property
    def usage(self) -> Usage:
        """What all steps of the run took together."""
        return reduce(add, [step.usage for step in self.steps]) if self.steps else Usage()

    @property
    def context_tokens(self) -> int | None:
        """The tokens of the newest request and its answer; None: no step has an answer."""
        usages = [step.usage for step in self.steps if step.usage.input_tokens]
        return usages[-1].input_tokens + usages[-1].output_tokens if usages else None

    @property
    def refusals(self) -> int:
        """How many of the newest answers held no call that could be run."""
        count = 0
        results: list[ToolResult] = []
        for message in reversed(self.messages):
            results += message.results
            if message.role == "assistant":
                if not results or not all(result.refused for result in results):
                    break
                count, results = count + 1, []
        return count

    @property
    def must_speak(self) -> bool:
        """Whether the model was told to call no more tools, and only its answer has followed."""
        newest = next((message for message in reversed(self.messages) if message.role != "assistant"), None)
        return newest is not None and newest.kind == "heartbeat" and STOP in newest.text

    @property
    def cuts(self) -> int:
        """How many model calls in a row, up to the newest that ended, were given up because their answer broke off."""
        ended = [step for step in self.steps if step.status != "pending"]
        return len([*takewhile(lambda step: step.status == "abandoned" and step.failure is not None, reversed(ended))])

    @property
    def overflows(self) -> tuple[Step, ...]:
        """The model calls since the last answer whose request was larger than the model's window, oldest first."""
        since: list[Step] = []
        for step in self.steps:
            if step.status == "success":
                since.clear()
            elif step.failure is not None and step.failure.kind == ModelOverflow.kind:
                since.append(step)
        return tuple(since)


@dataclass(frozen=True, slots=True)
class RequestParts:
    """The parts of a pending step's request, besides its recipe."""

    agent: Agent
    view: View


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """What the next request of a conversation shows.

    Args:
        view: its prefix has the number -1 where the conversation has none yet.
        nodes: the summary nodes in view, oldest first.
    """

    agent: Agent
    conversation: Conversation
    view: View
    nodes: tuple[SummaryNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomPlan(ViewState):
    """A request that would not fit, and the plan that makes room for it.

    Args:
        reason: why the conversation gets a new prefix.
    """

    log: RunLog
    plan: Plan
    budget_tokens: int
    reason: str = "window"


@dataclass(frozen=True, slots=True)
class RecallResult:
    """The text that a search of memory found for a run's newest message, and the event to store for it, if any."""

    text: str
    event: MemoryRecalled | None


NO_RECALL = RecallResult("", None)


ViewKey = tuple[int, int, tuple[tuple[int, int], ...]]
"""What tells two views of a conversation apart: prefix, next row, stubs."""


def view_key(view: View) -> ViewKey:
    """Return what tells this view of a conversation apart from its others."""
    return view.prefix.seq, view.next_seq, tuple(sorted(view.stubs.items()))


@dataclass(frozen=True, slots=True)
class NoPlan:
    """A view for which the context engine has no plan; and what was recalled for the run's newest message before."""

    view: ViewKey
    recalled: RecallResult


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineQuestion:
    """A request that the agent's context engine has to see before it is recorded."""

    log: RunLog
    agent: Agent
    conversation: Conversation
    view: View
    situation: Situation
    recalled: RecallResult


@dataclass(frozen=True, slots=True)
class Progress:
    """The log as a transaction left it in the store, and the events to send.

    Args:
        request: of the pending step, if this transaction recorded it.
        room: the plan that has to be carried out before the next request can be made.
        question: what has to be asked of the agent's context engine before that.
        no_plan: the engine's answer, if it has no plan.
        quarantined: the run goes on without the agent's context engine, which failed in another process.
    """

    log: RunLog
    events: Sequence[StoredEvent] = ()
    request: RequestParts | None = None
    room: RoomPlan | None = None
    question: EngineQuestion | None = None
    no_plan: NoPlan | None = None
    quarantined: bool = False


def open_calls_in(messages: Sequence[Message]) -> tuple[OpenCall, ...]:
    """Return the calls in these rows that have no result in them, in the order of the rows."""
    calls = [(message, call) for message in messages for call in message.calls]
    if not calls:  # as in most runs
        return ()
    answered = {result.call_id for message in messages for result in message.results}
    decisions = {decision.call_id: decision for message in messages for decision in message.decisions}
    return tuple(
        OpenCall(call, message, decisions.get(call.call_id)) for message, call in calls if call.call_id not in answered
    )


def load_run_log(tx: Tx, log: RunLog) -> RunLog:
    """Load the log of a run as the store has it now. Raises: NotFound; LeaseLost: another process has taken the run.
    Without this check the new log would carry that process's lease, and this one would go on under it."""
    run, own = tx.runs.get_by_key(log.run.key), log.run
    if run.lease_number != own.lease_number or (not run.ended and run.lease_owner != own.lease_owner):
        raise LeaseLost(f"{run.id} is no longer held by {own.lease_owner} ({own.lease_number})")
    return run_log_of(tx, run)


def run_log_of(tx: Tx, run: Run) -> RunLog:
    """Load the log of a run whose row was read in this transaction."""
    return RunLog(
        run=run,
        messages=tuple(tx.messages.list_by_run(run)),
        steps=tuple(tx.steps.list_by_run(run.key)),
        started={call_id: lease for call_id, (_, lease) in tx.runs.get_call_starts(run.key).items()},
        rule_scope=rule_scope_of(tx, run, *tx.agents.loop_settings(run.key.agent_id)),
    )


def rule_scope_of(tx: Tx, run: Run, agent_type: str, settings: Mapping[str, Any]) -> RuleScope | None:
    """Return what a run's calls are judged by: the agent's loop and `tool_rules`; None: no call depends on others."""
    loop = loop_of(agent_type, settings)
    if not settings.get("tool_rules") and not loop.heartbeats:
        return None
    rules = rules_in(settings)
    if not rules.order_rules and not loop.heartbeats:
        return None
    agent_id = run.key.agent_id
    names = {tool.spec.name for tool in tx.tools.list_by_agent(agent_id)}
    if run.client_tools is not None:
        brought = tx.runs.client_tools(agent_id, run.client_tools)
        names |= {shape["name"] for shape in brought if shape.get("type") != "skill"}
    earlier: Sequence[Message] = ()
    if run.turn_from is not None and run.begins_at is not None:
        earlier = tx.messages.view(agent_id, run.conversation_seq, from_seq=run.turn_from, upto_seq=run.begins_at - 1)
    calls = tuple(replace(one, answer=-1) for one in past_calls_in(earlier))
    return RuleScope(rules, frozenset(names | {*CONTEXT_TOOL_SPECS} if names else names), calls, loop)
