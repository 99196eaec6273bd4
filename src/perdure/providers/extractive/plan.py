"""What to do next about a turn: the calls of the next answer, or, when nothing is left to do, the reply.

Pure functions of a `Step`. Nothing is remembered between answers: what was tried stands in the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from perdure.core.messages import ToolCall, ToolResult
from perdure.core.models import ModelRequest
from perdure.providers.extractive.answers import answer_from_blocks, notes_in
from perdure.providers.extractive.facts import Fact, facts_in
from perdure.providers.extractive.notes import Edit, holds, plan_edits
from perdure.providers.extractive.phrases import say
from perdure.providers.extractive.questions import is_question, keywords_of
from perdure.providers.extractive.quotes import Hit, best_quotes, read_hits
from perdure.providers.extractive.sentences import Language, cut, language_of, one_line, sentences_in
from perdure.providers.extractive.view import Turn, arguments_of, offered_tools, read_turn, visible_blocks

MAX_ANSWERS_WITH_CALLS = 3
MAX_QUESTIONS = 3
HUMAN = "human"
SEARCHES: Mapping[str, Mapping[str, Any]] = {
    "conversation_search": {"roles": ["user"], "limit": 10},
    "archival_memory_search": {"top_k": 5},
}
# Tool -> the names of its arguments for the old text, where it replaces one, and for the new text.
EDITS: Mapping[str, tuple[str | None, str]] = {
    "memory_insert": (None, "new_string"),
    "core_memory_append": (None, "content"),
    "memory_replace": ("old_string", "new_string"),
    "core_memory_replace": ("old_content", "new_content"),
}

Call = tuple[str, Mapping[str, Any]]

_FIRST_SENTENCE = re.compile(r".+?(?:[.!?](?=\s|$)|。|$)")
_THANKS = re.compile(r"\b(?:thanks|thank\s+you)\b|谢谢|謝謝", re.IGNORECASE)
_GREETS = re.compile(r"\b(?:hi|hello|hey|good\s+(?:morning|evening))\b|你好|您好|嗨", re.IGNORECASE)


@dataclass(frozen=True)
class Step:
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
        texts = (one_line(sentence.text) for sentence in sentences_in(self.turn.text) if is_question(sentence))
        return tuple(dict.fromkeys(texts))[:MAX_QUESTIONS]

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        return facts_in(self.turn.text)

    @cached_property
    def edits(self) -> tuple[list[Edit], str]:
        """The edits for the facts that no call was made for yet, and the value of the block after them."""
        return plan_edits(self.blocks.get(HUMAN, ""), [fact for fact in self.facts if self.tried(fact) is None])

    def tried(self, fact: Fact) -> tuple[ToolCall, ToolResult | None] | None:
        """The call of this turn that was to note the fact, with its result."""
        for call, result in self.turn.done:
            text = arguments_of(call).get(EDITS.get(call.name, ("", ""))[1])
            if isinstance(text, str) and fact.line in text.split("\n"):
                return call, result
        return None

    def results(self, tool: str, query: str) -> list[ToolResult | None]:
        """What the calls of this turn for this search brought; a call without a result counts as None."""
        return [one for call, one in self.turn.done if call.name == tool and arguments_of(call).get("query") == query]

    def say(self, phrase: str, *values: object) -> str:
        return say(phrase, self.language, *values)


def calls_of(step: Step) -> list[Call]:
    """The tool calls of the next answer; none when it is time to reply."""
    if step.turn.answers >= MAX_ANSWERS_WITH_CALLS:
        return []
    return [*_note_calls(step), *_search_calls(step)]


def reply_of(step: Step) -> str:
    """What to say when nothing is left to do."""
    if lines := [*_report_on_facts(step), *(_answer(step, question) for question in step.questions)]:
        return "\n".join(lines)
    text = step.turn.text[:200]
    if not _GREETS.search(text):
        return step.say("thanks" if _THANKS.search(text) else "nothing to note")
    name = next((note.value for note in notes_in(step.blocks) if note.key == "Name"), None)
    return step.say("hello") if name is None else step.say("hello name", name)


def _note_calls(step: Step) -> list[Call]:
    edits = step.edits[0] if HUMAN in step.blocks else []
    return [call for edit in edits if (call := _edit_call(step, edit)) is not None]


def _edit_call(step: Step, edit: Edit) -> Call | None:
    """The call that makes the edit, by the first tool for it that is offered."""
    for tool, (old, new) in EDITS.items():
        if tool in step.tools and (old is None) == (edit.old is None):
            place = {"insert_line": -1} if tool == "memory_insert" else {} if old is None else {old: edit.old}
            return tool, {"label": HUMAN, new: edit.new, **place}
    return None


def _search_calls(step: Step) -> list[Call]:
    """Both searches for every question that the blocks, with this answer's edits made, leave open."""
    blocks = {**step.blocks, HUMAN: step.edits[1]}
    calls: list[Call] = []
    for question in step.questions:
        query = keywords_of(question).query
        if query and not answer_from_blocks(question, blocks, step.language):
            wanted = [(tool, {"query": query, **more}) for tool, more in SEARCHES.items() if tool in step.tools]
            calls += [call for call in wanted if call not in calls and not step.results(call[0], query)]
    return calls


def _report_on_facts(step: Step) -> list[str]:
    """What came of each fact: noted, known before, or refused and why."""
    lines: dict[str, list[str]] = {"noted": [], "known": []}
    refused: list[str] = []
    for fact in step.facts:
        tried = step.tried(fact)
        if tried is None and holds(step.blocks.get(HUMAN, ""), fact):
            lines["known"].append(fact.line)
        elif tried is not None and tried[1] is not None and tried[1].status == "success":
            lines["noted"].append(fact.line)
        else:
            refused.append(
                step.say("not noted", fact.line, _why(step, tried[1]) if tried else _why_not_tried(step, fact))
            )
    return [step.say(phrase, "; ".join(found)) for phrase, found in lines.items() if found] + refused


def _why(step: Step, result: ToolResult | None) -> str:
    first = None if result is None else _FIRST_SENTENCE.match(one_line(result.text))
    return step.say("no answer") if first is None else cut(first[0], 300)


def _why_not_tried(step: Step, fact: Fact) -> str:
    edits, _ = plan_edits(step.blocks.get(HUMAN, ""), [fact])
    possible = HUMAN in step.blocks and all(_edit_call(step, edit) for edit in edits)
    return step.say("left over" if possible else "no tool")


def _answer(step: Step, question: str) -> str:
    known = answer_from_blocks(question, step.blocks, step.language)
    if known is not None:
        return known
    wanted = keywords_of(question)
    problems: list[str] = []
    hits: list[Hit] = []
    for tool in SEARCHES:
        for result in step.results(tool, wanted.query):
            if result is None or result.status != "success":
                problems.append(step.say("search failed", tool, _why(step, result)))
            else:
                hits.extend(read_hits(result))
    found: Sequence[str] = best_quotes(hits, wanted, step.language, but=step.turn.texts)
    return "\n".join([*problems, *(found or [step.say("nothing", cut(wanted.query, 80))])])
