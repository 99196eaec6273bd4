"""`tx.events`: the verbs of what a run tells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from perdure.core.events import Event, StoredEvent
from perdure.core.runs import RunKey

__all__ = ["Events"]


class Events(Protocol):
    def add(
        self, key: RunKey, events: Sequence[Event], *, at: datetime, after: int | None = None
    ) -> Sequence[StoredEvent]:
        """The events with their numbers, consecutive within the run. Raises: NotFound.

        Args:
            after: the number of the run's last event, where it is known and the run was added, or is held, in this
                transaction; 0: it has none.
        """
        ...

    def list(self, key: RunKey, *, after: int = 0, limit: int = 1000) -> Sequence[StoredEvent]:
        """In order; added messages come with the message, also when a reset took it out of view since."""
        ...

    def trim_deltas(self, key: RunKey, *, keep: int, since: datetime) -> int:
        """Remove stored previews that are older than `since` or beyond the newest `keep`; how many went. A run's newest
        event always stays."""
        ...
