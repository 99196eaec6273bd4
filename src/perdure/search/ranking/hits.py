"""A search: its request, its hits, the explanation of each, and a report of what the search did; and the result of a
recall: one text within a budget of tokens, and the source of each piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from perdure.core.ids import AgentId, ArchiveId, ConversationId
from perdure.core.messages import Message
from perdure.core.passages import Passage
from perdure.core.text.reprs import short_repr

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from perdure.search.ranking.archive_cache import ArchiveCache
    from perdure.search.ranking.history import Histories
    from perdure.search.vectors.index import VectorIndexes


T = TypeVar("T")

HITS_MAX = 1_000
"""The most hits that one search gives."""

Arm = Literal["words", "vectors", "late"]
"""`words`: full text; `vectors`: one vector for each text; `late`: a vector for each word, for the best hits only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The explanation of a hit's score.

    Args:
        score: the sum of `parts`.
        parts: name of a signal -> its addend: words, neighbour_words, related_words, session, dense, neighbour_dense,
            late, speaker, role, length, asks, answers, when, span, recency, use; without zeros.
        words: the share of the query's words that the text holds, 0 to about 1, by bm25.
        session_words: the same of its session.
        cosine: of its vector and the query's; None if there is none, or vectors were not searched.
        neighbours: ids of the messages beside it that raised its score.
        same: ids of hits with the same text that are left out.
        facts: ids of the facts that the message says, and whose words count for it.
    """

    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    words: float = 0.0
    session_words: float = 0.0
    cosine: float | None = None
    neighbours: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageHit:
    """A message that a search found. Scores compare within one search only; `why` is set on request."""

    __repr__ = short_repr("score", "message")

    message: Message
    score: float
    why: Why | None = None


@dataclass(frozen=True, slots=True)
class PassageHit:
    """A passage that a search found. Scores compare within one search only; `why` is set on request."""

    __repr__ = short_repr("score", "passage")

    passage: Passage
    score: float
    why: Why | None = None


@dataclass(frozen=True, slots=True)
class AlternativeText:
    """Other words by which a message is found: those of a memory made from it, with the memory's id."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """The report of a search.

    Args:
        arms: the arms that took part.
        left_out: arm -> why it took part only partly or not at all, in plain words.
        words: the clauses of the query.
        spans: the times that the query names, as it names them.
        rows: how many texts were searched.
        pool: how many of them were ranked.
    """

    arms: tuple[Arm, ...] = ()
    left_out: Mapping[Arm, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()
    rows: int = 0
    pool: int = 0


class Hits(list[T]):
    """Hits, best first; `ran` says what the search did."""

    def __init__(self, hits: Iterable[T] = (), ran: SearchReport | None = None) -> None:
        super().__init__(hits)
        self.ran = ran or SearchReport()

    def __repr__(self) -> str:
        return f"Hits({len(self)}{f', best {self[0]}' if self else ''})"

    def extend_new(self, more: Hits[T], *, key: Callable[[T], object]) -> Hits[T]:
        """Append the hits of `more` that are not among these; `key` gives the identity of a hit."""
        known = {key(hit) for hit in self}
        return Hits([*self, *(hit for hit in more if key(hit) not in known)], more.ran)

    def page(self, offset: int, limit: int) -> Hits[T]:
        """Return `limit` hits after the first `offset`."""
        return Hits(self[offset : offset + limit], self.ran)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchRequest:
    """A query with all that its search needs beside the store: a unit of work has no clock and no model.

    Args:
        text: the query as the user wrote it.
        now: the clock, for what has no log of its own; a history is searched by its newest message's time.
        timezone: where days begin that the query names.
        vectors: embedding model -> the query's vector, of length 1.
        words: embedding model -> a vector for each word of the query, if the model makes them: (words, dimensions).
        without: arm -> in plain words, why it can't run.
    """

    text: str
    now: datetime
    histories: Histories
    archives: ArchiveCache
    indexes: VectorIndexes | None = None
    timezone: str = "UTC"
    vectors: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    words: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    without: Mapping[Arm, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallScope:
    """The memory that a recall searches, and the form of the text that it returns.

    Args:
        budget_tokens: the most tokens of the text.
        floor: the lowest score of passages and turns.
        explain: whether sources say why they were found.
        timezone: of dates in the text, without an agent; an agent has its own.
        in_words: the text is plain lines.
        agent_id: the owner of blocks and messages; None: search archives only.
        archives: None: all of the agent's, including those of its folders.
        conversation_seq: only this conversation; None: all.
        messages, blocks: whether to search messages, and to add blocks.
        in_view: a conversation and the first row in its view. Rows in view are excluded.
        pinned: numbers of older rows that are in view too.
        features: name of a feature -> what it recalls; without it what it does by default. None: nothing of any.
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
    features: Mapping[str, Any] | None = None
    fills: bool = False
    budget_tokens: int
    floor: float = 0.0
    explain: bool = False
    timezone: str = "UTC"
    in_words: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSource:
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
        archive_id, archive_name, source, lines, tags: of a passage: its archive, its origin, its first and last line
            there.
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
    tags: tuple[str, ...] = ()
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
    sources: tuple[RecallSource, ...] = ()
    left_out: int = 0
    ran: Mapping[str, SearchReport] = field(default_factory=dict)
