"""The OpenAPI document: the routes' own descriptions, and the errors and headers that they have in common.

An operation's possible errors follow from its method, path and inputs; `wire.errors` and `serving.guards` send them in
the shapes defined here. Only the first request for the document imports this module.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, get_args, get_origin

from fastapi import Header
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from typing_extensions import TypedDict

from perdure.core.text.tables import read_table
from perdure.engine.records.run_request import KEY_MAX_CHARS
from perdure.server.serving.examples import add_examples
from perdure.server.serving.guards import OPEN_PATHS
from perdure.server.wire.answers import Chunk
from perdure.server.wire.fields import AgentIdIn, ConversationPath, GroupIdIn
from perdure.server.wire.http import Json
from perdure.server.wire.input import SendRequest

Shape = dict[str, Any]

JSON, STREAM = "application/json", "text/event-stream"
_REF = "#/components/schemas/{model}"

DESCRIPTIONS: Mapping[int, str] = {int(status): text for status, text in read_table(__file__, "statuses.toml").items()}
"""Status of an error -> its description."""


class PendingApproval(TypedDict):
    """The request for approval that an agent waits for."""

    code: Literal["PENDING_APPROVAL"]
    message: str
    pending_request_id: str


class Error(TypedDict):
    """What most errors say."""

    detail: str | PendingApproval
    run_id: NotRequired[str]
    trace_id: NotRequired[str]


class RunFailure(TypedDict):
    """The kind of the failure, a sentence, and the provider's own text."""

    type: str
    message: str
    detail: str
    run_id: NotRequired[str]


class RunError(TypedDict):
    """Why a run failed."""

    error: RunFailure
    messages: NotRequired[Annotated[list[Any], Field(description="What the run did before it failed, if anything.")]]
    trace_id: NotRequired[str]


class Unprocessable(TypedDict):
    """What is wrong with a request; `examples` are of ids that have the wrong form."""

    trace_id: str
    detail: str
    examples: list[str]


class OpenAIFailure(TypedDict):
    """What is wrong, as OpenAI's API says it."""

    message: str
    type: str
    code: str | None
    param: str | None


class OpenAIError(TypedDict):
    """An error of a path of OpenAI's API."""

    error: OpenAIFailure


_OPENAI = re.compile(r"\w+ /openai/.*")
_OPENAI_STATUSES: Mapping[int, int] = {402: 429, 422: 400, 501: 400}
"""Status of an error -> that of OpenAI's API, where it is another."""

_TEXT: Shape = {"type": "string"}
_DATA: Shape = {**_TEXT, "contentMediaType": JSON}
_CHUNK: Shape = {
    "description": "A chunk as JSON; after the last one [DONE].",
    "anyOf": [{"const": "[DONE]"}, {**_DATA, "contentSchema": {"$ref": _REF.format(model="Chunk")}}],
}
_NAME: Shape = {**_TEXT, "description": "`error` for an error_message; the others have no name."}
_EVENTS: Mapping[str, Shape] = {
    "StreamEvent": {"type": "object", "required": ["data"], "properties": {"data": _CHUNK, "event": _NAME}},
    "ConnectEvent": {"type": "object", "required": ["data"], "properties": {"data": _DATA}},
}

_ANY, _CHANGING = r"\w+ .*", r"(?!GET )\w+ .*"
_SENDS = (
    r"POST /v1/((agents|conversations|groups)/{\w+}/messages(/stream|/async|/preview-raw-payload)?"
    r"|agents/{\w+}/generate|chat/completions)|POST /openai/v1/(chat/completions|responses)"
)
_CHECKS = r"(POST|PATCH) /v1/providers/(check|{\w+}/(check|refresh))"
_MCP = r"/v1/(mcp-servers|tools/mcp/servers)"

_ERROR_RULES: Sequence[tuple[re.Pattern[str], frozenset[int]]] = [
    (re.compile(pattern), frozenset(statuses))
    for pattern, statuses in (
        (_ANY, {403, 429, 431, 500, 503, 507}),
        (_CHANGING, {400, 409}),
        (r"(POST|PATCH) /v1/providers/.*", {501}),
        (_CHECKS, {401}),
        (_SENDS, {401, 402, 429, 501, 502, 504}),
        (r"POST /v1/conversations/ephemeral|POST /openai/.*", {404}),
        (r"POST /v1/(runs|conversations)/{\w+}/stream", {410}),
        (r"PATCH /v1/(agents|groups)/{\w+}/messages/{\w+}", {501, 502, 504}),
        (r"(POST|PATCH) /v1/(agents|conversations|groups)/({\w+})?", {501}),
        (r"(POST|PUT|PATCH) /v1/tools/({\w+}|run)?", {501}),
        (r"POST /v1/agents/{\w+}/tools/{\w+}/run", {501}),
        (r"(POST|PATCH) /v1/sandbox-config/.*", {501}),
        (rf"(?!GET )\w+ {_MCP}.*", {501, 502}),
        (r"GET /v1/tools/mcp/servers/{\w+}/tools", {501, 502}),
    )
]
"""Pattern of `METHOD /path` -> statuses; all matches count. `_add_errors` adds 401, 404, 408, 413, 415 and 422 by an
operation's inputs."""

_UPLOADS = {f"POST /v1/{folders}/{{folder_id}}/upload" for folders in ("folders", "sources")} | {
    *("POST /v1/agents/import", "POST /v1/imports")
}
_FILE: Shape = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": {"type": "string", "contentMediaType": "application/octet-stream"}},
}

_PATH_IDS = {"agent_id": AgentIdIn, "group_id": GroupIdIn, "conversation_id": ConversationPath}
_KEY = Header(
    alias="Idempotency-Key", description="The same key again is the same run.", min_length=1, max_length=KEY_MAX_CHARS
)
_UPLOAD_HEADER: Shape = {
    "name": "X-Requested-With",
    "in": "header",
    "required": True,
    "description": "Any text: no form of a web page can send it.",
    "schema": {"type": "string"},
}

_KEYS: Mapping[str, Shape] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "password": {
        "type": "apiKey",
        "in": "header",
        "name": "X-BARE-PASSWORD",
        "description": "The older form: `password <key>`.",
    },
}


def build(title: str, version: str, routes: Sequence[BaseRoute], *, has_key: bool) -> Shape:
    """The document of these routes, on a server with or without a key."""
    described = [_describable_route(route) for route in routes if isinstance(route, Route) and route.include_in_schema]
    document = get_openapi(title=title, version=version, routes=described)
    components = document["components"]
    schemas: Shape = components["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas |= _EVENTS
    if has_key:
        components["securitySchemes"] = dict(_KEYS)
    returned = {
        f"{name} {one.path_format}": _answer_of(one.endpoint) for one in described for name in one.methods or ()
    }
    answers: dict[str, Shape] = {}  # the places of their schemas
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            if name in _UPLOADS:
                if not has_key:
                    operation.setdefault("parameters", []).append(_UPLOAD_HEADER)
                operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _FILE}}}
            for parameter in operation.get("parameters", ()):
                _remove_null(parameter)
            kind, streams = returned[name]
            content: Shape = operation["responses"].get("200", {}).get("content", {})
            if kind is Response:
                content.pop(JSON, None)
            elif JSON in content:
                answers[name] = content[JSON]
            if streams:
                _add_stream(name, content)
            _add_errors(name, operation, schemas, has_key=has_key and path not in OPEN_PATHS)
    kinds: dict[str, Any] = {name: returned[name][0] for name in answers}
    kinds |= {"Chunk": Chunk, "Error": Error, "RunError": RunError, "Unprocessable": Unprocessable}
    kinds |= {"OpenAIError": OpenAIError}
    adapter = cache(TypeAdapter[Any])  # half of the answers are of a type that others have too
    shapes, defs = TypeAdapter.json_schemas(
        [(name, "serialization", adapter(kind)) for name, kind in kinds.items()],
        ref_template=_REF,
        schema_generator=_AnswerSchemas,
    )
    schemas |= defs["$defs"] | {"Chunk": shapes["Chunk", "serialization"]}
    for name, place in answers.items():
        place["schema"] = shapes[name, "serialization"]
    add_examples(document)
    return document


def _describable_route(route: Route | APIRoute) -> APIRoute:
    """Return a route as FastAPI can describe it: a plain one of Starlette gets the parameters that it reads itself,
    which are ids in its path, an idempotency key and the body."""
    if isinstance(route, APIRoute):
        return route

    async def endpoint() -> None:
        """Stand in for the endpoint; only its parameters are described."""

    names: dict[str, Any] = {name: (_PATH_IDS[name], Parameter.empty) for name in route.param_convertors}
    names |= {"key": (Annotated[str | None, _KEY], None), "body": (SendRequest, Parameter.empty)}
    endpoint.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=one) for name, (kind, one) in names.items()],
        return_annotation=inspect.signature(route.endpoint, eval_str=True).return_annotation,
    )
    endpoint.__doc__, name = route.endpoint.__doc__, route.endpoint.__name__.strip("_")
    return APIRoute(
        route.path,
        endpoint,
        methods=route.methods,
        response_model=None,
        summary=name.replace("_", " ").capitalize(),
        operation_id=re.sub(r"\W+", "_", f"{name}{route.path}_post"),
    )


def _answer_of(endpoint: Any) -> tuple[Any, bool]:
    """(The type of an endpoint's JSON, or `Response` if it answers without any; whether it can stream)."""
    returned = inspect.signature(inspect.unwrap(endpoint), eval_str=True).return_annotation
    kinds = get_args(returned) if get_origin(returned) is UnionType else (returned,)
    responses = [kind for kind in kinds if inspect.isclass(kind) and issubclass(kind, Response)]
    if not responses:
        return returned, False
    others = [one for one in kinds if one not in responses] + [one.kind for one in responses if issubclass(one, Json)]
    return next(iter(others), Response), StreamingResponse in responses


class _AnswerSchemas(GenerateJsonSchema):
    """Answers hold all fields of a dataclass, also those that have a default."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)


def _remove_null(parameter: Shape) -> None:
    """Remove null from a parameter's types: a query can omit a parameter, but can't send null."""
    shape = parameter["schema"]
    kinds = [kind for kind in shape.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        parameter["schema"] = {**kinds[0], **{key: value for key, value in shape.items() if key != "anyOf"}}


def _add_stream(name: str, content: Shape) -> None:
    """Add server-sent events to the answers of an operation."""
    kind = "ConnectEvent" if re.search("/(connect|completions|responses)(/|$)", name) else "StreamEvent"
    event = {"$ref": _REF.format(model=kind)}
    # `itemSchema` is one event; `schema` is all of them, for readers that know no other.
    content[STREAM] = {"schema": {"type": "array", "items": event}, "itemSchema": event}


def _add_errors(name: str, operation: Shape, schemas: Shape, *, has_key: bool) -> None:
    """Add the errors that follow from an operation's name, inputs and key."""
    statuses = {status for pattern, errors in _ERROR_RULES if pattern.fullmatch(name) for status in errors}
    body = operation.get("requestBody")
    if body is not None:
        statuses |= {408, 413, 415, 422}
    if operation.get("parameters"):
        statuses.add(422)
    if "{" in name or _contains_id([operation.get("parameters"), body], schemas):
        statuses.add(404)
    if has_key:
        operation["security"] = [{scheme: []} for scheme in _KEYS]
        statuses.add(401)
    responses: Shape = operation["responses"]
    responses.pop("422", None)
    is_openai = _OPENAI.fullmatch(name) is not None
    if is_openai:
        statuses = {_OPENAI_STATUSES.get(status, status) for status in statuses}
    failed = re.fullmatch(f"{_SENDS}|{_CHECKS}", name) is not None
    for status in sorted(statuses):
        shapes = ["Unprocessable"] if status == 422 else ["Error", "RunError"] if failed else ["Error"]
        shapes = ["OpenAIError"] if is_openai else shapes
        refs = [{"$ref": _REF.format(model=shape)} for shape in shapes]
        schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
        responses[str(status)] = {"description": DESCRIPTIONS[status], "content": {JSON: {"schema": schema}}}


def _contains_id(shape: Any, schemas: Shape) -> bool:
    """Whether a value of this shape can contain an id."""
    text, visited = repr(shape), set[str]()
    while names := set(re.findall(r"#/components/schemas/(\w+)", text)) - visited:
        visited |= names
        text += "".join(repr(schemas[name]) for name in names)
    return "[89ab][0-9a-f]{3}" in text
