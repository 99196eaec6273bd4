"""What a comparison of derived rows with their texts finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perdure.core.vectors import OwnerKind

__all__ = [
    "Checked",
    "CheckedBlocks",
    "Fault",
    "FaultKind",
    "Owner",
]


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
