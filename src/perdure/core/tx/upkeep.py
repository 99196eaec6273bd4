"""`tx.upkeep`: comparing what is derived from the rows with the rows, and making it agree again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from perdure.core.tx.vectors import OwnerKind

__all__ = ["Checked", "CheckedBlocks", "Fault", "FaultKind", "Owner", "Upkeep"]

FaultKind = Literal["words", "stale words", "tags", "counts", "vectors", "queue", "damage"]
"""`damage`: a text is not what was written, which nothing mends.

`stale words`: the full-text index has something else than the text, which on SQLite only a rebuild mends."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An agent or an archive; `rows`: how many numbers its texts have used."""

    number: int
    kind: OwnerKind
    id: str
    rows: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What differs from the rows, in plain words, how often, and whether it was made to agree. Of damage `owner_id` may
    be a block."""

    kind: FaultKind
    owner_id: str
    text: str
    count: int
    repaired: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """`next_seq`: where to go on; None: all of the owner was compared. `bare`: how many rows had no checksum."""

    faults: Sequence[Fault]
    next_seq: int | None
    bare: int = 0


@dataclass(frozen=True, slots=True)
class CheckedBlocks:
    """`after`: the block and version to go on after; None: all were compared. `bare`: as of `Checked`."""

    faults: Sequence[Fault]
    after: tuple[str, int] | None
    bare: int


class Upkeep(Protocol):
    def owners(self, *, after: int = -1, limit: int = 500) -> Sequence[Owner]:
        """Agents and archives in order of their numbers."""
        ...

    def check(self, owner: Owner, *, from_seq: int = 0, limit: int = 1_000, repair: bool = False) -> Checked:
        """Compare the next `limit` texts of an owner with their checksums, and with what is derived from them; with the
        last ones, its counts. `repair` makes anew what is derived, and gives a checksum to rows that have none.
        """
        ...

    def check_blocks(
        self, *, after: tuple[str, int] = ("", -1), limit: int = 1_000, repair: bool = False
    ) -> CheckedBlocks:
        """Compare the next `limit` versions of blocks with their checksums, and each block with its newest version."""
        ...

    def carry_out_deletes(self, *, limit: int = 500, chars: int = 250_000) -> bool:
        """Remove up to `limit` rows of what is deleted, or texts of about `chars` characters. False: nothing is left.
        Nobody sees a difference but in time and room, and in settings revisions of agents that lose a tool or folder.
        """
        ...

    def unfinished_deletes(self) -> bool:
        """Whether there are rows of what is deleted."""
        ...

    def integrity(self) -> Sequence[str]:
        """What the database itself finds wrong with its file; it reads all of it."""
        ...

    def rebuild_words(self, kind: OwnerKind, *, limit: int = 500) -> tuple[int, int] | None:
        """Make the full-text index of all messages, or all passages, anew: the next `limit` texts of it, from the first
        if nobody has begun. Searches find what they found until all is done.

        Returns: the number of the owner, and that of its text, to go on from, higher than any while the old index is
            removed; None: all is done.
        """
        ...

    def rebuilding(self) -> Sequence[OwnerKind]:
        """Whose index somebody has begun to make anew, and not ended."""
        ...
