"""The OpenAPI document: the routes' own descriptions, and the errors and headers that they have in common.

An operation's possible errors follow from its method, path and inputs; `server.errors` and `server.guards` send them in
the shapes defined here. Only the first request for the document imports this module.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from types import GenericAlias
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from starlette.routing import BaseRoute, Route

from perdure.context.costs.ledger import CostLedger
from perdure.core.ids import ID_PATTERNS
from perdure.engine.run.accept import KEY_MAX_CHARS
from perdure.server.examples import add_examples
from perdure.server.guards import OPEN_PATHS
from perdure.server.routes import jobs, providers, sandbox, search
from perdure.server.wire import (
    agents,
    archives,
    blocks,
    conversations,
    facts,
    folders,
    groups,
    identities,
    mcp,
    runs,
    schedules,
    sources,
    tools,
)
from perdure.server.wire import answers as wire
from perdure.server.wire.access import AuditAnswer, KeyAnswer, OrganizationAnswer, UserAnswer
from perdure.server.wire.facts import EntityShape, FactSettingsShape, FactShape, FoundFactShape, RuleShape
from perdure.server.wire.fields import AgentIdIn, ConversationPath, FolderIdIn
from perdure.server.wire.input import CancelRequest, ResetRequest, ResumeRequest, SendRequest
from perdure.server.wire.sources import CorrectionShape, Forgotten, Mentions, Undone
from perdure.server.wire.tools import ApprovalChange

Shape = dict[str, Any]

JSON, STREAM = "application/json", "text/event-stream"
_REF = "#/components/schemas/{model}"

DESCRIPTIONS: Mapping[int, str] = {
    400: "The request can't be carried out: a tool's source, a block's limit, an answer that nothing waits for.",
    401: "The key is missing or wrong; or a model's provider does not accept the server's key.",
    402: "The model provider's account has no credit left.",
    403: "`Host`, `Origin`, or what the request asks for, is not allowed here.",
    404: "Something that the request names does not exist.",
    408: "The body did not arrive in time.",
    409: "The state has moved on, or is in use; `run_id` is the run that is in the way.",
    410: "The stream is no longer kept.",
    413: "The body is larger than this server takes.",
    415: "The body has the wrong media type.",
    422: "The request has the wrong form. `detail` names each field, with what is wrong.",
    429: "The model provider's rate limit is reached.",
    431: "The head of the request is too large, or has too many headers.",
    500: "A defect, or a run that failed.",
    501: "This server does not support the request, or lacks what it needs for it. Nothing was written.",
    502: "A server of a model or of MCP tools can't be reached, or failed.",
    503: "The store is busy, can't be written or is damaged, or the server stops. `run_id`: the message is kept and its"
    " run goes on.",
    504: "The model did not answer in time.",
    507: "There is no room on the disk. `run_id`: the message is kept and its run goes on when there is some.",
}
"""Status of an error -> its description."""

_TEXT: Shape = {"type": "string"}
_DATA: Shape = {**_TEXT, "contentMediaType": JSON}
_SCHEMAS: Mapping[str, Shape] = {
    "Error": {
        "type": "object",
        "required": ["detail"],
        "properties": {
            "detail": {"anyOf": [_TEXT, {"$ref": "#/components/schemas/PendingApproval"}]},
            "run_id": _TEXT,
            "trace_id": _TEXT,
        },
    },
    "PendingApproval": {
        "type": "object",
        "required": ["code", "message", "pending_request_id"],
        "properties": {"code": {"const": "PENDING_APPROVAL"}, "message": _TEXT, "pending_request_id": _TEXT},
    },
    "RunError": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["type", "message", "detail"],
                "properties": {"type": _TEXT, "message": _TEXT, "detail": _TEXT, "run_id": _TEXT},
            },
            "messages": {"type": "array", "description": "What the run did before it failed, if anything."},
            "trace_id": _TEXT,
        },
    },
    "Unprocessable": {
        "type": "object",
        "required": ["trace_id", "detail", "examples"],
        "properties": {"trace_id": _TEXT, "detail": _TEXT, "examples": {"type": "array", "items": _TEXT}},
    },
    "StreamEvent": {
        "type": "object",
        "required": ["data"],
        "properties": {
            "data": {
                "description": "A chunk as JSON; after the last one [DONE].",
                "anyOf": [{"const": "[DONE]"}, {**_DATA, "contentSchema": {"$ref": _REF.format(model="Chunk")}}],
            },
            "event": {**_TEXT, "description": "`error` for an error_message; the others have no name."},
        },
    },
    "ConnectEvent": {"type": "object", "required": ["data"], "properties": {"data": _DATA}},
}

_ANY, _CHANGING = r"\w+ .*", r"(?!GET )\w+ .*"
_SENDS = (
    r"POST /v1/((agents|conversations|groups)/{\w+}/messages(/stream|/async|/preview-raw-payload)?"
    r"|agents/{\w+}/generate|chat/completions)"
)
_CHECKS = r"(POST|PATCH) /v1/providers/(check|{\w+}/(check|refresh))"
_MCP = r"/v1/(mcp-servers|tools/mcp/servers)"

_ANSWER_RULES: Sequence[tuple[str, Any]] = [
    (r"GET /v1/(health|ready)/", wire.Health),
    (r"DELETE /v1/(organizations|users)/{\w+}", None),
    (r"DELETE /v1/keys/{key_id}", KeyAnswer),
    (r"GET /v1/audit", list[AuditAnswer]),
    (r"GET /v1/(agents|blocks|folders|groups|identities|tools)/count", int),
    (r"PATCH /v1/agents/{agent_id}/(core-memory/blocks|tools|folders)/(at|de)tach/.*", agents.Agent),
    (r"PATCH /v1/agents/{agent_id}/(reset-messages|tools/approval/{tool_name})", agents.Agent),
    (r"PUT /v1/identities/{identity_id}/properties", identities.Identity),
    (r"DELETE /v1/agents/{agent_id}(/archival-memory/{memory_id})?", wire.Confirmation),
    (r"GET /v1/agents/{agent_id}/core-memory", blocks.Memory),
    (r"GET /v1/agents/{agent_id}/context", wire.Context),
    (r"GET /v1/agents/{agent_id}/context/costs", CostLedger),
    (r"POST /v1/(agents|conversations)/{\w+}/recompile", str),
    (r"POST /v1/(agents/{agent_id}/summarize|conversations/{conversation_id}/compact)", conversations.Compaction),
    (r"GET /v1/agents/{agent_id}/secrets", list[agents.Secret]),
    (r"GET /v1/agents/{agent_id}/files", folders.AgentFiles),
    (r"PATCH /v1/agents/{agent_id}/files/(close-all|{file_id}/open)", list[str]),
    (r"(GET|POST) /v1/agents/{agent_id}/archival-memory", list[archives.Passage]),
    (r"PATCH /v1/agents/{agent_id}/archival-memory/{memory_id}", list[archives.Passage]),
    (r"GET /v1/agents/{agent_id}/archival-memory/search", search.FoundPassages),
    (r"POST /v1/archives/{archive_id}/passages/batch", list[archives.Passage]),
    (r"POST /v1/archives/{archive_id}/passages/delete", wire.Deleted),
    (r"POST /v1/passages/{passage_id}/restore", archives.Passage),
    (r"POST /v1/passages/search", list[search.PassageHit]),
    (r"POST /v1/messages/search", list[search.FoundMessage]),
    (r"POST /v1/(agents/{agent_id}/)?recall", search.Recalled),
    (r"POST /v1/agents/{agent_id}/mentions", Mentions),
    (r"POST /v1/agents/{agent_id}/forget", Forgotten),
    (r"POST /v1/agents/{agent_id}/undo", Undone),
    (r"GET /v1/agents/{agent_id}/corrections", list[CorrectionShape]),
    (r"GET /v1/agents/{agent_id}/memory-sources", list[sources.SourceShape]),
    (r"GET /v1/agents/{agent_id}/memory-sources/writes", list[sources.WriteShape]),
    (r"POST /v1/agents/{agent_id}/memory-sources/revert(-writes)?", sources.RevertShape),
    (r"GET /v1/why", sources.MemoryOriginShape | sources.FactOriginShape | sources.AnswerOriginShape),
    (r"GET /v1/profiles", facts.ProfileShape),
    (r"GET /v1/facts/timeline", list[facts.EventShape]),
    (r"GET /v1/facts/context", facts.FactContextShape),
    (r"GET /v1/facts/communities", list[facts.CommunityShape]),
    (r"POST /v1/facts/tidy", list[facts.TidyShape]),
    (r"POST /v1/facts/tidy/undo", list[facts.MemoryShape]),
    (r"GET /v1/facts/search", list[FoundFactShape]),
    (r"POST /v1/facts/{fact_id}/restore", FactShape),
    (r"GET /v1/facts/{fact_id}/history", sources.FactOriginShape),
    (r"(GET|PATCH) /v1/facts/settings", FactSettingsShape),
    (r"POST /v1/runs/{run_id}/replay|GET /v1/runs/{run_id}/export", Shape),
    (r"GET /v1/folders/metadata", folders.FolderSizes),
    (r"GET /v1/folders/name/{folder_name}", FolderIdIn),
    (r"GET /v1/folders/{folder_id}/agents", list[AgentIdIn]),
    (r"POST /v1/folders/{folder_id}/upload", folders.File),
    (r"POST /v1/(agents|conversations|groups)/{\w+}/messages", wire.Reply),
    (r"POST /v1/agents/{agent_id}/messages/preview-raw-payload", dict[str, Any]),
    (r"POST /v1/agents/{agent_id}/generate", wire.Generated),
    (r"POST /v1/chat/completions", wire.Completion),
    (r"POST /v1/agents/{agent_id}/(messages/async|events)|POST /v1/runs/{run_id}/cancel", runs.Run),
    (r"POST /v1/agents/{agent_id}/messages/import", wire.Imported),
    (r"POST /v1/agents/import", wire.ImportedAgents),
    (
        r"POST /v1/(agents/{agent_id}/messages|groups/{group_id}/messages|conversations/{conversation_id})/cancel",
        dict[str, str],
    ),
    (r"GET /v1/messages/{message_id}", list[wire.Message]),
    (r"POST /v1/conversations/(ephemeral|{conversation_id}/fork)", conversations.Conversation),
    (r"GET /v1/tags/", list[str]),
    (r"POST /v1/sandbox-config/(local|e2b).*", sandbox.SandboxConfig),
    (r"GET /v1/agents/{agent_id}/companion/passes", list[groups.PassShape]),
    (r"POST /v1/agents/{agent_id}/companion/wake", groups.PassShape | None),
    (r"GET /v1/agents/{agent_id}/schedule", schedules.ScheduleList),
    (r"POST /v1/agents/{agent_id}/schedule", schedules.CreatedSchedule),
    (r"DELETE /v1/agents/{agent_id}/schedule/{scheduled_message_id}", schedules.ScheduleDeleted),
    (r"GET /v1/agents/{agent_id}/schedule/{scheduled_message_id}/firings", list[schedules.FiringShape]),
    (r"\w+ /v1/agents/{agent_id}/schedule/{scheduled_message_id}(/cancel)?", schedules.ScheduleShape),
    (r"PATCH /v1/groups/{group_id}/reset-messages", None),
    (r"GET /v1/runs/active", list[runs.Run]),
    (r"GET /v1/jobs/active", list[jobs.Job]),
    (r"GET /v1/messages/batches/{batch_id}/messages", wire.BatchMessages),
    (r"PATCH /v1/(messages/batches|jobs)/{\w+}/cancel|DELETE /v1/jobs/{job_id}", jobs.Job),
    (r"GET /v1/runs/{run_id}/trace", list[runs.Span]),
    (r"GET /v1/runs/{run_id}/metrics", runs.RunMetrics),
    (r"PATCH /v1/steps/{step_id}/feedback", runs.Step),
    (r"GET /v1/steps/{step_id}/metrics", runs.StepMetrics),
    (r"GET /v1/runs/{run_id}/usage", wire.Usage),
    (r"GET /v1/steps/{step_id}/trace", wire.Trace),
    (r"POST /v1/tools/add-base-tools", list[tools.Tool]),
    (r"POST /v1/tools/mcp/servers/{mcp_server_name}/{mcp_tool_name}", tools.Tool),
    (r"POST /v1/(tools|agents/{agent_id}/mcp-servers/tools)/search", list[wire.ToolHit]),
    (r"POST /v1/tools/generate-schema", tools.JsonSchema),
    (r"POST /v1/agents/{agent_id}/tools/{tool_name}/run", wire.ToolRun),
    (r"POST /v1/(agents/{agent_id}/)?mcp-servers/{mcp_server_id}/tools/{tool_id}/run", wire.ToolRun),
    (r"POST /v1/tools/mcp/servers/{mcp_server_name}/tools/{mcp_tool_name}/execute", wire.ToolRun),
    (r"POST /v1/providers/(check|{provider_id}/check)|DELETE /v1/providers/{provider_id}", wire.Confirmation),
    (r"PATCH /v1/providers/{provider_id}/refresh", providers.Provider),
    (r"GET /v1/models/", list[wire.Model]),
    (r"GET /v1/models/embedding", list[dict[str, Any]]),
    (r"POST /v1/tools/run", wire.ToolMessage),
    (r"GET /v1/mcp-servers/{mcp_server_id}/definitions", list[mcp.Definition]),
    (r"POST /v1/mcp-servers/{mcp_server_id}/approve|PATCH /v1/mcp-servers/{mcp_server_id}/refresh", mcp.Synced),
    (r"POST /v1/tools/mcp/servers/{mcp_server_name}/resync", mcp.Synced),
    (r"GET /v1/tools/mcp/servers", dict[str, mcp.McpConfig]),
    (r"PUT /v1/tools/mcp/servers|DELETE /v1/tools/mcp/servers/{mcp_server_name}", list[mcp.McpConfig]),
    (r"PATCH /v1/tools/mcp/servers/{mcp_server_name}", mcp.McpConfig),
    (r"GET /v1/tools/mcp/servers/{mcp_server_name}/tools", list[mcp.McpTool]),
    (r"POST /v1/tools/mcp/servers/test", mcp.McpListing),
    (r"DELETE /v1/(blocks|folders|groups|identities|tools|conversations|runs)/{\w+}", None),
    (r"PATCH /v1/agents/{agent_id}/(files/{file_id}/close|(archives|identities)/(at|de)tach/{\w+})", None),
]
"""Pattern of `METHOD /path` -> the answer's type. The first match counts, then `_THINGS`; None is null."""

_THINGS: Mapping[str, Any] = {
    "organizations": OrganizationAnswer,
    "users": UserAnswer,
    "keys": KeyAnswer,
    "agents": agents.Agent,
    "blocks": blocks.Block,
    "identities": identities.Identity,
    "archives": archives.Archive,
    "passages": archives.Passage,
    "facts": FactShape,
    "rules": RuleShape,
    "entities": EntityShape,
    "folders": folders.Folder,
    "files": folders.File,
    "conversations": conversations.Conversation,
    "messages": wire.Message,
    "runs": runs.Run,
    "steps": runs.Step,
    "jobs": jobs.Job,
    "batches": jobs.Job,
    "groups": groups.Group,
    "tools": tools.Tool,
    "mcp-servers": mcp.McpServer,
    "providers": providers.Provider,
    "sandbox-config": sandbox.SandboxConfig,
    "environment-variable": sandbox.Variable,
}
"""What the members of a collection are: GET of its path lists them; POST and PUT there, GET and PATCH of one, answer
with one."""

_ERROR_RULES: Sequence[tuple[re.Pattern[str], frozenset[int]]] = [
    (re.compile(pattern), frozenset(statuses))
    for pattern, statuses in (
        (_ANY, {403, 429, 431, 500, 503, 507}),
        (_CHANGING, {400, 409}),
        (r"(POST|PATCH) /v1/providers/.*", {501}),
        (_CHECKS, {401}),
        (_SENDS, {401, 402, 429, 501, 502, 504}),
        (r"POST /v1/conversations/ephemeral", {404}),
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

_BODIES: Mapping[str, tuple[type[BaseModel], bool]] = {
    "POST /v1/agents/{agent_id}/messages": (SendRequest, True),
    "POST /v1/agents/{agent_id}/messages/stream": (SendRequest, True),
    "POST /v1/agents/{agent_id}/messages/async": (SendRequest, True),
    "POST /v1/agents/{agent_id}/messages/cancel": (CancelRequest, False),
    "PATCH /v1/agents/{agent_id}/reset-messages": (ResetRequest, False),
    "PATCH /v1/agents/{agent_id}/tools/approval/{tool_name}": (ApprovalChange, False),
    "POST /v1/conversations/{conversation_id}/messages": (SendRequest, True),
    "POST /v1/conversations/{conversation_id}/stream": (ResumeRequest, False),
    "POST /v1/groups/{group_id}/messages": (SendRequest, True),
    "POST /v1/groups/{group_id}/messages/stream": (SendRequest, True),
    "POST /v1/runs/{run_id}/stream": (ResumeRequest, False),
}
"""Operation -> the body that its route parses itself, and whether it is required."""

_STREAMS = re.compile(
    r"POST /v1/((agents|conversations|groups|runs|tools)/.*(/messages|/messages/stream|/stream|/connect)"
    r"|chat/completions)"
)
_STREAMS_ONLY = re.compile(r"POST /v1/.*(/stream|/connect)")

_UPLOADS = {f"POST /v1/{folders}/{{folder_id}}/upload" for folders in ("folders", "sources")} | {
    "POST /v1/agents/import"
}
_FILE: Shape = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": {"type": "string", "contentMediaType": "application/octet-stream"}},
}

_PLAIN_IDS: Mapping[str, Shape] = {
    "agent_id": {"type": "string", "pattern": ID_PATTERNS["agent"]},
    "group_id": {"type": "string", "pattern": ID_PATTERNS["group"]},
    "conversation_id": TypeAdapter(ConversationPath).json_schema(),
}
_IDEMPOTENCY_KEY: Shape = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key again is the same run.",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_MAX_CHARS},
}
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


def complete(document: Shape, routes: Sequence[BaseRoute], *, has_key: bool) -> None:
    """Add plain routes, the bodies that routes parse themselves, answers, and errors as they are sent."""
    for route in routes:
        if type(route) is Route and route.include_in_schema and route.path.startswith("/v1/"):
            _add_plain(document["paths"], route)
    components = document.setdefault("components", {})
    schemas: Shape = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    models = {model for model, _ in _BODIES.values()}
    refs, defs = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    schemas |= {**defs["$defs"], **_SCHEMAS}
    if has_key:
        components["securitySchemes"] = dict(_KEYS)
    for path, method, operation in _operations(document):
        name = f"{method.upper()} {path}"
        if name in _BODIES:
            model, required = _BODIES[name]
            content = {JSON: {"schema": refs[model, "validation"]}}
            operation["requestBody"] = {"required": required, "content": content}
        elif name in _UPLOADS:
            if not has_key:
                operation.setdefault("parameters", []).append(_UPLOAD_HEADER)
            operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _FILE}}}
        for parameter in operation.get("parameters", ()):
            _remove_null(parameter)
        _add_streams(name, operation)
        _add_errors(name, operation, schemas, has_key=has_key and path not in OPEN_PATHS)
    _add_answers(document, schemas)
    add_examples(document)


def _add_plain(paths: Shape, route: Route) -> None:
    """Describe a route that the framework does not: its parameters are the ids in its path."""
    endpoint = route.endpoint
    parameters: list[Shape] = [
        {"name": name, "in": "path", "required": True, "schema": _PLAIN_IDS[name]} for name in route.param_convertors
    ]
    operation = {
        "summary": endpoint.__name__.strip("_").replace("_", " ").capitalize(),
        "description": inspect.cleandoc(endpoint.__doc__ or ""),
        "operationId": re.sub(r"\W+", "_", f"{endpoint.__name__.strip('_')}{route.path}_post"),
        "parameters": [*parameters, _IDEMPOTENCY_KEY],
        "responses": {"200": {"description": "Successful Response", "content": {JSON: {"schema": {}}}}},
    }
    for method in route.methods or ():
        paths.setdefault(route.path, {})[method.lower()] = dict(operation)


def _operations(document: Shape) -> Iterator[tuple[str, str, Shape]]:
    """Every path, method and operation of the document."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _add_answers(document: Shape, schemas: Shape) -> None:
    """Add the shape of each operation's successful JSON answer."""
    places: dict[str, Shape] = {}
    for path, method, operation in _operations(document):
        content = operation["responses"].get("200", {}).get("content", {})
        if JSON in content:
            places[f"{method.upper()} {path}"] = content[JSON]
    kinds: list[tuple[str, Literal["serialization"], TypeAdapter[Any]]] = [
        (name, "serialization", TypeAdapter(_answer_type(name))) for name in places
    ]
    kinds.append(("Chunk", "serialization", TypeAdapter(wire.Chunk)))
    shapes, defs = TypeAdapter.json_schemas(kinds, ref_template=_REF, schema_generator=_AnswerSchemas)
    schemas |= defs.get("$defs", {}) | {"Chunk": shapes["Chunk", "serialization"]}
    for name, place in places.items():
        place["schema"] = shapes[name, "serialization"]


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


def _add_streams(name: str, operation: Shape) -> None:
    """Add server-sent events to the answers of routes that can stream."""
    if _STREAMS.fullmatch(name) is None:
        return
    content: Shape = operation["responses"]["200"].setdefault("content", {})
    if _STREAMS_ONLY.fullmatch(name):
        content.clear()
    # `itemSchema` is one event; `schema` is all of them, for readers that know no other.
    event = {
        "$ref": _REF.format(model="ConnectEvent" if name.endswith(("/connect", "/completions")) else "StreamEvent")
    }
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
    failed = re.fullmatch(f"{_SENDS}|{_CHECKS}", name) is not None
    for status in sorted(statuses):
        shapes = ["Unprocessable"] if status == 422 else ["Error", "RunError"] if failed else ["Error"]
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


def _answer_type(name: str) -> Any:
    """The type of the answer of the operation `METHOD /path`; `sources` are folders. Raises: KeyError: no rule."""
    name = name.replace("/sources", "/folders")
    for pattern, kind in _ANSWER_RULES:
        if re.fullmatch(pattern, name):
            return kind
    match = re.fullmatch(r"(GET|POST|PUT|PATCH) /v1/(?:.*/)?([\w-]+)/?({\w+})?", name)
    if match is None:
        raise KeyError(name)
    method, collection, member = match.groups()
    thing = _THINGS[collection]
    return GenericAlias(list, (thing,)) if method == "GET" and not member else thing
