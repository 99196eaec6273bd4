"""Requests to a language model and its replies, in one shape for every provider; and the model providers that clients
register, with their keys encrypted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, Protocol, TypeAlias

from perdure.core.errors import InvalidInput
from perdure.core.ids import OrgId, ProviderId
from perdure.core.messages import Message, Part, Text
from perdure.core.runs import StopReason, Usage
from perdure.core.secrets import Cipher, hide_secret, with_secret

ToolChoice: TypeAlias = Literal["auto", "required", "none"] | tuple[str, ...]
"""Which tools may be called: the model's choice, at least one, none; or at least one of these names."""

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The options of a model's answer. None: the provider's default.

    Args:
        response_format: as in the OpenAI API: `{"type": "json_object"}` or `{"type": "json_schema", ...}`.
        max_reasoning_tokens: a budget for providers that take one.
        logprobs: whether the answer comes with the logarithm of each token's probability, where the provider has it.
        top_logprobs: how many of the most likely tokens come with it at each place.
        token_ids: whether the answer comes with the numbers of its tokens, where the provider has them.
        extra: fields of the provider's own request body, passed on as they are.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None
    reasoning_effort: ReasoningEffort | None = None
    max_reasoning_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    token_ids: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> ModelOptions:
        """Return the options among an agent's settings, by the names of the fields."""
        if not settings:
            return _DEFAULTS
        options = {name: settings[name] for name in cls.__slots__ if settings.get(name) is not None}
        if isinstance(choice := options.get("tool_choice"), list):  # settings are stored as JSON
            options["tool_choice"] = tuple(choice)
        return cls(**options) if options else _DEFAULTS


_DEFAULTS = ModelOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request of the model port: a pure function of the log and a recipe.

    Order of the bytes: `tools` (the agent's own sorted by name, then the engine's), `system`, `opening` (what differs
    from conversation to conversation), `messages` (append-only), `tail` (volatile, after everything; with `in_words`
    before the text of the newest message of a person).

    Args:
        in_words: whether the engine's own messages are plain sentences, sent in the role of the user; else JSON.
        purpose: an answer that goes into the log, a summary of messages or facts, or the facts of a batch.
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    opening: str = ""
    tail: str = ""
    in_words: bool = False
    options: ModelOptions = _DEFAULTS
    purpose: Literal["reply", "summary", "extraction"] = "reply"

    @property
    def may_stay_empty(self) -> bool:
        """Whether an empty answer ends the turn, as providers document it behind the result of a tool."""
        last = next((message for message in reversed(self.messages) if message.kind == "message"), None)
        return last is not None and last.role == "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The request and response on the wire, for inspection, with masked secrets.

    `request` has the address, the options and the number of bytes, without the messages, which the recipe rebuilds.
    `response` is the provider's answer, joined if it was streamed; with `logprobs` (OpenAI's shape) and `token_ids` if
    they were asked for and came.
    """

    request: Mapping[str, Any]
    response: Mapping[str, Any]
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class ModelDelta:
    """A piece of the answer. `index` numbers the tool calls of the answer, from 0."""

    kind: Literal["text", "reasoning", "tool_name", "tool_arguments"]
    text: str
    index: int = 0
    call_id: str | None = None


ProgressStage = Literal["loading", "reading", "waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProgress:
    """How far a slow model is before the first piece of its answer. It is never stored.

    Args:
        stage: its server loads it, reads the prompt, or does not say what it does.
        waited_s: since the request was sent.
        read_tokens, total_tokens: of the prompt; 0: the server does not say.
        left_s: how long the rest of the prompt may take; None: unknown.
    """

    stage: ProgressStage
    waited_s: float
    read_tokens: int = 0
    total_tokens: int = 0
    left_s: float | None = None

    @property
    def text(self) -> str:
        """The progress in words, such as "reading 1,024 of 2,273 tokens, about 90 s"."""
        if self.stage == "loading":
            return f"its server is loading the model, {self.waited_s:.0f} s so far"
        if self.stage == "waiting":
            return f"waiting for the model, {self.waited_s:.0f} s so far"
        left = f", about {self.left_s:,.0f} s" if self.left_s is not None and self.left_s >= 1 else ""
        return f"reading {self.read_tokens:,} of {self.total_tokens:,} tokens{left}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The whole answer: text, reasoning and tool calls, in order. `requests`: how many of them `usage` sums up."""

    parts: tuple[Part, ...]
    usage: Usage = field(default_factory=Usage)
    stop_reason: StopReason = "end_turn"
    exchange: Exchange | None = None
    requests: int = 1


ModelPiece: TypeAlias = ModelDelta | ModelProgress | ModelReply
"""What a model yields. One that is never slow yields no progress."""


class Model(Protocol):
    def respond(self, request: ModelRequest) -> AsyncIterator[ModelPiece]:
        """Yield deltas while the answer streams, then exactly one `ModelReply`. Raises: ModelError."""


Calling = Literal["native", "text", "none"]
"""How a model calls tools: by the API's own field, in the text of its answer, not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraits:
    """What is known of a model beyond the catalog: what its server says of it, and what its answers have shown.

    Args:
        local: the user chooses what runs there: a server of one's own, not a provider's.
        plain: the engine speaks to it in plain sentences; else in JSON, which the models of the large hosts read.
        server: the program that runs it, such as llamacpp, vllm, ollama or lmstudio; empty: unknown.
        window_tokens: what the server runs it with; None: it does not say.
        max_output_tokens: the most tokens of an answer where the server sets no limit itself; None: it does.
        parameters: how many it has; None: its server does not say.
        calling: how it calls tools; None: nothing has shown it.
        by_trial: whether a trial has shown `calling`; else it was the first answer with a call, or a refusal.
        takes_tools: whether its server takes requests with tools, and its template shows them to the model.
        tokens_per_s: (tokens of a prompt that it reads in a second, tokens that it writes); None: not measured.
    """

    local: bool = False
    plain: bool = False
    server: str = ""
    window_tokens: int | None = None
    max_output_tokens: int | None = None
    parameters: int | None = None
    calling: Calling | None = None
    by_trial: bool = False
    takes_tools: bool = True
    tokens_per_s: tuple[float, float] | None = None

    @property
    def cuts(self) -> bool:
        """Whether its server silently cuts a prompt that is too long, rather than refusing it."""
        return self.server == "ollama"


NO_TRAITS = ModelTraits()


class Models(Protocol):
    """The models this process can reach."""

    def find(self, handle: str) -> Model | None:
        """Return the model of a handle `provider/model`; None: it is not available here."""

    def handles(self) -> Sequence[str]:
        """Return the handles of all models."""

    def follow(self, handle: str) -> str:
        """Return the handle of the model for the next run of an agent that follows the default and used `handle`."""

    def window_tokens(self, handle: str) -> int | None:
        """Return the model's window; None: unknown."""

    def most_window_tokens(self, handle: str) -> int | None:
        """Return what no window of the model may exceed; None: unknown, so a setting decides."""

    def traits(self, handle: str) -> ModelTraits:
        """Return what is known of the model now. No network."""

    def learn(self, handle: str, **traits: Any) -> None:
        """Remember these traits of the model, by their names in `ModelTraits`."""


EXTRACTIVE = "perdure/extractive"
"""The handle of the built-in program, which is no language model."""

NOTICES: Final = {
    "en": (
        "(I am perdure/extractive: no language model, but a small program that notes and finds what you tell me."
        " To think with a language model, set OPENAI_API_KEY or another provider's key, or start Ollama, and start"
        " Perdure again.)"
    ),
    "zh": (
        "（我是 perdure/extractive：不是语言模型，只是一个记下并查找你所说内容的小程序。"
        "若要用语言模型来思考，请设置 OPENAI_API_KEY 或其他提供商的密钥，或启动 Ollama，然后重新启动 Perdure。）"
    ),
}
"""What it says of itself at the end of the first answer of a conversation, by language. A language model would take
that for its own words."""

_ALL_NOTICES: Final = (
    *NOTICES.values(),
    "(I am perdure/extractive: no language model, but a small program that notes and finds what you tell me."
    " To think with a language model, set OPENAI_API_KEY or another provider's key, or start Ollama;"
    " `perdure doctor` says what is found, /model changes the model.)",
    "（我是 perdure/extractive：不是语言模型，只是一个记下并查找你所说内容的小程序。"
    "若要用语言模型来思考，请设置 OPENAI_API_KEY 或其他提供商的密钥，或启动 Ollama；"
    "`perdure doctor` 会说明找到了什么，/model 可更换模型。）",
)
"""With those of older versions, which histories hold."""


def without_notice(text: str) -> str:
    """Return an answer without what the built-in program says about itself."""
    for notice in _ALL_NOTICES:
        text = text.replace(f"\n\n{notice}", "").replace(notice, "")
    return text


def hide_notice(message: Message) -> Message:
    """Return the message without what the built-in program says about itself: another model would believe it."""
    if message.role != "assistant" or all(notice not in message.text for notice in _ALL_NOTICES):
        return message
    parts = (
        replace(part, text=without_notice(part.text)) if isinstance(part, Text) else part for part in message.parts
    )
    return replace(message, parts=tuple(parts))


KEY_CHARS_MAX = 4_000
URL_CHARS_MAX = 2_000

NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProvider:
    """A provider whose models have the handle `name/...`.

    Args:
        provider_type: whose API it speaks, as clients name it.
        number: its place among the organisation's providers, ascending as they were added.
        base_url: its address; empty: that of its type. Its query may hold a key, so `HIDDEN_QUERY` stands in place of
            it. Older versions stored the query too.
        private: whether the address is allowed to be on this machine or in a private network.
        sealed: its key and, after a newline, the query of its address, encrypted; empty: there is neither.
        region, api_version: stored and returned, as clients set them.
        synced_at: when it last listed its models.
    """

    id: ProviderId
    org_id: OrgId
    number: int = 0
    name: str
    provider_type: str
    base_url: str = field(default="", repr=False)
    private: bool = False
    sealed: bytes = field(default=b"", repr=False)
    region: str | None = None
    api_version: str | None = None
    synced_at: datetime | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def shown_url(self) -> str:
        """The address without what may hold a key."""
        return hide_secret(self.base_url)[0]

    @property
    def binding(self) -> str:
        """The purpose for which its key is encrypted, so that the sealed key can't be decrypted in another row."""
        return f"provider/{self.org_id}/{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFilter:
    """Selects providers, for which all conditions must hold; None asks for nothing."""

    name: str | None = None
    provider_type: str | None = None


def check_provider(provider: ModelProvider, api_key: str | None) -> None:
    """Check a provider and its new `api_key` (None: it stays). Raises: InvalidInput, never with the key in its text."""
    if not isinstance(provider.name, str) or not _NAME.fullmatch(provider.name):
        raise InvalidInput(
            f"provider name {provider.name!r:.80} can't be used: up to 100 ASCII letters, digits, _ . and -, beginning"
            " with a letter or digit"
        )
    if len(provider.base_url) > URL_CHARS_MAX:
        raise InvalidInput(f"base_url has {len(provider.base_url):,} characters, the limit is {URL_CHARS_MAX:,}")
    if api_key is not None and len(api_key) > KEY_CHARS_MAX:
        raise InvalidInput(f"api_key has {len(api_key):,} characters, the limit is {KEY_CHARS_MAX:,}")


def unseal_provider(provider: ModelProvider, cipher: Cipher) -> tuple[str, str]:
    """Return (key, whole address) of a provider, decrypted; empty: none. Raises: SecretKeyMissing, SecretUnreadable."""
    text = cipher.decrypt(provider.sealed, bound_to=provider.binding).decode() if provider.sealed else ""
    key, _, query = text.partition("\n")
    return key, with_secret(provider.base_url, query)


def seal_provider(provider: ModelProvider, api_key: str, cipher: Cipher) -> ModelProvider:
    """Return the provider with `api_key`, and what in its address may be a key, encrypted. Raises: SecretKeyMissing."""
    url, query = hide_secret(provider.base_url)
    text = f"{api_key}\n{query}" if query else api_key
    sealed = cipher.encrypt(text.encode(), bound_to=provider.binding) if text else b""
    return replace(provider, base_url=url, sealed=sealed)
