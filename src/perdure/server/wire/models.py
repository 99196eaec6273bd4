"""Models on the wire, and the options that clients set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from perdure import app as composition
from perdure.app import App
from perdure.core.models import ReasoningEffort
from perdure.core.ports import Embedder
from perdure.server.wire.archives import filled_embedding_config
from perdure.server.wire.base import WIRE_SETTING, WireRequest, nulls
from perdure.server.wire.fields import finite
from perdure.server.wire.shapes import WireShape

# The names that the types of clients know. Every other provider speaks the protocol of `openai`, and counts as that.
_SETTINGS_TYPES = frozenset(
    {"openai", "sglang", "anthropic", "google_ai", "google_vertex", "azure", "xai", "moonshot", "moonshot_coding"}
    | {"zai", "groq", "deepseek", "together", "bedrock", "baseten", "openrouter", "chatgpt_oauth"}
)
_ENDPOINT_TYPES = _SETTINGS_TYPES - {"sglang"} | {"ollama", "vllm", "hugging-face", "minimax", "mistral", "zai_coding"}
_PROVIDER_TYPES = _ENDPOINT_TYPES | {"cerebras", "fireworks", "letta", "lmstudio_openai", "sglang"}

_Tokens = Annotated[int | None, Field(ge=0, le=2**53)]
_Temperature = Annotated[float | None, Field(ge=0, le=2, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class WireModelFacts:
    """A model's window, its longest answer, and what no window of it may exceed (None: unknown); in tokens.

    `known_as`: the handle by the type of a model whose provider a client registered; None: it is another's.
    """

    window_tokens: int
    max_output_tokens: int
    most_tokens: int | None = None
    known_as: str | None = None

    @property
    def provider_category(self) -> str:
        """Whose provider it is, as clients know it."""
        return "base" if self.known_as is None else "byok"

    def window_of(self, settings: Mapping[str, Any]) -> int:
        """The window of an agent with these settings."""
        tokens: int = settings.get("context_window_tokens") or self.window_tokens
        return min(tokens, self.most_tokens or tokens)


def facts_of(app: App, handle: str) -> WireModelFacts:
    """The facts of a model from the catalog, or from the settings if it has none."""
    limit = app.settings.context_window_tokens  # no more is used of any model
    window = min(app.models.window_tokens(handle) or limit, limit)
    most = composition.facts_of(app.models.catalog_handle(handle)).max_output_tokens
    return WireModelFacts(
        window_tokens=window,
        max_output_tokens=min(most, window),
        most_tokens=app.models.most_window_tokens(handle),
        known_as=app.models.stored_as(handle),
    )


def handles_of(app: App) -> list[str]:
    """The models that can be used, the server's default first: clients without a choice take the first."""
    handles, default = app.models.handles(), app.choice.handle
    # The built-in model comes last: it needs nothing, and is the least able.
    others = sorted(handles, key=lambda handle: (handle.startswith("perdure/"), handle))
    first = [default] if default in handles else []
    return first + [handle for handle in others if handle != default]


class _Reasoning(WireRequest):
    reasoning_effort: ReasoningEffort | None = None


class _Thinking(WireRequest):
    type: Literal["enabled", "disabled"] | None = None
    budget_tokens: _Tokens = None


class _ThinkingConfig(WireRequest):
    include_thoughts: bool | None = None
    thinking_budget: _Tokens = None


class ResponseFormat(WireRequest):
    """The format of the answer; fields besides `type` are passed on unchanged."""

    model_config = ConfigDict(extra="allow")

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: dict[str, Any] | None = None

    _finite = model_validator(mode="before")(finite)

    def option(self) -> dict[str, Any] | None:
        """The format as `ModelOptions` takes it; None: plain text."""
        return None if self.type == "text" else self.model_dump(exclude_unset=True) | {"type": self.type}


class ModelSettings(WireRequest):
    """The options of a model, in the words of its provider type. Fields of other providers are only stored."""

    model_config = ConfigDict(extra="allow")

    _finite = model_validator(mode="before")(finite)

    provider_type: str | None = None
    max_output_tokens: _Tokens = None
    parallel_tool_calls: bool | None = None
    temperature: _Temperature = None
    top_p: Annotated[float | None, Field(gt=0, le=1, allow_inf_nan=False)] = None
    reasoning: _Reasoning | None = None
    thinking: _Thinking | None = None
    thinking_config: _ThinkingConfig | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    response_format: ResponseFormat | None = None

    def options(self) -> dict[str, Any]:
        """The options that are set, by their names in `ModelOptions`; None removes an option."""
        names = self.model_fields_set
        options: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("max_output_tokens", "parallel_tool_calls", "temperature", "top_p")
            if name in names
        }
        if self.reasoning is not None and "reasoning_effort" in self.reasoning.model_fields_set:
            options["reasoning_effort"] = self.reasoning.reasoning_effort
        if "effort" in names:
            options["reasoning_effort"] = "xhigh" if self.effort == "max" else self.effort
        if self.thinking is not None:
            budget = None if self.thinking.type == "disabled" else self.thinking.budget_tokens
            options["max_reasoning_tokens"] = budget or None
        if self.thinking_config is not None:
            options["max_reasoning_tokens"] = self.thinking_config.thinking_budget or None
        if "response_format" in names:
            options["response_format"] = self.response_format and self.response_format.option()
        if options.get("max_output_tokens") == 0:
            options["max_output_tokens"] = None
        return options


class LlmConfig(WireRequest):
    """A model and its options in one, the older form."""

    model: str
    handle: str | None = None
    model_endpoint_type: str | None = None
    provider_name: str | None = None
    context_window: _Tokens = None
    temperature: _Temperature = None
    max_tokens: _Tokens = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    max_reasoning_tokens: _Tokens = None
    response_format: ResponseFormat | None = None

    @property
    def full_handle(self) -> str:
        """The model's handle."""
        return self.handle or f"{self.provider_name or self.model_endpoint_type or 'openai'}/{self.model}"

    def options(self) -> dict[str, Any]:
        """The options that are set, by their names in `ModelOptions`."""
        options = {
            "temperature": self.temperature,
            "max_output_tokens": self.max_tokens or None,
            "parallel_tool_calls": self.parallel_tool_calls,
            "reasoning_effort": self.reasoning_effort,
            "max_reasoning_tokens": self.max_reasoning_tokens or None,
            "response_format": self.response_format and self.response_format.option(),
        }
        return {name: value for name, value in options.items() if value is not None}


def provider_type_of(handle: str, known: Collection[str] = _PROVIDER_TYPES) -> str:
    """The provider type of a model's handle, as clients know it; `openai` for one that is not among the `known`."""
    name = handle.partition("/")[0]
    name = composition.PROVIDERS[name].wire_type if name in composition.PROVIDERS else name
    return name if name in known else "openai"


def llm_config_shape(handle: str, facts: WireModelFacts, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A model with the options of an agent's settings. Options that are not set have the values that clients expect."""
    provider, _, name = handle.partition("/")
    extras = settings.get(WIRE_SETTING, {}).get("model_settings", {})
    return {
        "model": name or handle,
        "display_name": name or handle,
        "model_endpoint_type": provider_type_of(facts.known_as or handle, _ENDPOINT_TYPES),
        "model_endpoint": None,
        "provider_name": provider,
        "provider_category": facts.provider_category,
        "model_wrapper": None,
        "context_window": facts.window_of(settings),
        "put_inner_thoughts_in_kwargs": False,
        "handle": handle,
        "temperature": _value_or(settings.get("temperature"), 1.0),
        "max_tokens": _value_or(settings.get("max_output_tokens"), facts.max_output_tokens),
        "enable_reasoner": bool(settings.get("max_reasoning_tokens") or settings.get("reasoning_effort")),
        "reasoning_effort": settings.get("reasoning_effort"),
        "max_reasoning_tokens": settings.get("max_reasoning_tokens") or 0,
        "effort": extras.get("effort"),
        **nulls("frequency_penalty", "compatibility_type"),
        "verbosity": extras.get("verbosity"),
        "tier": None,
        "parallel_tool_calls": _value_or(settings.get("parallel_tool_calls"), True),
        "response_format": settings.get("response_format"),
        "strict": extras.get("strict", False),
        "return_logprobs": False,
        "top_logprobs": None,
        "return_token_ids": False,
        "tool_call_parser": None,
    }


class WireModel(WireShape):
    handle: str
    name: str
    display_name: str
    provider_type: str
    provider_name: str
    model_type: Literal["llm"]
    context_window: int
    max_context_window: int


def model_shape(handle: str, facts: WireModelFacts) -> WireModel:
    """A model in the list of models."""
    config = llm_config_shape(handle, facts, {})
    del config["handle"], config["provider_name"]
    name = config["model"]
    return WireModel(
        handle=handle,
        name=name,
        display_name=config.pop("display_name"),
        provider_type=provider_type_of(facts.known_as or handle),
        provider_name=handle.partition("/")[0],
        model_type="llm",
        **config,
        max_context_window=facts.window_tokens,
    )


def embedding_model_shape(embedder: Embedder | None) -> dict[str, Any]:
    """The server's embedder in the list of embedding models; `embedding_dim` is 0 before its first vector. Without one
    it is named `none`: programs take the first of the list."""
    config = filled_embedding_config(embedder)
    provider, _, name = config["handle"].partition("/")
    return config | {
        "name": name,
        "display_name": name,
        "provider_type": "hugging-face" if embedder is None or embedder.local else provider_type_of(embedder.handle),
        "provider_name": provider,
        "model_type": "embedding",
    }


def model_settings_shape(handle: str, facts: WireModelFacts, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an agent's model, in the words of its provider type. Options that are not set have the values that
    clients expect; fields that have no meaning here are returned as they were sent."""
    extras = settings.get(WIRE_SETTING, {}).get("model_settings", {})
    provider = provider_type_of(extras.get("provider_type") or facts.known_as or handle, _SETTINGS_TYPES)
    effort, budget = settings.get("reasoning_effort"), settings.get("max_reasoning_tokens")
    shape: dict[str, Any] = {
        "max_output_tokens": _value_or(settings.get("max_output_tokens"), facts.max_output_tokens),
        "parallel_tool_calls": _value_or(settings.get("parallel_tool_calls"), True),
        "provider_type": provider,
        "temperature": _value_or(settings.get("temperature"), 1.0),
    }
    match provider:
        case "openai" | "sglang" | "chatgpt_oauth":
            shape["reasoning"] = {"reasoning_effort": effort or "minimal"}
        case "anthropic" | "moonshot_coding" | "bedrock":
            shape["thinking"] = {"type": "enabled" if budget else "disabled", "budget_tokens": budget or 1024}
        case "google_ai" | "google_vertex":
            shape["thinking_config"] = {"include_thoughts": bool(budget), "thinking_budget": budget or 1024}
    shape["response_format"] = settings.get("response_format")
    if provider == "openai":
        shape["strict"] = extras.get("strict", False)
    return shape | {name: value for name, value in extras.items() if name not in shape}


def extras_of(settings: ModelSettings) -> dict[str, Any]:
    """The fields besides the options: the provider type, and those that only its provider knows."""
    options = ("max_output_tokens", "parallel_tool_calls", "temperature", "reasoning", "thinking", "thinking_config")
    dumped = settings.model_dump(exclude_unset=True)
    return {name: value for name, value in dumped.items() if name not in (*options, "response_format")}


def _value_or(value: Any, default: Any) -> Any:
    return default if value is None else value
