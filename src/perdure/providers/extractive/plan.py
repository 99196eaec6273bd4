"""What to do next about a turn: the calls of the next answer, or, when nothing is left to do, the reply.

Pure functions of a `Scene`. Nothing is remembered between answers: what was tried stands in the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from perdure.core.messages import ToolCall, ToolResult
from perdure.core.models import ModelRequest
from perdure.providers.extractive.answers import answer_from_blocks, known_name, related_lines
from perdure.providers.extractive.facts import Fact, facts_in
from perdure.providers.extractive.notes import Edit, holds, plan_edits
from perdure.providers.extractive.phrases import say
from perdure.providers.extractive.questions import Keywords, is_question, keywords_of
from perdure.providers.extractive.quotes import best_quotes, read_hits
from perdure.providers.extractive.sentences import Language, cut, language_of, one_line, sentences_in
from perdure.providers.extractive.view import Turn, arguments_of, offered_tools, read_turn, today, visible_blocks

__all__ = ["Scene", "calls_of", "reply_of"]

MAX_ANSWERS_WITH_CALLS = 3
MAX_QUESTIONS = 3
PASSAGE_CHARS = 600
HUMAN = "human"
ARCHIVE = "archival_memory_insert"
SEARCHES = ("conversation_search", "archival_memory_search")

Call = tuple[str, Mapping[str, Any]]

_PARAGRAPHS = re.compile(r"\n[ \t\r]*\n")
_FIRST_SENTENCE = re.compile(r".+?(?:[.!?](?=\s|$)|。|$)")
_SMALL_TALK = (
    ("thanks", re.compile(r"\b(?:thanks|thank\s+you|thx|cheers)\b|谢谢|謝謝|多谢", re.IGNORECASE)),
    ("bye", re.compile(r"\b(?:bye|goodbye|good\s*night|see\s+you)\b|再见|再見|拜拜|晚安", re.IGNORECASE)),
    (
        "hello",
        re.compile(
            r"\b(?:hi|hello|hey|good\s+(?:morning|evening|afternoon|day))\b|你好|您好|嗨|早上好|晚上好", re.IGNORECASE
        ),
    ),
)
_ASKS_OF_ME = re.compile(
    r"\b(?:who|what|how)(?:\s+are|'re)\s+you\b|\bare\s+you\s+(?:an?|real|there|ok\w*|human|chatgpt)\b"
    r"|\bwhat\s+(?:can|do)\s+you\s+do\b|\b(?:your\s+name|can\s+you\s+help)\b|你是[谁誰什]|你会(?:做?什|干)|你能做什|你叫什|你好吗",
    re.IGNORECASE,
)
_ASKS_DATE = re.compile(
    r"\bwhat(?:'s|\s+is)?\s+(?:the\s+date|today's\s+date|(?:date|day)\s+is\s+(?:it|today))\b|今天.{0,3}(?:几号|几月|日期)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Scene:
    """A request as this program understands it."""

    request: ModelRequest

    @cached_property
    def turn(self) -> Turn:
        return read_turn(self.request)

    @cached_property
    def language(self) -> Language:
        return language_of(self.turn.text)

    @cached_property
    def tools(self) -> frozenset[str]:
        return offered_tools(self.request)

    @cached_property
    def blocks(self) -> Mapping[str, str]:
        return visible_blocks(self.request)

    @cached_property
    def questions(self) -> tuple[str, ...]:
        asked = [one_line(sentence.text) for sentence in sentences_in(self.turn.text) if is_question(sentence)]
        return tuple(dict.fromkeys(asked))[:MAX_QUESTIONS]

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        return facts_in(self.turn.text)

    @cached_property
    def passage(self) -> str | None:
        """The text, when it is one to keep whole: a long one, or paragraphs that are not all facts and questions."""
        text = self.turn.text
        paragraphs = [paragraph for paragraph in _PARAGRAPHS.split(text) if paragraph.strip()]
        if len(text) <= PASSAGE_CHARS and (len(paragraphs) < 2 or all(map(_is_understood, paragraphs))):
            return None
        return text

    @cached_property
    def open_facts(self) -> tuple[Fact, ...]:
        """The facts no call was made for yet."""
        return tuple(fact for fact in self.facts if _call_for(fact, self.turn) is None)

    @cached_property
    def edits(self) -> tuple[list[Edit], str]:
        return plan_edits(self.blocks.get(HUMAN, ""), self.open_facts)

    def tool_for(self, edit: Edit) -> str | None:
        """The offered tool that makes this edit."""
        appending, replacing = ("memory_insert", "core_memory_append"), ("memory_replace", "core_memory_replace")
        return next((name for name in (appending if edit.old is None else replacing) if name in self.tools), None)


def calls_of(scene: Scene) -> list[Call]:
    """The tool calls of the next answer; none when it is time to reply."""
    if scene.turn.answers >= MAX_ANSWERS_WITH_CALLS:
        return []
    if scene.passage is not None:
        if ARCHIVE not in scene.tools or scene.turn.done:
            return []
        return [(ARCHIVE, {"content": scene.passage, "tags": ["note"]})]
    return [*_note_calls(scene), *_search_calls(scene)]


def reply_of(scene: Scene) -> str:
    """What to say when nothing is left to do."""
    if not scene.turn.text.strip():
        return say("nothing said", scene.language)
    if scene.passage is not None:
        return _report_on_passage(scene, scene.passage)
    said = [*_report_on_facts(scene), *(_answer(scene, question) for question in scene.questions)]
    return "\n".join(said) if said else _small_talk(scene)


def _note_calls(scene: Scene) -> list[Call]:
    if HUMAN not in scene.blocks:
        facts = scene.open_facts if ARCHIVE in scene.tools else ()
        return [(ARCHIVE, {"content": fact.line, "tags": ["fact"]}) for fact in facts]
    edits, _ = scene.edits
    return [_edit_call(tool, edit) for edit in edits if (tool := scene.tool_for(edit)) is not None]


def _edit_call(tool: str, edit: Edit) -> Call:
    match tool:
        case "memory_insert":
            return tool, {"label": HUMAN, "new_string": edit.new, "insert_line": -1}
        case "core_memory_append":
            return tool, {"label": HUMAN, "content": edit.new}
        case "memory_replace":
            return tool, {"label": HUMAN, "old_string": edit.old, "new_string": edit.new}
        case _:
            return tool, {"label": HUMAN, "old_content": edit.old, "new_content": edit.new}


def _search_calls(scene: Scene) -> list[Call]:
    """Both searches for every question that the blocks, with this answer's edits made, leave open."""
    blocks = {**scene.blocks, HUMAN: scene.edits[1]}
    calls: list[Call] = []
    for question in scene.questions:
        query = keywords_of(question).query
        if not query or _plain_answer(scene, question) or answer_from_blocks(question, blocks, scene.language):
            continue
        wanted: tuple[Call, Call] = (
            (SEARCHES[0], {"query": query, "roles": ["user"], "limit": 10}),
            (SEARCHES[1], {"query": query, "top_k": 5}),
        )
        offered = (call for call in wanted if call[0] in scene.tools and call not in calls)
        calls.extend(call for call in offered if not _results(scene, call[0], query))
    return calls


def _results(scene: Scene, tool: str, query: str) -> list[ToolResult | None]:
    """What the calls of this turn for this search brought; a call without a result counts as None."""
    return [
        result for call, result in scene.turn.done if call.name == tool and arguments_of(call).get("query") == query
    ]


def _call_for(fact: Fact, turn: Turn) -> tuple[ToolCall, ToolResult | None] | None:
    """The call by which this fact was to be noted in this turn, with its result."""
    for call, result in turn.done:
        arguments = arguments_of(call)
        for name in ("new_string", "content", "new_content"):
            if isinstance(text := arguments.get(name), str) and fact.line in text.split("\n"):
                return call, result
    return None


def _report_on_facts(scene: Scene) -> list[str]:
    noted: list[str] = []
    archived: list[str] = []
    known: list[str] = []
    refused: list[str] = []
    for fact in scene.facts:
        tried = _call_for(fact, scene.turn)
        if tried is None and holds(scene.blocks.get(HUMAN, ""), fact):
            known.append(fact.line)
        elif tried is not None and tried[1] is not None and tried[1].status == "success":
            (archived if tried[0].name == ARCHIVE else noted).append(fact.line)
        else:
            why = _why(scene, tried[1]) if tried is not None else _why_not_tried(scene, fact)
            refused.append(say("not noted", scene.language, fact.line, why))
    groups = (("noted", noted), ("noted in archive", archived), ("known", known))
    return [say(phrase, scene.language, "; ".join(lines)) for phrase, lines in groups if lines] + refused


def _why(scene: Scene, result: ToolResult | None) -> str:
    return say("no answer", scene.language) if result is None else _first_sentence(result.text)


def _why_not_tried(scene: Scene, fact: Fact) -> str:
    if HUMAN not in scene.blocks:
        return say("no block", scene.language)
    edits, _ = plan_edits(scene.blocks[HUMAN], [fact])
    if all(scene.tool_for(edit) is None for edit in edits):
        return say("no tool", scene.language, "memory_replace" if edits[0].old is not None else "memory_insert")
    return say("too many rounds", scene.language)


def _report_on_passage(scene: Scene, passage: str) -> str:
    results = [result for call, result in scene.turn.done if call.name == ARCHIVE]
    if not results:
        return say("not archived", scene.language, say("no tool", scene.language, ARCHIVE))
    if results[0] is None or results[0].status != "success":
        return say("not archived", scene.language, _why(scene, results[0]))
    said = say("archived", scene.language, f"{len(passage):,}")
    return f"{said} {say('ask again', scene.language)}" if passage.rstrip().endswith(("?", "？")) else said


def _answer(scene: Scene, question: str) -> str:
    language = scene.language
    known = _plain_answer(scene, question) or answer_from_blocks(question, scene.blocks, language)
    if known is not None:
        return known
    wanted = keywords_of(question)
    if not wanted.query:
        return say("nothing to look for", language)
    found, problems = _searched(scene, wanted)
    if not found:
        searched = any(tool in scene.tools for tool in SEARCHES)
        found = [say("nothing", language, _named(wanted, language)) if searched else say("no search", language)]
        if related := related_lines(question, scene.blocks):
            found.append(say("but noted", language, "; ".join(cut(line, 120) for line in related)))
    return "\n".join([*problems, *found])


def _searched(scene: Scene, wanted: Keywords) -> tuple[list[str], list[str]]:
    """The quotations that answer, and what went wrong with a search."""
    problems: list[str] = []
    hits = []
    for tool in SEARCHES:
        for result in _results(scene, tool, wanted.query):
            if result is None or result.status != "success":
                problems.append(say("search failed", scene.language, tool, _why(scene, result)))
            else:
                hits.extend(read_hits(result))
    return best_quotes(hits, wanted, scene.language, but=scene.turn.texts), problems


def _named(wanted: Keywords, language: Language) -> str:
    words = cut(wanted.query, 80)
    return f'"{words}"' if language == "en" else f"“{words}”"


def _plain_answer(scene: Scene, question: str) -> str | None:
    """The answer to a question that needs no memory: about this program, or the date."""
    if (date := today(scene.request)) is not None and _ASKS_DATE.search(question):
        return say("today", scene.language, cut(one_line(date), 40))
    return say("myself", scene.language) if _ASKS_OF_ME.search(question) else None


def _small_talk(scene: Scene) -> str:
    kind = next((kind for kind, pattern in _SMALL_TALK if pattern.search(scene.turn.text[:200])), "nothing to note")
    name = known_name(scene.blocks) if kind == "hello" else None
    return say("hello name", scene.language, name) if name else say(kind, scene.language)


def _is_understood(paragraph: str) -> bool:
    return bool(facts_in(paragraph)) or any(map(is_question, sentences_in(paragraph))) or _is_small(paragraph)


def _is_small(paragraph: str) -> bool:
    return len(paragraph) <= 40 and any(pattern.search(paragraph) for _, pattern in _SMALL_TALK)


def _first_sentence(text: str) -> str:
    first = _FIRST_SENTENCE.match(one_line(text))
    return cut(first[0], 300) if first else ""
