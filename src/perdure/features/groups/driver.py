"""Drives one turn of a group, under a lease, from where its log stands to its stop reason.

A speech is the run of an agent for one place of a turn, and what becomes of it in the transcript.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from perdure.core.errors import (
    ApprovalPending,
    IdempotencyMismatch,
    LeaseLost,
    NotFound,
    PerdureError,
    StoreClosed,
    StoreError,
)
from perdure.core.events import StoredEvent
from perdure.core.incoming.backoff import backoff_s
from perdure.core.messages import Image, Message, Text
from perdure.core.runs import Failure, Run, RunKey, RunOptions
from perdure.core.tasks import end_tasks, to_the_end
from perdure.domain.values import is_there
from perdure.engine.ports import Ports, PriceOf
from perdure.engine.records.run_request import NewMessage, RunRequest, with_run
from perdure.engine.run.accept import Accepted
from perdure.engine.run.runner import Runner
from perdure.features.groups.log import (
    FinishAction,
    GroupLog,
    LiveSpeech,
    LiveTurn,
    SpeakAction,
    load_group_log,
    member_of,
    next_action,
)
from perdure.features.groups.tables import GroupMessages, Groups
from perdure.features.groups.texts import build_input, parse_choice
from perdure.features.groups.units import finish_turn
from perdure.features.groups.values import SLEEPTIME_KINDS, GroupMessage, GroupPlan, GroupTurn, Speaker
from perdure.features.groups.work_tables import GroupTurns
from perdure.settings import Settings
from perdure.storage.tx import Tx

CANCEL_S = 5.0
"""How long a run has to end after its time-out, until it is left alone."""


RECORDED_AT_ONCE = 10
"""How many speeches that have ended one transaction appends to the transcript."""


class TurnDriver:
    """Drives one turn of a group, which this process has claimed; `live` passes on what happens to readers here."""

    def __init__(self, turn: GroupTurn, ports: Ports, runner: Runner, settings: Settings, live: LiveTurn) -> None:
        self._turn, self._ports, self._runner, self._settings = turn, ports, runner, settings
        self._live = live
        self._open: dict[int, Run] = {}
        self._is_cancelled = False

    async def run(self) -> None:
        """Drive the turn to its end; its runs end if the group is deleted. Raises: LeaseLost, StoreError, NotFound."""
        work, renewals = asyncio.create_task(self._work()), asyncio.create_task(self._renew_lease())
        try:
            await asyncio.wait((work, renewals), return_when=asyncio.FIRST_COMPLETED)
            (work if work.done() else renewals).result()
        except (LeaseLost, NotFound):
            if not await self._ports.store.read(lambda tx: is_there(tx.of(Groups).get, self._turn.group_id)):
                await self.cancel()
            raise
        finally:
            await end_tasks(work, renewals)
            self._live.give_up()

    async def cancel(self) -> None:
        """Stop the runs of the turn that go on; the turn itself ends once they have."""
        self._is_cancelled = True
        for run in list(self._open.values()):
            await self._stop(run)

    async def _renew_lease(self) -> None:
        """Extend the lease again and again, and see whether the turn was cancelled. Raises: LeaseLost, NotFound."""
        settings = self._ports.settings
        while True:
            await asyncio.sleep(settings.beat_s)
            until = self._ports.clock.now() + timedelta(seconds=settings.lease_s)
            with contextlib.suppress(StoreError):  # the lease outlives several beats
                stored = await self._ports.store.write(
                    lambda tx, until: tx.of(GroupTurns).keep_lease(self._turn, until=until), until
                )
                if stored.cancel_requested:
                    await self.cancel()

    async def _work(self) -> None:
        """Let agents speak one after the other, as `next_action` says for the turn's log, until the turn has ended."""
        store, turn = self._ports.store, self._turn
        while True:
            log = await store.read(load_group_log, turn.group_id, turn.seq)
            action = next_action(log)
            if isinstance(action, FinishAction):
                open_speech = await store.read(_find_open, log) if action.reason == "cancelled" else None
                if open_speech is None:
                    await to_the_end(store.write(finish_turn, turn, action, self._ports.clock.now()))
                    self._live.pulse.fire()
                    return
                self._is_cancelled, action = True, open_speech
            await self._speak(action)

    async def _speak(self, action: SpeakAction) -> None:
        """Have agents speak at once, and append what they say to the transcript in the order of their places."""
        places = asyncio.Semaphore(self._settings.agent_sends_at_once)
        tasks = [asyncio.create_task(self._speak_at_place(one, action.seen_seq, places)) for one in action.speakers]
        try:
            spoken = 0
            while spoken < len(tasks):
                await asyncio.wait((tasks[spoken],))
                ended = [task.result() for task in itertools.takewhile(asyncio.Task.done, tasks[spoken:])]
                speeches = list(zip(action.speakers[spoken:], ended[:RECORDED_AT_ONCE], strict=False))
                await to_the_end(
                    self._ports.store.write(record_speeches, self._turn, speeches, action.seen_seq, ports=self._ports)
                )
                spoken += len(speeches)
                for speaker, _ in speeches:
                    self._live.end(speaker.place)
        finally:
            await end_tasks(*tasks)

    async def _speak_at_place(self, speaker: Speaker, seen_seq: int, places: asyncio.Semaphore) -> Outcome:
        """Have one agent speak, and wait until it has; it is shown the entries up to `seen_seq`. Raises: StoreError."""
        async with places:
            begun = await begin_speech(self._turn, speaker, seen_seq, self._ports, self._runner)
            if isinstance(begun, Outcome):
                return begun
            run = self._open[speaker.place] = begun.run
            live = self._live.open(speaker.place, run)
            if self._is_cancelled:
                await self._stop(run)
            outcome = await self._wait(speaker, run, begun.events, live)
            live.end()
            del self._open[speaker.place]  # one that was left before may have to be cancelled yet
            return outcome

    async def _wait(self, speaker: Speaker, run: Run, events: Sequence[StoredEvent], live: LiveSpeech) -> Outcome:
        """Wait for the end of a run, which began with `events`; one that speaks beside others has a limited time."""
        limit_s = None
        if self._turn.plan is not None and self._turn.plan.kind == "supervisor" and speaker.task == "speak":
            passed = (self._ports.clock.now() - run.created_at).total_seconds()
            limit_s = max(0.0, self._settings.agent_reply_s - passed)
        try:
            async with asyncio.timeout(limit_s):
                return await self._follow(run, events, live)
        except TimeoutError:
            await self._stop(run)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_S):
                    await self._follow(run, (), live)
            return Outcome(run=run, problem=f"it did not answer within {self._settings.agent_reply_s:g} s")

    async def _follow(self, run: Run, known: Sequence[StoredEvent], live: LiveSpeech) -> Outcome:
        """Pass on the events of a run, of which the first are `known`, until it has ended. Raises: StoreClosed."""
        failures = 0
        while True:
            try:
                async with contextlib.aclosing(self._runner.follow(run, after=live.last_seq, known=known)) as sent:
                    async for item in sent:
                        live.add(item)
                return Outcome(run=run)
            except NotFound:
                return Outcome(run=run, problem="it was deleted while it spoke")
            except StoreClosed:
                raise
            except PerdureError:  # this process gave the run up; it is taken up again
                failures, known = failures + 1, ()
                await asyncio.sleep(backoff_s(failures, first_s=0.2, most_s=5.0))

    async def _stop(self, run: Run) -> None:
        with contextlib.suppress(NotFound):
            await self._runner.cancel(run.id)


def _find_open(tx: Tx, log: GroupLog) -> SpeakAction | None:
    """Return the unfinished speeches of a cancelled turn, which end before the turn does; None: there are none."""
    action = next_action(replace(log, turn=replace(log.turn, cancel_requested=False)))
    if isinstance(action, FinishAction):
        return None
    begun = tuple(speaker for speaker in action.speakers if find_run(tx, log.turn, speaker) is not None)
    return replace(action, speakers=begun) if begun else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a speech ended.

    Args:
        run: None: it was never accepted.
        problem: what stopped it, where the run itself does not say.
    """

    run: Run | None = None
    problem: str = ""
    awaits_approval: bool = False


def speech_key(turn: GroupTurn, place: int) -> str:
    """Return the idempotency key of the run for one place of a turn: whichever process begins it, there is one run."""
    return "group-" + hashlib.sha256(f"{turn.group_id}/{turn.seq}/{place}".encode()).hexdigest()


def find_run(tx: Tx, turn: GroupTurn, speaker: Speaker) -> Run | None:
    """The run of a speaker for its place in a turn; None: it has not begun."""
    assert turn.plan is not None
    member = member_of(turn.plan, speaker.agent_id)
    found = tx.runs.find_by_key(speaker.agent_id, member.conversation_seq, speech_key(turn, speaker.place))
    return None if found is None else found[0]


async def begin_speech(
    turn: GroupTurn, speaker: Speaker, seen_seq: int, ports: Ports, runner: Runner
) -> Accepted | Outcome:
    """Begin the run for a place of the turn, or find the one begun before. Raises: StoreError, LeaseLost."""
    store, plan = ports.store, turn.plan
    assert plan is not None
    if (run := await store.read(find_run, turn, speaker)) is not None:
        return Accepted(run, (), repeated=True)
    member = member_of(plan, speaker.agent_id)
    request = RunRequest(
        agent_id=speaker.agent_id,
        conversation_seq=member.conversation_seq,
        messages=await _messages_for(turn, plan, speaker, seen_seq, ports),
        idempotency_key=speech_key(turn, speaker.place),
        max_steps=turn.max_steps,
        options=RunOptions(hops=turn.hops),
        sent_chars=0,  # the message was measured when the group took it
    )
    try:
        return await runner.accept(with_run(request, ports))
    except (StoreError, LeaseLost):
        raise
    except IdempotencyMismatch:  # another process has begun it meanwhile, with a text of its own
        run = await store.read(find_run, turn, speaker)
        return Outcome(problem="its run is gone") if run is None else Accepted(run, (), repeated=True)
    except NotFound as error:
        kinds = {"agent": "it was deleted", "conversation": "its conversation for this group was deleted"}
        return Outcome(problem=kinds.get(error.kind, str(error)))
    except ApprovalPending:
        return Outcome(problem="a call of an earlier turn still waits for approval", awaits_approval=True)
    except PerdureError as error:
        return Outcome(problem=str(error))


async def _messages_for(
    turn: GroupTurn, plan: GroupPlan, speaker: Speaker, seen_seq: int, ports: Ports
) -> tuple[NewMessage, ...]:
    """Return the messages for a speaker: one message with everything said since it last spoke, up to entry `seen_seq`;
    for an agent with a companion, the user's messages unchanged."""
    if plan.kind in SLEEPTIME_KINDS:
        said = await ports.store.read(lambda tx: tx.of(GroupMessages).list_of_turn(turn.group_id, turn.seq))
        asked = [one for one in said if one.kind == "user"]
        parts = [tuple(part for part in one.parts if isinstance(part, Text | Image)) for one in asked]
        return tuple(NewMessage(some, name=one.sender_name or None) for some, one in zip(parts, asked, strict=True))
    limit = ports.settings.message_limit_chars
    message = await ports.store.read(build_input, turn.group_id, plan, speaker, seen_seq=seen_seq, limit_chars=limit)
    return (message,)


def record_speeches(
    tx: Tx, turn: GroupTurn, speeches: Sequence[tuple[Speaker, Outcome]], seen_seq: int, *, ports: Ports
) -> None:
    """Add speeches to the transcript, and their cost to the turn, except for places that have entries.

    Raises: LeaseLost, NotFound: the group is gone.
    """
    tx.of(Groups).lock(turn.group_id)
    turn = tx.of(GroupTurns).keep_lease(turn)
    log = load_group_log(tx, turn.group_id, turn.seq)
    done = log.places
    entries: list[GroupMessage] = []
    for speaker, outcome in speeches:
        if speaker.place in done:
            continue
        run, messages = None, list[Message]()
        if outcome.run is not None:
            try:
                run = tx.runs.get_by_key(outcome.run.key)
                rows = tx.messages.list_by_run(run)
                said = [row for row in rows if (row.role, row.kind) == ("assistant", "message")]
                messages = [one for one in said if one.text.strip()]
                turn = _with_use_of(tx, turn, run, ports.price_of)
                run = run if run.failure is None else replace(run, failure=_with_transcript_ids(run.failure, rows, log))
            except NotFound:
                outcome = replace(outcome, problem="it was deleted while it spoke")
        base = GroupMessage(
            group_id=turn.group_id,
            turn_seq=turn.seq,
            place=speaker.place,
            kind="speech",
            sender_id=speaker.agent_id,
            sender_name=speaker.name,
            run_id=None if outcome.run is None else outcome.run.id,
            seen_seq=-1 if outcome.run is None else seen_seq,
            created_at=ports.clock.now(),
        )
        entries += _entries(turn, speaker, base, messages, run, outcome)
    tx.of(GroupTurns).spend(turn)
    tx.of(GroupMessages).append(turn.group_id, entries)


def _entries(
    turn: GroupTurn, speaker: Speaker, base: GroupMessage, messages: list[Message], run: Run | None, outcome: Outcome
) -> list[GroupMessage]:
    """Return the entries for one speech: its words, and what stopped it. `base`: an entry with common fields."""
    plan = turn.plan
    assert plan is not None
    token = plan.termination_token if plan.kind == "dynamic" else None
    problem, awaits = _problem_of(run, outcome)

    entries: list[GroupMessage] = []
    if speaker.task == "choose":
        if not problem:
            chosen, ends = parse_choice("\n".join(one.text for one in messages), plan.participants, token or "")
            last = messages[-1] if messages else None
            choice = replace(base, kind="choice", chosen_id=chosen, ends_turn=ends)
            return [choice if last is None else replace(choice, message_id=last.id, message_seq=last.seq)]
    else:
        for message in messages:
            ends = token is not None and token in message.text
            entries.append(replace(base, message_id=message.id, message_seq=message.seq, ends_turn=ends))
    if problem:
        entries.append(replace(base, kind="approval" if awaits else "failure", parts=(Text(problem),)))
    return entries or [replace(base, kind="silence")]


def _problem_of(run: Run | None, outcome: Outcome) -> tuple[str, bool]:
    """What stopped a speech, empty if nothing did; and whether a call of it waits for somebody's approval."""
    if outcome.problem:
        return outcome.problem, outcome.awaits_approval
    assert run is not None
    if run.stop_reason == "requires_approval":
        return "a call of its tools waits for approval", True
    if run.stop_reason == "cancelled":
        return "it was cancelled", False
    if run.failure is not None:
        return run.failure.message, False
    return ("" if run.status == "completed" else f"its run ended with {run.stop_reason}"), False


def _with_transcript_ids(failure: Failure, rows: Sequence[Message], log: GroupLog) -> Failure:
    """A failure of a run with messages `rows`, with the user's message named by its id in the transcript."""
    said = max((entry for entry in log.entries if entry.kind == "user"), key=lambda one: len(one.text), default=None)
    for row in rows:
        is_hardly_more = said is not None and row.role == "user" and len(row.text) < 2 * len(said.text)
        if said is not None and said.message_id is not None and is_hardly_more:
            failure = replace(failure, message=failure.message.replace(row.id, said.message_id))
    return failure


def _with_use_of(tx: Tx, turn: GroupTurn, run: Run, price_of: PriceOf) -> GroupTurn:
    """The turn with the tokens, steps and costs of this run added."""
    prices = [price_of(step.model, step.usage) for step in tx.steps.list_by_run(RunKey(*run.key))]
    known = [price for price in prices if price is not None]
    cost = turn.cost_usd if not known else (turn.cost_usd or 0.0) + sum(known)
    return replace(turn, usage=turn.usage + run.usage, step_count=turn.step_count + run.step_count, cost_usd=cost)
