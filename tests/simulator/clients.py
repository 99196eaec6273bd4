"""Who talks to the simulated processes: clients that send messages and answers, and follow what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable
from dataclasses import replace

from perdure.core.errors import AnswerInvalid, ApprovalPending, PerdureError
from perdure.core.events import Delta, RunEnded, StepAbandoned
from perdure.core.ids import AgentId, MessageId, RunId
from perdure.core.messages import Draft, Text, ToolDecision
from perdure.core.tools.answers import Answer, PendingCall, ToolReturn
from perdure.engine.approvals.answers import pending_calls
from perdure.engine.records.run_request import RunRequest
from perdure.engine.run.accept import Accepted
from tests.simulator.commit_check import CommitCheck
from tests.simulator.faults import Crash
from tests.simulator.invariants import Violation
from tests.simulator.process import LEASE_S, Process, retrieve_error
from tests.simulator.world import CLIENT_TOOL, PLAN_LETTERS, World


class Clients:
    """Clients of one history.

    Args:
        processes: those that live now.
        check: checks that what clients receive is committed.
    """

    def __init__(
        self, seed: int, rng: random.Random, *, world: World, processes: Callable[[], list[Process]], check: CommitCheck
    ) -> None:
        self.cancels = 0
        self.sent: list[str] = []
        self._seed, self._rng, self._world, self._processes, self._check = seed, rng, world, processes, check

    async def talk(self, agent_id: AgentId, name: str, line: int) -> None:
        """Send a few messages, one after the other; ask again with the same key until each is answered."""
        rng = random.Random(f"{self._seed}{name}")
        for number in range(rng.randint(1, 3)):
            plan = "".join(rng.choice(PLAN_LETTERS) for _ in range(rng.randint(0, 4)))
            text = f"{name}{number} {plan}"
            self.sent.append(text)
            cancel_after = rng.choice((None, None, None, rng.uniform(0, 2), 1.5))
            background = rng.random() < 0.3
            while not await self._try(agent_id, line, text, cancel_after, background):
                await asyncio.sleep(rng.uniform(0.01, 1))
                cancel_after = None

    async def _try(self, agent_id: AgentId, line: int, text: str, cancel_after: float | None, background: bool) -> bool:
        """One attempt at one process; whether its run was followed to the end."""
        if not (processes := self._processes()):
            return False
        process = self._rng.choice(processes)
        attempt = asyncio.create_task(
            self.attempt(process, agent_id, line, text, cancel_after=cancel_after, background=background)
        )
        while not attempt.done():
            await asyncio.wait((attempt,), timeout=1.0)
            if not process.alive and not attempt.done():  # the connection broke
                attempt.cancel()
                await asyncio.wait((attempt,))
        if attempt.cancelled():
            return False
        error = attempt.exception()
        if error is None:
            return attempt.result()
        if isinstance(error, (Crash, PerdureError)):
            return False
        raise error

    async def attempt(
        self,
        process: Process,
        agent_id: AgentId,
        line: int,
        text: str,
        *,
        cancel_after: float | None = None,
        background: bool = False,
    ) -> bool:
        """Send a message, follow its run, and answer what it stops at."""
        ids = process.ids
        request = RunRequest(
            run_id=RunId(ids.new("run")),
            agent_id=agent_id,
            conversation_seq=line,
            drafts=(Draft(id=MessageId(ids.new("message")), role="user", parts=(Text(text),)),),
            tokens=(10,),
            idempotency_key=text.partition(" ")[0],
            client_tools=(CLIENT_TOOL,) if "x" in text else None,
            background=background,
        )
        while True:
            try:
                accepted = await self._accept(process, request)
                break
            except ApprovalPending:
                await self.decide(process, agent_id, line)
        canceller = None
        if cancel_after is not None:
            canceller = asyncio.create_task(self._cancel(process, accepted.run.id, cancel_after))
        try:
            if not await self._follow(process, accepted, text):
                return False
            while await self.decide(process, agent_id, line):
                pass
            return True
        finally:
            if canceller is not None:
                canceller.cancel()

    async def _accept(self, process: Process, request: RunRequest) -> Accepted:
        accepted = await process.runner.accept(request)
        self._check.check_accepted(request, accepted)
        return accepted

    async def _follow(self, process: Process, accepted: Accepted, text: str) -> bool:
        """Whether the run was seen to its end: every event once, each in the store by then."""
        seqs: list[int] = []
        previewed: set[str] = set()
        async for sent in process.runner.follow(accepted.run, known=accepted.events):
            if isinstance(sent, Delta):
                previewed.add(sent.step_id)
                continue
            self._check.check_events(accepted.run, (sent,))
            seqs.append(sent.seq)
            if isinstance(sent.event, StepAbandoned):
                previewed.discard(sent.event.step_id)
            if isinstance(sent.event, RunEnded):
                if seqs != list(range(1, len(seqs) + 1)):
                    raise Violation(f"a reader of {text!r} got events {seqs}")
                self._check.check_previews(accepted.run, previewed)
                return True
        return False

    async def decide(self, process: Process, agent_id: AgentId, line: int) -> bool:
        """Answer what waits in a conversation, all at once or one by one, and follow the run that goes on; whether
        anything waited. Asked again the same call gets the same answer."""
        waiting = await process.store.read(lambda tx: pending_calls(tx, tx.conversations.get_by_seq(agent_id, line)))
        if not waiting:
            return False
        answers = tuple(self._answer(call) for call in waiting)
        rng = random.Random(f"{self._seed}{waiting[0].call_id}{waiting[0].run_id}")
        singly = rng.random() < 0.3
        request = RunRequest(
            run_id=RunId(process.ids.new("run")),
            agent_id=agent_id,
            conversation_seq=line,
            drafts=(),
            tokens=(),
            answers=answers[:1] if singly else answers,
            partial=singly,
        )
        key = " ".join([waiting[0].run_id, *(answer.call_id for answer in request.answers or ())])
        try:
            accepted = await self._accept(process, replace(request, idempotency_key=f"answers {key}"))
        except AnswerInvalid:  # somebody else has answered meanwhile
            return True
        if not accepted.waits:
            await self._follow(process, accepted, key)
        return True

    async def decide_for_ever(self, agent_id: AgentId) -> None:
        """Somebody who looks from time to time whether anything waits, besides those who wait for their replies."""
        while True:
            await asyncio.sleep(self._rng.uniform(0.5, 5))
            for line in (0, 1, 2):
                if processes := self._processes():
                    process = self._rng.choice(processes)
                    # In a task of its own, which goes down with its process.
                    deciding = asyncio.create_task(self.decide(process, agent_id, line))
                    deciding.add_done_callback(self._report_violation)
                    await asyncio.wait((deciding,), timeout=LEASE_S)
                    deciding.cancel()

    def _report_violation(self, task: asyncio.Task[bool]) -> None:
        retrieve_error(task)
        if not task.cancelled() and isinstance(error := task.exception(), Violation):
            self._check.report(error)

    def _answer(self, call: PendingCall) -> Answer:
        token = str(call.arguments["token"])
        rng = random.Random(f"{self._seed}{token}")
        if call.awaits_client:
            return ToolReturn(call.call_id, f"client {token}")
        match rng.choice(("approve", "approve", "deny", "edit")):
            case "deny":
                return ToolDecision(call.call_id, False, "no")
            case "edit":
                self._world.approved.add(f"{token}e")
                return ToolDecision(call.call_id, True, None, json.dumps({"token": f"{token}e"}))
            case _:
                self._world.approved.add(token)
                return ToolDecision(call.call_id, True)

    async def _cancel(self, process: Process, run_id: RunId, after: float) -> None:
        await asyncio.sleep(after)
        with contextlib.suppress(Crash, PerdureError):
            self.cancels += 1
            self._check.check_cancelled(await process.runner.cancel(run_id))
