"""The points where a run calls its hooks: what each point tells them, and what their answers change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core import hooks
from perdure.core.errors import HookBlocked
from perdure.core.events import StoredEvent
from perdure.core.ids import ConversationId
from perdure.core.messages import ToolCall, text_of
from perdure.core.models import ModelReply
from perdure.core.runs import Failure, Step
from perdure.core.specs import Tool, ToolOutcome
from perdure.engine.hooks import HookOutcome
from perdure.engine.log.interrupts import WaitInterrupted
from perdure.engine.log.next_action import EndRun, MakeRequest, next_action, step_line, tool_steps
from perdure.engine.log.run_log import Progress, RunLog, load_run_log, run_log_of
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.records.leases import holding
from perdure.engine.records.rows import end_run, engine_drafts, find_known
from perdure.engine.records.run_request import RunRequest
from perdure.storage.tx import Tx


async def at_run_start(request: RunRequest, ports: Ports) -> RunRequest:
    """Call the hooks before a request is accepted; return it with the messages that they add behind the caller's.
    Raises: HookBlocked: it is refused; NotFound."""

    def load(tx: Tx) -> tuple[ConversationId, bool, bool]:
        """Return the conversation's id, whether it is new, and whether the request was accepted before."""
        conversation = tx.conversations.get_by_seq(request.agent_id, request.conversation_seq)
        known = find_known(tx, request, now=ports.clock.now())
        return conversation.id, conversation.last_message_at is None, known is not None

    conversation_id, is_first, is_repeated = await ports.store.read(load)
    if is_repeated:  # hooks were called when it was accepted
        return request
    about: dict[str, Any] = {"agent_id": request.agent_id, "conversation_id": conversation_id, "run_id": request.run_id}
    messages = tuple(hooks.HookMessage(draft.role, text_of(draft.parts)) for draft in request.drafts)
    payloads: list[hooks.HookPayload] = [hooks.ConversationStart(**about)] if is_first else []
    payloads.append(hooks.RunStart(**about, messages=messages, background=request.background))
    added: list[str] = []
    for payload in payloads:
        answers = await ports.hooks.fire(payload)
        if answers.blocked is not None:
            raise answers.blocked
        added += answers.context
    if not added:
        return request
    drafts, tokens = engine_drafts("hook", added, ports.inputs())
    return replace(request, drafts=(*request.drafts, *drafts), tokens=(*request.tokens, *tokens))


async def before_request(log: RunLog, ports: Ports) -> Progress:
    """Run the hooks before a model call; return the new log, ended if one blocks. Raises: LeaseLost, StoreError."""
    told: Sequence[StoredEvent] = ()
    try:
        if "next_prompt" in ports.hooks.points:
            steps = tuple(step_line(step) for step in tool_steps(log.messages))
            payload = hooks.NextPrompt(**_run_fields(log), step=log.steps_taken, recent_steps=steps)
            progress = await store_answers(log, await _fire(log, payload, ports), ports)
            log, told = progress.log, progress.events
        if "before_model" not in ports.hooks.points:
            return Progress(log, told)
        progress = await _before_model(log, ports)
    except WaitInterrupted:
        return Progress(await ports.store.read(load_run_log, log), told)
    return replace(progress, events=(*told, *progress.events))


async def _before_model(log: RunLog, ports: Ports) -> Progress:
    """Run the hooks of `before_model`; see `before_request`. Raises: WaitInterrupted, LeaseLost, StoreError."""
    line = log.run.key.agent_id, log.run.conversation_seq
    model = (await ports.store.read(lambda tx: tx.conversations.get_agent(*line))).model
    answered = max((message.seq for message in log.messages if message.role == "assistant"), default=-1)
    new = tuple(
        hooks.HookMessage(message.role, message.text)
        for message in log.messages
        if message.seq > answered and message.kind == "message"
    )
    answers = await _fire(log, hooks.BeforeModel(**_run_fields(log), model=model, step=log.steps_taken, new=new), ports)
    if answers.blocked is None:
        return await store_answers(log, answers, ports)
    return await ports.store.write(_end_run, log, answers, str(answers.blocked), ports.inputs())


async def after_model(log: RunLog, step: Step, reply: ModelReply, ports: Ports) -> HookOutcome:
    """Call the hooks about the model's answer, before it is stored. Raises: WaitInterrupted, LeaseLost, StoreError."""
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    return await _fire(
        log,
        hooks.AfterModel(
            **_run_fields(log),
            model=step.model,
            step=step.index,
            text=text_of(reply.parts),
            tool_calls=tuple(
                {"call_id": call.call_id, "name": call.name, "arguments": call.arguments} for call in calls
            ),
            stop_reason=reply.stop_reason,
            input_tokens=reply.usage.input_tokens,
            output_tokens=reply.usage.output_tokens,
        ),
        ports,
    )


async def before_tool(
    log: RunLog, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], ports: Ports
) -> tuple[Progress, ToolOutcome | None]:
    """Call the hooks before a tool; return the log, and a result if one blocks. Raises: as `before_compaction`."""
    payload = hooks.BeforeTool(**_run_fields(log), **_call_fields(call, tool), arguments=arguments)
    answers = await _fire(log, payload, ports)
    return await store_answers(log, answers, ports), None if answers.blocked is None else _refusal(
        f"{answers.blocked}. The tool was not run."
    )


async def after_tool(
    log: RunLog, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], outcome: ToolOutcome, ports: Ports
) -> tuple[ToolOutcome, HookOutcome]:
    """Call the hooks after a tool; return the outcome as the model sees it, and their answers. The lease is held."""
    answers = await ports.hooks.fire(_after_tool_payload(log, call, tool, arguments, outcome.status, outcome.text))
    if answers.blocked is None:
        return outcome, answers
    return _refusal(f"{answers.blocked}. The tool was run; its result is withheld."), answers


async def after_memory_tool(
    log: RunLog, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], ports: Ports
) -> Progress:
    """Call the hooks after a memory tool, when its result is stored. Raises: WaitInterrupted, LeaseLost, StoreError."""
    result = log.messages[-1].results[-1]
    answers = await _fire(log, _after_tool_payload(log, call, tool, arguments, result.status, result.text), ports)
    return await store_answers(log, answers, ports)


def _after_tool_payload(
    log: RunLog, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], status: str, result: str
) -> hooks.AfterTool:
    """Build what hooks get after a tool: the status and text of its result."""
    return hooks.AfterTool(
        **_run_fields(log), **_call_fields(call, tool), arguments=arguments, status=status, result=result
    )


async def before_compaction(log: RunLog, *, by: str, budget_tokens: int, ports: Ports) -> Progress:
    """Call the hooks before a compaction; a refusal ends the run. Raises: WaitInterrupted, LeaseLost, StoreError."""
    payload = hooks.BeforeCompaction(**_run_fields(log), by=by, budget_tokens=budget_tokens)
    answers = await _fire(log, payload, ports)
    if answers.blocked is None:
        return await store_answers(log, answers, ports)
    why = (
        f"{answers.blocked}. The next request does not fit the {budget_tokens:,} tokens of its window, and nothing may"
        " leave it: begin another conversation, reset this one, or give the agent a larger window"
    )
    return await ports.store.write(_end_run, log, answers, why, ports.inputs())


async def after_compaction(log: RunLog, *, by: str, ports: Ports) -> Progress:
    """Call the hooks after a compaction. Raises: WaitInterrupted, LeaseLost, StoreError."""
    return await store_answers(log, await _fire(log, hooks.AfterCompaction(**_run_fields(log), by=by), ports), ports)


async def at_run_end(log: RunLog, ports: Ports, *, finish: EndRun | None = None) -> Progress:
    """Call the hooks at the end of a run: one that is about to end with `finish`, or with None one that has ended."""
    failure = log.run.failure if finish is None else finish.failure
    texts = [message.text for message in log.messages if message.role == "assistant" and message.text]
    reason = finish.reason if finish is not None else log.run.stop_reason or "error"
    payload = hooks.RunEnd(
        **_run_fields(log),
        stop_reason=reason,
        text="\n".join(texts),
        error=None if failure is None else failure.message,
    )
    if finish is None:
        await ports.hooks.fire(payload)  # logged where it fails; the run's events are over
        return Progress(log)
    try:
        answers = await _fire(log, payload, ports)
    except WaitInterrupted:
        return Progress(log)
    return await store_answers(log, answers, ports)


async def store_answers(log: RunLog, answers: HookOutcome, ports: Ports) -> Progress:
    """Store the events of hooks' answers, and context for the next request. Raises: LeaseLost, StoreError."""
    if not answers.events:
        return Progress(log)
    return await ports.store.write(_store, log, answers, now=ports.clock.now())


def _store(tx: Tx, log: RunLog, answers: HookOutcome, *, now: datetime) -> Progress:
    """Store the answers of hooks in the transaction: their events, and their context on the run's row."""
    run = tx.runs.keep_lease(log.run)
    if answers.context:
        run = tx.runs.set_context(run, (*run.context, *answers.context))
    return Progress(replace(log, run=run), tx.events.add(run.key, answers.events, at=now))


def _end_run(tx: Tx, log: RunLog, answers: HookOutcome, why: str, inputs: UnitInputs) -> Progress:
    """End a run that a hook has blocked, unless it has something else to do by now. `why`: the failure's message."""
    log = run_log_of(tx, tx.runs.keep_lease(log.run))
    if not isinstance(next_action(log), MakeRequest):
        return Progress(log, tx.events.add(log.run.key, answers.events, at=inputs.now))
    end = EndRun("error", Failure(kind=HookBlocked.code, message=why))
    return end_run(tx, log, end, [*answers.events], inputs)


async def _fire(log: RunLog, payload: hooks.HookPayload, ports: Ports) -> HookOutcome:
    """Call the hooks of a point while the lease is held. Raises: WaitInterrupted, LeaseLost."""
    async with holding(log.run, ports):
        return await ports.hooks.fire(payload)


def _run_fields(log: RunLog) -> dict[str, Any]:
    """Return the fields that every payload of a run has."""
    run = log.run
    return {"agent_id": run.key.agent_id, "conversation_id": run.conversation_id, "run_id": run.id}


def _call_fields(call: ToolCall, tool: Tool) -> dict[str, Any]:
    """Return the fields that every payload about a call has."""
    return {"call_id": call.call_id, "tool": call.name, "kind": tool.spec.kind}


def _refusal(text: str) -> ToolOutcome:
    """Return the outcome of a call whose tool or result a hook blocks."""
    return ToolOutcome(text=text, status="error")
