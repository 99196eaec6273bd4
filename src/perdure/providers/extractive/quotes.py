"""What the search tools found, as quotations with their date."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from perdure.core.messages import ToolResult
from perdure.providers.extractive.phrases import say
from perdure.providers.extractive.questions import Keywords, is_question
from perdure.providers.extractive.sentences import Language, clean, cut, one_line, sentences_in

__all__ = ["Hit", "best_quotes", "read_hits"]

MAX_QUOTES = 3
MAX_QUOTE_CHARS = 300
MAX_READ_CHARS = 20_000

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result. `date` is YYYY-MM-DD, or empty when the tool told none."""

    source: Literal["user", "assistant", "archive"]
    date: str
    content: str


def read_hits(result: ToolResult) -> list[Hit]:
    """The hits in a result of `conversation_search` or `archival_memory_search`; none when it can't be read."""
    try:
        found = json.loads(result.text)
    except (ValueError, RecursionError):
        return []
    rows = found.get("results") if isinstance(found, dict) else found
    return [hit for row in rows if (hit := _hit(row, result.name)) is not None] if isinstance(rows, list) else []


def best_quotes(hits: Collection[Hit], wanted: Keywords, language: Language, *, but: Collection[str] = ()) -> list[str]:
    """The hits that share most words with the question, quoted; none of them a question or one of the texts `but`."""
    scored: dict[str, tuple[int, str]] = {}
    unwanted = {one_line(text) for text in but}
    for hit in hits:
        if one_line(hit.content) in unwanted:
            continue
        score, excerpt = _excerpt(hit.content, wanted)
        if score and excerpt not in scored:
            scored[excerpt] = score, _quoted(hit, excerpt, language)
    best = max((score for score, _ in scored.values()), default=0)
    return [quote for score, quote in scored.values() if score == best][:MAX_QUOTES]


def _hit(row: Any, tool: str) -> Hit | None:
    if not isinstance(row, dict) or not isinstance(content := row.get("content"), str):
        return None
    date = _DATE.match(str(row.get("timestamp", "")))
    if tool == "archival_memory_search":
        return Hit("archive", date[0] if date else "", clean(content))
    role = row.get("role", "user")
    if role not in ("user", "assistant"):
        return None
    return Hit("user" if role == "user" else "assistant", date[0] if date else "", clean(content))


def _excerpt(content: str, wanted: Keywords) -> tuple[int, str]:
    """How many words of the question the statements of a text hold, and the part of it to quote."""
    content = content[:MAX_READ_CHARS]
    sentences = sentences_in(content, limit_chars=MAX_READ_CHARS)
    told = [one_line(sentence.text) for sentence in sentences if not is_question(sentence)]
    scores = [wanted.shared_with(sentence) for sentence in told]
    if not any(scores):
        return 0, ""
    whole = " ".join(told)
    if len(told) == len(sentences) and len(content) <= MAX_QUOTE_CHARS:
        return wanted.shared_with(whole), one_line(content)
    best = scores.index(max(scores))
    if len(told[best]) > MAX_QUOTE_CHARS:
        return scores[best], _window(told[best], wanted)
    return scores[best], " ".join(_around(told, best))


def _around(sentences: list[str], best: int) -> list[str]:
    """The best sentence with what follows and precedes it, as far as there is room."""
    start, end = best, best + 1
    room = MAX_QUOTE_CHARS - len(sentences[best])
    while end < len(sentences) and (room := room - len(sentences[end]) - 1) >= 0:
        end += 1
    return sentences[start:end]


def _window(sentence: str, wanted: Keywords) -> str:
    """The part of an overlong sentence that stands around the first word of the question."""
    folded = sentence.casefold()
    at = min((at for word in _spellings(wanted) if (at := folded.find(word)) >= 0), default=0)
    start = max(0, at - MAX_QUOTE_CHARS // 3)
    return ("…" if start else "") + cut(sentence[start:], MAX_QUOTE_CHARS - 1)


def _spellings(wanted: Keywords) -> Iterator[str]:
    for word in wanted.strong or wanted.weak:
        yield word.casefold()


def _quoted(hit: Hit, excerpt: str, language: Language) -> str:
    phrase = {"user": "you said", "assistant": "I said", "archive": "archive"}[hit.source]
    return say(phrase, language, hit.date, excerpt) if hit.date else say(f"{phrase} once", language, excerpt)
