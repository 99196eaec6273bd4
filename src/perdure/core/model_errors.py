"""What goes wrong between us and a model, what tools say no with, and what keeps one from being run; named with all
others in `perdure.core.errors`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from perdure.core.runs import NO_USAGE, StopReason, Usage
from perdure.core.store_errors import PerdureError


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
        """Set what all errors of a subclass have, from its `class` statement; `kind`, if given, is also their code."""
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
    """The model's server is still loading it."""


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
    """The request is larger than the model's window. `window_tokens`, `prompt_tokens`: of the window and the request,
    as the server counts them; None: it does not say."""

    def __init__(
        self, message: str, *, window_tokens: int | None = None, prompt_tokens: int | None = None, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.window_tokens, self.prompt_tokens = window_tokens, prompt_tokens

    @property
    def is_of_answer(self) -> bool:
        """Whether the prompt fills at most three quarters of the window: then too much was reserved for the answer."""
        window = self.window_tokens or 0
        return self.prompt_tokens is not None and self.prompt_tokens <= window - window // 4


class ModelRefused(ModelError, kind="llm_refusal", stop_reason="invalid_llm_response"):
    """The model, or a filter before it, declined to answer."""


class ModelReplyEmpty(ModelError, kind="llm_empty_response", stop_reason="invalid_llm_response", retryable=True):
    """The answer has neither text nor a tool call."""


class ModelReplyInvalid(ModelError, kind="llm_error", stop_reason="invalid_llm_response"):
    """The answer can't be read, or is not the one that was asked for."""


class ModelNotFound(ModelError):
    """No model of this handle is available here. `known` are the handles that are; `helps` says what to do, if any."""

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
        message: (id, estimated tokens) of the message that is too large by itself; None: it is not one message.
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


class ToolError(PerdureError):
    """A tool can't do what the model asked. The message becomes the call's error result; the run goes on."""


class InvalidArguments(ToolError):
    """A model called a tool with arguments that do not fit it."""

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"the arguments of {tool} were not usable: {problem}. The tool was not run.")
        self.tool, self.problem = tool, problem


class CallRepeated(ToolError):
    """A model made a call of `tool` again that has failed `times` times, and learned nothing new meanwhile."""

    def __init__(self, tool: str, *, times: int) -> None:
        super().__init__(
            f"call_repeated: this call of {tool} has failed {times} times, and nothing new was learned meanwhile, so it"
            " was not run again. Change its arguments, take another way, or say what is missing."
        )
        self.tool, self.times = tool, times


class AnswerDemanded(ToolError):
    """A model had to answer or ask the user, but called `tool`."""

    def __init__(self, tool: str, *, how: str) -> None:
        super().__init__(
            f"answer_demanded: {tool} was not run, because too many steps brought nothing new. {how}: say where you"
            " stand, and what you need."
        )
        self.tool = tool


class BlockLimitExceeded(ToolError):
    """An edit would make a block longer than its limit. The model sees it and may shorten the text."""

    def __init__(self, label: str, *, size: int, limit: int) -> None:
        super().__init__(
            f"block {label!r} would hold {size:,} characters, its limit is {limit:,}."
            " Shorten the text, or remove what is outdated first."
        )
        self.label, self.size, self.limit = label, size, limit


class BlockReadOnly(ToolError):
    """A tool tried to edit a read-only block."""

    def __init__(self, label: str) -> None:
        super().__init__(f"This block is read-only and cannot be edited. Only people can change {label!r}.")
        self.label = label


class BlockProtected(ToolError):
    """An agent, or Perdure itself, tried to change a block that only a person changes. Nothing was written."""

    def __init__(self, label: str) -> None:
        super().__init__(
            f"Block {label!r} is protected: only a person changes it. Propose the change with propose_change, which a"
            " person approves or refuses."
        )
        self.label = label


class ProposalRefused(ToolError):
    """An agent proposed a change that a person has refused; `decision` is why, `number` that of the proposal then."""

    def __init__(self, label: str, *, number: int, decision: str) -> None:
        why = f": {decision}" if decision else ""
        super().__init__(
            f"a person has refused this change of {label!r} (proposal {number}){why}. Propose something else, or"
            " leave it as it is."
        )
        self.label, self.number, self.decision = label, number, decision


class BlockChanged(ToolError):
    """A tool would rewrite a block that another writer changed after the model saw it; its value now is `value`."""

    words = "was changed by somebody else since you were shown it"

    def __init__(self, label: str, value: str) -> None:
        super().__init__(
            f"block {label!r} {self.words}, so it was not rewritten. Merge your text into what it holds now, and call"
            f" the tool again. It now holds:\n{value}"
        )
        self.label, self.value = label, value


class TextNotFound(ToolError):
    """The text to replace is not in the block."""

    def __init__(self, label: str, text: str) -> None:
        super().__init__(
            f"No replacement was performed, old_string `{text[:200]}` did not appear verbatim in memory block with"
            f" label `{label}`. Copy the text exactly as it stands in the block, white space included."
        )
        self.label, self.text = label, text


class TextAmbiguous(ToolError):
    """The text to replace is in the block more than once."""

    def __init__(self, label: str, text: str, *, lines: Sequence[int]) -> None:
        super().__init__(
            f"No replacement was performed, old_string `{text[:200]}` appears {len(lines)} times in memory block with"
            f" label `{label}` (lines {', '.join(map(str, lines))})."
            " Add more of the surrounding text so that it is unique."
        )
        self.label, self.text, self.lines = label, text, tuple(lines)


class LineNumbersInText(ToolError):
    """The text in `argument` of a memory tool has the line numbers with which a block is only shown."""

    def __init__(self, argument: str) -> None:
        super().__init__(
            f"{argument} contains a line number prefix, which is not allowed: numbers only show where a line stands."
            " Give the text without them."
        )
        self.argument = argument


class PatchInvalid(ToolError):
    """A patch could not be read or does not fit the text; nothing of it was applied."""


class UntrustedWrite(ToolError):
    """An agent may not change its memory after content from outside entered its context; `policy` is its setting."""

    def __init__(self, tool: str, sources: str, policy: str) -> None:
        helps = (
            "tell the user what you wanted to remember and why. A person can change the memory by hand, go on in a new"
            " conversation, or set untrusted_writes to 'approve'"
            if policy == "block"
            else "call it again by itself, and it will be asked for"
        )
        verb = "was blocked" if policy == "block" else "needs somebody's approval"
        super().__init__(
            f"memory was not changed: {tool} {verb}, because this conversation holds content from {sources}, and"
            f" untrusted_writes is {policy!r}. What to do: {helps}."
        )
        self.tool, self.sources, self.policy = tool, sources, policy


class CircularWait(ToolError):
    """An agent wants to wait for another one that waits for it: neither would ever go on."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(
            f"{agent_id} waits for your own answer, so it can't reply now: answer first, or do not wait (with"
            " send_message_to_agent_async; in Python with `submit`)"
        )
        self.agent_id = agent_id


class TooManyHops(ToolError):
    """Agents have passed a message on too often, each because of the one before; `hops` is how often."""

    def __init__(self, hops: int) -> None:
        super().__init__(f"agents have passed this message on {hops} times, which is the limit: answer it yourself")
        self.hops = hops


class TooManyMessages(ToolError):
    """Agents have sent the most messages that may follow from one run; `origin` is that run's id, `most` the limit."""

    def __init__(self, origin: str, most: int) -> None:
        super().__init__(
            f"{most:,} messages between agents have come of {origin}, which is the limit: answer without another one"
        )
        self.origin, self.most = origin, most


class NoReply(ToolError):
    """Another agent gives no reply to a message. The message is stored; the run `run_id` may still answer it."""

    def __init__(self, agent_id: str, run_id: str, problem: str) -> None:
        super().__init__(f"{agent_id} {problem}")
        self.agent_id, self.run_id, self.problem = agent_id, run_id, problem


class ReplyTimeout(NoReply):
    """Another agent does not reply within `after_s` seconds; its run goes on."""

    def __init__(self, agent_id: str, run_id: str, *, after_s: float) -> None:
        super().__init__(agent_id, run_id, f"did not reply within {after_s:g} s; it goes on in {run_id}")
        self.after_s = after_s


class AgentFailed(NoReply):
    """Another agent's run ends with a failure."""


class AgentAwaitsApproval(NoReply):
    """Another agent calls a tool that needs a person's approval, and waits for it."""

    def __init__(self, agent_id: str, run_id: str) -> None:
        super().__init__(agent_id, run_id, "called a tool that needs somebody's approval, and waits for it")


class AddressRefused(ToolError):
    """A URL that Perdure does not fetch, such as one of this machine, a private network or an unusual port."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address!r} was not asked for: {reason}.")
        self.address, self.reason = address, reason


class SandboxUnavailable(PerdureError):
    """Custom tools can't run: this machine can't isolate code well enough, or the sandbox does not start. `missing`:
    names of the isolation measures that don't work here, explained by `perdure doctor`."""

    def __init__(self, why: str, *, missing: Sequence[str] = ()) -> None:
        details = f" (missing: {', '.join(missing)})" if missing else ""
        super().__init__(f"custom tools can't be run here: {why}{details}; `perdure doctor` tells more")
        self.why, self.missing = why, tuple(missing)


class HookBlocked(PerdureError):
    """A hook blocked an action, at this `point` (`core.hooks.HookPoint`). A message that it refused was not stored; a
    run that it ended keeps its messages."""

    def __init__(self, hook: str, point: str, reason: str) -> None:
        super().__init__(f"blocked by hook {hook!r}: {reason}")
        self.hook, self.point, self.reason = hook, point, reason
