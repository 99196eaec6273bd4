"""`tx.secrets`: the verbs of secrets. They carry encrypted values only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from perdure.core.secrets import Secret

__all__ = ["Secrets"]


class Secrets(Protocol):
    """`owner_id` is an agent's id, or `ORGANISATION`."""

    def put(self, owner_id: str, name: str, sealed: bytes, *, at: datetime) -> Secret:
        """Create the secret, or change the one of that name. Raises: NotFound: no such agent."""
        ...

    def find(self, owner_id: str, name: str) -> Secret | None: ...

    def list(self, owner_id: str, *, limit: int = 1_000) -> Sequence[Secret]:
        """Sorted by name."""
        ...

    def delete(self, owner_id: str, name: str) -> None:
        """Raises: NotFound."""
        ...
