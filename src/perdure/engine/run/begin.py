"""How a run begins: T1 to T3 in one transaction where nothing stands before it, else T2 alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perdure.core.events import Event, RunStarted
from perdure.core.runs import RunKey
from perdure.engine.run.accept import Accepted, Request, accept_and_start, begin_input, decode_drafts
from perdure.engine.run.log import RunLog, run_log_of
from perdure.engine.run.next_action import Ask, next_action
from perdure.engine.run.progress import Progress
from perdure.engine.run.request import make_request
from perdure.engine.run.request_inputs import RequestInputs
from perdure.storage.tx import Tx

__all__ = ["ask", "begin", "claim"]


def begin(
    tx: Tx, request: Request, inputs: RequestInputs, *, check_model: Callable[[str], None], owner: str
) -> Accepted:
    """T1, and where nobody stands before the run T2 and T3 with it, for one commit instead of two.

    Raises: as `accept`.
    """
    accepted, started = accept_and_start(tx, request, inputs, check_model=check_model, owner=owner)
    if started is None:
        return accepted
    log, events = started.log, started.events
    events.append(RunStarted(log.run.id, log.run.lease_number))
    action = Ask() if log.run.resumes is None else next_action(log)
    if isinstance(action, Ask):
        progress = make_request(tx, log, action, inputs, events, opening=started.opening)
    else:
        progress = Progress(log, tx.events.add(log.run.key, events, at=inputs.now, after=log.last_event_seq))
    return replace(accepted, run=progress.log.run, events=progress.events, begun=progress)


def claim(tx: Tx, key: RunKey, inputs: RequestInputs, *, owner: str, dead_owner: str | None = None) -> Progress | None:
    """Take the run (T2). None: it can't be claimed now."""
    run = tx.runs.claim(key, owner=owner, at=inputs.now, until=inputs.until, dead_owner=dead_owner)
    if run is None:
        return None
    events: list[Event] = [RunStarted(run.id, run.lease_number)]
    if run.first_message_seq is None and (waiting := tx.runs.waiting_input(key)) is not None:
        events += begin_input(tx, run, *decode_drafts(waiting), now=inputs.now)
        run = tx.runs.at(key)
    return Progress(run_log_of(tx, run), tx.events.add(key, events, at=inputs.now))


def ask(tx: Tx, key: RunKey, inputs: RequestInputs, *, log: RunLog) -> Progress:
    """Record how the next model call is made (T3). Raises: LeaseLost."""
    log = log.after(run=tx.runs.hold(key, log.lease, until=inputs.until))
    # Between the last transaction and this one the run may have been asked to stop.
    if isinstance(action := next_action(log), Ask):
        return make_request(tx, log, action, inputs, [])
    return Progress(log)
