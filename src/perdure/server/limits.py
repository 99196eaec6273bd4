"""How long lists of a request may be: looked at before what is in them is made, by the settings of the server."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.core.limits import DEFAULT_LIMITS, Limits

__all__ = ["AtMost", "Items", "ItemsByName", "LimitsOfServer", "Tags"]

T = TypeVar("T")

# The types of bodies are made once for all servers of a process, and what is checked while one is read is not handed
# in: so the limits come with the request.
_LIMITS: ContextVar[Limits] = ContextVar("limits", default=DEFAULT_LIMITS)

_JSON_NAMES = {"array": "maxItems", "object": "maxProperties"}


class LimitsOfServer:
    """Has requests checked by these limits."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _LIMITS.set(self._limits)
        await self._app(scope, receive, send)


@dataclass(frozen=True, slots=True)
class AtMost:
    """In `Annotated[list[...], AtMost("tags_per_item")]`: the list may be as long as this one of `Limits` says. What is
    longer raises TooMany before any item is looked at."""

    limit: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_before_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        shape = handler(schema)
        for one in (shape, *shape.get("anyOf", ())):
            if (name := _JSON_NAMES.get(one.get("type", ""))) is not None:
                one[name] = getattr(_LIMITS.get(), self.limit)
        return shape

    def _checked(self, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, list | dict):
            _LIMITS.get().check(self.limit, len(value), field=info.field_name or "")
        return value


Items = Annotated[list[T], AtMost("items_per_request")]
ItemsByName = Annotated[dict[str, T], AtMost("items_per_request")]
Tags = Annotated[list[str], AtMost("tags_per_item")]
