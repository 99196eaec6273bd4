"""The few places in a request that hold the words of its answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from perdure.core.text.words import STOP_WORDS, stems
from perdure.features.origins.origin_values import AnswerOrigin

PLACES_MAX = 5
SHARE_MIN, ASKED_WEIGHT = 0.15, 0.3
"""A place has to hold this share of the weight of the answer's words; and what a word of the question weighs."""
MESSAGES_MAX, MESSAGE_CHARS = 300, 4_000
"""Only so many of the newest messages are looked at, and so much of each."""
KINDS = Literal["block", "recalled", "summary", "search", "message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in a request.

    Args:
        id: what `why` is asked for: of a block with the number of the line; of a message, its id.
        name: the label, the source, the tool, or who said it.
        words: the words of the answer that it holds, as stems.
    """

    kind: KINDS
    id: str
    name: str
    text: str
    words: frozenset[str] = frozenset()


def find_evidence(origin: AnswerOrigin) -> list[Place]:
    """The places of a request that hold most of the words of its answer, at most five, the best first.

    Each adds words that those before it lack, but for a second one. Words in few places count more, and those of the
    question less, which an answer repeats anyway.
    """
    answer = _words(origin.text)
    asked = next((_words(one.text) for one in reversed(origin.messages) if one.role == "user"), frozenset())
    places = [replace(one, words=found) for one in _places(origin) if (found := answer & _words(one.text))]
    held = Counter(word for one in places for word in one.words)
    weights = {word: (ASKED_WEIGHT if word in asked else 1) / count for word, count in held.items()}

    def weight(words: frozenset[str]) -> float:
        return sum(weights[word] for word in words)

    least, left, chosen = SHARE_MIN * sum(weights.values()), frozenset(weights), list[Place]()
    while places and len(chosen) < PLACES_MAX:
        # Of places that hold the same, a short one says it more clearly.
        best = max(places, key=lambda one: (weight(one.words & left), weight(one.words), -len(one.text)))
        if weight(best.words & left if len(chosen) > 1 else best.words) < least:
            break
        chosen.append(best)
        places.remove(best)
        left -= best.words
    return chosen


def _words(text: str) -> frozenset[str]:
    """The words of a text that tell something, as stems."""
    return frozenset(stems(text)) - STOP_WORDS


def _places(origin: AnswerOrigin) -> Iterator[Place]:
    """What a request holds, in pieces: lines of blocks, recalled texts, summaries, searches, and messages."""
    for block in {one.block_id: one for one in origin.blocks if one.block_id and one.text}.values():
        for number, line in enumerate((block.text or "").split("\n"), start=1):
            yield Place(kind="block", id=f"{block.block_id}:{number}", name=block.label, text=line)
    for piece in origin.recalled:
        yield Place(kind="recalled", id=piece.id, name=piece.name or piece.kind, text=piece.text)
    for summary in origin.summaries:
        yield Place(kind="summary", id=summary.handle, name=summary.handle, text=summary.text)
    for search in origin.searches:
        yield Place(kind="search", id=search.message_id, name=search.tool, text=search.text[:MESSAGE_CHARS])
    searches = {search.message_id for search in origin.searches}
    for one in origin.messages[-MESSAGES_MAX:]:
        if one.id is not None and one.id not in searches and one.kind == "message" and one.role != "assistant":
            yield Place(kind="message", id=one.id, name=one.name or one.role, text=one.text[:MESSAGE_CHARS])
