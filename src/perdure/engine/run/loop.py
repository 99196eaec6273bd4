"""The loop: a run, from where its log stands to a stop reason."""

from __future__ import annotations

from perdure.core.errors import LeaseLost, NotFound
from perdure.core.runs import Run
from perdure.core.telemetry.port import RunWork, current_run
from perdure.engine.compaction.compact_view import make_room
from perdure.engine.context_engines.turns import ask_engine
from perdure.engine.hooks.points import at_run_end, before_model
from perdure.engine.ports import Ports
from perdure.engine.run.log import Progress, RunLog, Tell
from perdure.engine.run.model_call import call_model
from perdure.engine.run.next_action import CallModel, CallTools, Done, Finish, MakeRequest, next_action
from perdure.engine.run.request import load_request, record_request
from perdure.engine.run.rows import finish
from perdure.engine.run.tool_calls import call_tools
from perdure.storage.tx import Tx


async def run(progress: Progress, ports: Ports, tell: Tell) -> RunLog:
    """Take a claimed run to its end, one committed action at a time, and return its log.

    Each round asks `next_action` what to do and does it. Its transaction returns the new log, which the next round
    reads. A streamed run, a plain run and a run continued after a crash take this same path.

    Args:
        tell: receives events, each only after its commit, and deltas, which are previews.
    Raises: LeaseLost: another process has taken the run, or it was deleted with its agent; StoreError; GivenBack: this
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
        if await ports.store.read(_is_there, run):
            raise
        raise LeaseLost(f"{run.id} was deleted") from error
    finally:
        current_run.reset(named)


async def _run(progress: Progress, ports: Ports, tell: Tell) -> RunLog:
    """The same. Raises: NotFound: the run, or what it needs, was deleted; LeaseLost, StoreError."""
    tell(progress.events)
    hooks = ports.hooks
    end_hooked = False
    hooked_step = -1  # `before_model` fires once for each step, even if the step is planned again after room was made
    while True:
        log = progress.log
        match next_action(log):
            case Done():
                ports.views.extend(log)
                if not end_hooked and "run_end" in hooks.points:
                    await at_run_end(log, ports)
                return log
            case Finish() as action:
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
                elif len(log.steps) != hooked_step and "before_model" in hooks.points:
                    hooked_step, progress = len(log.steps), await before_model(log, ports)
                else:
                    progress = await record_request(log, ports, progress.no_plan)
            case CallModel(step):
                request = progress.request or await load_request(log, step, ports)
                progress = await call_model(log, request, step, ports, tell)
            case CallTools(calls):
                progress = await call_tools(log, calls, ports, tell)
        tell(progress.events)


def _is_there(tx: Tx, run: Run) -> bool:
    """Whether the run was not deleted."""
    try:
        tx.runs.get_by_key(run.key)
    except NotFound:
        return False
    return True
