"""The loop: a run, from where its log stands to a stop reason."""

from __future__ import annotations

from perdure.engine.compaction.make_room import make_room
from perdure.engine.hooks.points import at_run_end, before_model
from perdure.engine.ports import Ports
from perdure.engine.run.finish import finish
from perdure.engine.run.hub import Tell
from perdure.engine.run.log import Progress
from perdure.engine.run.model_call import call_model
from perdure.engine.run.next_action import Ask, CallModel, CallTools, Done, Finish, next_action
from perdure.engine.run.request import Asked, Full
from perdure.engine.run.tool_calls import call_tools
from perdure.engine.run.views import Views

__all__ = ["run"]


async def run(progress: Progress, ports: Ports, views: Views, tell: Tell) -> None:
    """Take a claimed run to its end, one committed action at a time.

    Each round asks what comes next and carries it out; what it did comes back as the log that the transaction left.
    Streaming, not streaming and after a crash are the same code. Events were committed before they are told; deltas are
    previews.

    Raises: LeaseLost: another process has taken the run; StoreError.
    """
    tell(progress.events)
    hooks = ports.hooks
    told_end = False
    asked_hooks = (
        -1
    )  # the number of steps when hooks were told of the next one: once, however often room has to be made
    while True:
        log = progress.log
        match next_action(log):
            case Done():
                views.learn(log)
                if not told_end and hooks.wants("run_end"):
                    await at_run_end(log, ports)
                return
            case Finish() as action:
                if not told_end and hooks.wants("run_end"):
                    told_end, progress = True, await at_run_end(log, ports, finish=action)
                else:
                    progress = await finish(log, ports)
            case Ask():
                if isinstance(progress, Full):
                    progress = await make_room(progress, views, ports)
                elif len(log.steps) != asked_hooks and hooks.wants("before_model"):
                    asked_hooks, progress = len(log.steps), await before_model(log, ports)
                else:
                    progress = await views.ask(log, ports)
            case CallModel(step):
                asked = progress if isinstance(progress, Asked) else await views.asked(log, step, ports)
                progress = await call_model(asked, step, ports, tell)
            case CallTools(calls):
                async for progress in call_tools(log, calls, ports):
                    tell(progress.events)
                continue
        tell(progress.events)
