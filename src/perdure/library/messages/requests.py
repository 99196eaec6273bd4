"""What is said to an agent and answered to its calls.

The only place that makes a run's request of what a caller says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, TypeVar, Unpack

from perdure.app import App
from perdure.context.sections.envelopes import input_tokens
from perdure.core.answers import Answer, ToolReturn
from perdure.core.errors import AnswerInvalid
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import AgentId, MessageId, RunId, id_in_run, is_id
from perdure.core.messages import Draft, Image, ImageLink, Role, Text, ToolDecision, images_of, text_of
from perdure.core.runs import NO_OPTIONS, Callback, IfBusy, Run, RunOptions
from perdure.engine.approvals.answers import find_pending
from perdure.engine.approvals.decisions import calls_of_request
from perdure.engine.budget import check_budget
from perdure.engine.ports import Ports
from perdure.engine.run.accept import Accepted, Request
from perdure.engine.run.batch import named_request
from perdure.library.checks import callback_to_store, check_sender
from perdure.library.parts import AsyncAgentPart
from perdure.library.providers import ModelHandles
from perdure.library.reply import Reply, Turn
from perdure.storage.tx import Tx

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message that a caller sends."""

    parts: tuple[Text | Image | ImageLink, ...]
    role: Role = "user"
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None

    def draft(self, message_id: MessageId, ports: Ports) -> tuple[Draft, int]:
        """The message as it is stored, under this id, and the upper estimate of its tokens; 0 for one over the limit,
        which is refused before anything is done with it. Raises: InvalidInput, TooMany."""
        parts: tuple[Text | Image, ...] = tuple(part for part in self.parts if not isinstance(part, ImageLink))
        check_sender(ports.settings.limits, self.sender_id, name=self.name, otid=self.otid)
        draft = Draft(
            id=message_id, role=self.role, parts=parts, name=self.name, otid=self.otid, sender_id=self.sender_id
        )
        text = text_of(parts)
        is_too_large = len(text) > ports.settings.message_limit_chars
        return draft, 0 if is_too_large else input_tokens(self.role, text, ports.counter, images=len(images_of(parts)))


class SendOptions(TypedDict, total=False):
    """What may be said with messages; see `AsyncRequests.prepare`."""

    conversation_seq: int
    answers: Sequence[Answer] | None
    answer_otid: str | None
    partial: bool
    client_tools: tuple[Mapping[str, Any], ...] | None
    idempotency_key: str | None
    if_busy: IfBusy
    background: bool
    max_steps: int | None
    renew_steps: bool
    options: RunOptions
    callback: Callback | None


BatchPart = tuple[AgentId, Sequence[NewMessage], SendOptions]
"""One request of a batch: the arguments of `AsyncRequests.prepare`."""


async def fetch_images(
    app: App, messages: Sequence[NewMessage], answers: Sequence[Answer] | None
) -> tuple[Sequence[NewMessage], Sequence[Answer] | None]:
    """The messages and answers with pictures in place of links, all fetched at once, each once.

    Raises: TooMany, InvalidInput, ToolError.
    """
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

    def fetched(parts: Sequence[T]) -> tuple[T | Image, ...]:
        return tuple(found[part] if isinstance(part, ImageLink) else part for part in parts)

    messages = [replace(message, parts=fetched(message.parts)) for message in messages]
    if answers is not None:
        answers = [
            replace(answer, images=fetched(answer.images)) if isinstance(answer, ToolReturn) else answer
            for answer in answers
        ]
    return messages, answers


class AsyncRequests(AsyncAgentPart):
    """What is sent to an agent as messages and answers; `AsyncAgent` has these methods. A conversation is given by its
    number within the agent; the first has 0."""

    async def send_messages(self, messages: Sequence[NewMessage], **options: Unpack[SendOptions]) -> Accepted:
        """The run that answers these messages, or goes on with these answers; from here on it is durable.

        Args:
            options: those of `SendOptions`.
        Raises: as `prepare`; NotFound, ConversationBusy, ApprovalPending, IdempotencyMismatch.
        """
        return await self._app.runner.accept(await self.prepare(messages, **options))

    async def prepare(self, messages: Sequence[NewMessage], **sent: Unpack[SendOptions]) -> Request:
        """The request that the engine accepts, of messages and `SendOptions`.

        Args:
            answers: to calls that wait, `messages` then come behind their results; a decision may name the message
                that holds the calls in place of one call, or with an empty text the newest such message.
            answer_otid: the client's own id of the message that holds the answers.
            partial: the answers may be to some of the calls only.
            client_tools: tools and skills of the caller, as `Request` has them.
            max_steps: of model calls. None: the setting; for answers alone what the run that stopped has left.
            renew_steps: whether answers count anew, unless the message before had a limit of its own.
            options: of this run's own model calls; its model is one that is known here.
            callback: where the end of a background run is reported.
        Raises: InvalidInput, TooMany, ToolError, NotFound, AnswerInvalid, ModelNotFound, StoreError.
        """
        options, answers, seq = sent.get("options", NO_OPTIONS), sent.get("answers"), sent.get("conversation_seq", 0)
        max_steps, renew_steps = sent.get("max_steps"), sent.pop("renew_steps", False)
        sent["callback"] = callback_to_store(sent.get("callback"), self._ports.cipher)
        check_budget(options)
        if options.model is not None:
            options = replace(options, model=await ModelHandles(self._app).resolve(options.model))
        ports = self._ports
        check_sender(ports.settings.limits, answer_otid=sent.get("answer_otid"))
        if self._app.models.unused_servers:
            agent = await ports.store.read(lambda tx: tx.agents.get(self.id))
            if agent.follows_default:
                await self._app.decide()
        messages, answers = await fetch_images(self._app, messages, answers)
        if answers is not None:
            requests = {request for answer in answers if (request := _named_request(answer)) is not None}
            if requests or (renew_steps and max_steps is None):
                calls, own_limit = await ports.store.read(_load_stopped, self.id, seq, requests)
                answers = _with_calls(answers, calls) if requests else answers
                renew_steps = renew_steps and own_limit in (None, self._app.settings.max_steps)
        if max_steps is None and (answers is None or renew_steps or (messages and sent.get("partial"))):
            max_steps = self._app.settings.max_steps
        run_id = RunId(ports.ids.new("run"))
        drafts = [
            message.draft(MessageId(id_in_run(run_id, "input", place, ports.ids)), ports)
            for place, message in enumerate(messages)
        ]
        values: dict[str, Any] = {**sent, "conversation_seq": seq, "max_steps": max_steps, "options": options}
        return Request(
            run_id=run_id,
            agent_id=self.id,
            drafts=tuple(draft for draft, _ in drafts),
            tokens=tuple(tokens for _, tokens in drafts),
            **values | {"answers": None if answers is None else tuple(answers)},
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


async def prepare_batch(app: App, parts: Sequence[BatchPart]) -> Sequence[Request]:
    """The requests of a batch. Raises: RequestRefused, StoreError."""
    requests: list[Request] = []
    for place, (agent_id, messages, options) in enumerate(parts):
        with named_request(place):
            requests.append(await AsyncRequests(app, agent_id).prepare(messages, **options))
    return requests


def _with_tokens(tx: Tx, run: Run, reply: Reply) -> Reply:
    """The reply with what the providers said about the tokens of its answers."""
    exchanges = {step.id: tx.steps.exchange(step) for step in tx.steps.list_by_run(run.key)}
    responses = {step_id: exchange.response for step_id, exchange in exchanges.items() if exchange is not None}
    turns: list[Turn] = []
    last: Mapping[str, Any] = {}
    for message in reply.messages:
        if message.role == "assistant" and message.step_id is not None:
            last = responses.get(message.step_id, {})
            turns.append(Turn.of_answer(message.text, last))
        turns += [Turn(text=result.text, tool=result.name) for result in message.results]
    options = run.options
    return replace(
        reply,
        logprobs=last.get("logprobs") if options.logprobs else None,
        turns=tuple(turns) if options.token_ids else None,
    )


def _load_stopped(
    tx: Tx, agent_id: AgentId, conversation_seq: int, requests: Iterable[str]
) -> tuple[Mapping[str, Sequence[str]], int | None]:
    """The calls of each request, and the limit of steps of the run that stopped, if one did."""
    conversation = tx.conversations.get_by_seq(agent_id, conversation_seq)
    pending = find_pending(tx, conversation)
    calls = {request: calls_of_request(tx, conversation, request) for request in requests}
    return calls, None if pending is None else pending.run.max_steps


def _named_request(answer: Answer) -> str | None:
    """The id of the message that a decision names in place of a call, empty for the newest; None: it names a call."""
    if isinstance(answer, ToolDecision) and (not answer.call_id or is_id("message", answer.call_id)):
        return answer.call_id
    return None


def _with_calls(answers: Sequence[Answer], calls: Mapping[str, Sequence[str]]) -> Sequence[Answer]:
    """The answers, in which a decision that names a request is one for each of its calls. Raises: AnswerInvalid."""
    found: list[Answer] = []
    for answer in answers:
        request = _named_request(answer)
        if request is None or not isinstance(answer, ToolDecision):
            found.append(answer)
            continue
        if not calls[request]:
            raise AnswerInvalid(
                "Cannot process approval response: No tool call is currently awaiting approval"
                f" for {request or 'this agent'}"
            )
        found += [ToolDecision(call_id, answer.approve, answer.reason) for call_id in calls[request]]
    return found
