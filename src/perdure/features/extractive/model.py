"""The model `perdure/extractive`: what it reads in a request, and what it does about a turn.

It reads memory as it now stands, and how far this turn has come; then it makes the calls of the next answer, or else
the reply. Nothing is remembered between answers: what was tried stands in the request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.context.sections.words import split_message
from perdure.core.messages import Part, Text, ToolCall, ToolResult
from perdure.core.models import EXTRACTIVE, NOTICES, ModelDelta, ModelReply, ModelRequest, without_notice
from perdure.core.runs import Usage
from perdure.core.text.json_strings import compact_json, json_object
from perdure.core.text.markup import unescape_tags
from perdure.core.tools.engine_specs import tools_with
from perdure.features.extractive.answers import (
    ANY_TIME,
    FoundText,
    LineEdit,
    answer_from_blocks,
    answer_from_past,
    best_quotes,
    holds,
    notes_in,
    notes_of,
    past_keywords,
    plan_edits,
    read_hits,
    say,
)
from perdure.providers.extractive.facts import BlockFact
from perdure.providers.extractive.language import (
    CJK,
    asks,
    clean,
    cut,
    is_question,
    keywords_of,
    language_of,
    one_line,
    sentences_in,
)

_EDIT_TOOLS = frozenset(tools_with("shows_block"))

_SECTION = re.compile(r"^<memory_blocks>[ \t]*\n(.*?)(?:^</memory_blocks>$|\Z)", re.MULTILINE | re.DOTALL)
_OPENING = re.compile(r"<([^\s<>/][^\s<>]*)>")
_FRAME = re.compile(r"\(.*\)", re.DOTALL)
_SPEAKER = re.compile(r"\[([^\[\]\n]{1,200})\] ")
_USER = "User"
_FROM_ENGINE = "<system-reminder>"
"""How messages begin by which the engine asks a companion."""
_RECALLED = re.compile(r"^### (?P<day>.*)$|^\[\d+\] \d\d:\d\d user: (?P<text>.*(?:\n  .*)*)", re.MULTILINE)
"""In recalled memory: the day of a conversation, or what a user said then."""


@dataclass(frozen=True, slots=True)
class ReadTurn:
    """The messages of users since the last reply, and what was done about them.

    Args:
        texts: the messages, in order.
        done: calls since the last of `texts`, in order, each with its result; None: no result came.
        answers: how many answers of the model had these calls.
        before: what the same person said in the turn before; empty if the reply asked about it.
        recalled: what users said in earlier conversations, as far as a message brings it along.
        at: when the turn began.
        said: all that the person said in view, this turn included, oldest first.
    """

    texts: tuple[str, ...]
    done: tuple[tuple[ToolCall, ToolResult | None], ...]
    answers: int
    before: str
    at: datetime
    recalled: tuple[FoundText, ...] = ()
    said: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All texts of the turn."""
        return "\n".join(self.texts)


def visible_blocks(request: ModelRequest) -> dict[str, str]:
    """Return label -> value of each block in the request, with the edits that later messages show."""
    blocks = _blocks_in_system(request.system)
    calls: dict[str, ToolCall] = {}
    for message in request.messages:
        if message.kind == "memory_delta":
            _apply_delta(blocks, json_object(message.text) or {})
        elif message.kind == "message":
            calls.update((call.call_id, call) for call in message.calls)
            for result in message.results:
                call = calls.get(result.call_id)
                if call is not None and call.name in _EDIT_TOOLS and result.status == "success":
                    arguments = json_object(call.arguments) or {}
                    label = arguments.get("label", arguments.get("block_label"))
                    if isinstance(label, str):
                        blocks[label] = result.text
    return {label: clean(value) for label, value in blocks.items()}


def read_turn(request: ModelRequest) -> ReadTurn:
    """Return the turn that a request is about; `texts` is empty if no message came since the last reply."""
    texts: list[str] = []
    everything: list[str] = []
    calls: list[ToolCall] = []
    results: dict[str, ToolResult] = {}
    answers, before, at, recalled = 0, "", ANY_TIME, ""
    for message in request.messages:
        if message.kind != "message":
            continue
        if message.role == "user":
            recalled, said = split_message(message.text)
            texts.append(clean(words_of_user(said)))
            everything.append(texts[-1])
            calls, results, answers, at = [], {}, 0, message.occurred_at
        elif message.role == "assistant" and message.calls:
            calls.extend(message.calls)
            answers += 1
        elif message.role == "assistant" and message.text.strip():
            texts, before = [], "" if asks(message.text) else "\n".join(texts)
        results.update((result.call_id, result) for result in message.results)
    done = tuple((call, results.get(call.call_id)) for call in calls)
    recalled = recalled or str((json_object(request.tail) or {}).get("recalled", ""))
    found = tuple(_recalled_statements(recalled))
    return ReadTurn(tuple(texts), done, answers, before, at, found, tuple(everything))


def _recalled_statements(recalled: str) -> Iterator[FoundText]:
    """What users said, in recalled memory."""
    day = ""
    for found in _RECALLED.finditer(recalled):
        day = found["day"] or day
        if found["text"]:
            yield FoundText("user", day, clean(found["text"]))


def words_of_user(text: str) -> str:
    """Return what the user said in a message: in a group the parts marked as the user's, if there are any; nothing of
    what the engine asks a companion."""
    if text.startswith(_FROM_ENGINE):
        return ""
    words: list[str] = []
    speaker: str | None = None
    for paragraph in text.split("\n\n"):
        if (opening := _SPEAKER.match(paragraph)) is not None:
            speaker, paragraph = opening[1], paragraph[opening.end() :]
        elif speaker is None and _FRAME.fullmatch(paragraph) is None:
            return text  # nobody is marked: it comes from a user alone
        if speaker == _USER:
            words.append(paragraph)
    return "\n\n".join(words) or text


def offered_tools(request: ModelRequest) -> frozenset[str]:
    """The names of the tools that may be called now."""
    if request.options.tool_choice == "none":
        return frozenset()
    return frozenset(name for tool in request.tools if isinstance(name := tool.get("name"), str))


def _blocks_in_system(system: str) -> dict[str, str]:
    """Return label -> value of the blocks in a system prompt, read line by line, as a tag inside a value is text."""
    values: dict[str, str] = {}
    lines = iter(section[1].split("\n") if (section := _SECTION.search(system)) else ())
    for line in lines:
        if (opening := _OPENING.fullmatch(line)) is None:
            continue
        for before in lines:
            if before == "<value>":
                values[opening[1]] = "\n".join(iter(lambda: next(lines, "</value>"), "</value>"))
            elif before == f"</{opening[1]}>":
                break
    return {label: unescape_tags(value, values) for label, value in values.items()}


def _apply_delta(blocks: dict[str, str], delta: Mapping[str, Any]) -> None:
    """Change `blocks` as a message of the engine about memory (`memory_delta`) says."""
    label, value = delta.get("label"), delta.get("value")
    if not isinstance(label, str):
        return
    if delta.get("op") == "detached":
        blocks.pop(label, None)
    elif isinstance(value, str):
        blocks.pop(str(delta.get("renamed_from")), None)
        blocks[label] = value


CHARS_PER_TOKEN = 4
MAX_ANSWERS_WITH_CALLS = 3
MAX_QUESTIONS = 3
MAX_SAID = 200  # texts that are read for what was so before
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
"""The name of a tool, and its arguments."""

_PIECE = re.compile(rf"\s*[{CJK}]|\s*[^\s{CJK}]+|\s+")  # a word, or one Chinese character
_FIRST_SENTENCE = re.compile(r".+?(?:[.!?](?=\s|$)|。|$)")
_THANKS = re.compile(r"\b(?:thanks|thank\s+you)\b|谢谢|謝謝", re.IGNORECASE)
_GREETS = re.compile(r"\b(?:hi|hello|hey|good\s+(?:morning|evening))\b|你好|您好|嗨", re.IGNORECASE)


class ExtractiveModel:
    """No language model: a deterministic program that uses the tools a language model would. The answer is a function
    of the request alone, so that a run, a demo or a test repeats exactly, without a key."""

    handle = EXTRACTIVE
    takes_images = False

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Yield the answer in pieces, text word by word, and then whole. Raises nothing, whatever the request holds."""
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
    """Return the tool calls that come next, or if there are none, the text of the reply."""
    step = AnswerStep(request)
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
        reply = f"{reply}\n\n{NOTICES[step.language]}"  # the first answer in view says that no language model writes
    return (Text(clean(reply)),)


def _query_of(question: str) -> str:
    """The words to search with for the answer to a question."""
    return (past_keywords(question) or keywords_of(question)).query


class AnswerStep:
    """What this program reads in a request; `calls` and `reply` return what to do about it."""

    def __init__(self, request: ModelRequest) -> None:
        self.turn, self.tools, self.blocks = read_turn(request), offered_tools(request), visible_blocks(request)
        self.language = language_of(self.turn.text)
        notes = notes_of(self.turn.text, now=self.turn.at, before=self.turn.before)
        self.facts, self.ended = notes.facts, notes.ended
        questions = (one_line(sentence.text) for sentence in sentences_in(self.turn.text) if is_question(sentence))
        self.questions = list(dict.fromkeys(questions))[:MAX_QUESTIONS]

    def calls(self) -> list[Call]:
        """Return the tool calls of the next answer; none: it is time to reply."""
        if self.turn.answers >= MAX_ANSWERS_WITH_CALLS:
            return []
        new_facts = [fact for fact in self.facts if self._attempt(fact) is None]
        edits, edited = plan_edits(self.blocks.get(HUMAN, ""), new_facts, self.ended)
        calls = [call for edit in edits if HUMAN in self.blocks and (call := self._edit_call(edit)) is not None]
        # Both searches for every question that the blocks, with this answer's edits made, leave open.
        for question in self.questions:
            query = _query_of(question)
            if query and not self._known_answer(question, {**self.blocks, HUMAN: edited}):
                for tool, more in SEARCHES.items():
                    call = tool, {"query": query, **more}
                    if tool in self.tools and call not in calls and not self._results(tool, query):
                        calls.append(call)
        return calls

    def reply(self) -> str:
        """Return the text of the reply, for when no call is left to make."""
        if lines := [*self._report_on_facts(), *map(self._answer, self.questions)]:
            return "\n".join(lines)
        text = self.turn.text[:200]
        if not _GREETS.search(text):
            return self._say("thanks" if _THANKS.search(text) else "nothing to note")
        name = next((note.value for note in notes_in(self.blocks) if note.key == "Name"), None)
        return self._say("hello") if name is None else self._say("hello name", name)

    def _say(self, phrase: str, *values: object) -> str:
        """Return a phrase in the language of the turn, see `say`."""
        return say(phrase, self.language, *values)

    def _edit_call(self, edit: LineEdit) -> Call | None:
        """Return the call that makes an edit, by the first tool of the request that can; None: none can."""
        for tool, (old, new) in EDITS.items():
            if tool in self.tools and (old is None) == (edit.old is None):
                before = {} if old is None else {old: edit.old}
                place = {"insert_line": -1} if tool == "memory_insert" else {}
                return tool, {"label": HUMAN, **before, new: edit.new, **place}
        return None

    def _attempt(self, fact: BlockFact) -> tuple[ToolCall, ToolResult | None] | None:
        """Return the call of this turn that tried to note a fact, with its result; None: no call did."""
        for call, result in self.turn.done:
            text = (json_object(call.arguments) or {}).get(EDITS.get(call.name, ("", ""))[1])
            if isinstance(text, str) and fact.line in text.split("\n"):
                return call, result
        return None

    def _results(self, tool: str, query: str) -> list[ToolResult | None]:
        """Return the results of this turn's calls of a search tool with a query; None in place of a missing result."""
        return [
            result
            for call, result in self.turn.done
            if call.name == tool and (json_object(call.arguments) or {}).get("query") == query
        ]

    def _report_on_facts(self) -> list[str]:
        """Return lines about the facts of the turn: which were stored, known before, or refused and why."""
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
        """Return why a call failed: the first sentence of its result."""
        first = None if result is None else _FIRST_SENTENCE.match(one_line(result.text))
        return self._say("no answer") if first is None else cut(first[0], 300)

    def _known_answer(
        self, question: str, blocks: Mapping[str, str], found: Sequence[FoundText] | None = None
    ) -> str | None:
        """Return the answer that the blocks hold, or else of an earlier time what was found and said; None: none."""
        by_date = sorted(self.turn.recalled if found is None else found, key=lambda one: one.date)
        said = [*(one.content for one in by_date if one.source == "user"), *self.turn.said]
        answer = answer_from_blocks(question, blocks, self.language)
        return answer or answer_from_past(question, said[-MAX_SAID:], blocks, self.language, now=self.turn.at)

    def _answer(self, question: str) -> str:
        """Return the answer to a question from the blocks and what was said, else quotations of what was found."""
        lines: list[str] = []
        hits = [*self.turn.recalled]
        for tool in SEARCHES:
            for result in self._results(tool, _query_of(question)):
                if result is None or result.status != "success":
                    lines.append(self._say("search failed", tool, self._reason(result)))
                else:
                    hits += read_hits(result)
        if (answer := self._known_answer(question, self.blocks, hits)) is not None:
            return answer
        keywords = keywords_of(question)
        quotes: Sequence[str] = best_quotes(hits, keywords, self.language, exclude=self.turn.texts)
        return "\n".join([*lines, *(quotes or [self._say("nothing", cut(keywords.query, 80))])])
