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
    """What a feature knows of its memories, whose texts lie in rows of its own and in archives that only it writes.

    Attributes:
        kind: of its memories, as writes, corrections and recalled texts name it.
    """

    kind: str

    def describe(self, tx: Tx, table: str, owner_id: str, key: Key) -> tuple[Place | None, str, str] | None:
        """Return place, id and name by which people are told of a row; None: it is none of its own."""

    def forget(self, tx: Tx, archive_id: ArchiveId, seq: int, at: datetime) -> CorrectionItem | None:
        """Take a text of an archive of its own out of view; None: nobody sees it."""

    def forget_unread(
        self, tx: Tx, agent_id: AgentId, redactor: Redactor, at: datetime, *, news: bool
    ) -> Sequence[CorrectionItem]:
        """Take the text out of what waits to be read, and with `news` of what the agent is to be told."""

    def forget_message(self, tx: Tx, agent_id: AgentId, message_seq: int, at: datetime) -> Sequence[CorrectionItem]:
        """Take out of view what is known from a message alone."""

    def restore(self, tx: Tx, item: CorrectionItem, at: datetime) -> str:
        """Bring back what was forgotten; return why some is not."""

    def erase(self, tx: Tx, table: str, owner_id: str, redactor: Redactor, seqs: Sequence[int], at: datetime) -> bool:
        """Take the text out of the rows of these numbers, which have it; False: they are none of its own."""

    def erase_messages(self, tx: Tx, agent_id: AgentId, seqs: Sequence[int], at: datetime) -> None:
        """Remove what is known from messages alone."""

    def list_alone(self, tx: Tx, write: MemoryWrite) -> Sequence[str]:
        """Return the ids of the memories that only this write supports."""

    def take_back(self, tx: Tx, write: MemoryWrite, at: datetime) -> CorrectionItem | None:
        """Take back what was written; None: it is gone."""

    def find_write(self, tx: Tx, ref: str) -> tuple[str, datetime]:
        """Return the owner of a write, and when it was made. Raises: NotFound."""

    def read_write(self, tx: Tx, write: MemoryWrite) -> tuple[str, str, bool]:
        """Return name and text of a write, and whether something of it stands."""

    def list_sources(self, tx: Tx, ids: Sequence[str]) -> Sequence[Source]:
        """Return what these memories bring from outside."""


@functools.cache
def keepers() -> Sequence[TextKeeper]:
    """Those of all features."""
    return [feature.load(feature.texts) for feature in find_features() if feature.texts]


def keeper_of(kind: str) -> TextKeeper:
    """The one whose memories are of this kind."""
    return next(keeper for keeper in keepers() if keeper.kind == kind)
