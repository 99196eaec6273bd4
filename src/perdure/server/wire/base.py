"""What all bodies of requests and shapes of answers have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from perdure.core.ids import DEFAULT_USER
from perdure.core.text.reprs import attributes
from perdure.server.errors import NotSupported

ACTOR_ID = DEFAULT_USER
ORG_ID = "org-00000000-0000-4000-8000-000000000000"
"""Who acts on the wire where nobody is known: the names that clients of Letta's server expect."""

MASKED = ""
"""The value of a secret in answers. In a request it keeps the stored value."""

WIRE_FIELDS = "perdure:wire"
"""The key in an item's metadata of the fields that only the wire has. No reply shows it."""

WIRE_SETTING = "wire"
"""The setting of an agent that holds the fields which only the wire has."""

_WITH_ITEMS = frozenset({"list", "set", "frozenset", "tuple", "dict"})


def _set_fail_fast(schema: Any) -> None:
    """Let validation of everything with items within a schema stop at the first wrong one."""
    if isinstance(schema, dict):
        kind = schema.get("type")  # of a table of fields it may be a field of that name
        if isinstance(kind, str) and kind in _WITH_ITEMS:
            schema["fail_fast"] = True
        for name, part in schema.items():
            if name not in ("metadata", "serialization"):
                _set_fail_fast(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _set_fail_fast(part)


class WireRequest(BaseModel):
    """The body of a request. Unknown fields are ignored: newer clients send more than we know.

    Of a list or an object with free keys only the first wrong item is reported: a body has room for millions of them,
    and each costs as much as a thousand right ones.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _set_fail_fast(schema)
        return schema

    def non_null(self, *names: str) -> dict[str, Any]:
        """The fields that are neither missing nor null, by name; with `names`, only these."""
        return {name: value for name, value in self if value is not None and (not names or name in names)}


def with_wire_fields(metadata: Mapping[str, Any], wire_fields: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata to store: `metadata` and, under a key of their own, the fields that only the wire has."""
    return own_metadata(metadata) | ({WIRE_FIELDS: dict(wire_fields)} if wire_fields else {})


def wire_members(owner: str, **values: str | None) -> tuple[tuple[str, str, str], ...]:
    """The condition of a filter that the object `owner` of stored fields holds these; None: any value."""
    return tuple((owner, name, value) for name, value in values.items() if value is not None)


def own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Stored metadata without the fields that only the wire has."""
    return {name: value for name, value in metadata.items() if name != WIRE_FIELDS}


def join_texts(content: str | Sequence[Mapping[str, Any]], refusal: str) -> str:
    """The text of a message's content, in one piece. Raises: NotSupported, with `refusal`: a part is no text."""
    if isinstance(content, str):
        return content
    if any(part.get("type", "text") != "text" or not isinstance(part.get("text"), str) for part in content):
        raise NotSupported(refusal)
    return "\n".join(part["text"] for part in content)


def stamps(created_at: datetime, updated_at: datetime) -> dict[str, Any]:
    """The first fields of most answers: who created and changed a thing, and when."""
    return {
        "created_by_id": ACTOR_ID,
        "last_updated_by_id": ACTOR_ID,
        "created_at": stamp(created_at),
        "updated_at": stamp(updated_at),
    }


def nulls(*names: str) -> dict[str, None]:
    """Fields that clients expect, and that are always null here."""
    return dict.fromkeys(names)


def fields(value: object, *names: str, **others: str) -> dict[str, Any]:
    """The attributes of these names, and others under the names that the wire has for them: `size="file.size"`."""
    found = attributes(value, *names, **others)
    return {name: stamp(one) if isinstance(one, datetime) else one for name, one in found.items()}


def stamp(at: datetime | None) -> Any:
    """A time on the wire: ISO in UTC with microseconds and a `Z`; None stays None."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
