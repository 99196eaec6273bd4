"""Replays of runs: their requests sent again, to another model or with another system text; and runs as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from perdure.context.sections.assemble import canonical
from perdure.core.agents import Agent
from perdure.core.errors import Conflict, LimitReached, ModelError, ModelNotFound, ReplayMismatch
from perdure.core.ids import AgentId, RunId, StepId
from perdure.core.loops import split_arguments
from perdure.core.messages import Message, Part, Reasoning, ToolCall, parts_to_json, text_of
from perdure.core.models import ModelRequest
from perdure.core.runs import NO_USAGE, Run, Step, Usage
from perdure.core.text.json_strings import json_or
from perdure.core.text.reprs import attributes
from perdure.engine.budget import CallBudget
from perdure.library.parts.checks import check_text
from perdure.library.parts.part import AsyncAgentPart, find_run, list_run_messages, reads
from perdure.library.runs.steps import build_request, is_redacted, prices_of
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAnswer:
    """What a model answered to one request. `price` is in US dollars; None: unknown."""

    parts: tuple[Part, ...] = ()
    usage: Usage = NO_USAGE
    price: float | None = None

    @property
    def text(self) -> str:
        """The text of the answer."""
        return text_of(self.parts)

    @property
    def calls(self) -> Sequence[ToolCall]:
        """The tools that it calls."""
        return [part for part in self.parts if isinstance(part, ToolCall)]

    def as_shape(self) -> dict[str, Any]:
        """The answer as JSON."""
        calls = [{"name": call.name, "arguments": call.own_arguments} for call in self.calls if not call.speech]
        return {"text": self.text, "calls": calls, "usage": asdict(self.usage), "price": self.price}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStep:
    """One request of a run, with the recorded answer and the new one; `new` is None where the model failed."""

    step_id: StepId
    old: ReplayAnswer
    new: ReplayAnswer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A run that was replayed until no recorded result fitted a call of the model. `end` says why it ended."""

    run_id: RunId
    old_model: str
    new_model: str
    steps: Sequence[ReplayStep]
    end: str

    def as_shape(self) -> dict[str, Any]:
        """The replay as JSON; prices in US dollars, null means unknown."""
        steps = [
            {"id": step.step_id, "old": step.old.as_shape(), "new": None if step.new is None else step.new.as_shape()}
            for step in self.steps
        ]
        return attributes(self, "run_id", "old_model", "new_model", "end") | {"steps": steps}


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A step with its request and the `parts` of its stored answer; `redacted`: a text was erased from the request."""

    step: Step
    request: ModelRequest
    parts: tuple[Part, ...]
    redacted: bool


class AsyncReplays(AsyncAgentPart):
    """The record of a run; `AsyncAgent` has these methods. Nothing is stored, and no tool runs."""

    async def replay(self, run_id: RunId, *, model: str | None = None, system: str | None = None) -> Replay:
        """Send the requests of a run again, to another model or with another system text, and return the old and new
        answers with tokens and price. Nothing is stored, and no tool runs: the model is given the recorded results.
        Where it calls something else than the run did, the replay ends; `end` says why.

        Args:
            system: the whole system text, in place of what was sent, memory included.
        Raises: InvalidInput; NotFound, also for another agent's; ModelNotFound; ReplayMismatch; LimitReached; Conflict:
            the run has not ended, or has made no request.
        """
        if system is not None:
            check_text("system", system)
        agent, recorded = await self._ports.store.read(_load_recorded, run_id, self._agent_id)
        handle = recorded[0].step.model if model is None else model
        await self._app.models.look_for(handle)
        found = self._app.models.find(handle)
        if found is None:
            raise ModelNotFound(handle, known=self._app.models.handles())
        budget = CallBudget(agent, self._ports)
        steps: list[ReplayStep] = []
        new_answers: dict[StepId, tuple[Part, ...]] = {}  # of earlier steps, for later requests
        end = ""
        for place, record in enumerate(recorded):
            messages = tuple(
                replace(message, parts=new_answers[message.step_id])
                if message.role == "assistant" and message.step_id in new_answers
                else message
                for message in record.request.messages
            )
            request = replace(record.request, model=handle, messages=messages)
            if handle != record.step.model:  # fields of another provider's request body
                request = replace(request, options=replace(request.options, extra={}))
            if system is not None:
                request = replace(request, system=system)
            old = self._answer(record.step.model, record.parts, record.step.usage)
            try:
                reply = await budget.ask(found, request)
            except ModelError as error:
                steps.append(ReplayStep(step_id=record.step.id, old=old, new=None))
                end = f"{handle} gave no answer: {error}"
                break
            except LimitReached as error:
                if not steps:
                    raise
                end = str(error)  # what was answered so far is paid for
                break
            parts, end = _match_calls(record.parts, reply.parts, is_last=place == len(recorded) - 1)
            new_answers[record.step.id] = parts
            steps.append(ReplayStep(step_id=record.step.id, old=old, new=self._answer(handle, parts, reply.usage)))
            if end:
                break
        if any(record.redacted for record in recorded[: len(steps)]):
            end += "; a text that was erased since the run reads [redacted] in what was sent"
        return Replay(run_id=run_id, old_model=recorded[0].step.model, new_model=handle, steps=steps, end=end)

    @reads
    def export_run(self, tx: Tx, run_id: RunId) -> Mapping[str, Any]:
        """A run as JSON: messages, and steps with requests, responses (keys are masked), tokens and prices.

        Raises: NotFound, also for another agent's.
        """
        run = find_run(tx, run_id, self._agent_id)
        steps = [self._export_step(tx, step) for step in tx.steps.list_by_run(run.key)]
        fields = ("id", "conversation_id", "status", "stop_reason", "created_at", "started_at", "ended_at")
        shape: dict[str, Any] = {name: getattr(run, name, None) for name in fields}
        shape |= {"agent_id": run.key.agent_id, "usage": asdict(run.usage), "steps": steps}
        shape["failure"] = None if run.failure is None else asdict(run.failure)
        shape["messages"] = [_message_shape(message) for message in list_run_messages(tx, run)]
        plain: Mapping[str, Any] = json.loads(json.dumps(shape, default=str))
        return plain

    def _export_step(self, tx: Tx, step: Step) -> dict[str, Any]:
        """A step as JSON, with its request, what was sent and received, and the price."""
        shape = attributes(step, "id", "index", "status", "model", "stop_reason", "created_at", "ended_at")
        shape |= {"usage": asdict(step.usage)}
        shape["price"] = prices_of(step.model, self._app.models).price(step.usage)
        shape["failure"] = None if step.failure is None else asdict(step.failure)
        exchange = tx.steps.exchange(step)
        shape["exchange"] = None if exchange is None else asdict(exchange)
        try:
            # Texts hold marks at which `splitlines` would cut, such as U+2028.
            lines = canonical(build_request(tx, step)[1]).decode("utf-8", "replace").removesuffix("\n").split("\n")
            return shape | {"request": [json.loads(line) for line in lines]}
        except ReplayMismatch as error:
            return shape | {"request": None, "problem": str(error)}

    def _answer(self, model: str, parts: tuple[Part, ...], usage: Usage) -> ReplayAnswer:
        """An answer of a model, with its price."""
        return ReplayAnswer(parts=parts, usage=usage, price=prices_of(model, self._app.models).price(usage))


def _load_recorded(tx: Tx, run_id: RunId, agent_id: AgentId | None) -> tuple[Agent, Sequence[_Recorded]]:
    """(agent of a run, its steps that brought an answer, or else its last step). Raises: NotFound; Conflict: the run
    has not ended, or made no request."""
    run: Run = find_run(tx, run_id, agent_id)
    if not run.ended:
        raise Conflict(f"{run_id} has not ended: wait for it, or cancel it")
    steps = tx.steps.list_by_run(run.key)
    used = [step for step in steps if step.status == "success"] or steps[-1:]
    if not used:
        raise Conflict(f"{run_id} has made no request, so there is none to send again")
    answers = {message.step_id: message.parts for message in list_run_messages(tx, run) if message.role == "assistant"}
    requests = [build_request(tx, step)[1] for step in used]
    return tx.agents.get(run.key.agent_id), [
        _Recorded(step, request, answers.get(step.id, ()), is_redacted(tx, step, request))
        for step, request in zip(used, requests, strict=True)
    ]


def _match_calls(old: Sequence[Part], new: tuple[Part, ...], *, is_last: bool) -> tuple[tuple[Part, ...], str]:
    """Return (the new answer, with calls equal to old ones under the old ids so that recorded results fit; why the
    replay ends here, empty: it goes on). `is_last`: the run made no further request."""
    recorded = [part for part in old if isinstance(part, ToolCall)]
    loops = {call.name: call.loop_arguments for call in recorded}
    calls = {part.call_id: part for part in new if isinstance(part, ToolCall)}
    matched: dict[str, ToolCall] = {}
    unmatched = list(recorded)
    for call in calls.values():
        key = _key(replace(call, loop_arguments=loops.get(call.name, ())))
        equal = next((other for other in unmatched if _key(other) == key), None)
        if equal is None:
            return new, f"it calls {call.name}({call.arguments}), which the run did not: there is no recorded result"
        unmatched.remove(equal)
        matched[call.call_id] = replace(
            call, call_id=equal.call_id, loop_arguments=equal.loop_arguments, awaits=equal.awaits
        )
    parts = tuple(matched.get(part.call_id, part) if isinstance(part, ToolCall) else part for part in new)
    if unmatched and calls:
        return parts, f"it does not call {unmatched[0].name}, as the run did: the next request would have another form"
    if not calls or is_last:
        return parts, "it answered" if not calls else "the run ended here"
    return parts, ""


def _key(call: ToolCall) -> tuple[str, Any]:
    """(tool, arguments) of a call, equal for equal calls. One that only says something to the user may say anything."""
    if call.speech:
        return call.name, None
    text = split_arguments(call.arguments, call.loop_arguments)[0]
    return call.name, json_or(text or "{}", text)


def _message_shape(message: Message) -> dict[str, Any]:
    """A message as JSON, without empty reasoning."""
    shown = [part for part in message.parts if not isinstance(part, Reasoning) or part.text]
    parts = {"parts": json.loads(parts_to_json(shown))}
    return attributes(message, "id", "role", "kind", "name", "text", "step_id", "created_at", "occurred_at") | parts
