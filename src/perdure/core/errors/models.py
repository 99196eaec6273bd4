"""What goes wrong between us and a model; named with all others in `perdure.core.errors`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from perdure.core.errors.root import PerdureError
from perdure.core.runs import NO_USAGE, StopReason, Usage


class ModelError(PerdureError):
    """The model did not answer.

    Args:
        kind: the wire's error type, such as `llm_rate_limit`.
        stop_reason: how the run ends.
        status: the HTTP status the provider answered with, if it did.
        retry_after_s: how long it asked us to wait.
        retryable: whether the same request may succeed a little later.
        exchange: what went over the wire (`core.models.Exchange`).
        usage: the tokens of an answer that can't be used, where the provider counted them.
    """

    kind = "llm_error"
    stop_reason: StopReason = "llm_api_error"
    retryable = False

    def __init_subclass__(
        cls, *, kind: str = "", stop_reason: StopReason = "llm_api_error", retryable: bool = False
    ) -> None:
        """Set what all errors of the class have. `kind` is also their code; without one they are an `llm_error`."""
        super().__init_subclass__()
        if kind:
            cls.code = cls.kind = kind
        cls.stop_reason, cls.retryable = stop_reason, retryable

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        stop_reason: StopReason | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
        exchange: object = None,
        usage: Usage = NO_USAGE,
    ) -> None:
        super().__init__(message)
        self.kind = kind or self.kind
        self.stop_reason = stop_reason or self.stop_reason
        self.status, self.retry_after_s, self.exchange, self.usage = status, retry_after_s, exchange, usage


class ModelRateLimited(ModelError, kind="llm_rate_limit", retryable=True):
    """Too many requests or tokens a minute."""


class ModelQuotaExceeded(ModelError, kind="llm_insufficient_credits", stop_reason="insufficient_credits"):
    """The account has no credit left: waiting does not help."""


class ModelAuthenticationFailed(ModelError, kind="llm_authentication"):
    """The key is missing, wrong or not allowed to use this model."""


class ModelOverloaded(ModelError, kind="llm_error", retryable=True):
    """The provider is down or overloaded (5xx)."""


class ModelLoading(ModelOverloaded, kind="llm_error", retryable=True):
    """Its server is still loading the model."""


class ModelUnreachable(ModelError, kind="llm_error", retryable=True):
    """No connection to the provider could be made."""


class ModelTimeout(ModelError, kind="llm_timeout", retryable=True):
    """The provider did not answer in time."""


class ModelStreamCut(ModelError, kind="stream_incomplete", retryable=True):
    """The answer stopped before its end."""


class ModelRequestRefused(ModelError, kind="llm_bad_request"):
    """The provider does not take this request (4xx): the same one will not succeed later."""


class ModelTakesNoTools(ModelRequestRefused, kind="llm_bad_request"):
    """The server takes no request with tools for this model; it may take the same one without."""


class ModelOverflow(ModelError, kind="context_window_exceeded"):
    """The request is larger than the model's window.

    Args:
        window_tokens, prompt_tokens: of the window and the request, as the server counts them; None: it does not say.
    """

    def __init__(
        self, message: str, *, window_tokens: int | None = None, prompt_tokens: int | None = None, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.window_tokens, self.prompt_tokens = window_tokens, prompt_tokens

    @property
    def is_of_answer(self) -> bool:
        """Whether the request alone would leave the window a quarter for the answer: the room asked for that was too
        much."""
        window = self.window_tokens or 0
        return self.prompt_tokens is not None and self.prompt_tokens <= window - window // 4


class ModelRefused(ModelError, kind="llm_refusal", stop_reason="invalid_llm_response"):
    """The model, or a filter before it, declined to answer."""


class ModelReplyEmpty(ModelError, kind="llm_empty_response", stop_reason="invalid_llm_response", retryable=True):
    """The answer has neither text nor a tool call."""


class ModelReplyInvalid(ModelError, kind="llm_error", stop_reason="invalid_llm_response"):
    """The answer can't be read, or is not the one that was asked for."""


class ModelNotFound(ModelError):
    """No model of this handle is available in this process; `helps` says what to do, or is empty."""

    def __init__(self, handle: str, *, known: Sequence[str], helps: str = "") -> None:
        text = f"model {handle!r} is not available here: there are {', '.join(known) or 'none'}"
        super().__init__(f"{text}. {helps}" if helps else text, kind="llm_bad_request")
        self.handle, self.known, self.helps = handle, tuple(known), helps


class IrreducibleFloor(PerdureError):
    """What a request can't do without is larger than the window, so the model was not called.

    Args:
        reason: why nothing more could go: `no_candidate` (there is nothing that could leave the view) or
            `floor_exceeds_target` (what has to stay is too large by itself).
        sizes: part of the request -> its estimated tokens.
        refused_tokens: how many the provider has just refused as too large, although they are fewer than the window; 0:
            it has not.
        message: the id of the message that is too large by itself, and its tokens; None: it is not one message.
    """

    code = kind = "context_window_exceeded"
    stop_reason: StopReason = "context_window_overflow_in_system_prompt"

    def __init__(
        self,
        *,
        reason: Literal["no_candidate", "floor_exceeds_target"],
        sizes: Mapping[str, int],
        window_tokens: int,
        reserve_tokens: int,
        refused_tokens: int = 0,
        message: tuple[str, int] | None = None,
    ) -> None:
        parts = ", ".join(f"{name} {tokens:,}" for name, tokens in sizes.items() if tokens)
        if refused_tokens > 0:
            parts += f"; and its provider refused about {refused_tokens:,} as too large: its window may be smaller"
        largest = "" if message is None else f"; {message[0]} alone has about {message[1]:,}"
        super().__init__(
            f"the request can't be made to fit: a window of {window_tokens:,} tokens, {reserve_tokens:,} of them kept"
            f" for the answer, has to hold {parts}{largest}. Shorten what is largest (memory blocks, the system prompt,"
            " the message), detach tools, or use a model with a larger window (`context_window_tokens`)"
        )
        self.reason, self.sizes = reason, dict(sizes)
        self.window_tokens, self.reserve_tokens = window_tokens, reserve_tokens
        self.message = message
