"""Texts that memories come from, and those of features: what is done when one is changed, deleted or forgotten."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from perdure.core.features import Point, find_features
from perdure.core.forgetting.corrections import CorrectionItem, Key, Place
from perdure.core.forgetting.redaction import Redactor
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.sources import MemoryWrite, Source
from perdure.storage.tx import Tx

TEXTS_DELETED: Point[[Tx, Sequence[str], datetime], None] = Point("texts_deleted")
"""Messages or passages are deleted, by their ids."""
TEXTS_CHANGED: Point[[Tx, Sequence[str], datetime], None] = Point("texts_changed")
"""Messages or passages say something else now, by their ids."""


class TextKeeper(Protocol):
    """A feature's own kind of memory, whose texts are in its tables and in archives that only it writes.

    Forgetting hides a text in a way that can be undone; erasing removes it from the store.

    Attributes:
        kind: the kind of its memories, as writes, corrections and recalled texts name it.
    """

    kind: str

    def describe(self, tx: Tx, table: str, owner_id: str, key: Key) -> tuple[Place | None, str, str] | None:
        """Return (place, id, name) for people of the row `key` of `owner_id` in `table`; None: the row is another's."""

    def forget(self, tx: Tx, archive_id: ArchiveId, seq: int, at: datetime) -> CorrectionItem | None:
        """Hide the text `seq` of one of its archives; return the data that undoes it, or None if it is hidden."""

    def forget_unread(
        self, tx: Tx, agent_id: AgentId, redactor: Redactor, at: datetime, *, news: bool
    ) -> Sequence[CorrectionItem]:
        """Hide a text in texts that wait to be read, with `news` in the agent's news too; return what undoing needs."""

    def forget_message(self, tx: Tx, agent_id: AgentId, message_seq: int, at: datetime) -> Sequence[CorrectionItem]:
        """Hide the memories that come from this message alone, and return what undoing needs."""

    def restore(self, tx: Tx, item: CorrectionItem, at: datetime) -> str:
        """Bring back what `item` says was hidden; return why some of it can't be; empty: all is back."""

    def erase(self, tx: Tx, table: str, owner_id: str, redactor: Redactor, seqs: Sequence[int], at: datetime) -> bool:
        """Erase the text of `redactor` from the rows `seqs` of `owner_id` in `table`; False: the table is another's."""

    def erase_messages(self, tx: Tx, agent_id: AgentId, seqs: Sequence[int], at: datetime) -> None:
        """Erase the memories that come from these messages of the agent alone."""

    def list_alone(self, tx: Tx, write: MemoryWrite) -> Sequence[str]:
        """Return the ids of the memories that only this write supports."""

    def take_back(self, tx: Tx, write: MemoryWrite, at: datetime) -> CorrectionItem | None:
        """Undo a write, and return the data that undoes this again; None: what it wrote is gone already."""

    def find_write(self, tx: Tx, ref: str) -> tuple[str, datetime]:
        """Return (the id of the owner of the write `ref`, when it was made). Raises: NotFound."""

    def read_write(self, tx: Tx, write: MemoryWrite) -> tuple[str, str, bool]:
        """Return (title of a write, its text, whether any of it still exists)."""

    def list_sources(self, tx: Tx, ids: Sequence[str]) -> Sequence[Source]:
        """Return the untrusted sources of the memories with these ids."""


@functools.cache
def keepers() -> Sequence[TextKeeper]:
    """Return the text keepers of all features."""
    return [feature.load(feature.texts) for feature in find_features() if feature.texts]


def keeper_of(kind: str) -> TextKeeper:
    """Return the text keeper of this kind of memory. There always is one."""
    return next(keeper for keeper in keepers() if keeper.kind == kind)
