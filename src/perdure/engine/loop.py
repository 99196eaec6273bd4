"""The loop: a run, from where its log stands to a stop reason."""

from __future__ import annotations

from perdure.engine.ask import Asked, Full
from perdure.engine.call_model import call_model
from perdure.engine.call_tools import call_tools
from perdure.engine.finish import finish
from perdure.engine.hub import Tell
from perdure.engine.make_room import make_room
from perdure.engine.next_action import Ask, CallModel, CallTools, Done, Finish, next_action
from perdure.engine.ports import Ports
from perdure.engine.run_log import Progress
from perdure.engine.views import Views

__all__ = ["run"]


async def run(progress: Progress, ports: Ports, views: Views, tell: Tell) -> None:
    """Take a claimed run to its end, one committed action at a time.

    Each round asks what comes next and carries it out; what it did comes back as the log that the transaction left.
    Streaming, not streaming and after a crash are the same code. Events were committed before they are told; deltas are
    previews.

    Raises: LeaseLost: another process has taken the run; StoreError.
    """
    tell(progress.events)
    while True:
        log = progress.log
        match next_action(log):
            case Done():
                views.learn(log)
                return
            case Finish():
                progress = await finish(log, ports)
            case Ask():
                if isinstance(progress, Full):
                    progress = await make_room(progress, views, ports)
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
