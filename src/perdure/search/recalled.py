"""The result of a recall: one text within a budget of tokens, and the source of each piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from perdure.core.ids import AgentId, ArchiveId, ConversationId
from perdure.core.provenance.sources import TRUSTED, TrustLabel
from perdure.core.text.reprs import short_repr
from perdure.search.hits import SearchReport, Why


@dataclass(frozen=True, slots=True, kw_only=True)
class FactScope:
    """The facts that a recall may add: those that are true now, about the entities that some texts name.

    Args:
        texts: the latest last; None: the query alone.
        trust: the sources whose facts may stand in it; None: any.
    """

    texts: tuple[str, ...] | None = None
    limit: int = 5
    trust: tuple[TrustLabel, ...] | None = tuple(sorted(TRUSTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallScope:
    """The memory that a recall searches.

    Args:
        agent_id: the owner of blocks and messages; None: search archives only.
        archives: None: all of the agent's, including those of its folders.
        conversation_seq: only this conversation; None: all.
        messages, blocks: whether to search messages, and to add blocks.
        in_view: a conversation and the first row in its view. Rows in view are excluded.
        pinned: numbers of older rows that are in view too.
        facts: None: no facts of the agent.
        fills: what the search leaves of the budget is filled with what is known of the user, and the newest messages
            out of view.
    """

    agent_id: AgentId | None = None
    archives: tuple[ArchiveId, ...] | None = None
    conversation_seq: int | None = None
    messages: bool = True
    blocks: bool = True
    in_view: tuple[int, int] | None = None
    pinned: frozenset[int] = frozenset()
    facts: FactScope | None = None
    fills: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source of one piece of a recalled text. Fields of other kinds are None.

    Args:
        number: `[number]` in the text.
        id: of the block, fact, passage or message.
        score: 0 to 1, as in `Recalled`; of a block, the share of the query's words in it; of a fact, the share of the
            best fact's score.
        why: the search's explanation, if requested; None for blocks and neighbours.
        tokens: of the piece's lines.
        first, last: the shown characters of its text, `last` not included; `chars` is the length of the text.
        label: of a block.
        entities: of a fact, the names of subject and object.
        refs: of a fact: the ids of the messages and texts that say it; `occurred_at`: since when it is true.
        archive_id, archive_name, source, lines: of a passage: its archive, its origin, its first and last line there.
        path: of a passage of a file: `folder/name`, as in the text and in the tools for files.
        conversation_id, seq, role, name: of a turn.
        beside: of a turn that is no hit itself: the ids of the hits next to it.
    """

    number: int
    kind: Literal["block", "fact", "passage", "turn"]
    id: str
    score: float
    why: Why | None = None
    tokens: int
    first: int
    last: int
    chars: int
    label: str | None = None
    entities: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
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

    Scores of passages and turns are on one scale, from 0 to 1. A score is the share of the best score of its search,
    times the evidence of that search's best hit: the share of the query's words in it, and how far its cosine stands
    out, if it has a vector.

    Args:
        text: empty when nothing was found, or nothing fits.
        tokens: of the text, at most `budget_tokens`.
        sources: in the order of the text.
        left_out: how many candidates are not in it.
        ran: "messages", "passages" and "facts", where searched -> the report of the search.
    """

    __repr__ = short_repr("text", "tokens", "sources", "left_out")

    text: str
    tokens: int
    budget_tokens: int
    sources: tuple[Source, ...] = ()
    left_out: int = 0
    ran: Mapping[str, SearchReport] = field(default_factory=dict)
