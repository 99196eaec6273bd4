"""What the search tools found, as quotations with their date."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from perdure.core.messages import ToolResult
from perdure.providers.extractive.phrases import say
from perdure.providers.extractive.questions import Keywords, is_question
from perdure.providers.extractive.sentences import Language, clean, cut, one_line, sentences_in

MAX_QUOTES = 3
MAX_QUOTE_CHARS = 300
MAX_READ_CHARS = 20_000

SOURCES = ("user", "assistant", "archive")


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result, of one of `SOURCES`. `date` is YYYY-MM-DD."""

    source: str
    date: str
    content: str


def read_hits(result: ToolResult) -> list[Hit]:
    """The hits in a result of `conversation_search` or `archival_memory_search`; none when it can't be read."""
    try:
        found = json.loads(result.text)
    except (ValueError, RecursionError):
        return []
    rows = found.get("results") if isinstance(found, dict) else found
    hits: list[Hit] = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(content := row.get("content"), str):
            source = "archive" if result.name == "archival_memory_search" else row.get("role", "user")
            if source in SOURCES:
                hits.append(Hit(source, clean(str(row.get("timestamp", ""))[:10]), clean(content)))
    return hits


def best_quotes(hits: Iterable[Hit], wanted: Keywords, language: Language, *, but: Collection[str] = ()) -> list[str]:
    """The hits that share most words with the question, quoted; none of them a question or one of the texts `but`."""
    unwanted = set(map(one_line, but))
    scored: dict[str, tuple[int, str]] = {}
    for hit in hits:
        excerpt = "" if one_line(hit.content) in unwanted else _excerpt(hit.content, wanted)
        if excerpt:
            scored.setdefault(excerpt, (wanted.shared_with(excerpt), say(hit.source, language, hit.date, excerpt)))
    best = max((score for score, _ in scored.values()), default=0)
    return [quote for score, quote in scored.values() if score == best][:MAX_QUOTES]


def _excerpt(content: str, wanted: Keywords) -> str:
    """The statement of a text that shares most words with the question, and what follows as far as there is room."""
    sentences = sentences_in(content[:MAX_READ_CHARS], limit_chars=MAX_READ_CHARS)
    told = [one_line(sentence.text) for sentence in sentences if not is_question(sentence)]
    scores = [wanted.shared_with(sentence) for sentence in told]
    if not any(scores):
        return ""
    best = scores.index(max(scores))
    folded = told[best].casefold()
    at = min((at for word in wanted.words if (at := folded.find(word.casefold())) >= 0), default=0)
    start = max(0, at - MAX_QUOTE_CHARS // 3) if len(folded) > MAX_QUOTE_CHARS else 0
    return cut(" ".join([told[best][start:], *told[best + 1 :]]), MAX_QUOTE_CHARS)
