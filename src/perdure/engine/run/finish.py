"""T9: a run ends. Whatever the reason, its log is legal afterwards: every call has exactly one result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from perdure.context.window.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.events import Event, MessageAdded, RunEnded
from perdure.core.ids import MessageId
from perdure.core.messages import Draft, Message, Question, Text, ToolCall, ToolResult, parts_to_json
from perdure.core.tools.spec import ToolOutcome
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.log import Progress, RunLog, open_calls_in, run_log_of
from perdure.engine.run.next_action import Finish, next_action
from perdure.engine.run.rows import add_hook_context, add_waiting_input
from perdure.storage.tx import Tx


async def finish(log: RunLog, ports: Ports) -> Progress:
    """End the run as its log says, in one transaction. Raises: LeaseLost."""
    return await ports.store.write(_finish, log, ports.inputs())


def _finish(tx: Tx, log: RunLog, inputs: UnitInputs) -> Progress:
    """End the run in the transaction, unless its log now says otherwise."""
    log = run_log_of(tx, tx.runs.keep_lease(log.run))
    if not isinstance(action := next_action(log), Finish):
        return Progress(log)
    events: list[Event] = []
    if action.reason == "end_turn" and (questions := log.questions):
        log = _append_questions(tx, log, questions, inputs)
        events.append(MessageAdded(log.messages[-1].seq, log.messages[-1]))
    return end_run(tx, log, action, events, inputs)


def _append_questions(tx: Tx, log: RunLog, questions: Sequence[Question], inputs: UnitInputs) -> RunLog:
    """Append the questions as the agent's last message, so that every reader sees them as its answer."""
    parts = (Text("\n\n".join(question.as_text for question in questions)),)
    rows = tx.messages.append(
        log.run,
        [Draft(id=MessageId(inputs.ids.new("message")), role="assistant", parts=parts)],
        [inputs.counter.count(parts_to_json(parts)) + MESSAGE_OVERHEAD_TOKENS],
        at=inputs.now,
        step_id=next(message.step_id for message in reversed(log.messages) if message.results),
    )
    return replace(log, messages=(*log.messages, *rows))


def end_run(tx: Tx, log: RunLog, action: Finish, events: list[Event], inputs: UnitInputs) -> Progress:
    """End a run inside a transaction that holds its lease.

    Calls that wait for somebody outside stay open, and the conversation says so; what hooks have added waits with them.

    Args:
        events: the transaction's other events, which come first.
    """
    run, now = log.run, inputs.now
    calls = open_calls_in(log.messages)
    waits = action.reason == "requires_approval"
    if waits:
        first = calls[0].message.seq
        tx.conversations.put_pending(run.key.agent_id, run.conversation_seq, run_seq=run.key.seq, from_seq=first)
    steps = log.steps
    if steps and steps[-1].status == "pending":
        steps = (*steps[:-1], tx.steps.end(steps[-1], status="cancelled", at=now, stop_reason=action.reason))
    added: list[Message] = []
    if calls and not waits:
        drafts = [
            Draft(
                id=MessageId(inputs.ids.new("message")),
                role="tool",
                parts=(_result_of_open_call(open_call.call, open_call.call.call_id in log.started, action),),
            )
            for open_call in calls
        ]
        added += tx.messages.append(run, drafts, [20] * len(drafts), at=now, step_id=calls[0].message.step_id)
    if run.input_waits:  # it was acknowledged, so it is in the log whatever became of the run
        run, rows = add_waiting_input(tx, run, now=now)
        added += rows
    if run.context and not waits:
        run, rows = add_hook_context(tx, run, inputs)
        added += rows
    log = replace(log, messages=(*log.messages, *added), steps=steps)
    usage = run.usage + log.usage  # what summaries took stands on the run's row already
    run = tx.runs.end(
        run,
        reason=action.reason,
        usage=usage,
        step_count=log.steps_taken,
        failure=action.failure,
        at=now,
    )
    events += [MessageAdded(message.seq, message) for message in added]
    events.append(RunEnded(run.id, action.reason, usage, log.steps_taken, action.failure, log.context_tokens))
    stored = tx.events.add(run.key, events, at=now)
    if run.background:  # after the last event, which keeps the numbers of those that go from being given again
        since = now - timedelta(seconds=inputs.settings.keep_deltas_s)
        tx.events.trim_deltas(run.key, keep=inputs.settings.keep_deltas, since=since)
    return Progress(replace(log, run=run), stored)


def _result_of_open_call(call: ToolCall, started: bool, action: Finish) -> ToolResult:
    """The result of a call that the run leaves open."""
    ended = "the run was cancelled" if action.reason == "cancelled" else f"the run ended ({action.reason})"
    text = f"interrupted: outcome unknown, {ended} while the tool was running" if started else f"not run: {ended}"
    return ToolOutcome(text=text, status="error").result(call)
