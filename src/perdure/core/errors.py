"""Every error Perdure raises on purpose.

    PerdureError
    ├── InvalidInput            the caller's value is wrong; nothing was written
    │   ├── EmptyMessage
    │   ├── MessageTooLarge
    │   └── NameInvalid
    ├── NotFound                no such agent, block, conversation, run, ... here
    │   └── BlockNotFound       (also a ToolError)
    ├── Conflict                the state has moved on, or is in use
    │   ├── VersionConflict
    │   ├── AlreadyExists
    │   ├── ConversationBusy
    │   └── IdempotencyMismatch
    ├── ToolError               the model sees it and may act on it; the run goes on
    │   ├── InvalidArguments
    │   ├── BlockNotFound
    │   ├── BlockLimitExceeded
    │   ├── BlockReadOnly
    │   ├── TextNotFound
    │   ├── TextAmbiguous
    │   └── PatchInvalid
    ├── RunFailed               a run ended without an answer; the message is kept
    ├── ModelError              the provider failed; the run ends with its reason
    │   ├── ModelNotFound
    │   ├── ModelRateLimited, ModelQuotaExceeded, ModelAuthenticationFailed
    │   ├── ModelOverloaded, ModelUnreachable, ModelTimeout, ModelStreamCut
    │   ├── ModelRequestRefused, ModelOverflow
    │   └── ModelRefused, ModelReplyEmpty, ModelReplyInvalid
    ├── IrreducibleFloor        a request can't be made to fit its window; the run ends before the call
    ├── StoreError              the database could not do it
    │   ├── StoreBusy
    │   ├── StoreFull
    │   ├── StoreReadOnly
    │   ├── StoreTooNew
    │   ├── StoreClosed
    │   └── NotAStore
    ├── IllegalLog              a log that must not exist was found: a defect of ours
    ├── ReplayMismatch          a past request can't be rebuilt as it was sent
    └── LeaseLost               another process has taken this run over

Messages say what happened, with which value, and what helps; the facts stand in attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from perdure.core.runs import StopReason

__all__ = [
    "AlreadyExists",
    "BlockLimitExceeded",
    "BlockNotFound",
    "BlockReadOnly",
    "Conflict",
    "ConversationBusy",
    "EmptyMessage",
    "IdempotencyMismatch",
    "IllegalLog",
    "InvalidArguments",
    "InvalidInput",
    "IrreducibleFloor",
    "LeaseLost",
    "MessageTooLarge",
    "ModelAuthenticationFailed",
    "ModelError",
    "ModelNotFound",
    "ModelOverflow",
    "ModelOverloaded",
    "ModelQuotaExceeded",
    "ModelRateLimited",
    "ModelRefused",
    "ModelReplyEmpty",
    "ModelReplyInvalid",
    "ModelRequestRefused",
    "ModelStreamCut",
    "ModelTimeout",
    "ModelUnreachable",
    "NameInvalid",
    "NotAStore",
    "NotFound",
    "PatchInvalid",
    "PerdureError",
    "ReplayMismatch",
    "RunFailed",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreTooNew",
    "TextAmbiguous",
    "TextNotFound",
    "ToolError",
    "VersionConflict",
]


class PerdureError(Exception):
    """The root: catch this to catch everything Perdure raises on purpose."""

    code: ClassVar[str] = "error"


class InvalidInput(PerdureError):
    """A value from the caller can't be used. Nothing was written."""

    code = "invalid_input"


class EmptyMessage(InvalidInput):
    code = "empty_message"

    def __init__(self) -> None:
        super().__init__("the message is empty: send at least one character that is not white space")


class MessageTooLarge(InvalidInput):
    code = "message_too_large"

    def __init__(self, *, size: int, limit: int) -> None:
        super().__init__(
            f"the message has {size:,} characters, the limit is {limit:,}:"
            " send it in parts, or raise PERDURE_MESSAGE_LIMIT_CHARS"
        )
        self.size, self.limit = size, limit


class NameInvalid(InvalidInput):
    code = "name_invalid"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"{kind} name {name[:80]!r} can't be used: 1 to 200 characters, letters, digits, spaces, _ ' and - only"
        )
        self.kind, self.name = kind, name


class NotFound(PerdureError):
    """There is no such thing in this organisation."""

    code = "not_found"

    def __init__(self, kind: str, key: str, *, hint: str = "") -> None:
        super().__init__(f"{kind} {key!r} not found" + (f": {hint}" if hint else ""))
        self.kind, self.key = kind, key


class Conflict(PerdureError):
    """The state is not what the caller thought."""

    code = "conflict"


class VersionConflict(Conflict):
    code = "version_conflict"

    def __init__(self, key: str, *, expected: int, found: int | None) -> None:
        super().__init__(
            f"{key} is at version {found}, not {expected}: somebody else wrote first; read it again and repeat the edit"
        )
        self.key, self.expected, self.found = key, expected, found


class AlreadyExists(Conflict):
    code = "already_exists"

    def __init__(self, kind: str, key: str) -> None:
        super().__init__(f"{kind} {key!r} exists already: choose another name, or edit the one that is there")
        self.kind, self.key = kind, key


class ConversationBusy(Conflict):
    code = "conversation_busy"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"the conversation is busy with {run_id}: wait for it, cancel it, or send with if_busy='wait'")
        self.run_id = run_id


class IdempotencyMismatch(Conflict):
    code = "idempotency_mismatch"

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} was used for another message here: use a new key for a new message")
        self.key = key


class ToolError(PerdureError):
    """What a tool tells the model. It becomes the call's error result; the run goes on."""

    code = "tool_error"


class InvalidArguments(ToolError):
    code = "invalid_arguments"

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"the arguments of {tool} were not usable: {problem}. The tool was not run.")
        self.tool, self.problem = tool, problem


class BlockNotFound(NotFound, ToolError):
    code = "block_not_found"

    def __init__(self, label: str, *, known: Sequence[str] = ()) -> None:
        NotFound.__init__(self, "memory block", label, hint=f"there are {', '.join(known)}" if known else "")
        self.label, self.known = label, tuple(known)


class BlockLimitExceeded(ToolError):
    """An edit would make a block longer than its limit. The model sees it and may shorten the text."""

    code = "block_limit_exceeded"

    def __init__(self, label: str, *, size: int, limit: int) -> None:
        super().__init__(
            f"block {label!r} would hold {size:,} characters, its limit is {limit:,}."
            " Shorten the text, or remove what is outdated first."
        )
        self.label, self.size, self.limit = label, size, limit


class BlockReadOnly(ToolError):
    code = "block_read_only"

    def __init__(self, label: str) -> None:
        super().__init__(f"block {label!r} is read-only and can't be edited by a tool.")
        self.label = label


class TextNotFound(ToolError):
    code = "text_not_found"

    def __init__(self, label: str, text: str) -> None:
        super().__init__(
            f"no replacement was made: {text[:200]!r} does not appear verbatim in memory block {label!r}."
            " Copy the text exactly as it stands in the block, white space included."
        )
        self.label, self.text = label, text


class TextAmbiguous(ToolError):
    code = "text_ambiguous"

    def __init__(self, label: str, text: str, *, lines: Sequence[int]) -> None:
        super().__init__(
            f"no replacement was made: {text[:200]!r} appears {len(lines)} times in memory block {label!r}"
            f" (lines {', '.join(map(str, lines))}). Add more of the surrounding text so that it is unique."
        )
        self.label, self.text, self.lines = label, text, tuple(lines)


class PatchInvalid(ToolError):
    """A patch could not be read or does not fit the text; nothing of it was applied."""

    code = "patch_invalid"


class ModelError(PerdureError):
    """The model did not answer.

    Args:
        kind: the wire's error type, such as `llm_rate_limit`.
        stop_reason: how the run ends.
        status: the HTTP status the provider answered with, if it did.
        retry_after_s: how long it asked us to wait.
        retryable: whether the same request may succeed a little later.
        exchange: what went over the wire (`core.models.Exchange`).
    """

    code = "model_error"
    kind = "llm_error"
    stop_reason: StopReason = "llm_api_error"
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        stop_reason: StopReason | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
        exchange: object = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind or self.kind
        self.stop_reason = stop_reason or self.stop_reason
        self.status, self.retry_after_s, self.exchange = status, retry_after_s, exchange


class ModelRateLimited(ModelError):
    """Too many requests or tokens a minute."""

    code = kind = "llm_rate_limit"
    retryable = True


class ModelQuotaExceeded(ModelError):
    """The account has no credit left: waiting does not help."""

    code = kind = "llm_insufficient_credits"
    stop_reason: StopReason = "insufficient_credits"


class ModelAuthenticationFailed(ModelError):
    """The key is missing, wrong or not allowed to use this model."""

    code = kind = "llm_authentication"


class ModelOverloaded(ModelError):
    """The provider is down or overloaded (5xx)."""

    code = kind = "llm_error"
    retryable = True


class ModelUnreachable(ModelError):
    """No connection to the provider could be made."""

    code = kind = "llm_error"
    retryable = True


class ModelTimeout(ModelError):
    """The provider did not answer in time."""

    code = kind = "llm_timeout"
    retryable = True


class ModelStreamCut(ModelError):
    """The answer stopped before its end."""

    code = kind = "stream_incomplete"
    retryable = True


class ModelRequestRefused(ModelError):
    """The provider does not take this request (4xx): the same one will not succeed later."""

    code = kind = "llm_bad_request"


class ModelOverflow(ModelError):
    """The request is larger than the model's window."""

    code = kind = "context_window_exceeded"


class IrreducibleFloor(PerdureError):
    """What a request can't do without is larger than the window, so the model was not called.

    Args:
        reason: why nothing more could go: `no_candidate` (there is nothing that could leave the view) or
            `floor_exceeds_target` (what has to stay is too large by itself).
        sizes: part of the request -> its estimated tokens.
        refused_tokens: how many the provider has just refused as too large, although they are fewer than the window; 0:
            it has not.
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
    ) -> None:
        told = ", ".join(f"{name} {tokens:,}" for name, tokens in sizes.items() if tokens)
        if refused_tokens > 0:
            told += f"; and its provider refused about {refused_tokens:,} as too large: its window may be smaller"
        super().__init__(
            f"the request can't be made to fit: a window of {window_tokens:,} tokens, {reserve_tokens:,} of them kept"
            f" for the answer, has to hold {told}. Shorten what is largest (memory blocks, the system prompt, the"
            " message), detach tools, or use a model with a larger window (`context_window_tokens`)"
        )
        self.reason, self.sizes = reason, dict(sizes)
        self.window_tokens, self.reserve_tokens = window_tokens, reserve_tokens


class ModelRefused(ModelError):
    """The model, or a filter before it, declined to answer."""

    code = kind = "llm_refusal"
    stop_reason: StopReason = "invalid_llm_response"


class ModelReplyEmpty(ModelError):
    """Neither text nor a tool call."""

    code = kind = "llm_empty_response"
    stop_reason: StopReason = "invalid_llm_response"
    retryable = True


class ModelReplyInvalid(ModelError):
    """An answer that can't be read, or not the one that was asked for."""

    code = kind = "llm_error"
    stop_reason: StopReason = "invalid_llm_response"


class ModelNotFound(ModelError):
    code = "model_not_found"

    def __init__(self, handle: str, *, known: Sequence[str]) -> None:
        super().__init__(
            f"model {handle!r} is not available here: there are {', '.join(known) or 'none'}", kind="llm_bad_request"
        )
        self.handle, self.known = handle, tuple(known)


class RunFailed(PerdureError):
    """A run ended without an answer. The message is kept; `reply` tells how far it came."""

    code = "run_failed"

    def __init__(self, message: str, *, run_id: str, stop_reason: StopReason, reply: object) -> None:
        super().__init__(f"the run ended with {stop_reason}: {message}")
        self.run_id, self.stop_reason, self.reply = run_id, stop_reason, reply


class StoreError(PerdureError):
    """The database could not do it. What was not acknowledged was not written."""

    code = "store_error"


class StoreBusy(StoreError):
    code = "store_busy"


class StoreFull(StoreError):
    code = "store_full"


class StoreReadOnly(StoreError):
    code = "store_read_only"


class StoreTooNew(StoreError):
    code = "store_too_new"

    def __init__(self, place: str, *, found: int, known: int) -> None:
        super().__init__(
            f"{place} was written by a newer Perdure (schema {found}, this one knows {known}):"
            " upgrade Perdure; the file was not touched"
        )
        self.place, self.found, self.known = place, found, known


class StoreClosed(StoreError):
    code = "store_closed"

    def __init__(self) -> None:
        super().__init__("the store is closed: open it again")


class NotAStore(StoreError):
    code = "not_a_store"


class IllegalLog(PerdureError):
    """A log that must not exist was found, such as a call without a result in a finished run: a defect of ours."""

    code = "illegal_log"


class ReplayMismatch(PerdureError):
    """A past request, rebuilt from the log, is not the one that was sent: the store is damaged, or a defect of ours.

    Args:
        recorded, rebuilt: the digests of the two; `rebuilt` is empty where no request can be made at all, and `why`
            then says what is missing.
    """

    code = "replay_mismatch"

    def __init__(self, step_id: str, *, recorded: str, rebuilt: str = "", why: str = "") -> None:
        found = f"its digest is {rebuilt}, what was sent had {recorded}" if rebuilt else why
        super().__init__(
            f"the request of {step_id} can't be rebuilt from the log as it was sent: {found}. The store is damaged"
            " (`perdure doctor` looks), or this is a defect of Perdure: please report it"
        )
        self.step_id, self.recorded, self.rebuilt = step_id, recorded, rebuilt


class LeaseLost(PerdureError):
    """Another process has taken this run over; whoever sees this stops working on it."""

    code = "lease_lost"
