"""Prepare and begin: what a first request shows of memory is searched, then T1 to T3 are stored.

They are one transaction where nothing stands before the run, else one each.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from perdure.core.errors import StoreError
from perdure.core.events import Event, RunStarted
from perdure.core.messages import text_of
from perdure.core.runs import RunKey, Step
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.accept import Accepted, Request, accept, accept_and_start, begin_input, decode_drafts
from perdure.engine.run.interrupts import to_the_end
from perdure.engine.run.log import RunLog, run_log_of
from perdure.engine.run.next_action import MakeRequest, next_action
from perdure.engine.run.progress import Progress, RequestParts
from perdure.engine.run.request import load_view, make_request
from perdure.engine.run.views import Views
from perdure.engine.search.recall import plan_recall, plan_recall_of_run, recall
from perdure.storage.tx import Tx

logger = logging.getLogger(__name__)


class RequestDefect(Exception):
    """The request of a message that could be accepted can't be made; the cause says why. Nothing was stored."""


async def begin_run(request: Request, ports: Ports, views: Views) -> Accepted:
    """T1, with T2 and T3 where nothing stands before the run. Raises: as `accept`."""
    inputs = ports.inputs(views.cached_view((request.agent_id, request.conversation_seq)))
    if ports.hooks.wants("before_model"):  # they are called between T2 and T3
        return await ports.store.write(accept, request, inputs)
    texts = [text_of(draft.parts) for draft in request.drafts if draft.role == "user" and draft.kind == "message"]
    plan = await ports.store.read(plan_recall, request.agent_id, request.conversation_seq, texts, inputs)
    if plan is not None:
        inputs = replace(inputs, recalled=await recall(plan, ports))
    try:
        accepted = await ports.store.write(_begin, request, inputs)
    except RequestDefect as defect:  # the message is stored all the same; what claims its run meets the defect again
        logger.warning("%s: its first request can't be made: %r", request.run_id, defect.__cause__)
        return await ports.store.write(accept, request, inputs)
    if accepted.begun is not None:
        views.put(accepted.begun)
    return accepted


async def claim_run(key: RunKey, ports: Ports, *, dead_owner: str | None = None) -> Progress | None:
    """T2: the progress of claiming the run; None if it can't be claimed now."""
    # To the end: a closing process releases what it holds, and a claim must not come behind that.
    return await to_the_end(ports.store.write(_claim, key, ports.inputs(), dead_owner=dead_owner))


async def record_request(log: RunLog, ports: Ports, views: Views) -> Progress:
    """T3: the progress of recording the next model call. Raises: LeaseLost."""
    inputs = ports.inputs(views.cached_view((log.run.key.agent_id, log.run.conversation_seq)))
    if not log.steps and (plan := await ports.store.read(plan_recall_of_run, log, inputs)) is not None:
        inputs = replace(inputs, recalled=await recall(plan, ports))
    progress = await ports.store.write(_record_request, log, inputs)
    views.put(progress)
    return progress


async def load_request(log: RunLog, step: Step, ports: Ports) -> RequestParts:
    """What the request of a recorded model call is made of, read again from the log."""

    def load(tx: Tx) -> RequestParts:
        return RequestParts(tx.agents.get(log.run.key.agent_id), load_view(tx, log.run, step.recipe))

    return await ports.store.read(load)


def _begin(tx: Tx, request: Request, inputs: UnitInputs) -> Accepted:
    """T1, and where nothing stands before the run T2 and T3 with it. Raises: as `accept`; RequestDefect."""
    accepted, started = accept_and_start(tx, request, inputs)
    if started is None:
        return accepted
    log, events = started.log, started.events
    events.append(RunStarted(log.run.id, log.run.lease_number))
    action = MakeRequest() if log.run.resumes is None else next_action(log)
    if isinstance(action, MakeRequest):
        try:
            progress = make_request(tx, log, action, inputs, events, opening=started.opening)
        except StoreError:
            raise
        except Exception as error:
            raise RequestDefect from error
    else:
        progress = Progress(log, tx.events.add(log.run.key, events, at=inputs.now, after=log.last_event_seq))
    return replace(accepted, run=progress.log.run, events=progress.events, begun=progress)


def _claim(tx: Tx, key: RunKey, inputs: UnitInputs, *, dead_owner: str | None = None) -> Progress | None:
    run = tx.runs.claim(key, owner=inputs.owner, at=inputs.now, until=inputs.until, dead_owner=dead_owner)
    if run is None:
        return None
    events: list[Event] = [RunStarted(run.id, run.lease_number)]
    if run.first_message_seq is None and (waiting := tx.runs.waiting_input(key)) is not None:
        events += begin_input(tx, run, *decode_drafts(waiting), now=inputs.now)
        run = tx.runs.at(key)
    return Progress(run_log_of(tx, run), tx.events.add(key, events, at=inputs.now))


def _record_request(tx: Tx, log: RunLog, inputs: UnitInputs) -> Progress:
    log = log.after(run=tx.runs.hold(log.run.key, log.lease, until=inputs.until))
    # Between the last transaction and this one the run may have been asked to stop.
    if isinstance(action := next_action(log), MakeRequest):
        return make_request(tx, log, action, inputs, [])
    return Progress(log)
