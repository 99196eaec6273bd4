"""Identities on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from perdure.core.agents import IdentityType
from perdure.library.agents.identities import IdentityFields, IdentityState
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import AgentIdIn, BlockIdIn, Items, JsonObject, Name, finite
from perdure.server.wire.shapes import Object, WireShape

_Text = Annotated[Name, Field(min_length=1)]


class PropertyIn(WireRequest):
    """A property of an identity."""

    key: Name
    value: Annotated[str | bool | int | float | JsonObject, AfterValidator(finite)]
    type: Literal["string", "number", "boolean", "json"]


Properties = Items[PropertyIn]


class IdentityChangesIn(WireRequest):
    """Changes of an identity. A field that is missing or null stays; the lists are whole new ones."""

    identifier_key: _Text | None = None
    name: _Text | None = None
    identity_type: IdentityType | None = None
    properties: Properties | None = None
    agent_ids: Items[AgentIdIn] | None = None
    block_ids: Items[BlockIdIn] | None = None

    @property
    def fields(self) -> IdentityFields:
        """The values, as the library takes them."""
        values = self.non_null("identifier_key", "name", "identity_type", "agent_ids", "block_ids")
        if self.properties is not None:
            values["properties"] = property_values(self.properties)
        return IdentityFields(**values)


class IdentityIn(IdentityChangesIn):
    """An identity as a whole."""

    identifier_key: _Text
    name: _Text
    identity_type: IdentityType
    project_id: Name | None = None


def property_values(properties: list[PropertyIn]) -> list[dict[str, Any]]:
    """The properties, as the library takes them."""
    return [one.model_dump() for one in properties]


class Property(TypedDict):
    """A property of an identity."""

    key: str
    value: str | bool | float | Object
    type: Literal["string", "number", "boolean", "json"]


class WireIdentity(
    WireShape,
    of=IdentityState,
    fields="identity.id identity.identifier_key identity.name identity.identity_type identity.project_id"
    " identity.properties agent_ids block_ids",
):
    """An identity."""

    properties: list[Property]
