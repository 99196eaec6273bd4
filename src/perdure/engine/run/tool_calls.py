"""T6 and T7: tool calls are run and their results stored, each in its own transaction.

A built-in memory tool runs inside the transaction of its result, so its edit happens exactly once. A foreign tool is
recorded as started first; a call that a dead process had started is run again only if the tool is idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from perdure.context.retrieval.expand import Budget
from perdure.context.retrieval.stubs import shown_result
from perdure.context.window.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.errors import Conflict, InvalidArguments, InvalidInput, PerdureError, ToolError
from perdure.core.events import Event, MemoryEdited, MessageAdded, ToolStarted
from perdure.core.ids import MessageId
from perdure.core.messages import Draft, ToolCall, Waits
from perdure.core.models import Models
from perdure.core.ports import CallContext, Ids, TokenCounter
from perdure.core.runs import Run
from perdure.core.tools.arguments import parse_arguments
from perdure.core.tools.spec import Tool, ToolOutcome, ToolSpec
from perdure.domain.blocks.tool_edits import change_blocks
from perdure.domain.tools.calls import MemoryCall
from perdure.engine.approvals.answers import awaited, is_usable, tools_of
from perdure.engine.approvals.approved import changed_since
from perdure.engine.hooks.bus import Fired
from perdure.engine.hooks.points import after_memory_tool, after_tool, before_tool, keep
from perdure.engine.ports import EngineSettings, Ports, window_tokens
from perdure.engine.run.built_in_tools import BUILT_IN_TOOLS
from perdure.engine.run.interrupts import Interrupted, is_cancelled
from perdure.engine.run.leases import holding
from perdure.engine.run.log import OpenCall, RunLog, load_run_log
from perdure.engine.run.progress import Progress
from perdure.engine.run.tool_rules import EDITED, prefilled
from perdure.engine.search.tools import SearchCall, count_use
from perdure.storage.tx import Tx

__all__ = ["call_tools"]

logger = logging.getLogger(__name__)

REFUSED = (ToolError, InvalidInput, Conflict)
"""What a tool says no with: it becomes the call's result, and the model may act on it."""

RESULT_SHARE = 0.1
"""Of the window, what one answer about what is out of view may take; `LEAST_RESULT_TOKENS` of a small one."""
LEAST_RESULT_TOKENS = 500

RESULT_MAX_CHARS = 400_000
"""What is kept of a foreign tool's result. Beyond the tool's own limit the model opens it by its handle."""


async def call_tools(log: RunLog, calls: Sequence[OpenCall], ports: Ports) -> AsyncIterator[Progress]:
    """The progress that each result makes, in the order of the calls but where tools may run at the same time.

    After a cancel request nothing more is started.
    """
    tools, waits = await ports.store.read(_tools, log.run, calls)
    waiting = list(calls)
    while waiting:
        # What comes after a call may depend on it by the agent's rules: then they are run one after the other.
        batch = waiting[:1] if log.rule_scope is not None else _batch(log, waiting, tools, waits)
        del waiting[: len(batch)]
        first, tool = batch[0], tools.get(batch[0].call.name)
        progress = Progress(log)
        if (broken := _violation(log, first, tools) or _missing_approval(log, first, tools, waits)) is not None:
            progress = await _store(log, first, broken, ports)
            yield progress
        else:
            calling = _call_memory if tool is not None and tool.spec.kind == "memory" else _call_foreign
            try:
                async for progress in calling(log, batch, tools, ports):
                    yield progress
            except Interrupted:
                progress = Progress(await ports.store.read(load_run_log, log.run.key))
                yield progress
        if progress.log.run.cancel_requested:
            return
        log = progress.log


def _violation(log: RunLog, open_call: OpenCall, tools: Collection[str]) -> ToolOutcome | None:
    """Why the agent's tool rules don't allow this call now, as its result; None: they do."""
    now = log.rule_state(of=open_call, tools=tools)
    broken = None if now is None else now.violation(open_call.call.name)
    return None if broken is None else ToolOutcome(text=broken, status="error", refused=True)


def _arguments(log: RunLog, open_call: OpenCall, tools: Collection[str]) -> str:
    """What a call is run with: what a person approved, as it was shown or changed; else the model's arguments, or those
    of a rule in their place."""
    if open_call.decision is not None:
        return open_call.arguments
    now = log.rule_state(of=open_call, tools=tools)
    return prefilled(open_call.arguments, None if now is None else now.filled.get(open_call.call.name))


def _batch(
    log: RunLog, waiting: Sequence[OpenCall], tools: Mapping[str, Tool], waits: Mapping[str, Waits]
) -> list[OpenCall]:
    """The first call, and those right after it that may run at the same time."""

    def parallel(open_call: OpenCall) -> bool:
        tool = tools.get(open_call.call.name)
        return (
            tool is not None
            and tool.spec.kind != "memory"
            and tool.spec.parallel
            and _missing_approval(log, open_call, tools, waits) is None
        )

    batch = [waiting[0]]
    if parallel(waiting[0]):
        for open_call in waiting[1:]:
            if not parallel(open_call):
                break
            batch.append(open_call)
    return batch


def _tools(tx: Tx, run: Run, calls: Sequence[OpenCall]) -> tuple[dict[str, Tool], Mapping[str, Waits]]:
    """The tools of a run for these calls, and what calls of them wait for now."""
    tools = tools_of(tx, run, asked={one.call.name for one in calls if one.call.awaits == "approval"})
    return tools, awaited(tools, tx.agents.get(run.key.agent_id).settings)


def _missing_approval(
    log: RunLog, open_call: OpenCall, tools: Mapping[str, Tool], waits: Mapping[str, Waits]
) -> ToolOutcome | None:
    """A call that nobody was asked about although somebody has to be, since its answer was stored, as its result."""
    call = open_call.call
    if call.awaits is not None or call.name not in waits:
        return None
    # What it would be run with, not what the model gave: a rule may make usable what nobody was asked about.
    if not is_usable(tools[call.name].spec, _arguments(log, open_call, tools)):
        return None
    return ToolOutcome(
        text=f"{call.name} now needs somebody's approval: call it again, and it will be asked for",
        status="error",
        refused=True,
    )


async def _tool_change(log: RunLog, open_call: OpenCall, ports: Ports) -> ToolOutcome | None:
    """An approved call whose tool was changed meanwhile, as its result."""
    call = open_call.call
    if call.tool_digest is None:
        return None
    return await ports.store.read(
        lambda tx: changed_since(tx, call, tools_of(tx, log.run, asked=(call.name,)).get(call.name))
    )


async def _call_memory(
    log: RunLog, batch: Sequence[OpenCall], tools: Mapping[str, Tool], ports: Ports
) -> AsyncIterator[Progress]:
    """The one call of the batch. Raises: Interrupted, while a hook is asked."""
    (open_call,) = batch
    call, tool = open_call.call, tools[open_call.call.name]
    if (change := await _tool_change(log, open_call, ports)) is not None:
        yield await _store(log, open_call, change, ports)
        return
    try:
        arguments = parse_arguments(call.name, tool.spec.parameters, _arguments(log, open_call, tools))
        if ports.hooks.wants("before_tool"):
            progress, refusal = await before_tool(log, call, tool, arguments, ports)
            yield progress
            if refusal is not None:
                yield await _store(log, open_call, refusal, ports)
                return
        progress = await _memory_result(log, open_call, arguments, ports)
    except REFUSED as error:
        # The edit's own transaction is gone without a trace; its error is the result.
        refused = isinstance(error, InvalidArguments)
        yield await _store(log, open_call, ToolOutcome(text=str(error), status="error", refused=refused), ports)
        return
    yield progress
    if ports.hooks.wants("after_tool"):
        yield await after_memory_tool(progress.log, call, tool, arguments, ports)


async def _memory_result(log: RunLog, open_call: OpenCall, arguments: Mapping[str, Any], ports: Ports) -> Progress:
    """Raises: what a memory tool says no with."""
    tool = BUILT_IN_TOOLS[open_call.call.name]
    if tool.search is not None:
        outcome = await tool.search(await _search_call(log.run, ports), **arguments)
        return await _store(log, open_call, outcome, ports)
    return await ports.store.write(
        _store_edit,
        log=log,
        open_call=open_call,
        arguments=arguments,
        models=ports.models,
        settings=ports.settings,
        **_now(ports),
    )


async def _search_call(run: Run, ports: Ports) -> SearchCall:
    agent = await ports.store.read(lambda tx: tx.agents.get(run.key.agent_id))
    return SearchCall(
        run=run,
        timezone=agent.timezone,
        now=ports.clock.now(),
        search=ports.search,
        store=ports.store,
        budget=Budget(ports.counter, _result_tokens(agent, ports.models, ports.settings)),
    )


def _result_tokens(agent: Agent, models: Models, settings: EngineSettings) -> int:
    return max(LEAST_RESULT_TOKENS, int(window_tokens(agent, models, settings) * RESULT_SHARE))


def _store_edit(
    tx: Tx,
    *,
    log: RunLog,
    open_call: OpenCall,
    arguments: Mapping[str, Any],
    ids: Ids,
    counter: TokenCounter,
    models: Models,
    settings: EngineSettings,
    now: datetime,
    until: datetime,
) -> Progress:
    """A memory tool's work and its result, together (T7)."""
    run = tx.runs.hold(log.run.key, log.lease, until=until)
    if run.cancel_requested:  # nothing more is done; what is open gets its result with the run's end
        return Progress(load_run_log(tx, run.key))
    agent = tx.agents.get(run.key.agent_id)
    call = MemoryCall(
        agent=agent,
        run=run,
        message_id=open_call.message.id,
        now=now,
        ids=ids,
        counter=counter,
        result_tokens=_result_tokens(agent, models, settings),
        window_tokens=window_tokens(agent, models, settings),
    )
    edit = BUILT_IN_TOOLS[open_call.call.name].edit
    assert edit is not None
    outcome = edit(tx, call, **arguments)
    _show(tx, log, outcome)
    return _store_result(tx, log, open_call, outcome, ids=ids, counter=counter, now=now)


def _show(tx: Tx, log: RunLog, outcome: ToolOutcome) -> None:
    """The result shows each edited block's new value and the lines of each opened file, so this conversation's log has
    seen those versions."""
    if not outcome.edits and not outcome.files:
        return
    agent_id, seq = log.run.key.agent_id, log.run.conversation_seq
    seen = dict(tx.conversations.at(agent_id, seq).seen)
    shown: dict[str, int | None] = {edit.block.id: None if edit.gone else edit.block.version for edit in outcome.edits}
    for key, version in (shown | dict(outcome.files)).items():
        if version is None:
            seen.pop(key, None)
        else:
            seen[key] = version
    tx.conversations.show(agent_id, seq, seen)


async def _call_foreign(
    log: RunLog, batch: Sequence[OpenCall], tools: Mapping[str, Tool], ports: Ports
) -> AsyncIterator[Progress]:
    """The calls of the batch, at the same time. Raises: Interrupted."""
    runnable: list[tuple[OpenCall, Tool, dict[str, Any]]] = []
    for open_call in batch:
        ready = _prepare(log, open_call, tools, ports, change=await _tool_change(log, open_call, ports))
        if not isinstance(ready, ToolOutcome) and ports.hooks.wants("before_tool"):
            noted, refusal = await before_tool(log, open_call.call, *ready, ports)
            log = noted.log
            yield noted
            ready = refusal or await _tool_change(log, open_call, ports) or ready  # a hook may have taken its time
        if isinstance(ready, ToolOutcome):
            refused = await _store(log, open_call, ready, ports)
            log = refused.log
            yield refused
        else:
            runnable.append((open_call, *ready))
    if not runnable:
        return
    progress = await ports.store.write(
        _store_started, log=log, calls=[open_call.call for open_call, _, _ in runnable], **_now(ports)
    )
    yield progress
    if progress.log.run.cancel_requested:
        return
    running = {
        asyncio.ensure_future(_run_hooked(log, open_call.call, tool, arguments, ports)): open_call
        for open_call, tool, arguments in runnable
    }
    try:
        while running and not progress.log.run.cancel_requested:
            async with holding(log.run.key, log.lease, ports):  # only waiting may be interrupted, never storing
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                outcome, fired = task.result()
                if fired is not None:
                    yield await keep(progress.log, fired, ports)
                progress = await _store(log, running.pop(task), outcome, ports)
                yield progress
    finally:
        for task in running:
            task.cancel()


def _prepare(
    log: RunLog, open_call: OpenCall, tools: Mapping[str, Tool], ports: Ports, *, change: ToolOutcome | None
) -> tuple[Tool, dict[str, Any]] | ToolOutcome:
    """Tool and arguments of a call that can be run, or why it can't be."""
    call = open_call.call
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        text = f"there is no tool {call.name!r}; your tools are: {known}"
        return ToolOutcome(text=text, status="error", refused=True)
    if tool.spec.kind == "client":  # one that can be used is the caller's to run
        text = f"the arguments of {call.name} are no JSON object; the tool was not run"
        return ToolOutcome(text=text, status="error", refused=True)
    if (missing := ports.toolbox.missing(tool)) is not None:
        return ToolOutcome(text=missing, status="error")
    if call.call_id in log.started and not tool.spec.idempotent:
        return ToolOutcome(
            text="interrupted: outcome unknown. The process stopped while the tool was running; it was not run again.",
            status="error",
        )
    if change is not None:
        return change
    try:
        return tool, parse_arguments(call.name, tool.spec.parameters, _arguments(log, open_call, tools))
    except ToolError as error:
        return ToolOutcome(text=str(error), status="error", refused=isinstance(error, InvalidArguments))


async def _run_hooked(
    log: RunLog, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], ports: Ports
) -> tuple[ToolOutcome, Fired | None]:
    """What came of it, as hooks leave it; and what they said."""
    outcome = await _run(log, call, tool, arguments, ports)
    if not ports.hooks.wants("after_tool"):
        return outcome, None
    return await after_tool(log, call, tool, arguments, outcome, ports)


async def _run(log: RunLog, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], ports: Ports) -> ToolOutcome:
    spec = tool.spec
    limit_s = _limit_s(spec, ports.settings)
    context = CallContext(
        agent_id=log.run.key.agent_id,
        conversation_id=log.run.conversation_id,
        run_id=log.run.id,
        call_id=call.call_id,
    )
    try:
        async with asyncio.timeout(limit_s) as timeout:
            outcome = await ports.toolbox.call(tool, arguments, context)
    except TimeoutError as error:
        late = f"tool {call.name!r} took more than {limit_s:g} s and was stopped" if limit_s else ""
        return ToolOutcome(text=late if timeout.expired() else f"TimeoutError: {error}", status="error")
    except PerdureError as error:
        return ToolOutcome(text=str(error), status="error")
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        return ToolOutcome(text="the tool gave its own task up", status="error")
    except Exception as error:  # a toolbox answers with outcomes; one that raises must not stop the run
        logger.exception("%s: the tool %s stopped at a defect", log.run.id, call.name)
        return ToolOutcome(text=f"{type(error).__name__}: {error}", status="error")
    return _bounded(outcome, spec.return_limit_chars)


def _bounded(outcome: ToolOutcome, limit: int) -> ToolOutcome:
    """The outcome as it is stored: whole, but for what is beyond all bounds; the model is shown up to `limit`."""
    if len(outcome.text) <= limit:
        return outcome
    size, kept = len(outcome.text), outcome.text[:RESULT_MAX_CHARS]
    if size > len(kept):
        kept = f"{kept}\n[NOTE: the result was cut: it has {size:,} characters, {RESULT_MAX_CHARS:,} were kept]"
    return replace(outcome, text=kept, shown_chars=limit)


def _limit_s(spec: ToolSpec, settings: EngineSettings) -> float | None:
    """How long a call may take, in seconds; None: what runs it sees to that, and knows what it waits for."""
    return None if spec.kind in ("custom", "builtin") else spec.timeout_s or settings.tool_timeout_s


async def _store(log: RunLog, open_call: OpenCall, outcome: ToolOutcome, ports: Ports) -> Progress:
    """The progress of storing what came of a call (T7)."""

    def store(tx: Tx, *, ids: Ids, counter: TokenCounter, now: datetime, until: datetime) -> Progress:
        run = tx.runs.hold(log.run.key, log.lease, until=until)
        count_use(tx, outcome.passages)
        stored = outcome
        if outcome.blocks:
            agent_id = run.key.agent_id
            author = Author(
                kind="agent", id=agent_id, agent_id=agent_id, run_id=run.id, message_id=open_call.message.id
            )
            stored = replace(outcome, edits=change_blocks(tx, agent_id, outcome.blocks, author=author, at=now))
        return _store_result(tx, log, open_call, stored, ids=ids, counter=counter, now=now)

    try:
        return await ports.store.write(store, **_now(ports))
    except REFUSED as error:
        if not outcome.blocks:
            raise
        # Nothing of that transaction holds. The tool has run all the same: its result is kept, with what became of it.
        text = f"{outcome.text}\n[NOTE: the tool ran, but what it changed of your memory was not stored: {error}]"
        return await _store(log, open_call, replace(outcome, text=text, status="error", blocks=()), ports)


def _store_result(
    tx: Tx,
    log: RunLog,
    open_call: OpenCall,
    outcome: ToolOutcome,
    *,
    ids: Ids,
    counter: TokenCounter,
    now: datetime,
) -> Progress:
    call, decision = open_call.call, open_call.decision
    if decision is not None and decision.arguments is not None and not outcome.refused:
        outcome = replace(outcome, text=f"{outcome.text}{EDITED}{decision.arguments}]")
    shown = outcome.text if outcome.shown_chars is None else shown_result(outcome.text, outcome.shown_chars)
    messages = tx.messages.append(
        log.run.key.agent_id,
        [Draft(id=MessageId(ids.new("message")), role="tool", parts=(outcome.result(call),), name=call.name)],
        conversation_seq=log.run.conversation_seq,
        at=now,
        tokens=[counter.count(shown) + MESSAGE_OVERHEAD_TOKENS],
        run=log.run,
        step_id=open_call.message.step_id,
    )
    edits = [MemoryEdited(edit.block.id, edit.block.label, edit.block.version, edit.diff) for edit in outcome.edits]
    events: list[Event] = [*edits, *(MessageAdded(message.seq, message) for message in messages)]
    stored = tx.events.add(log.run.key, events, at=now)
    return Progress(load_run_log(tx, log.run.key), stored)


def _store_started(
    tx: Tx,
    *,
    log: RunLog,
    calls: Sequence[ToolCall],
    ids: Ids,
    counter: TokenCounter,
    now: datetime,
    until: datetime,
) -> Progress:
    """A `started` row for each foreign call (T6)."""
    if tx.runs.hold(log.run.key, log.lease, until=until).cancel_requested:
        return Progress(load_run_log(tx, log.run.key))
    tx.runs.start_calls(log.run.key, [call.call_id for call in calls], lease=log.lease, at=now)
    stored = tx.events.add(log.run.key, [ToolStarted(call.call_id, call.name) for call in calls], at=now)
    return Progress(load_run_log(tx, log.run.key), stored)


def _now(ports: Ports) -> dict[str, Any]:
    now = ports.clock.now()
    return {
        "ids": ports.ids,
        "counter": ports.counter,
        "now": now,
        "until": now + timedelta(seconds=ports.settings.lease_s),
    }
