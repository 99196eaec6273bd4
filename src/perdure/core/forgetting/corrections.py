"""Corrections: changes of memory and history that can be undone, with what undoing them needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from perdure.core.ids import AgentId

Place = str
"""Where a text stands, such as `block`; features may add others. `fact`: facts that are believed. `graph`: facts that
no longer are, entities, episodes, rules and communities. `earlier_message`: earlier versions of messages, and messages
out of view. `request`: what models were sent and answered, with prefixes and recipes. `group`: groups of agents, with
turns and transcripts. `source`: the names of sources, such as URLs. `correction`: what undoing one would bring back."""

TITLE_CHARS = 120

CorrectionKind = Literal["block", "passage", "message", "forget", "revert"]
"""What was corrected. `revert`: writes were taken back."""


Key = tuple[int | str, ...]
"""The key of a row beside its owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A change of memory or history that can be undone.

    Args:
        number: counts within the agent, from 1.
        text: what was changed, for people; of a forgotten text its beginning.
        items: how many things it changed.
    """

    agent_id: AgentId
    number: int
    kind: CorrectionKind
    text: str
    items: int
    created_at: datetime
    undone_at: datetime | None = None

    @property
    def needle(self) -> str:
        """The forgotten text, of a long one the beginning. Where it was erased since, it is `REDACTED`."""
        return self.text.removesuffix("…") if len(self.text) == TITLE_CHARS else self.text


def title_of(text: str) -> str:
    """Return `text` on one line, cut to `TITLE_CHARS` characters with an ellipsis."""
    title = " ".join(text.split())
    return title if len(title) <= TITLE_CHARS else f"{title[: TITLE_CHARS - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionItem:
    """One thing that a correction changed.

    Args:
        kind: block, passage, message, summary, file or fact.
        id: of the thing; of a summary its conversation and number, `0:3`; of a part of a file also its number; of facts
            their graph.
        before: what undoing needs: of a block the version before, of a message its parts, of a passage its fields, of a
            summary and a part of a file its text, of facts their ids and an episode that supported them.
        after: the checksum of what the thing held after the correction; None: it was deleted, or is a summary that was
            written again, and is once more.
    """

    kind: Place
    id: str
    before: str
    after: int | None = None
