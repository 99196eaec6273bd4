"""Texts as models take them: only encodable characters, and the prefixes that some models need."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.core.ports import EmbedPurpose

# Models that were trained with other beginnings for what is searched than for what is searched with. Servers don't add
# them. (name, before a document, before a query)
_PREFIXES: Sequence[tuple[re.Pattern[str], str, str]] = (
    (re.compile(r"nomic-embed-text"), "search_document: ", "search_query: "),
    (re.compile(r"(?:^|[/_-])e5-(?:small|base|large)(?!-instruct)"), "passage: ", "query: "),
    (
        re.compile(r"mxbai-embed|snowflake-arctic-embed|bge-(?:small|base|large)-en"),
        "",
        "Represent this sentence for searching relevant passages: ",
    ),
    (re.compile(r"embeddinggemma|embedding-gemma"), "title: none | text: ", "task: search result | query: "),
)


def prefix_of(model: str, purpose: EmbedPurpose) -> str:
    """The prefix of a text for this model; empty for most.

    >>> prefix_of("nomic-embed-text:v1.5", "query")
    'search_query: '
    """
    for pattern, document, query in _PREFIXES:
        if pattern.search(model.lower()):
            return query if purpose == "query" else document
    return ""


def encodable(text: str) -> str:
    """The text with U+FFFD for each lone surrogate; pairs become their character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
