"""The settings' limits on lists in request bodies, checked before any item is parsed."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.core.limits import DEFAULT_LIMITS, Limits

T = TypeVar("T")

# All servers of a process share the types of bodies, and pydantic passes no arguments to their validators. So the
# limits travel with the request.
_LIMITS: ContextVar[Limits] = ContextVar("limits", default=DEFAULT_LIMITS)

_JSON_NAMES = {"array": "maxItems", "object": "maxProperties"}


class LimitsMiddleware:
    """Middleware that sets the limits by which a request is checked."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _LIMITS.set(self._limits)
        await self._app(scope, receive, send)


@dataclass(frozen=True, slots=True)
class MaxItems:
    """The metadata that limits a list or mapping: `Annotated[list[...], MaxItems("tags_per_item")]`.

    A longer one raises TooMany before any item is parsed. `limit` is a field of `Limits`.
    """

    limit: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_before_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        shape = handler(schema)
        for option in (shape, *shape.get("anyOf", ())):
            if (name := _JSON_NAMES.get(option.get("type", ""))) is not None:
                option[name] = getattr(_LIMITS.get(), self.limit)
        return shape

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, list | dict):
            _LIMITS.get().check(self.limit, len(value), field=info.field_name or "")
        return value


Items = Annotated[list[T], MaxItems("items_per_request")]
ItemsByName = Annotated[dict[str, T], MaxItems("items_per_request")]
Tags = Annotated[list[str], MaxItems("tags_per_item")]
