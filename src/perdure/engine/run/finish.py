"""T9: a run ends. Whatever the reason, its log is left legal: every call has its one result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from perdure.context.window.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.events import Event, MessageAdded, RunEnded
from perdure.core.ids import MessageId
from perdure.core.messages import Draft, Message, Question, Text, ToolCall, ToolResult, parts_to_json
from perdure.core.tools.spec import ToolOutcome
from perdure.engine.hooks.rows import add_context_rows
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.accept import add_waiting_input
from perdure.engine.run.log import RunLog, run_log_of
from perdure.engine.run.next_action import Finish, next_action
from perdure.engine.run.progress import Progress
from perdure.storage.tx import Tx


async def finish(log: RunLog, ports: Ports) -> Progress:
    """End the run as its log says, in one transaction. Raises: LeaseLost."""
    return await ports.store.write(_finish, log, ports.inputs())


def _finish(tx: Tx, log: RunLog, inputs: UnitInputs) -> Progress:
    log = run_log_of(tx, tx.runs.hold(log.run.key, log.lease, until=None))
    if not isinstance(action := next_action(log), Finish):
        return Progress(log)
    events: list[Event] = []
    if action.reason == "end_turn" and (questions := log.questions):
        messages = _append_questions(tx, log, questions, inputs)
        events += [MessageAdded(message.seq, message) for message in messages]
        log = log.after(messages=messages)
    return end_run(tx, log, action, events, inputs)


def _append_questions(tx: Tx, log: RunLog, questions: Sequence[Question], inputs: UnitInputs) -> Sequence[Message]:
    """The questions as the agent's last message, so that every reader sees them as its answer."""
    text = "\n\n".join(question.shown for question in questions)
    run, parts = log.run, (Text(text),)
    return tx.messages.append(
        run.key.agent_id,
        [Draft(id=MessageId(inputs.ids.new("message")), role="assistant", parts=parts)],
        conversation_seq=run.conversation_seq,
        at=inputs.now,
        tokens=[inputs.counter.count(parts_to_json(parts)) + MESSAGE_OVERHEAD_TOKENS],
        run=run,
        step_id=next(message.step_id for message in reversed(log.messages) if message.results),
    )


def end_run(
    tx: Tx,
    log: RunLog,
    action: Finish,
    events: list[Event],
    inputs: UnitInputs,
    *,
    last_event_seq: int | None = None,
) -> Progress:
    """The ended run, inside a transaction that holds its lease.

    Calls that wait for somebody outside stay open, and the conversation says so; what hooks have added waits with them.

    Args:
        events: the transaction's other events, which come first.
        last_event_seq: the number of the run's newest stored event, where it is known.
    """
    run, now = log.run, inputs.now
    open_calls = log.open_calls
    if action.reason == "requires_approval":
        tx.conversations.wait(
            run.key.agent_id, run.conversation_seq, run_seq=run.key.seq, from_seq=open_calls[0].message.seq
        )
        open_calls = ()
    step = log.last_step
    if step is not None and step.status == "pending":
        log = log.after(step=tx.steps.end(step, status="cancelled", at=now, stop_reason=action.reason))
    drafts = [
        Draft(
            id=MessageId(inputs.ids.new("message")),
            role="tool",
            parts=(_unanswered(open_call.call, open_call.call.call_id in log.started, action),),
        )
        for open_call in open_calls
    ]
    if drafts:
        messages = tx.messages.append(
            run.key.agent_id,
            drafts,
            conversation_seq=run.conversation_seq,
            at=now,
            tokens=[20] * len(drafts),
            run=run,
            step_id=open_calls[0].message.step_id,
        )
        events += [MessageAdded(message.seq, message) for message in messages]
        log = log.after(messages=messages)
    if run.input_waits:  # it was acknowledged, so it is in the log whatever became of the run
        run, added = add_waiting_input(tx, run, now=now)
        events += [MessageAdded(message.seq, message) for message in added]
        log = log.after(messages=added)
    if run.context and action.reason != "requires_approval":
        added = add_context_rows(tx, run, ids=inputs.ids, counter=inputs.counter, now=now)
        run = replace(run, context=())
        events += [MessageAdded(message.seq, message) for message in added]
        log = log.after(messages=added)
    usage = run.usage + log.usage  # what summaries took stands on the run's row already
    run = tx.runs.end(
        run,
        reason=action.reason,
        usage=usage,
        step_count=log.steps_taken,
        failure=action.failure,
        at=now,
    )
    events.append(RunEnded(run.id, action.reason, usage, log.steps_taken, action.failure))
    stored = tx.events.add(run.key, events, at=now, after=last_event_seq)
    if run.background:  # after the last event, which keeps the numbers of those that go from being given again
        since = now - timedelta(seconds=inputs.settings.keep_deltas_s)
        tx.events.trim_deltas(run.key, keep=inputs.settings.keep_deltas, since=since)
    return Progress(log.after(run=run), stored)


def _unanswered(call: ToolCall, started: bool, action: Finish) -> ToolResult:
    """The result of a call that the run leaves open."""
    ended = "the run was cancelled" if action.reason == "cancelled" else f"the run ended ({action.reason})"
    text = f"interrupted: outcome unknown, {ended} while the tool was running" if started else f"not run: {ended}"
    return ToolOutcome(text=text, status="error").result(call)
