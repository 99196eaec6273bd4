"""The results of comparing derived rows with their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perdure.core.vectors import OwnerKind

FaultKind = Literal["words", "stale words", "tags", "counts", "vectors", "queue", "damage"]
"""`damage`: a text differs from what was written; nothing repairs it.

`stale words`: the full-text index differs from the text; on SQLite only a rebuild repairs it."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An agent or an archive whose derived rows are compared; `rows`: the number of its next text."""

    number: int
    kind: OwnerKind
    id: str
    rows: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A difference in plain words, how often it occurs, and whether it was repaired. For damage `owner_id` may be a
    block's."""

    kind: FaultKind
    owner_id: str
    text: str
    count: int
    repaired: bool


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result for some texts of an owner. `next_seq`: where to continue; None: the end. `without_checksum`: how
    many rows had none."""

    faults: Sequence[Fault]
    next_seq: int | None
    without_checksum: int = 0


@dataclass(frozen=True, slots=True)
class BlockCheckResult:
    """The result for some blocks, or entities of graphs. `after`: the block or graph, and the version or entity, to
    continue after; None: the end. `without_checksum`: as in `CheckResult`."""

    faults: Sequence[Fault]
    after: tuple[str, int] | None
    without_checksum: int
