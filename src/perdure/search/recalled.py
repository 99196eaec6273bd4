"""What is recalled for a query: one text within a budget of tokens, and where each piece of it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from perdure.core.ids import AgentId, ArchiveId, ConversationId
from perdure.search.hits import SearchReport, Why

__all__ = ["RecallScope", "Recalled", "Source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallScope:
    """What is looked through, and what of it may be taken.

    Args:
        agent_id: whose blocks and messages; None: only archives are searched.
        archives: these; None: all that the agent has, those of its folders included.
        conversation_seq: of this conversation only; None: of all.
        messages, blocks: whether turns, and blocks, may be in it.
        in_view: conversation and first row in its view: what stands there is left out, and so is what was captured of
            it; and the further rows of it that are shown.
    """

    agent_id: AgentId | None = None
    archives: tuple[ArchiveId, ...] | None = None
    conversation_seq: int | None = None
    messages: bool = True
    blocks: bool = True
    in_view: tuple[int, int] | None = None
    pinned: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where one piece of a recalled text comes from. Fields of other kinds are None.

    Args:
        number: `[number]` in the text.
        id: of the block, passage or message.
        score: 0 to 1, as in `Recalled`; of a block, how many of the query's words it holds.
        why: the search's own account; None: it was not asked for, or a block or neighbour, which no search found.
        tokens: of the piece's lines.
        first, last: the characters that were taken of its text, `last` not included; `chars` is how many there are.
        label: of a block.
        archive_id, archive_name, source, lines: of a passage: its archive, where it came from, its first and last line
            there.
        path: of a passage of a file: `folder/name`, as the text and the agent's tools for files call it.
        conversation_id, seq, role, name: of a turn.
        beside: of a turn that is there only because it stands next to a hit: the ids of these.
    """

    number: int
    kind: Literal["block", "passage", "turn"]
    id: str
    score: float
    why: Why | None = None
    tokens: int
    first: int
    last: int
    chars: int
    label: str | None = None
    archive_id: ArchiveId | None = None
    archive_name: str | None = None
    source: Mapping[str, Any] | None = None
    path: str | None = None
    lines: tuple[int, int] | None = None
    conversation_id: ConversationId | None = None
    seq: int | None = None
    role: str | None = None
    name: str | None = None
    occurred_at: datetime | None = None
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """A recalled text, in reading order.

    Scores of passages and turns are on one scale, from 0 to 1. A search's own scores compare within that search only;
    here each is its share of the best score of its search, times how plainly the best hit of that search answers:
    by the share of the query's words that it holds, and by how far its vector stands out, if it has one.

    Args:
        text: empty when nothing was found, or nothing fits.
        tokens: of the text, at most `budget_tokens`.
        sources: in the order of the text.
        left_out: how many candidates are not in it.
        ran: "messages" and "passages", as far as they were searched -> what that search did.
    """

    text: str
    tokens: int
    budget_tokens: int
    sources: tuple[Source, ...] = ()
    left_out: int = 0
    ran: Mapping[str, SearchReport] = field(default_factory=dict)
