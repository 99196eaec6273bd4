"""What is said to an agent and answered to its calls.

The only place that makes a run's request of what a caller says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from perdure.app import App
from perdure.core.errors import AnswerInvalid, InvalidInput
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import is_id
from perdure.core.messages import Image, ImageLink, Text, ToolDecision
from perdure.core.runs import Run
from perdure.core.tools.answers import Answer, ToolReturn
from perdure.engine.approvals.answers import find_pending
from perdure.engine.approvals.askers import to_helper
from perdure.engine.approvals.decisions import calls_of_request
from perdure.engine.records.run_request import NewMessage, RunRequest, callback_to_store, with_run
from perdure.engine.run.accept import Accepted
from perdure.engine.run.batch import named_request
from perdure.library.messages.reply import Reply, ReplyTurn
from perdure.library.parts.part import AsyncAgentPart
from perdure.library.parts.providers import ModelHandles
from perdure.storage.tx import Tx

T = TypeVar("T")


async def fetch_images(
    app: App, messages: Sequence[NewMessage], answers: Sequence[Answer] | None
) -> tuple[Sequence[NewMessage], Sequence[Answer] | None]:
    """(messages, answers), with pictures in place of links to them: all links are fetched at once, each once. The names
    in messages, and the sizes of pictures, are checked. Raises: TooMany, InvalidInput, ToolError."""
    for message in messages:
        message.check(app.ports.settings.limits)
    results = [answer for answer in answers or () if isinstance(answer, ToolReturn)]
    pictures = [*(part for message in messages for part in message.parts if not isinstance(part, Text))]
    pictures += [image for result in results for image in result.images]
    if not pictures:
        return messages, answers
    app.ports.settings.limits.check("images_per_request", len(pictures))
    for picture in pictures:
        if isinstance(picture, Image):
            app.ports.settings.limits.check("image_limit_bytes", len(picture.data) * 3 // 4)
    links = list(dict.fromkeys(picture for picture in pictures if isinstance(picture, ImageLink)))
    found = dict(zip(links, await asyncio.gather(*map(app.fetch_image, links)), strict=True))

    def with_pictures(parts: Sequence[T]) -> tuple[T | Image, ...]:
        """Return the parts with the pictures that were fetched."""
        return tuple(found[part] if isinstance(part, ImageLink) else part for part in parts)

    messages = [replace(message, parts=with_pictures(message.parts)) for message in messages]
    if answers is not None:
        answers = [
            replace(answer, images=with_pictures(answer.images)) if isinstance(answer, ToolReturn) else answer
            for answer in answers
        ]
    return messages, answers


class AsyncRequests(AsyncAgentPart):
    """Messages and answers sent to agents, each with its agent's name; `AsyncAgent` has these methods."""

    async def send_request(self, request: RunRequest) -> Accepted:
        """The run that answers these messages, or goes on with these answers; from here on it is durable.

        Raises: as `prepare`; EmptyMessage, MessageTooLarge, ConversationBusy, ApprovalPending, IdempotencyMismatch.
        """
        return await self._app.runner.accept(await self.prepare(request))

    async def prepare(self, request: RunRequest) -> RunRequest:
        """Prepare a request for the engine: with a new run for its messages, pictures in place of links, the handle of
        its model, call ids in place of message ids, an encrypted callback, and a limit of steps for a new turn.

        Raises: InvalidInput, TooMany, ToolError, NotFound, AnswerInvalid, ModelNotFound, StoreError.
        """
        if self._agent_id not in (None, request.agent_id):
            raise InvalidInput(f"the request is to {request.agent_id}, not to {self._agent_id}")
        ports, options, max_steps = self._ports, request.options, request.max_steps
        if request.answers:
            request = await ports.store.read(to_helper, request)
        if (callback := request.callback) is not None:
            request = replace(request, callback=callback_to_store(callback, ports.cipher))
        if options.model is not None:
            options = replace(options, model=await ModelHandles(self._app).resolve(options.model))
        if not self._app.models.has_chosen or self._app.models.unused_servers:
            agent = await ports.store.read(lambda tx: tx.agents.get(request.agent_id))
            if agent.follows_default:
                await self._app.decide()
        messages, answers = await fetch_images(self._app, request.messages, request.answers)
        is_new_turn = answers is None or bool(messages and request.partial)  # else the limit of the stopped run holds
        if answers is not None:
            named = {message_id for answer in answers if (message_id := _named_request(answer)) is not None}
            if named or (request.renew_steps and max_steps is None):
                calls, own_limit = await ports.store.read(_load_stopped, request, named)
                answers = _with_calls(answers, calls) if named else answers
                is_new_turn = is_new_turn or (request.renew_steps and own_limit in (None, self._app.settings.max_steps))
        if max_steps is None and is_new_turn:
            max_steps = self._app.settings.max_steps
        answers = None if answers is None else tuple(answers)
        run_id = request.run_id or None
        return with_run(
            request, ports, run_id, messages=messages, answers=answers, max_steps=max_steps, options=options
        )

    def follow_accepted(self, accepted: Accepted) -> AsyncIterator[StoredEvent | Delta]:
        """The events of the run from the first to the last, and previews. Raises: NotFound, StoreError."""
        return self._app.runner.follow(accepted.run, known=accepted.events)

    async def reply_to(self, accepted: Accepted) -> Reply:
        """The outcome of the run, once it has ended. Raises: NotFound, StoreError."""
        followed = self._app.runner.follow(accepted.run, known=accepted.events)
        reply = Reply.of([sent async for sent in followed if isinstance(sent, StoredEvent)])
        if accepted.run.options.wants_tokens:
            return await self._ports.store.read(_with_tokens, accepted.run, reply)
        return reply


async def prepare_batch(app: App, parts: Sequence[RunRequest]) -> Sequence[RunRequest]:
    """Prepare a batch's requests. Raises: RequestRefused, with the request's index; StoreError."""
    requests: list[RunRequest] = []
    for place, part in enumerate(parts):
        with named_request(place):
            requests.append(await AsyncRequests(app, part.agent_id).prepare(part))
    return requests


def _with_tokens(tx: Tx, run: Run, reply: Reply) -> Reply:
    """The reply with its `logprobs` and `turns`, if the run asked for them and the providers told them."""
    exchanges = {step.id: tx.steps.exchange(step) for step in tx.steps.list_by_run(run.key)}
    responses = {step_id: exchange.response for step_id, exchange in exchanges.items() if exchange is not None}
    turns: list[ReplyTurn] = []
    last: Mapping[str, Any] = {}
    for message in reply.messages:
        if message.role == "assistant" and message.step_id is not None:
            last = responses.get(message.step_id, {})
            turns.append(ReplyTurn.of_answer(message.text, last))
        turns += [ReplyTurn(text=result.text, tool=result.name) for result in message.results]
    options = run.options
    return replace(
        reply,
        logprobs=last.get("logprobs") if options.logprobs else None,
        turns=tuple(turns) if options.token_ids else None,
    )


def _load_stopped(tx: Tx, request: RunRequest, named: Iterable[str]) -> tuple[Mapping[str, Sequence[str]], int | None]:
    """(message id -> ids of its calls, for those in `named`; step limit of the run that stopped, None: no run did)."""
    conversation = tx.conversations.get_by_seq(request.agent_id, request.conversation_seq)
    pending = find_pending(tx, conversation)
    calls = {message_id: calls_of_request(tx, conversation, message_id) for message_id in named}
    return calls, None if pending is None else pending.run.max_steps


def _named_request(answer: Answer) -> str | None:
    """The id of the message that an answer names in place of a call, empty for the newest; None: it names a call."""
    if isinstance(answer, ToolDecision) and (not answer.call_id or is_id("message", answer.call_id)):
        return answer.call_id
    return None


def _with_calls(answers: Sequence[Answer], calls: Mapping[str, Sequence[str]]) -> Sequence[Answer]:
    """The answers, where a decision that names a message is replaced by one for each of the message's calls (`calls`).
    Raises: AnswerInvalid: it has none that wait."""
    by_call: list[Answer] = []
    for answer in answers:
        request = _named_request(answer)
        if request is None or not isinstance(answer, ToolDecision):
            by_call.append(answer)
            continue
        if not calls[request]:
            raise AnswerInvalid(
                "Cannot process approval response: No tool call is currently awaiting approval"
                f" for {request or 'this agent'}"
            )
        by_call += [ToolDecision(call_id, answer.approve, answer.reason) for call_id in calls[request]]
    return by_call
