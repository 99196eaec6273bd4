"""Firing: one transaction checks that a schedule is still due, accepts its run, and stores what became of the due time.

So each due time is fired by at most one process, and a kill leaves all of it or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from perdure.core.errors import Conflict, ModelNotFound, NotFound, PerdureError, StoreError
from perdure.core.ids import RunId
from perdure.core.runs import Run
from perdure.core.schedules import DuePlan, Firing, Outcome, Schedule
from perdure.domain.companions.passes import begin_pass
from perdure.domain.companions.units import find_companion
from perdure.engine.ports import UnitInputs
from perdure.engine.run.accept import Request, accept
from perdure.storage.tx import Tx

NO_COMPANION = "the agent has no companion any more"
NOTHING_NEW = "nothing new was said since the companion last read"

REASON_CHARS = 500
"""How much of an error the reason of a firing keeps."""


@dataclass(frozen=True, slots=True)
class Fired:
    """What was stored of a due time; None: it is left to another process, which may reach the agent's model."""

    schedule: Schedule
    firing: Firing | None
    run: Run | None = None


class Overtaken(Conflict):
    """Somebody else has dealt with the due time, or has changed the schedule."""


def fire(tx: Tx, schedule: Schedule, plan: DuePlan, request: Request | None, refusal: str, inputs: UnitInputs) -> Fired:
    """Carry a plan out, if the schedule is as it was read.

    Args:
        request: of its run; None: nothing is sent, because the due time is passed over, or of the `refusal`, or it is
            the agent's companion that wakes.
    Raises: Overtaken; NotFound: the schedule or its agent is gone.
    """
    tx.agents.lock(schedule.agent_id)  # before the schedule and the run, as everywhere
    if tx.schedules.get(schedule.id) != schedule:
        raise Overtaken(f"{schedule.id} was fired or changed meanwhile")
    run: Run | None = None
    run_id: RunId | None = None
    if schedule.action == "companion" and plan.fires:
        begun = begin_pass(tx, schedule.agent_id, "schedule", ids=inputs.ids, at=inputs.now)
        run_id = None if begun is None else begun.run_id
        refusal = ""
        if begun is None:
            refusal = NO_COMPANION if find_companion(tx, schedule.agent_id) is None else NOTHING_NEW
    elif request is not None:
        try:
            run = accept(tx, request, inputs).run
            run_id = run.id
        except StoreError:
            raise
        except PerdureError as error:  # it is raised before anything is written
            late = inputs.now - plan.due_at > timedelta(seconds=inputs.settings.schedule_grace_s)
            if isinstance(error, ModelNotFound) and not late:
                return Fired(schedule, None)
            refusal = str(error)
    outcome: Outcome = "fired" if run_id is not None else "failed" if plan.fires else "missed"
    if refusal == NOTHING_NEW:
        outcome = "nothing_new"
    firing = Firing(
        due_at=plan.due_at,
        fired_at=inputs.now,
        outcome=outcome,
        run_id=run_id,
        missed=plan.missed,
        reason=refusal[:REASON_CHARS],
    )
    advanced = tx.schedules.advance(schedule, firing, next_at=plan.next_at, at=inputs.now)
    if advanced is None:
        raise Overtaken(f"{schedule.id} was fired or changed meanwhile")
    return Fired(advanced, firing, run)


def is_gone(error: PerdureError) -> bool:
    """Whether a schedule could not be fired because it is somebody else's, or no more."""
    return isinstance(error, Overtaken | NotFound)
