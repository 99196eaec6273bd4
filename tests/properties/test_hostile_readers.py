"""What reads texts of others takes time in proportion to them, whatever they hold."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.context.sections.envelopes import is_envelope, mark_text
from perdure.context.sections.stubs import cut_result
from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.context.sections.words import envelope_in_words
from perdure.context.window.extract import clip, sentences_of, specific_names
from perdure.context.window.summary import check_summary, clean_answer, cut_at_sentence, words_of
from perdure.core.documents import Document
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.loops import split_arguments
from perdure.core.messages import unlogged_message
from perdure.core.models import ModelRequest
from perdure.core.secrets import SecretMask
from perdure.core.sources import parse_source
from perdure.core.text.credentials import without_credentials
from perdure.core.text.dates.spans import spans
from perdure.core.text.json_strings import StringMember, encodable, read_string
from perdure.core.text.line_diff import find_line_before, merge_lines, unified_diff
from perdure.core.text.loose_json import read_objects
from perdure.core.text.markup import escape_tags, unescape_tags
from perdure.core.text.words import fold, index_words, parse_query, stems
from perdure.core.tools.arguments import parse_arguments, unwrap_arguments
from perdure.core.tools.schema import parse_docs
from perdure.domain.blocks.patches import apply_patch
from perdure.domain.conversations.patterns import Pattern
from perdure.domain.tools.memory_tools import transcript_lines
from perdure.features.agent_files.reading import read_agent_file
from perdure.features.compression.compress import compress, decode, find_parts
from perdure.features.compression.lookup import expand
from perdure.features.extractive.answers import parse_note
from perdure.features.extractive.model import words_of_user
from perdure.features.facts.extraction.model_extractor import parse_extraction
from perdure.features.facts.extraction.patterns import statements_in_document
from perdure.features.facts.fading.policy import count_words
from perdure.features.facts.units.documents import render_json
from perdure.features.facts.units.known import names_in as entities_in
from perdure.features.files.converters.charset import decode as decode_bytes
from perdure.features.files.converters.html import html_to_markdown
from perdure.features.files.converters.limits import ReadLimits
from perdure.features.files.converters.plain import json_in_lines, plain_document
from perdure.features.files.converters.tables import csv_to_markdown
from perdure.features.files.tools import sources_of_grep
from perdure.features.groups.texts import parse_choice
from perdure.features.schedules.values import parse_duration, parse_moment, parse_quiet
from perdure.providers.extractive.facts import facts_in
from perdure.providers.extractive.language import cut, keywords_of, sentences_in
from perdure.providers.extractive.statements import statements_in
from perdure.providers.history import legal_arguments
from perdure.providers.loops import loop_start
from perdure.providers.masking import mask_text
from perdure.providers.openai_chat.faults import RequestTarget, error_of_status
from perdure.providers.text_calls.request import RequestFacts
from perdure.providers.text_calls.scan import Scanner
from perdure.search.chunking import chunks
from perdure.search.document_outline import outline_of_lines
from perdure.search.packing.text import excerpt, terms_of
from perdure.search.ranking.hints import count_asked, kind_asked, role_meant
from perdure.search.ranking.matching import clause_counts
from perdure.search.ranking.query import names_in, parse_time, without_names
from perdure.storage.database.row_format import restore, storable
from perdure.toolbox.builtin.index_output import show_output
from tests.support.hostile import SHAPES, Read, growth

FULL = os.environ.get("PERDURE_FAULTS") == "full"
SIZES = (8_000, 32_000, 128_000) if FULL else (2_000, 8_000)
FACTOR, FLOOR_S = 7, 0.1
"""Four times the text may take five times as long; the rest, and what is below the floor, is noise of the machine."""

COUNTER = ScriptTokenCounter()
NOW = datetime(2026, 1, 5, tzinfo=UTC)
MASK = SecretMask({"KEY": "secret-value-1234567", "CERTIFICATE": "line one\nline two"})
TARGET = RequestTarget.of_request("m", "http://x", {})
WEATHER = {"name": "weather", "description": "", "parameters": {"type": "object", "properties": {"city": {}}}}


def asked(said: str = "Hello") -> RequestFacts:
    """A request of a person who said this."""
    messages = (unlogged_message("user", said),)
    return RequestFacts(ModelRequest(model="m", system="You help.", messages=messages, tools=(WEATHER,)))


def scan(*pieces: str) -> None:
    """Look for calls in an answer."""
    scanner = Scanner(asked())
    for piece in pieces:
        scanner.read(piece)
    scanner.read(final=True)


def in_pieces(text: str, read: Callable[[str], object], size: int = 16) -> None:
    """Read a text piece by piece."""
    for start in range(0, len(text), size):
        read(text[start : start + size])


def chunks_of(text: str) -> object:
    """The chunks of a text file."""
    return chunks(Document(name="a.md", kind="markdown", text=text))


def decoded(kind: str) -> Read:
    """A function that decodes such a body."""
    return lambda text: decode(f"[perdure {kind} lossless: x]\n{text}")


def summary(text: str) -> object:
    """The summary of a text that is nearly it."""
    return check_summary(text, source=f"{text} x y z", prompt="p", max_tokens=10**6, counter=COUNTER)


ROWS = '[{"a":1},{"a":2}]'
ARRAY = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
LIMITS = JsonLimits(size_bytes=10**7)

READERS: dict[str, Read] = {
    "compression without a budget": lambda text: compress(text, budget=1_000_000),
    "compression to a budget": lambda text: compress(text, budget=300),
    **{f"decoding of {kind}": decoded(kind) for kind in ("table", "csv", "lines", "json", "ndjson", "mixed")},
    "expansion by words": lambda text: expand(text, query="tea ab"),
    "expansion by conditions": lambda text: expand(text, where="a=1 and b>2"),
    "expansion by a path": lambda text: expand(text, path="a.b"),
    "conditions": lambda text: expand(ROWS, where=text),
    "words of an expansion": lambda text: expand("a\n" * 50, query=text),
    "path": lambda text: expand(ROWS, path=text),
    "pattern": lambda text: Pattern(text[:900]).has("a" * 2_000),
    "sentences": lambda text: list(sentences_of(text)),
    "sharp names": specific_names,
    "clip": lambda text: clip(text, 1_000, COUNTER),
    "check of a summary": summary,
    "answer of a summariser": clean_answer,
    "words": words_of,
    "cut at a sentence": lambda text: cut_at_sentence(text, 1_000, COUNTER),
    "tokens": COUNTER.count,
    "least tokens": COUNTER.at_least,
    "envelope": is_envelope,
    "marks": lambda text: mark_text(text, "x"),
    "envelope in words": envelope_in_words,
    "cut of a result": lambda text: cut_result(text, 1_000, None),
    "HTML": html_to_markdown,
    "style of a list": lambda text: html_to_markdown(f"<ol style='list-style:{text}'><li>x"),
    "JSON in lines": json_in_lines,
    "CSV": csv_to_markdown,
    "charset": lambda text: decode_bytes(text.encode()),
    "charset to guess": lambda text: decode_bytes(b"\xe9 " + text.encode()),
    "Markdown": lambda text: plain_document("a.md", "markdown", text.encode(), ReadLimits()),
    "chunks": chunks_of,
    "outline": outline_of_lines,
    "tags": lambda text: unescape_tags(escape_tags(text)),
    "objects among words": read_objects,
    "encodable": encodable,
    "member of an object": lambda text: read_string(f'{{"message": "{text}', "message"),
    "member in pieces": lambda text: in_pieces(text, StringMember("message").read, 8),
    "diff": lambda text: unified_diff(text, f"{text}x"),
    "line before": lambda text: find_line_before(text, f"{text}\nx", 3),
    "merge": lambda text: merge_lines(text, f"{text}\nx", f"y\n{text}"),
    "fold": fold,
    "words of the index": index_words,
    "query": parse_query,
    "stems": stems,
    "dates": lambda text: spans(text, now=NOW),
    "mask of secrets": MASK.text,
    "credentials": without_credentials,
    "arguments": lambda text: parse_arguments("f", ARRAY, text),
    "texts for arrays": lambda text: parse_arguments("f", ARRAY, json.dumps({"a": text})),
    "arguments in a fence": unwrap_arguments,
    "arguments of a loop": lambda text: split_arguments(text, ["a", "b"]),
    "docstring": parse_docs,
    "JSON": lambda text: parse_json(text, LIMITS),
    "JSON of arrays": lambda text: parse_json(json.dumps([text]), LIMITS),
    "duration": parse_duration,
    "moment": lambda text: parse_moment("at", text, "UTC", now=NOW),
    "quiet hours": parse_quiet,
    "source": parse_source,
    "patched text": lambda text: apply_patch(text, "@@ -1 +1 @@\n-a\n+b\n"),
    "patch": lambda text: apply_patch("a\nb\n" * 50, text),
    "names of entities": entities_in,
    "JSON as text": render_json,
    "words of a memory": count_words,
    "answer of grep": sources_of_grep,
    "transcript": transcript_lines,
    "extraction": parse_extraction,
    "choice of a speaker": lambda text: parse_choice(text, [], "DONE"),
    "statements": lambda text: statements_in(text, now=NOW, people=["Ada"]),
    "statements in a document": lambda text: statements_in_document(text, now=NOW),
    "sentences for facts": lambda text: sentences_in(text, limit_chars=10**6),
    "keywords": keywords_of,
    "cut of a line": lambda text: cut(text, 1_000),
    "facts": facts_in,
    "note": parse_note,
    "words of the user": words_of_user,
    "legal arguments": lambda text: legal_arguments(text, wrapper="x"),
    "loop": loop_start,
    "mask of a provider": lambda text: mask_text(text, ["secret-abc"]),
    "error page": lambda text: error_of_status(400, {}, text, TARGET, now=NOW),
    "error": lambda text: error_of_status(400, {}, json.dumps({"error": {"message": text}}), TARGET, now=NOW),
    "answer": lambda text: scan(text),
    "answer in pieces": lambda text: in_pieces(text, Scanner(asked()).read),
    "answer at lines": lambda text: scan(text.replace("a", "\nprint(")[: len(text)]),
    "question": lambda text: asked(text).seeks,
    "excerpt": lambda text: excerpt(text, ("ab", "tea"), chars=300),
    "terms": terms_of,
    "names": lambda text: (names_in(text, ["Ada", "Bob"]), without_names(text, ["Ada"])),
    "time": lambda text: parse_time("since", text),
    "hints": lambda text: (kind_asked(text), count_asked("time", text), count_asked("name", text), role_meant(text)),
    "clauses": lambda text: clause_counts(parse_query("the wanted ab Byron aaaaaaaa"), [text]),
    "clauses of a query": lambda text: clause_counts(parse_query(text[:900]), [text]),
    "agent file": lambda text: read_agent_file(text.encode()),
    "storable": lambda text: restore(storable(text)),
    "output for the index": lambda text: show_output(text, COUNTER, source="x", error=""),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_reading_takes_time_in_proportion_to_the_text(name: str) -> None:
    """Whatever it holds: sixty shapes, each of them of several sizes. Refusals are quick as well."""

    def read(text: str) -> Any:
        with suppress(Exception):  # a refusal
            return READERS[name](text)

    found = {shape: growth(read, make, SIZES, factor=FACTOR, floor_s=FLOOR_S) for shape, make in SHAPES.items()}

    assert not {shape: what for shape, what in found.items() if what}


def test_lists_that_end_in_vain_cost_no_more_in_a_long_text() -> None:
    """Each error of Python's reader counts the lines before it, so it gets a part of the text, not all of it."""
    found = growth(find_parts, SHAPES["broken lists at lines"], (60_000, 240_000), factor=6, floor_s=0.1)

    assert found is None
