"""What a caller asks of an agent: one value from the call that makes it to the transaction that stores it (T1).

Everything that a caller may say with its messages is checked here, once, before anything is stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args
from urllib.parse import urlsplit

from perdure.context.sections.envelopes import engine_tokens, input_tokens
from perdure.core.errors import EmptyMessage, InvalidInput, MessageTooLarge
from perdure.core.ids import AgentId, BatchId, MessageId, RunId, id_in_run
from perdure.core.incoming.limits import Limits
from perdure.core.incoming.principals import LIMIT_MAX
from perdure.core.messages import ENGINE_SENDER, Draft, Image, ImageLink, Role, Text, images_of, parts_to_json, text_of
from perdure.core.ports import TokenCounter
from perdure.core.runs import NO_OPTIONS, Callback, IfBusy, RunOptions
from perdure.core.secrets import HIDDEN_QUERY, Cipher, hide_secret
from perdure.core.sources import Source
from perdure.core.specs import ToolOutcome
from perdure.core.tools.answers import Answer, answer_digest
from perdure.domain.secrets import seal_callback
from perdure.engine.ports import EngineSettings, Ports, UnitInputs
from perdure.engine.reading import NOTHING, ModelInput

MAX_STEPS = 10_000
KEY_MAX_CHARS = 255
URL_MAX_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message that a caller sends, or under its own name the engine. `sources`: as `Draft` has them."""

    parts: tuple[Text | Image | ImageLink, ...]
    role: Role = "user"
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    sources: tuple[Source, ...] | None = None

    def check(self, limits: Limits) -> None:
        """Check that a caller's message is not in the engine's name, and its names. Raises: InvalidInput, TooMany."""
        for field_name, name in (("sender_id", self.sender_id), ("name", self.name), ("otid", self.otid)):
            if name is not None:
                limits.check("name_limit_chars", len(name), field=field_name)
        if self.sender_id == ENGINE_SENDER:
            raise InvalidInput(f"sender_id is {ENGINE_SENDER!r}, the name of the engine: give another one")

    def draft(self, message_id: MessageId) -> Draft:
        """Return the message as it is stored, under this id. Its pictures have been fetched."""
        return Draft(
            id=message_id,
            role=self.role,
            parts=tuple([part for part in self.parts if not isinstance(part, ImageLink)]),
            name=self.name,
            otid=self.otid,
            sender_id=self.sender_id,
            sources=self.sources,
        )


NO_RUN = RunId("")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A request of a caller.

    Args:
        messages: what it says; pictures may still be links.
        run_id, drafts, tokens: the run, its messages as they are stored, and the estimates of their tokens, in their
            order: what becomes of `messages` before the request is accepted.
        idempotency_key: the same key again is the same run, whatever became of the first call's answer.
        identity: what tells a retry from another request under the same key; None: the messages and answers.
        answers: to calls of the conversation that wait; the messages then come behind their results. None: a message.
            Until the request is accepted, a decision may name the message that holds the calls in place of one call, or
            with an empty text the newest such message.
        answer_otid: the client's own id of the message that holds the answers.
        partial: the answers may be to some of those calls only; the run goes on when all are answered.
        client_tools: the tools that the caller runs itself, each with name, description and parameters, and the skills
            it has, each with the type "skill", name, description and location; None: the skills that the
            conversation's last request had, for answers all of the run that goes on.
        max_steps: how many model calls it may take; None: the setting, or for answers what the run that stopped has
            left.
        renew_steps: whether answers begin a new count of steps, unless the message before had a limit of its own.
        options: of this run's own model calls.
        callback: where the run's end is reported.
        batch_id: the batch that it is a part of.
        shown: call -> the result that an answer brings, with what the model sees of it.
        yields: nobody waits for it: it makes nobody else wait. Kept in this process only.
        sent_chars: how many characters count for limits, where `drafts` hold words of the engine; None: theirs.
        reading: what `drafts` were made of.
    """

    agent_id: AgentId
    conversation_seq: int = 0
    messages: tuple[NewMessage, ...] = ()
    run_id: RunId = NO_RUN
    drafts: tuple[Draft, ...] = ()
    tokens: tuple[int, ...] = ()
    idempotency_key: str | None = None
    if_busy: IfBusy = "wait"
    background: bool = False
    max_steps: int | None = None
    renew_steps: bool = False
    answers: tuple[Answer, ...] | None = None
    answer_otid: str | None = None
    partial: bool = False
    client_tools: tuple[Mapping[str, Any], ...] | None = None
    options: RunOptions = NO_OPTIONS
    callback: Callback | None = None
    batch_id: BatchId | None = None
    shown: Mapping[str, ToolOutcome] = field(default_factory=dict)
    identity: str | None = None
    sent_chars: int | None = None
    yields: bool = False
    reading: ModelInput = NOTHING

    @property
    def chars(self) -> int:
        """The characters of messages, and of a system text in place of the agent's; without what hooks added."""
        if self.sent_chars is not None:
            return self.sent_chars
        texts = (text_of(draft.parts) for draft in self.drafts if draft.kind == "message")
        return sum(map(len, texts)) + len(self.options.system or "")

    @property
    def digest(self) -> str:
        """The digest of messages and answers: it tells a retry from another request under the same key."""
        if self.identity is not None:
            return hashlib.sha256(self.identity.encode("utf-8", "surrogatepass")).hexdigest()
        return self._digest(*(() if self.answers is None else (answer_digest(self.answers),)))

    @property
    def message_digest(self) -> str | None:
        """The digest of the messages alone; None: there are none."""
        return self._digest() if self.drafts else None

    def _digest(self, *more: str) -> str:
        """SHA-256 of the caller's messages and of `more`."""
        messages = [[draft.role, parts_to_json(draft.parts)] for draft in self.drafts if draft.kind == "message"]
        return hashlib.sha256(json.dumps([*messages, *more]).encode()).hexdigest()


def with_run(
    request: RunRequest,
    inputs: Ports | UnitInputs,
    run_id: RunId | None = None,
    *,
    messages: Sequence[NewMessage] | None = None,
    **fields: Any,
) -> RunRequest:
    """Return the request with a run, by default a new one, and its messages as they are stored.

    Args:
        messages: come in place of those of the request; `fields`: other fields, with the values that they get.
    """
    run_id = run_id or RunId(inputs.ids.new("run"))
    drafts = [
        message.draft(MessageId(id_in_run(run_id, "input", place, inputs.ids)))
        for place, message in enumerate(request.messages if messages is None else messages)
    ]
    limit = inputs.settings.message_limit_chars if request.sent_chars is None else None
    tokens = tuple([tokens_of(draft, inputs.counter, limit) for draft in drafts])
    return replace(request, run_id=run_id, messages=(), drafts=tuple(drafts), tokens=tokens, **fields)


def tokens_of(draft: Draft, counter: TokenCounter, limit_chars: int | None) -> int:
    """Return the upper estimate of a message in a request; 0 for one over the limit, which is refused."""
    text = text_of(draft.parts)
    if draft.sender_id == ENGINE_SENDER:
        return engine_tokens(text, counter)
    if limit_chars is not None and len(text) > limit_chars:
        return 0
    return input_tokens(draft.role, text, counter, images=len(images_of(draft.parts)))


def check_request(request: RunRequest, settings: EngineSettings) -> None:
    """Check a whole request of a caller. Raises: EmptyMessage, TooMany, MessageTooLarge, InvalidInput."""
    tokens, cost = request.options.max_tokens, request.options.max_cost_usd
    if tokens is not None and not (type(tokens) is int and 1 <= tokens <= LIMIT_MAX):
        raise InvalidInput(f"max_tokens is {tokens!r:.80}: give a whole number from 1 on")
    if cost is not None and not (type(cost) in (int, float) and 0 < cost < LIMIT_MAX):
        raise InvalidInput(f"max_cost_usd is {cost!r:.80}: give a number of US dollars above 0")
    model, tools = request.options.model, request.options.tools
    if model is not None and not isinstance(model, str):
        raise InvalidInput(f"model is {model!r:.80}: give the handle of a model")
    if tools is not None and (isinstance(tools, str) or not all(isinstance(tool, str) for tool in tools)):
        raise InvalidInput(f"tools is {tools!r:.80}: give a list of names of tools")
    if request.answer_otid is not None:
        settings.limits.check("name_limit_chars", len(request.answer_otid), field="answer_otid")
    check_input(
        request.drafts,
        settings,
        may_be_empty=request.answers is not None,
        max_steps=request.max_steps,
        idempotency_key=request.idempotency_key,
        if_busy=request.if_busy,
    )


def check_input(
    drafts: Sequence[Draft],
    settings: EngineSettings,
    *,
    may_be_empty: bool = False,
    max_steps: int | None = None,
    idempotency_key: str | None = None,
    if_busy: IfBusy = "wait",
) -> None:
    """Check a caller's messages and options. Raises: EmptyMessage, TooMany, MessageTooLarge, InvalidInput."""
    if not drafts and not may_be_empty:
        raise EmptyMessage
    settings.limits.check("messages_per_request", len(drafts))
    if (size := sum(len(text_of(draft.parts)) for draft in drafts)) > settings.message_limit_chars:
        raise MessageTooLarge(size=size, limit=settings.message_limit_chars)
    for draft in drafts:
        if not text_of(draft.parts).strip():
            raise EmptyMessage
    if max_steps is not None and not (type(max_steps) is int and 1 <= max_steps <= MAX_STEPS):
        raise InvalidInput(f"max_steps is {max_steps!r:.80}: give a whole number from 1 to {MAX_STEPS:,}")
    key = idempotency_key
    if key is not None and not (isinstance(key, str) and 1 <= len(key) <= KEY_MAX_CHARS):
        raise InvalidInput(
            f"idempotency_key is {key!r:.80}: give a text of 1 to {KEY_MAX_CHARS} characters, such as a new UUID"
        )
    if if_busy not in get_args(IfBusy):
        raise InvalidInput(f"if_busy is {if_busy!r:.80}: it can be {', '.join(map(repr, get_args(IfBusy)))}")


def callback_to_store(callback: Callback, cipher: Cipher) -> Callback:
    """Check a callback's address; return it encrypted. Raises: InvalidInput: not allowed; SecretKeyMissing."""
    url, problem = callback.url, ""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            problem = "begin it with http:// or https:// and a host"
        elif parts.username is not None:
            problem = "it holds a user name or password, which everybody could read"
        elif url.endswith(HIDDEN_QUERY):
            problem = "this is how it is shown: write its query out"
    except ValueError as error:
        problem = str(error)
    if len(url) > URL_MAX_CHARS:
        problem = f"give at most {URL_MAX_CHARS:,} characters"
    if problem:
        raise InvalidInput(f"callback_url is {hide_secret(url)[0]!r:.80}: {problem}")
    return seal_callback(callback, cipher)
