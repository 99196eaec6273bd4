"""What all shapes of the wire have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from perdure.core.blocks import Author

ACTOR_ID = "user-00000000-0000-4000-8000-000000000000"
ORG_ID = "org-00000000-0000-4000-8000-000000000000"
"""Who acts on the wire while there are no accounts: the names that clients of Letta's server expect."""

WIRE_AUTHOR = Author(kind="user", id=ACTOR_ID)


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
    """A body that a client sends. Unknown fields are ignored: newer clients send more than we know.

    Of a list or an object with free keys only the first wrong item is told: a body has room for millions of them, and
    each costs as much as a thousand right ones.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _set_fail_fast(schema)
        return schema


def stamp(at: datetime | None) -> Any:
    """A time as the wire writes it: ISO in UTC with microseconds and a `Z`; None stays None."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
