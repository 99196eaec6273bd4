"""What all shapes of the wire have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from perdure.core.blocks import Author

__all__ = ["ACTOR_ID", "ORG_ID", "WIRE_AUTHOR", "WireRequest", "stamp"]

ACTOR_ID = "user-00000000-0000-4000-8000-000000000000"
ORG_ID = "org-00000000-0000-4000-8000-000000000000"
"""Who acts on the wire while there are no accounts: the names that clients of Letta's server expect."""

WIRE_AUTHOR = Author(kind="user", id=ACTOR_ID)


class WireRequest(BaseModel):
    """A body that a client sends. Unknown fields are ignored: newer clients send more than we know."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


def stamp(at: datetime | None) -> Any:
    """A time as the wire writes it: ISO in UTC with microseconds and a `Z`; None stays None."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
