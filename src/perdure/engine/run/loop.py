"""The loop: a run, from where its log stands to a stop reason.

T8: a request would not fit, so something leaves its view: what the plan says, in one transaction. A model writes the
summary first, outside the transaction. After a kill the same plan is made again from the log, since nothing of an
unfinished one is stored.
"""

from __future__ import annotations

from dataclasses import replace

from perdure.context.sections.stubs import row_tokens
from perdure.context.window.plan import Evict, Merge, Stub
from perdure.core.conversations import CompactionSettings, Conversation
from perdure.core.errors import LeaseLost, NotFound
from perdure.core.events import Event, MessageAdded, PrefixRewritten, RowsCut, ViewCompacted
from perdure.core.hooks import BEFORE_REQUESTS
from perdure.core.nodes import message_handle
from perdure.core.runs import PrefixChange
from perdure.core.telemetry import CompactionDone, RunWork, current_run
from perdure.domain.values import is_there
from perdure.engine.budget import count_use
from perdure.engine.compaction.compact_view import compact_view
from perdure.engine.compaction.engine_turns import ask_engine
from perdure.engine.compaction.summarise import Summary, SummaryTask, engine_summary, summarise
from perdure.engine.estimates import dropped_rows
from perdure.engine.log.interrupts import WaitInterrupted
from perdure.engine.log.next_action import CallModel, CallTools, EndRun, MakeRequest, RunDone, next_action
from perdure.engine.log.run_log import Progress, RoomPlan, RunLog, Tell, load_run_log
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.reading import ModelInput
from perdure.engine.records.rows import finish
from perdure.engine.run.hook_points import after_compaction, at_run_end, before_compaction, before_request
from perdure.engine.run.model_call import call_model
from perdure.engine.run.request import load_request, record_request
from perdure.engine.run.tool_calls import call_tools
from perdure.storage.tx import Tx


async def run(progress: Progress, ports: Ports, tell: Tell) -> RunLog:
    """Take a claimed run to its end, one committed action at a time, and return its log.

    Each round asks `next_action` what to do and does it. Its transaction returns the new log, which the next round
    reads. A streamed run, a plain run and a run continued after a crash take this same path.

    Args:
        tell: receives events, each only after its commit, and deltas, which are previews.
    Raises: LeaseLost: another process has taken the run, or it was deleted with its agent; StoreError; RunReleased:
    this
        process is about to end, and the run stands between two steps.
    """
    run = progress.log.run
    work, named = RunWork(run=run), current_run.set(run)
    try:
        with ports.telemetry.during(work):
            log = await _run(progress, ports, tell)
            work.stop_reason, work.steps, work.usage = log.run.stop_reason or "", log.run.step_count, log.run.usage
            work.error = log.run.failure.kind if log.run.failure is not None else ""
            return log
    except NotFound as error:
        if await ports.store.read(lambda tx: is_there(tx.runs.get_by_key, run.key)):
            raise
        raise LeaseLost(f"{run.id} was deleted") from error
    finally:
        current_run.reset(named)


async def _run(progress: Progress, ports: Ports, tell: Tell) -> RunLog:
    """Take a claimed run to its end, see `run`. Raises: NotFound: what it needs; LeaseLost, StoreError, RunReleased."""
    tell(progress.events)
    hooks = ports.hooks
    end_hooked = False
    hooked_step = -1  # these hooks fire once for each step, even if the step is planned again after room was made
    while True:
        log = progress.log
        match next_action(log):
            case RunDone():
                ports.views.extend(log)
                if not end_hooked and "run_end" in hooks.points:
                    await at_run_end(log, ports)
                return log
            case EndRun() as action:
                if not end_hooked and "run_end" in hooks.points:
                    end_hooked, progress = True, await at_run_end(log, ports, finish=action)
                else:
                    progress = await finish(log, ports)
            case MakeRequest():
                ports.drain.check()
                if progress.question is not None:
                    progress = await ask_engine(progress.question, ports)
                elif progress.room is not None:
                    progress = await make_room(progress.room, ports)
                elif len(log.steps) != hooked_step and hooks.points & BEFORE_REQUESTS:
                    hooked_step, progress = len(log.steps), await before_request(log, ports)
                else:
                    progress = await record_request(log, ports, progress.no_plan)
            case CallModel(step):
                request = progress.request or await load_request(log, step, ports)
                progress = await call_model(log, request, step, ports, tell)
            case CallTools(calls):
                progress = await call_tools(log, calls, ports, tell)
        tell(progress.events)


async def make_room(room: RoomPlan, ports: Ports) -> Progress:
    """Carry out the plan, with the hooks before and after. Raises: LeaseLost, StoreError."""
    try:
        if not ports.hooks.points & {"before_compaction", "after_compaction"}:
            return await _make_room(room, ports)
        by = type(room.plan).__name__.lower()
        before = await before_compaction(room.log, by=by, budget_tokens=room.budget_tokens, ports=ports)
        if before.log.run.ended:
            return before
        compacted = await _make_room(room, ports)
        after = await after_compaction(compacted.log, by=by, ports=ports)
    except WaitInterrupted:
        return Progress(await ports.store.read(load_run_log, room.log))
    return Progress(after.log, (*before.events, *compacted.events, *after.events))


async def _make_room(room: RoomPlan, ports: Ports) -> Progress:
    """Carry out the plan: have a summary written if one is needed, and store both. Raises: WaitInterrupted."""
    plan = room.plan
    summary: Summary | None = None
    task = SummaryTask(
        agent=room.agent,
        settings=CompactionSettings.of(room.agent),
        nodes=room.nodes,
        budget_tokens=room.budget_tokens,
        view=room.view,
        overcount=room.conversation.overcount,
        run=room.log.run,
    )
    if isinstance(plan, (Evict, Merge)) and plan.text is not None:
        summary = engine_summary(plan, plan.text, ports.counter)
    elif (isinstance(plan, Merge) or (isinstance(plan, Evict) and plan.atoms)) and not plan.prepared:
        summary = await summarise(task, plan, ports)
    reading = None if summary is None or isinstance(plan, Stub) else task.reading(room.conversation.seq, plan)
    progress = await ports.store.write(_store_plan, room, summary, reading, ports.inputs())
    for stored in progress.events:
        if isinstance(stored.event, ViewCompacted):
            ports.telemetry.count(CompactionDone(stored.event.method))
        elif isinstance(stored.event, RowsCut):
            ports.telemetry.count(CompactionDone("cut"))
    return progress


def _store_plan(
    tx: Tx, room: RoomPlan, summary: Summary | None, reading: ModelInput | None, inputs: UnitInputs
) -> Progress:
    """Store what the plan says, if the conversation and what the summary was made of (`reading`) have not changed."""
    log = replace(room.log, run=tx.runs.keep_lease(room.log.run, until=inputs.until))
    tx.agents.lock(room.agent.id)  # summaries of this conversation are prepared in the background, too
    conversation = tx.conversations.get_by_seq(room.agent.id, room.conversation.seq)
    planned = (room.view.prefix.seq, room.conversation.stubs, room.agent.settings_revision)
    now = (conversation.prefix_seq, conversation.stubs, tx.agents.get(room.agent.id).settings_revision)
    is_same = now == planned and (reading is None or reading.holds(tx))
    if not is_same or not isinstance(next_action(log), MakeRequest):
        return Progress(load_run_log(tx, room.log))
    if isinstance(room.plan, Stub):
        events = _store_stub(tx, room, room.plan, conversation, inputs)
    else:
        events = _store_removal(tx, replace(room, conversation=conversation), room.plan, summary, inputs)
    stored = tx.events.add(room.log.run.key, events, at=inputs.now)
    return Progress(load_run_log(tx, room.log), stored)


def _store_removal(
    tx: Tx, room: RoomPlan, removal: Evict | Merge, summary: Summary | None, inputs: UnitInputs
) -> list[Event]:
    """Take messages or nodes out of the view, behind a summary node; return the events that tell of it."""
    log = room.log
    compaction = compact_view(
        tx,
        room,
        removal,
        summary,
        inputs,
        run=log.run,
        trigger="context_window_exceeded" if log.overflows else "post_step_context_check",
        reason=room.reason,
    )
    events: list[Event] = []
    for node in compaction.nodes:  # a prepared one is paid for by the run that takes it
        tx.runs.spend(log.run.key, node.usage)
        count_use(tx, room.agent, log.run.options, node.model or "", node.usage, inputs)
    events += [
        ViewCompacted(
            node.seq,
            node.from_message_seq,
            node.upto_message_seq,
            isinstance(removal, Merge),
            node.made_by,
            compaction.tokens
            if len(compaction.nodes) == 1
            else sum(row.tokens for row in room.view.rows if node.from_message_seq <= row.seq <= node.upto_message_seq),
            node.tokens,
            node.rejected,
            node.method,
        )
        for node in compaction.nodes
    ]
    if (note := compaction.note) is not None:
        events.append(MessageAdded(note.seq, note))
    return [*events, PrefixRewritten(compaction.prefix.seq, compaction.prefix.reason)]


def _store_stub(tx: Tx, room: RoomPlan, stub: Stub, conversation: Conversation, inputs: UnitInputs) -> list[Event]:
    """Cut how much of some rows is shown from now on, and return the events about it. If a model has seen more of them,
    the prefix gets a new number, to tell requests before and after the cut apart."""
    counter, view = inputs.counter, room.view
    changed = {seq: chars for seq, chars in stub.stubs.items() if conversation.stubs.get(seq) != chars}
    events: list[Event] = [RowsCut(changed)]
    if stub.sent:
        cut = tuple(PrefixChange("message", message_handle(seq), "cut") for seq in sorted(changed))
        prefix = tx.prefixes.add(replace(view.prefix, reason="window", changes=cut, created_at=inputs.now))
        tx.conversations.put_seen_versions(room.agent.id, conversation.seq, conversation.seen, prefix=prefix)
        events.append(PrefixRewritten(prefix.seq, prefix.reason))
    rows = (*view.pinned, *view.rows)
    cut_rows = [message for message in rows if message.seq in changed]
    estimated = view.prefix.tokens + conversation.view_tokens
    tx.conversations.put_view(
        conversation.agent_id,
        conversation.seq,
        view_tokens=sum(row_tokens(message, stub.stubs, counter) for message in rows),
        stubs=stub.stubs,
        # What is shown of them now was measured with the rest of them, so it counts as new.
        overcount=dropped_rows(conversation.overcount, cut_rows, conversation.stubs, counter, estimated=estimated),
    )
    return events
