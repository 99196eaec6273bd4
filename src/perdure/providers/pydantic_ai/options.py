"""Our options and tools as pydantic-ai's settings and request parameters. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from perdure.core.errors import ModelRequestRefused
from perdure.core.models import ModelRequest
from perdure.core.tools.schema import with_parts

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a provider accepts.

    Args:
        engine_role: the role of what the engine adds (memory deltas, heartbeats, summaries, alerts, the tail) and of
            system messages in the log. Where `system` exists only once, before everything, it is `user`; the marker of
            the engine's messages tells them from what users say.
        cache_marks: whether the request says what is to be cached.
        tool_subset: whether a choice among several tools can be asked for while all of them stay in the request.
            Leaving some out would write the cached prefix anew.
        error_results: whether a tool's result can be marked as an error; else its text alone says so.
        images: whether messages and results of tools may hold pictures.
        closed_objects: whether an answer of a schema has no members but those that its objects list.
        strict_tools: None lets pydantic-ai make tool schemas strict where that loses nothing.
        extra: what to install.
    """

    engine_role: Literal["system", "user"] = "user"
    cache_marks: bool = False
    tool_subset: bool = False
    error_results: bool = True
    images: bool = False
    strict_tools: bool | None = None
    closed_objects: bool = False
    extra: str = ""


_DIALECTS: Mapping[str, Dialect] = {
    "anthropic": Dialect(closed_objects=True, cache_marks=True, images=True, extra="perdure[anthropic]"),
    "google": Dialect(tool_subset=True, images=True, extra="perdure[google]"),
    "openai-responses": Dialect(
        engine_role="system",
        tool_subset=True,
        error_results=False,
        images=True,
        strict_tools=False,
        extra="perdure[openai]",
    ),
}


def dialect_of(provider: str) -> Dialect:
    """The dialect of a provider; one that was not tested gets what is safe everywhere."""
    return _DIALECTS.get(provider) or Dialect(extra=f"pydantic-ai-slim[{provider}]")


_OWN_SETTINGS = ("anthropic_", "google_", "openai_", "bedrock_", "groq_", "mistral_", "cohere_", "xai_")


def to_settings(
    request: ModelRequest,
    provider: str,
    dialect: Dialect,
    *,
    timeout_s: float,
    profile: Mapping[str, Any],
    unsupported: Collection[str],
) -> dict[str, Any]:
    """The settings of a request, as pydantic-ai takes them.

    Args:
        profile: what pydantic-ai knows about the model.
        unsupported: settings that the provider ignores; they are left out.

    Raises: ModelRequestRefused: `extra` fields for a provider that takes none, or no JSON mode without a schema.
    """
    options = request.options
    settings: dict[str, Any] = {"timeout": timeout_s, "max_retries": 0}  # who asks us retries, and tells the user
    limits = {"max_tokens": options.max_output_tokens, "temperature": options.temperature, "top_p": options.top_p}
    settings |= {name: value for name, value in limits.items() if value is not None}
    if request.tools:
        settings["tool_choice"] = _tool_choice(request, dialect)
        if options.parallel_tool_calls is not None:
            settings["parallel_tool_calls"] = options.parallel_tool_calls
    settings |= _reasoning(request, provider, profile)
    settings = {name: value for name, value in settings.items() if name not in unsupported}
    if dialect.cache_marks:
        settings["anthropic_cache_instructions"] = True
        if request.tools:
            settings["anthropic_cache_tool_definitions"] = True
    if provider == "openai-responses":
        # The log is ours: nothing is kept there, so reasoning comes back encrypted and is sent again.
        settings["openai_store"] = False
    if provider == "anthropic" and (
        settings.get("thinking")
        or settings.get("anthropic_thinking")
        or profile.get("anthropic_disallows_sampling_settings")
    ):
        settings.pop("temperature", None)  # refused together with reasoning
        settings.pop("top_p", None)
    body = {name: value for name, value in options.extra.items() if not name.startswith(_OWN_SETTINGS)}
    body |= _json_mode(request, provider)
    if body and "extra_body" in unsupported:
        raise ModelRequestRefused(
            f"{provider} takes no fields of its own request body here, so {', '.join(sorted(body))} can't be sent:"
            f" give pydantic-ai's settings of this provider instead, such as {provider}_..."
        )
    if body:
        settings["extra_body"] = body
    return settings | {name: value for name, value in options.extra.items() if name.startswith(_OWN_SETTINGS)}


def to_parameters(request: ModelRequest, dialect: Dialect) -> ModelRequestParameters:
    """The system text, tools and answer schema of a request, as pydantic-ai takes them."""
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(
            name=tool["name"],
            description=tool.get("description") or None,
            parameters_json_schema=dict(tool["parameters"]),
            strict=dialect.strict_tools,
        )
        for tool in request.tools
    ]
    shape: dict[str, Any] = {}
    if (schema := _schema(request)) is not None:
        shape["output_mode"] = "native"
        shape["output_object"] = OutputObjectDefinition(
            json_schema=dict(_with_single_types(schema.get("schema") or {"type": "object"})),
            name=schema.get("name"),
            description=schema.get("description"),
            strict=True if schema.get("strict") else None,
        )
    return ModelRequestParameters(
        function_tools=tools,
        instruction_parts=[InstructionPart(content=request.system)] if request.system.strip() else None,
        **shape,
    )


def _tool_choice(request: ModelRequest, dialect: Dialect) -> str | list[str]:
    """The tool choice, as pydantic-ai takes it. Raises: ModelRequestRefused: the agent has none of the tools."""
    choice = request.options.tool_choice
    if isinstance(choice, str):
        return choice
    tools = {tool["name"] for tool in request.tools}
    names = [name for name in choice if name in tools]
    if not names:
        raise ModelRequestRefused(
            f"tool_choice asks for {', '.join(choice) or 'no tool'}, the agent has {', '.join(sorted(tools))}"
        )
    return names if len(names) == 1 or dialect.tool_subset else "required"


def _reasoning(request: ModelRequest, provider: str, profile: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that limit reasoning, under the provider's names."""
    options = request.options
    budget, effort = options.max_reasoning_tokens, options.reasoning_effort
    if effort == "none" or budget == 0:
        return {"thinking": False}
    if budget is not None and provider == "anthropic" and not profile.get("anthropic_disallows_budget_thinking"):
        return {"anthropic_thinking": {"type": "enabled", "budget_tokens": budget}}
    if budget is not None and provider == "google":
        return {"google_thinking_config": {"include_thoughts": True, "thinking_budget": budget}}
    if effort is not None:
        return {"thinking": effort}
    return {"thinking": True} if budget is not None else {}


def _schema(request: ModelRequest) -> Mapping[str, Any] | None:
    """The schema of the answer, under OpenAI's names: name, schema, strict, description."""
    shape = request.options.response_format
    if shape is None or shape.get("type") != "json_schema":
        return None
    inner = shape.get("json_schema", shape)
    return inner if isinstance(inner, Mapping) else {}


def takes_schema(request: ModelRequest, dialect: Dialect) -> bool:
    """Whether the provider takes the schema of the answer as it is meant, as far as the schema tells."""
    return not (dialect.closed_objects and _has_open_object(_schema(request)))


def _has_open_object(schema: Any) -> bool:
    """Whether an object of a schema may have members that it does not list."""
    parts = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    is_object = "object" in (kinds if isinstance(kinds, list) else (kinds,))
    is_open = is_object and ("properties" not in schema or schema.get("additionalProperties"))
    return bool(is_open) or any(map(_has_open_object, parts))


def _with_single_types(schema: Any) -> Any:
    """The schema with `anyOf` in place of a list of types, which Anthropic's client refuses."""
    if not isinstance(schema, Mapping):
        return schema
    shape = with_parts(schema, _with_single_types)
    if isinstance(kinds := shape.get("type"), list):
        said = {key: shape.pop(key) for key in ("description", "title", "default") if key in shape}
        del shape["type"]
        shape = said | {"anyOf": [{"type": kind} if kind == "null" else {"type": kind, **shape} for kind in kinds]}
    return shape


def _json_mode(request: ModelRequest, provider: str) -> dict[str, Any]:
    """The body field for an answer that is any JSON object."""
    shape = request.options.response_format
    if shape is None or shape.get("type") in ("json_schema", "text"):
        return {}
    if shape.get("type") == "json_object" and provider == "openai-responses":
        return {"text": {"format": {"type": "json_object"}}}
    raise ModelRequestRefused(
        f"{provider} has no response_format of type {shape.get('type')!r}:"
        ' give {"type": "json_schema", "json_schema": {"name": ..., "schema": ...}}'
    )
