"""The model `perdure/extractive`, and what it does about a turn: the calls of the next answer, or else the reply.

Nothing is remembered between answers: what was tried stands in the request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from perdure.core.messages import Part, Text, ToolCall, ToolResult
from perdure.core.models import EXTRACTIVE, NOTICES, ModelDelta, ModelReply, ModelRequest, without_notice
from perdure.core.runs import Usage
from perdure.core.text.json_strings import compact_json
from perdure.providers.extractive.answers import answer_from_blocks, best_quotes, notes_in, read_hits, say
from perdure.providers.extractive.facts import Edit, Fact, facts_in, holds, plan_edits
from perdure.providers.extractive.language import (
    CJK,
    clean,
    cut,
    is_question,
    keywords_of,
    language_of,
    one_line,
    sentences_in,
)
from perdure.providers.extractive.view import arguments_of, offered_tools, read_turn, visible_blocks

CHARS_PER_TOKEN = 4
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

_PIECE = re.compile(rf"\s*[{CJK}]|\s*[^\s{CJK}]+|\s+")  # a word, or one Chinese character
_FIRST_SENTENCE = re.compile(r".+?(?:[.!?](?=\s|$)|。|$)")
_THANKS = re.compile(r"\b(?:thanks|thank\s+you)\b|谢谢|謝謝", re.IGNORECASE)
_GREETS = re.compile(r"\b(?:hi|hello|hey|good\s+(?:morning|evening))\b|你好|您好|嗨", re.IGNORECASE)


class ExtractiveModel:
    """No language model: a deterministic program that uses the tools a language model would.

    The answer is a function of the request alone, so that a run, a demo or a test repeats exactly, without a key.
    """

    handle = EXTRACTIVE

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Deltas, text word by word, then the one reply. It raises nothing, whatever the request holds."""
        # It can't summarise: nothing is no summary, and then the engine extracts what has to stay.
        parts = answer_to(request) if request.purpose == "reply" else ()
        for index, part in enumerate(parts):
            if isinstance(part, ToolCall):
                yield ModelDelta("tool_name", part.name, index, part.call_id)
                yield ModelDelta("tool_arguments", part.arguments, index, part.call_id)
            elif isinstance(part, Text):
                for piece in _PIECE.finditer(part.text):
                    yield ModelDelta("text", piece[0])
        texts = [request.system, request.opening, request.tail, *map(str, request.tools)]
        for message in request.messages:
            texts += [message.text, *(result.text for result in message.results)]
        input_chars, output_chars = sum(map(len, texts)), sum(len(str(part)) for part in parts)
        usage = Usage(input_tokens=input_chars // CHARS_PER_TOKEN, output_tokens=output_chars // CHARS_PER_TOKEN)
        yield ModelReply(parts=parts, usage=usage, stop_reason="end_turn")


def answer_to(request: ModelRequest) -> tuple[Part, ...]:
    """Either the tool calls that come next, or, when none are left to make, the text of the reply."""
    step = Step(request)
    if calls := step.calls():
        seed = f"{len(request.messages)}\n{step.turn.texts[-1]}"
        call_id = f"call_{hashlib.sha256(seed.encode()).hexdigest()[:12]}"
        return tuple(
            ToolCall(f"{call_id}_{index}", name, compact_json(arguments))
            for index, (name, arguments) in enumerate(calls)
        )
    reply = step.reply()
    answers = [message.text for message in request.messages if message.role == "assistant"]
    if all(without_notice(text) == text for text in answers):
        reply = f"{reply}\n\n{NOTICES[step.language]}"  # the first of a conversation tells what is answering
    return (Text(clean(reply)),)


class Step:
    """A request as this program understands it: `calls` and `reply` are what to do next."""

    def __init__(self, request: ModelRequest) -> None:
        self.turn, self.tools, self.blocks = read_turn(request), offered_tools(request), visible_blocks(request)
        self.language = language_of(self.turn.text)
        self.facts = facts_in(self.turn.text)
        questions = (one_line(sentence.text) for sentence in sentences_in(self.turn.text) if is_question(sentence))
        self.questions = list(dict.fromkeys(questions))[:MAX_QUESTIONS]

    def calls(self) -> list[Call]:
        """The tool calls of the next answer; none when it is time to reply."""
        if self.turn.answers >= MAX_ANSWERS_WITH_CALLS:
            return []
        new_facts = [fact for fact in self.facts if self._attempt(fact) is None]
        edits, edited = plan_edits(self.blocks.get(HUMAN, ""), new_facts)
        calls = [call for edit in edits if HUMAN in self.blocks and (call := self._edit_call(edit)) is not None]
        # Both searches for every question that the blocks, with this answer's edits made, leave open.
        for question in self.questions:
            query = keywords_of(question).query
            if query and not answer_from_blocks(question, {**self.blocks, HUMAN: edited}, self.language):
                for tool, more in SEARCHES.items():
                    call = tool, {"query": query, **more}
                    if tool in self.tools and call not in calls and not self._results(tool, query):
                        calls.append(call)
        return calls

    def reply(self) -> str:
        """The text of the reply when no call is left to make."""
        if lines := [*self._report_on_facts(), *map(self._answer, self.questions)]:
            return "\n".join(lines)
        text = self.turn.text[:200]
        if not _GREETS.search(text):
            return self._say("thanks" if _THANKS.search(text) else "nothing to note")
        name = next((note.value for note in notes_in(self.blocks) if note.key == "Name"), None)
        return self._say("hello") if name is None else self._say("hello name", name)

    def _say(self, phrase: str, *values: object) -> str:
        return say(phrase, self.language, *values)

    def _edit_call(self, edit: Edit) -> Call | None:
        """The call that makes the edit, with the first fitting tool of the request."""
        for tool, (old, new) in EDITS.items():
            if tool in self.tools and (old is None) == (edit.old is None):
                before = {} if old is None else {old: edit.old}
                place = {"insert_line": -1} if tool == "memory_insert" else {}
                return tool, {"label": HUMAN, **before, new: edit.new, **place}
        return None

    def _attempt(self, fact: Fact) -> tuple[ToolCall, ToolResult | None] | None:
        """The call of this turn that tried to note the fact, with its result."""
        for call, result in self.turn.done:
            text = arguments_of(call).get(EDITS.get(call.name, ("", ""))[1])
            if isinstance(text, str) and fact.line in text.split("\n"):
                return call, result
        return None

    def _results(self, tool: str, query: str) -> list[ToolResult | None]:
        """The results of this turn's calls for this search; None for a call without a result."""
        return [
            result for call, result in self.turn.done if call.name == tool and arguments_of(call).get("query") == query
        ]

    def _report_on_facts(self) -> list[str]:
        """Lines about each fact: noted, known before, or refused and why."""
        lines: dict[str, list[str]] = {"noted": [], "known": []}
        refusals: list[str] = []
        for fact in self.facts:
            attempt = self._attempt(fact)
            if attempt is None and holds(self.blocks.get(HUMAN, ""), fact):
                lines["known"].append(fact.line)
            elif attempt is None:
                possible = HUMAN in self.blocks and not self.tools.isdisjoint(EDITS)
                refusals.append(self._say("not noted", fact.line, self._say("left over" if possible else "no tool")))
            elif attempt[1] is not None and attempt[1].status == "success":
                lines["noted"].append(fact.line)
            else:
                refusals.append(self._say("not noted", fact.line, self._reason(attempt[1])))
        return [self._say(phrase, "; ".join(facts)) for phrase, facts in lines.items() if facts] + refusals

    def _reason(self, result: ToolResult | None) -> str:
        """Why a call failed: the first sentence of its result."""
        first = None if result is None else _FIRST_SENTENCE.match(one_line(result.text))
        return self._say("no answer") if first is None else cut(first[0], 300)

    def _answer(self, question: str) -> str:
        """The answer from the blocks, else quotations from what the searches brought."""
        if (answer := answer_from_blocks(question, self.blocks, self.language)) is not None:
            return answer
        keywords = keywords_of(question)
        lines: list[str] = []
        hits = []
        for tool in SEARCHES:
            for result in self._results(tool, keywords.query):
                if result is None or result.status != "success":
                    lines.append(self._say("search failed", tool, self._reason(result)))
                else:
                    hits += read_hits(result)
        quotes: Sequence[str] = best_quotes(hits, keywords, self.language, exclude=self.turn.texts)
        return "\n".join([*lines, *(quotes or [self._say("nothing", cut(keywords.query, 80))])])
