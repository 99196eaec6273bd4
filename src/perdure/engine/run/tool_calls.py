"""The tool phase: each call is checked, started, executed, and its result stored (T6 and T7).

Every call takes one path: prepare -> before_tool hooks -> start -> execute -> after_tool hooks -> store. Two things
differ by tool. A built-in memory tool executes inside the transaction of its result, so its edit happens exactly once;
hooks hear of it afterwards. A tool that runs outside the store is recorded as started first: a call that a dead process
had started is run again only if the tool is idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.context.sections.expand import Budget
from perdure.context.sections.stubs import cut_outcome
from perdure.core.agents import Agent, GuardSettings
from perdure.core.blocks import Author
from perdure.core.errors import CallRepeated, Conflict, InvalidArguments, InvalidInput, PerdureError, ToolError
from perdure.core.ids import AgentId, MessageId, RunId
from perdure.core.messages import ToolCall, Waits
from perdure.core.ports import CallContext
from perdure.core.runs import Run, RunKey
from perdure.core.specs import Tool, ToolKind, ToolOutcome
from perdure.core.telemetry import ToolWork
from perdure.core.tools.arguments import fit_arguments, parse_arguments
from perdure.domain.provenance.policy import foreign_sources
from perdure.domain.tools.calls import MemoryCall
from perdure.domain.tools.memory_tools import MEMORY_TOOLS, mask_passage
from perdure.engine.approvals.answers import (
    changed_tool_outcome,
    is_usable,
    return_limit_chars,
    tools_of,
    waits_by_tool,
    write_waits,
)
from perdure.engine.hooks import HookOutcome
from perdure.engine.log.interrupts import WaitInterrupted, is_cancelled
from perdure.engine.log.next_action import count_failures, tool_steps
from perdure.engine.log.orders import ORDER, why_not_after_order
from perdure.engine.log.run_log import OpenCall, Progress, RunLog, Tell, load_run_log
from perdure.engine.log.tool_rules import prefill, rule_state, why_not_for_run
from perdure.engine.ports import Ports, UnitInputs, show_result
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.engine.records.leases import holding
from perdure.engine.run.hook_points import after_memory_tool, after_tool, before_tool, store_answers
from perdure.engine.run.tool_results import result_tokens, store_edit, store_outcome, store_started
from perdure.engine.search.tools import SearchCall, search_tools
from perdure.storage.tx import Tx

logger = logging.getLogger(__name__)

REFUSALS = (ToolError, InvalidInput, Conflict)
"""What a memory tool says no with: it becomes the call's result, and the model may act on it."""

_HAVE_LIMITS: tuple[ToolKind, ...] = ("custom", "builtin", "agents", "helpers", "skills")
"""What runs tools of these kinds has limits of time of its own, and knows what it waits for."""

LARGE_CHARS = 20_000
"""Longer texts are masked in a thread, so that nothing waits meanwhile."""
RESULT_MAX_CHARS = 400_000
"""What is kept of a foreign tool's result. Beyond the tool's own limit the model opens it by its handle."""


@dataclass(frozen=True, slots=True)
class ReadyCall:
    """A call that can be executed."""

    open_call: OpenCall
    tool: Tool
    arguments: dict[str, Any]

    @property
    def work(self) -> ToolWork:
        """The execution of the call, for telemetry."""
        call = self.open_call.call
        return ToolWork(kind=self.tool.spec.kind, name=call.name, call_id=call.call_id, arguments=self.arguments)


async def call_tools(log: RunLog, calls: Sequence[OpenCall], ports: Ports, tell: Tell) -> Progress:
    """Execute these calls in their order, but at the same time where tools allow it; each result is stored and
    published as it comes. After a cancel request nothing more is started. Raises: LeaseLost, StoreError."""
    agent, tools, waits = await ports.store.read(_load_tools, log.run, calls)
    phase = _ToolPhase(log, agent, tools, waits, ports, tell)
    waiting = list(calls)
    while waiting and not phase.log.run.cancel_requested:
        batch = phase.next_batch(waiting)
        del waiting[: len(batch)]
        try:
            ready = [one for open_call in batch if (one := await phase.prepare(open_call)) is not None]
            if ready and ready[0].tool.spec.kind == "memory":
                await phase.call_memory_tool(ready[0])
            elif ready:
                await phase.call_foreign_tools(ready)
                if waiting:  # somebody may have changed them meanwhile
                    phase.agent, phase.tools, phase.waits = await ports.store.read(_load_tools, log.run, waiting)
        except WaitInterrupted:
            phase.record(Progress(await ports.store.read(load_run_log, log)))
    return Progress(phase.log)


def _load_tools(tx: Tx, run: Run, calls: Sequence[OpenCall]) -> tuple[Agent, dict[str, Tool], Mapping[str, Waits]]:
    """Load the agent, the tools of its run (name -> tool), and for whom their calls wait (name -> for whom)."""
    tools = tools_of(tx, run, own_names={one.call.name for one in calls if one.call.awaits == "approval"})
    agent = tx.conversations.get_agent(run.key.agent_id, run.conversation_seq)
    called = {one.call.name: tools[one.call.name] for one in calls if one.call.name in tools}
    untrusted = write_waits(tx, run, called, before_seq=max(call.message.seq for call in calls))
    return agent, tools, {**dict.fromkeys(untrusted, "approval"), **waits_by_tool(tools, agent.settings)}


@dataclass(slots=True)
class _ToolPhase:
    """The tool phase of a run: its tools, whom their calls wait for, and its log after each transaction."""

    log: RunLog
    agent: Agent
    tools: Mapping[str, Tool]
    waits: Mapping[str, Waits]
    ports: Ports
    tell: Tell

    def record(self, progress: Progress) -> None:
        """Go on from the log that a transaction left, and publish its events."""
        self.log = progress.log
        self.tell(progress.events)

    def next_batch(self, waiting: Sequence[OpenCall]) -> Sequence[OpenCall]:
        """Return the first call, and those right after it that may run at the same time."""
        count = 0
        if self.log.rule_scope is None:  # else what comes after a call may depend on it
            for open_call in waiting:
                tool = self.tools.get(open_call.call.name)
                if tool is None or tool.spec.kind == "memory" or not tool.spec.parallel:
                    break
                count += 1
        return waiting[: max(1, count)]

    async def prepare(self, open_call: OpenCall) -> ReadyCall | None:
        """Return the call with what it is executed with; None: it can't be run, and the stored result says why."""
        ready = await self._check(open_call)
        if isinstance(ready, ReadyCall) and "before_tool" in self.ports.hooks.points:
            progress, refusal = await before_tool(self.log, open_call.call, ready.tool, ready.arguments, self.ports)
            self.record(progress)
            ready = refusal or await self._tool_change(open_call.call) or ready  # a hook may have taken its time
        if isinstance(ready, ReadyCall):
            return ready
        await self._store(open_call, ready)
        return None

    async def _check(self, open_call: OpenCall) -> ReadyCall | ToolOutcome:
        """Return the tool and arguments of a call that may run now; else its result, which says why not."""
        call, tool = open_call.call, self.tools.get(open_call.call.name)
        rules = None
        if (rule_scope := self.log.rule_scope) is not None:
            rule_scope = replace(rule_scope, tools=frozenset(self.tools))
            rules = rule_state(rule_scope, self.log.past_calls, answer=open_call.message.seq)
        if rules is not None and (violation := rules.violation(call.name)) is not None:
            return _refusal(violation)
        if tool is None:
            names = ", ".join(sorted(self.tools)) or "none"
            what = f"there is no tool {call.name!r}" if call.name else "a call needs the name of a tool"
            return _refusal(f"{what}; your tools are: {names}")
        options = self.log.run.options
        if options.tools is not None and (why := why_not_for_run(options.tools, call.name)) is not None:
            return _refusal(why)
        tail = self.log.steps[-1].recipe.tail if self.log.steps and open_call.decision is None else ""
        if ORDER in tail and (why := why_not_after_order(tail, call.name, self.tools, rules)) is not None:
            return _refusal(why)
        arguments = open_call.arguments
        if rules is not None and open_call.decision is None:  # what a person approved is run as it was shown
            arguments = prefill(arguments, rules.arguments.get(call.name))
        if call.awaits is None and call.name in self.waits and is_usable(tool.spec, arguments):
            return _refusal(f"{call.name} now needs somebody's approval: call it again, and it will be asked for")
        if tool.spec.kind == "client":  # one that can be used is the caller's to run
            return _refusal(f"the arguments of {call.name} are not a JSON object; the tool was not run")
        guards = GuardSettings.from_settings(self.agent.settings, self.log.run.options)
        if guards.failed_repeats and open_call.decision is None:
            times = count_failures(tool_steps(self.log.messages), call)
            if times >= guards.failed_repeats:
                return _refusal(str(CallRepeated(call.name, times=times)))
        if tool.spec.kind != "memory" and (missing := self.ports.toolbox.missing(tool)) is not None:
            return ToolOutcome(text=missing, status="error")
        if call.call_id in self.log.started and not tool.spec.idempotent:
            return ToolOutcome(
                text="interrupted: outcome unknown. The process stopped while the tool was running; it was not run"
                " again.",
                status="error",
            )
        if call.tool_digest is not None and (change := await self._tool_change(call)) is not None:
            return change
        try:
            return ReadyCall(open_call, tool, parse_arguments(call.name, tool.spec.parameters, arguments))
        except REFUSALS as error:
            return error_outcome(call.name, error)

    async def _tool_change(self, call: ToolCall) -> ToolOutcome | None:
        """An error result for an approved call whose tool was changed since approval was asked for; else None."""
        return await self.ports.store.read(
            lambda tx: changed_tool_outcome(tx, call, tools_of(tx, self.log.run, own_names=(call.name,)).get(call.name))
        )

    async def call_memory_tool(self, ready: ReadyCall) -> None:
        """Execute a built-in tool of the engine. Raises: WaitInterrupted, while a hook is called."""
        ports, call, inputs = self.ports, ready.open_call.call, self.ports.inputs()
        edit, arguments = MEMORY_TOOLS.get(call.name), ready.arguments
        with ports.telemetry.during(work := ready.work):
            try:
                if edit is not None:
                    if call.name == "archival_memory_insert":
                        if len(call.arguments) > LARGE_CHARS:
                            arguments = await asyncio.to_thread(mask_passage, **arguments)
                        else:
                            arguments = mask_passage(**arguments)
                    progress = await ports.store.write(
                        store_edit, self.log, ready.open_call, inputs, edit=edit, arguments=arguments
                    )
                    self.record(progress)
                else:
                    search_call = _search_call(self.log.run, self.agent, inputs, ports)
                    work.outcome = await search_tools()[call.name](search_call, **ready.arguments)
                    await self._store(ready.open_call, work.outcome)
            except REFUSALS as error:
                # The edit's own transaction is gone without a trace; its error is the result.
                work.outcome = error_outcome(call.name, error)
                await self._store(ready.open_call, work.outcome)
                return
        was_stopped = edit is not None and self.log.run.cancel_requested  # then nothing was done
        if "after_tool" in ports.hooks.points and not was_stopped:
            self.record(await after_memory_tool(self.log, call, ready.tool, ready.arguments, ports))

    async def call_foreign_tools(self, calls: Sequence[ReadyCall]) -> None:
        """Execute tools that run outside the store, at the same time. Raises: WaitInterrupted."""
        started = [ready.open_call.call for ready in calls]
        self.record(await self.ports.store.write(store_started, self.log, started, self.ports.inputs()))
        if self.log.run.cancel_requested:
            return
        log = self.log
        running = {asyncio.ensure_future(_execute(log, ready, self.ports)): ready for ready in calls}
        try:
            while running and not self.log.run.cancel_requested:
                async with holding(log.run, self.ports):  # only waiting is interrupted, never storing
                    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    outcome, answers = task.result()
                    if answers is not None:
                        self.record(await store_answers(self.log, answers, self.ports))
                    ready = running.pop(task)
                    name, limit = ready.tool.spec.name, ready.tool.spec.return_limit_chars
                    # Of the whole text, of which less may be stored: the error may stand in the middle.
                    room = min(limit, return_limit_chars(self.agent, self.ports.inputs()))
                    outcome = await show_result(outcome, name, self.agent.settings, room, self.ports)
                    if len(outcome.text) > limit and outcome.shown_chars is None:
                        outcome = replace(cut_outcome(outcome, outcome.text, RESULT_MAX_CHARS), shown_chars=limit)
                    outcome = replace(outcome, sources=foreign_sources(ready.tool, ready.arguments, outcome))
                    await self._store(ready.open_call, outcome)
        finally:
            for task in running:
                task.cancel()

    async def _store(self, open_call: OpenCall, outcome: ToolOutcome) -> None:
        """Store the result of a call (T7)."""
        store, inputs = self.ports.store, self.ports.inputs()
        try:
            progress = await store.write(store_outcome, self.log, open_call, outcome, inputs)
        except REFUSALS as error:
            if not outcome.blocks:
                raise
            # Nothing of that transaction holds. The tool has run all the same: its result is kept, with the error.
            text = f"{outcome.text}\n[NOTE: the tool ran, but what it changed of your memory was not stored: {error}]"
            outcome = replace(outcome, text=text, status="error", blocks=(), shown_text=None)
            progress = await store.write(store_outcome, self.log, open_call, outcome, inputs)
        self.record(progress)


def _search_call(run: Run, agent: Agent, inputs: UnitInputs, ports: Ports) -> SearchCall:
    """Return what a searching tool is called with."""
    return SearchCall(
        run=run,
        timezone=agent.timezone,
        now=inputs.now,
        search=ports.search,
        store=ports.store,
        budget=Budget(ports.counter, result_tokens(inputs.window(agent)[0])),
    )


async def _execute(log: RunLog, ready: ReadyCall, ports: Ports) -> tuple[ToolOutcome, HookOutcome | None]:
    """Call a foreign tool and the hooks after it; return the outcome, and the hooks' answers or None."""
    with ports.telemetry.during(work := ready.work):
        outcome = work.outcome = await _call_toolbox(log, ready, ports)
    if "after_tool" not in ports.hooks.points:
        return outcome, None
    return await after_tool(log, ready.open_call.call, ready.tool, ready.arguments, outcome, ports)


async def _call_toolbox(log: RunLog, ready: ReadyCall, ports: Ports) -> ToolOutcome:
    """Call a foreign tool within its time limit; return its outcome. Never raises for what the tool does."""
    call, spec = ready.open_call.call, ready.tool.spec
    limit_s = None if spec.kind in _HAVE_LIMITS else spec.timeout_s or ports.settings.tool_timeout_s
    context = CallContext(
        agent_id=log.run.key.agent_id, conversation_id=log.run.conversation_id, run_id=log.run.id, call_id=call.call_id
    )
    try:
        async with asyncio.timeout(limit_s) as timeout:
            outcome = await ports.toolbox.call(ready.tool, ready.arguments, context)
    except TimeoutError as error:
        late = f"tool {call.name!r} took more than {limit_s:g} s and was stopped" if limit_s else ""
        return ToolOutcome.failure(call.name, late if timeout.expired() else f"TimeoutError: {error}")
    except PerdureError as error:
        return ToolOutcome.failure(call.name, str(error))
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        return ToolOutcome.failure(call.name, "the tool gave its own task up")
    except Exception as error:  # a toolbox answers with outcomes; one that raises must not stop the run
        logger.exception("%s: the tool %s stopped at a defect", log.run.id, call.name)
        return ToolOutcome.failure(call.name, f"{type(error).__name__}: {error}")
    return outcome


def _refusal(text: str) -> ToolOutcome:
    """Return the result of a call that is not executed."""
    return ToolOutcome(text=text, status="error", refused=True)


def error_outcome(name: str, error: PerdureError) -> ToolOutcome:
    """Return the result of a call that a tool refused with this error."""
    return _refusal(str(error)) if isinstance(error, InvalidArguments) else ToolOutcome.failure(name, str(error))


async def call_by_hand(
    tool: Tool, arguments: Mapping[str, Any], agent_id: AgentId, ports: Ports, *, author: Author
) -> ToolOutcome:
    """Call a memory tool for this agent, in its first conversation, and return its outcome. What the tool edits, the
    agent reads with its next message. `author`: the person who calls it. Raises: NotFound, StoreError."""
    name, inputs = tool.spec.name, ports.inputs()
    try:
        fitted = fit_arguments(name, tool.spec.parameters, arguments)
        if name in MEMORY_TOOLS:
            return await ports.store.write(_edit, name, fitted, agent_id, inputs, author)
        agent, run = await ports.store.read(_load, agent_id, inputs)
        return await search_tools()[name](_search_call(run, agent, inputs, ports), **fitted)
    except REFUSALS as error:
        return error_outcome(name, error)


def _load(tx: Tx, agent_id: AgentId, inputs: UnitInputs) -> tuple[Agent, Run]:
    """Return the agent, and a run made up for the call, which is not stored."""
    run = Run(
        id=RunId(""),
        key=RunKey(agent_id, -1),
        conversation_seq=0,
        conversation_id=tx.conversations.get_by_seq(agent_id, 0).id,
        status="running",
        created_at=inputs.now,
    )
    return tx.agents.get(agent_id), run


def _edit(
    tx: Tx, name: str, arguments: Mapping[str, Any], agent_id: AgentId, inputs: UnitInputs, author: Author
) -> ToolOutcome:
    """Run a tool that edits memory or reads the log. Raises: REFUSALS."""
    agent, run = _load(tx, agent_id, inputs)
    window, _ = inputs.window(agent)
    call = MemoryCall(
        agent=agent,
        run=run,
        message_id=MessageId(""),
        now=inputs.now,
        ids=inputs.ids,
        counter=inputs.counter,
        result_tokens=result_tokens(window),
        window_tokens=window,
        person=author,
    )
    outcome = MEMORY_TOOLS[name](tx, call, **arguments)
    if outcome.edits:
        renew_system_message(tx, agent_id, 0, inputs)
    return outcome
