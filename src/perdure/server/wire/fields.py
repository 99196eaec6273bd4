"""Types of fields in requests: ids, lists with limits, and texts and objects with conditions."""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo, WithJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from perdure.core import ids
from perdure.core.blocks import LABEL_PATTERN
from perdure.core.incoming.limits import DEFAULT_LIMITS, Limits


@dataclass(frozen=True, slots=True)
class IdFormat:
    """The metadata that makes a text an id: `Annotated[RunId, IdFormat("run")]`.

    Another text is answered with 422 and `String should match pattern 'run-{uuid4}'`.

    Args:
        kind: a key of `core.ids.PREFIXES`.
        words: texts that are accepted besides ids.
    """

    kind: str
    words: tuple[str, ...] = ()

    def check(self, value: str) -> str:
        """Return `value`. Raises: PydanticCustomError: it is not such an id."""
        if value not in self.words and not ids.is_id(self.kind, value):
            pattern = f"{ids.PREFIXES[self.kind]}-{{uuid4}}"
            raise PydanticCustomError(
                "string_pattern_mismatch", "String should match pattern '{pattern}'", {"pattern": pattern}
            )
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        shape = handler(schema) | {"pattern": ids.ID_PATTERNS[self.kind]}
        return {"anyOf": [shape, {"const": self.words[0]}]} if len(self.words) == 1 else shape


def id_in_path(kind: str, value: str) -> str:
    """Return an id from the path of a route that parses it itself. Raises: RequestValidationError: it is not one."""
    if not ids.is_id(kind, value):
        text = f"String should match pattern '{ids.PREFIXES[kind]}-{{uuid4}}'"
        problem = {"type": "string_pattern_mismatch", "loc": ("path", f"{kind}_id"), "msg": text, "input": value}
        raise RequestValidationError([problem])
    return value


# The types of ids in paths, queries and bodies.
AgentIdIn = Annotated[ids.AgentId, IdFormat("agent")]
ArchiveIdIn = Annotated[ids.ArchiveId, IdFormat("archive")]
BlockIdIn = Annotated[ids.BlockId, IdFormat("block")]
ConversationIdIn = Annotated[ids.ConversationId, IdFormat("conversation")]
EntityIdIn = Annotated[ids.EntityId, IdFormat("entity")]
FactIdIn = Annotated[ids.FactId, IdFormat("fact")]
FileIdIn = Annotated[ids.FileId, IdFormat("file")]
FolderIdIn = Annotated[ids.FolderId, IdFormat("folder")]
GraphIdIn = Annotated[ids.GraphId, IdFormat("graph")]
GroupIdIn = Annotated[ids.GroupId, IdFormat("group")]
IdentityIdIn = Annotated[ids.IdentityId, IdFormat("identity")]
OrgIdIn = Annotated[ids.OrgId, IdFormat("org")]
UserIdIn = Annotated[ids.UserId, IdFormat("user")]
KeyIdIn = Annotated[ids.KeyId, IdFormat("key")]
McpServerIdIn = Annotated[ids.McpServerId, IdFormat("mcp_server")]
MessageIdIn = Annotated[ids.MessageId, IdFormat("message")]
PassageIdIn = Annotated[ids.PassageId, IdFormat("passage")]
RunIdIn = Annotated[ids.RunId, IdFormat("run")]
JobIdIn = Annotated[str, IdFormat("job")]
"""The id of a run as older clients know it: with another prefix."""
SandboxIdIn = Annotated[ids.SandboxId, IdFormat("sandbox")]
ProviderIdIn = Annotated[ids.ProviderId, IdFormat("provider")]
ScheduleIdIn = Annotated[ids.ScheduleId, IdFormat("schedule")]
StepIdIn = Annotated[ids.StepId, IdFormat("step")]
ToolIdIn = Annotated[ids.ToolId, IdFormat("tool")]
VariableIdIn = Annotated[ids.VariableId, IdFormat("variable")]

ConversationOrDefault = Annotated[str, IdFormat("conversation", words=("default",))]
"""A conversation's id; or `default`, the first conversation of an agent that the request names."""

ConversationPath = Annotated[
    str,
    WithJsonSchema(
        {"type": "string", "pattern": f"{ids.ID_PATTERNS['conversation']}|{ids.ID_PATTERNS['agent']}|^default$"}
    ),
]
"""A conversation's id in a path. `default` and an agent's id mean the agent's first conversation."""

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""A time in an answer."""

T = TypeVar("T")

request_limits: ContextVar[Limits] = ContextVar("request_limits", default=DEFAULT_LIMITS)
"""The limits of the current request's server. All servers of a process share the types of bodies, and pydantic passes
no arguments to their validators."""

_JSON_NAMES = {"array": "maxItems", "object": "maxProperties", "string": "maxLength"}


@dataclass(frozen=True, slots=True)
class MaxItems:
    """The metadata that limits a list, mapping or text: `Annotated[list[...], MaxItems("tags_per_item")]`.

    A longer one raises TooMany before any item is parsed. `limit` is a field of `Limits`.
    """

    limit: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_before_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        shape = handler(schema)
        for option in (shape, *shape.get("anyOf", ())):
            if (name := _JSON_NAMES.get(option.get("type", ""))) is not None:
                option[name] = getattr(request_limits.get(), self.limit)
        return shape

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, list | dict | str):
            request_limits.get().check(self.limit, len(value), field=info.field_name or "")
        return value


Name = Annotated[str, MaxItems("name_limit_chars")]
"""A short text, by which people and programs find a thing."""

Items = Annotated[list[T], MaxItems("items_per_request")]
ItemsByName = Annotated[dict[str, T], MaxItems("items_per_request")]
Tags = Annotated[list[str], MaxItems("tags_per_item")]


def keywords(**keywords: Any) -> Any:
    """The metadata that adds keywords of JSON Schema to the OpenAPI document only; the library checks the value."""
    return Field(json_schema_extra=keywords)


def finite(value: Any) -> Any:
    """Return `value`. Raises: ValueError: it holds NaN or an infinity, which JSON can't write."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError("it holds a number that is not finite") from None
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(finite)]
"""An object that can be written as JSON again."""

FILLED = r"[^\s\x1c-\x1f\x85]"
Filled = Annotated[str, keywords(pattern=FILLED)]
"""A text that is not only white space."""

Label = Annotated[str, keywords(pattern=f"^{LABEL_PATTERN}$")]
"""The label of a block."""

Date = Annotated[str, keywords(anyOf=[{"format": "date"}, {"format": "date-time"}, {"pattern": r"^\s*$"}])]
"""An ISO date or time; an empty text is none."""
