"""The log of one run: everything the next action is decided from, as it stands in the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

from perdure.core.errors import LeaseLost, ModelOverflow
from perdure.core.messages import Message, Question, ToolCall, ToolDecision
from perdure.core.runs import Lease, Run, Step, Usage
from perdure.core.tools.rules import rules_of
from perdure.domain.tools.specs import CONTEXT_TOOL_SPECS
from perdure.engine.run.tool_rules import PastCall, RuleScope, RuleState, calls_made, rule_state
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that has no result yet, the message it stands in, and what a person decided about it."""

    call: ToolCall
    message: Message
    decision: ToolDecision | None = None

    @property
    def waits(self) -> bool:
        """Whether somebody has to decide, or to run it, before it can have a result."""
        return self.call.awaits is not None and self.decision is None

    @property
    def arguments(self) -> str:
        """What it is run with, as JSON."""
        edited = None if self.decision is None else self.decision.arguments
        return self.call.arguments if edited is None else edited


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """A run, its messages and steps in order, and its started foreign calls (call id -> lease number).

    It is never changed. Every transaction of the loop gives back the log that it leaves in the store. Where that saves
    reading, it is made from the one before: under the lease nobody else writes to it, but for the run's own row, and
    that is read anew in each transaction.

    Args:
        rule_scope: what the run's calls are judged by; None: the agent has no rules about what may follow what.
        last_event_seq: the number of the run's last event; None where it was not looked up. Besides who holds the lease
            only a request to cancel tells more, and that shows in the run's row.
    """

    run: Run
    messages: tuple[Message, ...]
    steps: tuple[Step, ...]
    started: Mapping[str, int]
    rule_scope: RuleScope | None = None
    last_event_seq: int | None = field(default=None, compare=False)

    def after(
        self,
        *,
        run: Run | None = None,
        messages: Sequence[Message] = (),
        step: Step | None = None,
        last_event_seq: int | None = None,
    ) -> RunLog:
        """The log with another run row, more messages, a step that is new or in another state, and events."""
        steps = self.steps
        if step is not None:
            steps = (*[other for other in steps if other.index != step.index], step)
        return RunLog(
            run=run or self.run,
            messages=(*self.messages, *messages) if messages else self.messages,
            steps=steps,
            started=self.started,
            rule_scope=self.rule_scope,
            last_event_seq=last_event_seq,
        )

    @property
    def lease(self) -> Lease:
        """Raises: LeaseLost: nobody holds the run."""
        if self.run.lease_owner is None:
            raise LeaseLost(f"{self.run.id} is held by nobody")
        return Lease(self.run.lease_owner, self.run.lease_number)

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """Calls without a result, in the order they were asked."""
        return open_calls_in(self.messages)

    @property
    def ready_calls(self) -> tuple[OpenCall, ...]:
        """The open calls that can have their result now. Where rules say what may follow what, none is run before those
        that were asked before it."""
        ready: list[OpenCall] = []
        for one in self.open_calls:
            if not one.waits:
                ready.append(one)
            elif self.rule_scope is not None:
                break
        return tuple(ready)

    @property
    def last_answer(self) -> Message | None:
        """The newest answer of the model."""
        return next((message for message in reversed(self.messages) if message.role == "assistant"), None)

    @property
    def reminders(self) -> int:
        """How often in a row the model was reminded of what it still has to do, since it last called a tool."""
        count = 0
        for message in reversed(self.messages):
            if message.role == "tool" and not all(result.refused for result in message.results):
                break
            count += message.kind == "heartbeat"
        return count

    def rule_state(
        self, *, of: OpenCall | None = None, tools: Collection[str] | None = None, next_answer: bool = False
    ) -> RuleState | None:
        """What the rules say now; `of` a call that is about to be run, with the `tools` that there now are; or
        (`next_answer`) of an answer that is still to come. None: there are no rules."""
        if (rule_scope := self.rule_scope) is None:
            return None
        if tools is not None:
            rule_scope = RuleScope(rule_scope.rules, frozenset(tools), rule_scope.earlier)
        answer = None if next_answer else of.message if of is not None else self.last_answer
        return rule_state(rule_scope, self.called, answer=-1 if answer is None else answer.seq)

    @property
    def called(self) -> list[PastCall]:
        """The calls of the request that this run serves, as far as tool rules count them."""
        return [*(self.rule_scope.earlier if self.rule_scope is not None else ()), *calls_made(self.messages)]

    @property
    def questions(self) -> tuple[Question, ...]:
        """What the newest answer's calls ask the user, in the order of their results."""
        newest_first: list[Question] = []
        for message in reversed(self.messages):
            if message.role == "assistant":
                break
            newest_first += [result.question for result in reversed(message.results) if result.question is not None]
        return tuple(reversed(newest_first))

    @property
    def last_step(self) -> Step | None:
        return self.steps[-1] if self.steps else None

    @property
    def steps_taken(self) -> int:
        """Model calls that count towards `max_steps`: those that a crash took away do not."""
        return sum([step.status != "abandoned" for step in self.steps])

    @property
    def usage(self) -> Usage:
        return reduce(add, [step.usage for step in self.steps]) if self.steps else Usage()

    @property
    def refusals(self) -> int:
        """How many of the newest answers asked for nothing that could be run."""
        count = 0
        for step in reversed(self.steps):
            calls = {call.call_id for call in self.calls_of(step)}
            results = [result for message in self.messages for result in message.results if result.call_id in calls]
            if not results or not all(result.refused for result in results):
                break
            count += 1
        return count

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

    def calls_of(self, step: Step) -> tuple[ToolCall, ...]:
        """The tool calls of the answer that this step brought."""
        return tuple(call for message in self.messages if message.step_id == step.id for call in message.calls)


def open_calls_in(messages: Sequence[Message]) -> tuple[OpenCall, ...]:
    """The calls in these rows that have no result in them, in the order of the rows."""
    answered = {result.call_id for message in messages for result in message.results}
    decisions = {decision.call_id: decision for message in messages for decision in message.decisions}
    return tuple(
        OpenCall(call, message, decisions.get(call.call_id))
        for message in messages
        for call in message.calls
        if call.call_id not in answered
    )


def load_run_log(tx: Tx, log: RunLog) -> RunLog:
    """The log as it stands now.

    Raises: NotFound; LeaseLost: another process has taken the run. Without this check the new log would carry the
        other's lease, and this process would go on under it.
    """
    run, lease = tx.runs.at(log.run.key), log.lease
    if run.lease_number != lease.number or (not run.ended and run.lease_owner != lease.owner):
        raise LeaseLost(f"run {run.key.seq} of {run.key.agent_id} is no longer held by {lease.owner} ({lease.number})")
    return run_log_of(tx, run)


def run_log_of(tx: Tx, run: Run) -> RunLog:
    """The log of a run whose row was read in this transaction."""
    return RunLog(
        run=run,
        messages=tuple(tx.messages.of_run(run)),
        steps=tuple(tx.steps.of_run(run.key)),
        started=tx.runs.started_calls(run.key),
        rule_scope=rule_scope_of(tx, run, tx.agents.tool_rules(run.key.agent_id)),
    )


def rule_scope_of(tx: Tx, run: Run, settings: Mapping[str, Any]) -> RuleScope | None:
    """What the agent's `tool_rules` among these settings are judged with; None: none of them depends on other calls."""
    if not settings.get("tool_rules") or not (rules := rules_of(settings)).ordered:
        return None
    agent_id = run.key.agent_id
    names = {tool.spec.name for tool in tx.tools.of_agent(agent_id)}
    if run.client_tools is not None:
        brought = tx.runs.client_tools(agent_id, run.client_tools)
        names |= {shape["name"] for shape in brought if shape.get("type") != "skill"}
    earlier: Sequence[Message] = ()
    if run.turn_from is not None and run.begins_at is not None:
        earlier = tx.messages.view(agent_id, run.conversation_seq, from_seq=run.turn_from, upto_seq=run.begins_at - 1)
    made = tuple(PastCall(one.name, one.output, one.denied) for one in calls_made(earlier))
    return RuleScope(rules, frozenset(names | {*CONTEXT_TOOL_SPECS} if names else names), made)
