"""Tools on the wire."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast
from uuid import uuid4

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from perdure.core import specs as core
from perdure.core.errors import InvalidInput
from perdure.core.specs import ToolCode, ToolOutcome
from perdure.core.text.reprs import attributes
from perdure.core.tools.portable import schema_warnings
from perdure.core.tools.schema import without_titles
from perdure.domain.tools.units import MEMORY_MAX_MB, TIMEOUT_MAX_S, NewTool, ToolChanges, text_of_tool
from perdure.domain.tools.units import ToolHit as FoundTool
from perdure.library.tools.tools import ToolState
from perdure.server.wire.base import ACTOR_ID, WIRE_FIELDS, WireRequest, nulls, own_metadata, stamp, with_wire_fields
from perdure.server.wire.fields import AgentIdIn, Items, ItemsByName, JsonObject, MessageIdIn, Tags, Time, keywords
from perdure.server.wire.shapes import Object, WireShape, computed, wire_field

_HASH = "tool_hash"
"""The key in a reply's metadata of the digest of the source."""

_HEARTBEAT = "request_heartbeat"
_LOOP_ARGUMENTS = (_HEARTBEAT, "thinking", "inner_thoughts")
"""Arguments that the loops of older agents add to each schema. No function has them."""


class Requirement(BaseModel):
    """A package, as the wire writes it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    version: str | None = None

    @property
    def text(self) -> str:
        """The package as pip names it."""
        return f"{self.name}=={self.version}" if self.version else self.name


class ToolChangesIn(WireRequest):
    """Changes of a tool. A field that is missing or null stays. The last six are Perdure's own, beyond the wire."""

    source_code: str | None = None
    source_type: str | None = None
    description: str | None = None
    json_schema: JsonObject | None = None
    args_json_schema: JsonObject | None = None
    tags: Tags | None = None
    return_char_limit: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    pip_requirements: Items[Requirement] | None = None
    npm_requirements: Items[Requirement] | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = None
    metadata: Annotated[JsonObject | None, Field(alias="metadata_")] = None
    idempotent: bool | None = None
    timeout_s: Annotated[float, Field(gt=0), keywords(minimum=0.001, maximum=TIMEOUT_MAX_S)] | None = None
    environment: Annotated[ItemsByName[str] | None, Field(alias="env_vars")] = None
    network: bool | Items[str] | None = None
    memory_mb: Annotated[int, keywords(minimum=16, maximum=MEMORY_MAX_MB)] | None = None
    name: str | None = None

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=(), populate_by_name=True)

    @field_validator("source_type")
    @classmethod
    def _source_type(cls, value: str | None) -> str | None:
        return "python" if value in (None, "", "json") else value  # clients of 1.x say "json" of Python

    def changes(self, metadata: Mapping[str, Any]) -> ToolChanges:
        """The changes of a tool with this metadata. Raises: InvalidInput."""
        same = ("source_type", "tags", "idempotent", "timeout_s", "environment", "network", "memory_mb")
        others = {"requires_approval": "default_requires_approval", "parallel": "enable_parallel_execution"}
        values = {
            **attributes(self, *same, source="source_code", return_limit_chars="return_char_limit", **others),
            "name": self.name or _text(self.json_schema, "name"),
            "description": self.description or _text(self.json_schema, "description"),
            "schema": self._schema(),
            "requirements": None if self.pip_requirements is None else [one.text for one in self.pip_requirements],
            "metadata": self._metadata(metadata),
        }
        changes = {name: value for name, value in values.items() if value is not None}
        if "source" in changes:
            changes["documented"] = True
        else:
            changes.pop("source_type", None)  # clients send back the fields of a reply
        return cast(ToolChanges, changes)

    def _schema(self) -> dict[str, Any] | None:
        """The JSON schema of the arguments, None without one."""
        if self.json_schema is not None:
            parameters = self.json_schema.get(
                "parameters", self.json_schema if "properties" in self.json_schema else None
            )
            if parameters is None:
                return None
            if not isinstance(parameters, dict):
                raise InvalidInput("json_schema.parameters must be an object")
        elif self.args_json_schema:
            parameters = without_titles(self.args_json_schema)
            parameters.pop("description", None)
        else:
            return None
        return _without_heartbeat(parameters)

    def _metadata(self, before: Mapping[str, Any]) -> dict[str, Any] | None:
        """The whole new metadata, None where nothing of it changes."""
        wire_fields = dict(before.get(WIRE_FIELDS, {}))
        if self.args_json_schema is not None:
            wire_fields["args_json_schema"] = self.args_json_schema
        if self.npm_requirements is not None:
            wire_fields["npm_requirements"] = [requirement.model_dump() for requirement in self.npm_requirements]
        if self.metadata is None and wire_fields == before.get(WIRE_FIELDS, {}):
            return None
        metadata = before if self.metadata is None else self.metadata
        return with_wire_fields({name: value for name, value in metadata.items() if name != _HASH}, wire_fields)


class ToolIn(ToolChangesIn):
    """A new tool."""

    source_code: str

    def new(self) -> NewTool:
        """The tool to create. Raises: InvalidInput."""
        return NewTool(**self.changes({}))

    @property
    def set_fields(self) -> tuple[str, ...]:
        """The fields of the tool that the client sets."""
        return tuple(self.changes({}))


class ToolRunIn(ToolIn):
    """A source to run without storing it, and its arguments."""

    args: JsonObject = Field(default_factory=dict)


class ApprovalChange(WireRequest):
    """The new setting of whether a person approves each call of a tool. The TypeScript client sends the other name."""

    requires_approval: bool = Field(validation_alias=AliasChoices("requires_approval", "body_requires_approval"))


class AgentToolRunIn(WireRequest):
    """Arguments for a tool of an agent."""

    args: JsonObject = Field(default_factory=dict)
    agent_id: AgentIdIn | None = None


class GenerateSchemaIn(WireRequest):
    """A source, of which the reply is the schema."""

    code: str
    source_type: str | None = None


class ToolSearchIn(WireRequest):
    """A search for tools. It goes by words in every mode: tools have no vectors."""

    query: str | None = None
    search_mode: Literal["vector", "fts", "hybrid"] = "hybrid"
    tool_types: Items[str] | None = None
    tags: Tags | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 50


class JsonSchema(WireShape, of=core.Tool, fields="spec.name spec.description"):
    """A tool's schema: name, description and parameters."""

    parameters: Object = computed(lambda tool: dict(tool.spec.parameters))


class WireTool(
    WireShape,
    of=core.Tool,
    fields="id spec.tool_type spec.description source_type spec.name tags source_code json_schema args_json_schema"
    " return_char_limit pip_requirements npm_requirements default_requires_approval enable_parallel_execution"
    " created_by_id last_updated_by_id metadata_ project_id",
    return_char_limit="spec.return_limit_chars",
    enable_parallel_execution="spec.parallel",
    unlisted=nulls("args_json_schema", "project_id") | {"created_by_id": ACTOR_ID, "last_updated_by_id": ACTOR_ID},
):
    """A tool. `source_code` is null of one that is not custom."""

    source_type: str | None
    source_code: str | None
    json_schema: Object = computed(JsonSchema.make)
    tags: list[str]
    pip_requirements: list[Object] | None
    npm_requirements: list[Object] | None = wire_field("npm_requirements")
    default_requires_approval: bool | None = computed(lambda tool: tool.spec.requires_approval or None)
    metadata_: Object


def tool_shape(tool: core.Tool, code: ToolCode | None = None) -> WireTool:
    """The tool with all fields of the wire."""
    spec = tool.spec
    own = spec.tool_type != "custom"
    metadata = own_metadata(tool.metadata)
    if code is not None:
        digest = hashlib.sha256(code.source.encode("utf-8", "surrogatepass")).hexdigest()
        metadata[_HASH] = digest[:12]
    return WireTool.make(
        tool,
        name=tool.own_name or spec.name,  # clients look for a server's own; agents call `server__tool`
        source_type="python" if code is None else code.source_type,
        # Letta's own tools are tagged with their type, which clients use to tell them from a user's.
        tags=list(tool.tags) or ([spec.tool_type] if own else []),
        source_code=None if code is None else code.source,
        args_json_schema=None if own else tool.metadata.get(WIRE_FIELDS, {}).get("args_json_schema", {}),
        pip_requirements=None if code is None else [_requirement(one) for one in code.requirements] or None,
        metadata_=metadata,
        **_own_fields(tool, code),
    )


def tool_state_shape(state: ToolState) -> WireTool:
    """A stored tool with its source."""
    return tool_shape(state.tool, state.code)


class WireToolHit(
    WireShape, of=FoundTool, fields="tool embedded_text fts_rank vector_rank combined_score", combined_score="score"
):
    """A tool that a search found."""

    tool: WireTool
    embedded_text: str | None = computed(lambda hit: text_of_tool(hit.tool))
    fts_rank: int | None
    vector_rank: int | None = None


def hits_shape(hits: Iterable[tuple[FoundTool, ToolCode | None]]) -> list[WireToolHit]:
    """The tools that a search found, with their sources, best first."""
    return [
        WireToolHit.make(hit, tool=tool_shape(hit.tool, code), fts_rank=rank if hit.score else None)
        for rank, (hit, code) in enumerate(hits, start=1)
    ]


def errors_of(outcome: ToolOutcome) -> list[str]:
    """Return the lines that a tool run by hand wrote to stderr, else why it failed, as clients look for that there."""
    return list(outcome.stderr) or ([outcome.text] if outcome.status == "error" else [])


class ToolMessage(
    WireShape,
    of=ToolOutcome,
    fields="id date name message_type tool_return status tool_call_id stdout stderr",
    tool_return="text",
    unlisted={"name": None, "tool_call_id": "null"},
):
    """The outcome of a source that was run by hand, as a message."""

    id: MessageIdIn = computed(lambda outcome: f"message-{uuid4()}")
    date: Time = computed(lambda outcome: stamp(datetime.now(UTC)))
    message_type: Literal["tool_return_message"] = "tool_return_message"
    stderr: list[str] = computed(errors_of)


def _own_fields(tool: core.Tool, code: ToolCode | None) -> dict[str, Any]:
    """The fields that only Perdure has, where they are set: other clients don't expect them."""
    fields: dict[str, Any] = {"idempotent": tool.spec.idempotent} if tool.spec.tool_type == "custom" else {}
    if code is not None:
        fields |= {"timeout_s": tool.spec.timeout_s, "network": list(code.network), "memory_mb": code.memory_mb}
        fields["environment"] = code.visible_environment
    if tool.spec.tool_type in ("custom", "external_mcp"):
        fields["schema_warnings"] = schema_warnings(tool.spec)
    return {name: value for name, value in fields.items() if value}


def _requirement(text: str) -> dict[str, Any]:
    """Return a pip requirement, such as `httpx==1.0`, in the wire's form, with the version if `==` pins it."""
    name, pinned, version = text.partition("==")
    return {"name": name.strip(), "version": version.strip()} if pinned else {"name": text, "version": None}


def _text(schema: Mapping[str, Any] | None, name: str) -> str | None:
    """Return the text in a field of a tool's schema, beside its parameters; None: there is none."""
    value = None if schema is None or "properties" in schema else schema.get(name)
    return value if isinstance(value, str) else None


def _without_heartbeat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without the arguments that the loops of older agents add."""
    properties, required = parameters.get("properties"), parameters.get("required")
    if not isinstance(properties, Mapping) or _HEARTBEAT not in properties:
        return dict(parameters)
    own = {name: schema for name, schema in properties.items() if name not in _LOOP_ARGUMENTS}
    schema = {**parameters, "properties": own}
    if isinstance(required, list):
        schema["required"] = [name for name in required if name not in _LOOP_ARGUMENTS]
    return schema
