"""Summaries by a model: the transcript, and the check that an answer is a summary of it; and by code, where no model
wrote one.

Everything is linear in the texts. What a summary lacks or has made up is found by `context.window.audit`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from perdure.context.sections.stubs import apply_stubs
from perdure.context.window.extract import (
    PHRASES,
    clip,
    extract,
    one_line,
    render_extract,
    render_most,
    sentences_of,
    spread_order,
)
from perdure.context.window.plan import Evict, Merge
from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import Message, Text, ToolCall, ToolResult
from perdure.core.models import without_notice
from perdure.core.nodes import SummaryNode, message_handle, node_handle
from perdure.core.ports import TokenCounter
from perdure.core.text.dates.in_words import add_dates
from perdure.core.text.words import SPACELESS
from perdure.core.text.zones import local, zone
from perdure.core.tools.arguments import ARGUMENTS

RejectedReason = Literal["empty", "apology", "prompt", "echo", "too_long", "unrelated"]

LENGTH_FACTOR = 1.25  # times the limit; a summary up to here is cut, a longer one rejected
ECHO_SHARE = 0.6  # of a summary, what may stand in the source word for word, in runs of six words or twelve characters
PROMPT_SHARE = 0.4  # of a summary, or of the prompt, what may stand in the other in runs of three words
RELATED_WORDS, RELATED_BIGRAMS = 0.2, 0.1  # of a summary's different words or CJK bigrams, what the source must have
NAME_CHARS = 60
DELTA_CHARS = 200


class SummaryRejected(Exception):
    """A model's answer is no summary of the messages.

    `reason`: `empty`; `apology`: it refuses or asks back; `prompt`: it repeats the prompt; `echo`: it repeats the
    source, or is no shorter; `too_long`; `unrelated`: it shares hardly any words with the source, repeats itself, or is
    a tool call or data.
    """

    def __init__(self, reason: RejectedReason) -> None:
        super().__init__(f"the summary was rejected: {reason}")
        self.reason: RejectedReason = reason


# The transcript


class _CharLimits(NamedTuple):
    """The most characters of one text, by its kind."""

    user: int
    assistant: int
    call: int
    result: int
    delta: int = DELTA_CHARS


@dataclass(frozen=True, slots=True)
class _SummaryEntry:
    """The paragraph of one message: its row number, its head in brackets, and its texts."""

    seq: int
    head: str
    pieces: tuple[tuple[str, str, str], ...]  # (field of `_CharLimits`, words before the text, text)

    def shown(self, caps: _CharLimits) -> str:
        """Return the paragraph with each text cut to the characters that `caps` allows its kind."""
        texts = (before + _cut(text, getattr(caps, kind)) for kind, before, text in self.pieces)
        return f"{self.head} {' '.join(texts)}"


def _ladder() -> tuple[_CharLimits, ...]:
    """Build caps from "everything" down to a few words: results shrink first, users' words last."""
    rungs = [_CharLimits(10**9, 10**9, 10**9, 10**9)]

    def lower(name: str, start: int, end: int, factor: float) -> None:
        """Add caps in which this field shrinks from `start` to `end` by this factor each time."""
        value = float(start)
        while value >= end:
            rungs.append(rungs[-1]._replace(**{name: int(value)}))
            value *= factor

    lower("result", 400_000, 240, 0.75)
    lower("call", 20_000, 160, 0.6)
    lower("assistant", 100_000, 400, 0.75)
    lower("result", 120, 30, 0.5)
    lower("call", 80, 40, 0.5)
    lower("user", 200_000, 400, 0.75)
    lower("assistant", 300, 75, 0.7)
    lower("user", 300, 100, 0.7)
    rungs.append(rungs[-1]._replace(call=0, result=0, delta=0))
    return tuple(rungs)


_LADDER = _ladder()


def transcript(messages: Sequence[Message], *, max_tokens: int, counter: TokenCounter, timezone: str = "UTC") -> str:
    """Render messages for a summariser: one paragraph each, with handle, role, time and text.

    Long texts are cut in the middle, with a note: tool results first, then call arguments, the agent's texts, users'
    texts; at last whole messages are left out. Reasoning and engine messages other than memory deltas are left out.
    Lines after a message's first are indented, so that no text looks like another message. The transcript of at least
    one message is never empty: it is a full stop where nothing else fits. Times are of the zone `timezone`.
    """
    if not messages:
        return ""
    whole = message_handle(messages[0].seq, messages[-1].seq)
    entries = [entry for message in messages if (entry := _entry(message, timezone)) is not None]
    if not entries:
        return _first_fit((f"[{whole}: no words]", whole, "…"), max_tokens, counter)

    def render(rung: int) -> str:
        """Return all entries, their texts cut to the lengths of this rung of the ladder."""
        return "\n".join(entry.shown(_LADDER[rung]) for entry in entries)

    rung = bisect_left(range(len(_LADDER)), True, key=lambda index: counter.count(render(index)) <= max_tokens)
    if rung < len(_LADDER):
        text = render(rung)
        if counter.count(text) <= max_tokens:
            return text
    user_entries = [index for index, entry in enumerate(entries) if entry.pieces[0][0] == "user"]
    others = [index for index, entry in enumerate(entries) if entry.pieces[0][0] != "user"]
    order = [group[index] for group in (user_entries, others) for index in spread_order(len(group))]
    excerpt = render_most(
        min(len(order), max(0, max_tokens)),
        lambda count: "\n".join(_with_gaps(entries, set(order[:count]))),
        max_tokens,
        counter,
    )
    return excerpt or _first_fit((f"[{whole} left out]", whole, "…"), max_tokens, counter)


def _entry(message: Message, timezone: str) -> _SummaryEntry | None:
    """Return the paragraph of a message; None for one without words."""
    pieces: list[tuple[str, str, str]] = []
    if message.kind == "message":
        for part in apply_stubs(message, {}).parts:  # of a long result what the model saw of it
            match part:
                case Text(text=text) if text.strip():
                    role = "user" if message.role == "user" else "assistant"
                    said = add_dates(without_notice(text), said_at=local(message.occurred_at, zone(timezone)))
                    pieces.append((role, "", _indent(said)))
                case ToolCall(name=name, arguments=arguments):
                    pieces.append(("call", f"called {_label(name)} with ", _indent(arguments)))
                case ToolResult(name=name, text=text, status=status):
                    did = "failed" if status == "error" else "answered"
                    pieces.append(("result", f"{_label(name)} {did}: ", _indent(text)))
    elif message.kind == "memory_delta":
        pieces.append(("delta", "memory was edited: ", _indent(message.text)))
    if not pieces:
        return None
    who = f"{message.role} {_label(message.name)}" if message.name else message.role
    head = f"[{message_handle(message.seq)} {who} {local(message.occurred_at, zone(timezone)):%Y-%m-%d %H:%M}]"
    return _SummaryEntry(message.seq, head, tuple(pieces))


def _indent(text: str) -> str:
    """Indent all lines of a text but the first."""
    return "\n  ".join(text.strip().splitlines())


def _label(name: str) -> str:
    """Return a name on one line, without characters that would end the heading of a paragraph."""
    return " ".join(name.replace("]", ")").split())[:NAME_CHARS]


def _cut(text: str, chars: int) -> str:
    """Return the text, or its beginning and end with a note on what is missing between them."""
    if len(text) <= chars + 40:
        return text
    head, tail = text[: chars * 3 // 5], text[len(text) - chars * 2 // 5 :]
    return f"{head} [… {len(text) - len(head) - len(tail):,} characters left out …] {tail}".strip()


def _with_gaps(entries: Sequence[_SummaryEntry], visible: set[int]) -> Iterator[str]:
    """Yield the visible entries in their shortest form, with a note on each gap."""
    start = 0
    for index in (*sorted(visible), len(entries)):
        if index > start:
            yield f"[{message_handle(entries[start].seq, entries[index - 1].seq)} left out]"
        if index < len(entries):
            yield entries[index].shown(_LADDER[-1])
        start = index + 1


def _first_fit(texts: Sequence[str], max_tokens: int, counter: TokenCounter) -> str:
    """Return the first text that fits, else a full stop."""
    return next((text for text in texts if counter.count(text) <= max_tokens), ".")


# Checks of the answer

_REASONING = re.compile(r"\s*<(think|thinking|reasoning)>")
_FENCE = re.compile(r"\A```[\w-]{0,20}[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_WRAPPER_TAG = re.compile(r"\A<(?:summary|record|source)>|</(?:summary|record|source)>\Z", re.IGNORECASE)
_HEADING = re.compile(
    r"\A(?:(?:sure|certainly|of course|okay|ok|gerne|claro|好的)[^\n\w]{0,3}\s*)?"
    r"(?:#{1,6}[ \t]*)?[*_]{0,3}(?:here(?:'s| is| are)[^\n:.]{0,60}:|hier ist[^\n:.]{0,60}:|以下是[^\n:：。]{0,30}[:：]"
    r"|(?:the )?(?:conversation |chat |brief )?(?:summary|record|recap|zusammenfassung|resumen|résumé|riassunto|resumo"
    r"|резюме|краткое содержание|итог|ملخص|摘要|总结|總結|概要|小结|要約|まとめ|요약)"
    r"(?: of [^\n:.]{1,60}| der [^\n:.]{1,60})?(?:[*_]{0,3}[ \t]*[:：][*_]{0,3}|[*_]{0,3}[ \t]*(?=\n)))\s*",
    re.IGNORECASE,
)
_NOTHING = re.compile(r"(?:none|null|nil|n/?a|empty|no summary|undefined|无|空)[.。!]?", re.IGNORECASE)
_CALL = re.compile(
    r"\s*(?:\[?\s*\{\s*[\"']?(?:name|function|tool|tool_calls?|tool_name|action|arguments|parameters|recipient_name)[\"']?\s{0,5}:"
    r"|<\|?(?:tool_calls?|tool_call_begin|function|function_calls?|invoke|python_tag)\b|\[TOOL_CALLS\])",
    re.IGNORECASE,
)
_REFUSALS = "|".join(PHRASES["refusal"]["words"])
_REFUSAL = re.compile(rf"\A[\s*_#>-]{{0,3}}(?:{_REFUSALS})", re.IGNORECASE)
_AS_AI = re.compile(
    r"(?:\A|[.!?。！]\s{0,3})(?:as an? (?:ai|artificial intelligence|large language|language model)\b[^.\n]{0,40}\bi\b"
    r"|i (?:can ?not|can['’]t|am unable to|won['’]t) (?:assist|help|fulfil|comply|provide a summary|summari))",
    re.IGNORECASE,
)
_HEAD = re.compile(
    r"^[ \t]{0,4}\[msg-\d+[^\]\n]{0,120}\] ?|^[ \t]{0,4}(?:user|assistant|agent|tool|system)[^\n:]{0,40}: ?",
    re.M | re.I,
)
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]{0,3}(?=\s)|[。！？｡؟۔।][”’」』）]{0,3}|\n")


def check_summary(text: str, *, source: str, prompt: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return the summary without fences, headings and reasoning, within `max_tokens`.

    A summary that is up to a quarter too long loses its last sentences.

    Args:
        source: what was to be summarised.
        prompt: the instructions.

    Raises: SummaryRejected.
    """
    text = clean_answer(text)
    if not any(map(str.isalnum, text)) or _NOTHING.fullmatch(text):
        raise SummaryRejected("empty")
    if counter.count(text) > max_tokens * LENGTH_FACTOR:
        raise SummaryRejected("apology" if _refuses(text) else "too_long")
    if _is_data(text):
        raise SummaryRejected("unrelated")
    if _refuses(text):
        raise SummaryRejected("apology")
    words, prompt_words = words_of(_HEAD.sub("", text)), words_of(prompt)
    if max(_shared_share(words, prompt_words, 3), _shared_share(prompt_words, words, 3)) > PROMPT_SHARE:
        raise SummaryRejected("prompt")
    if _repeats_itself(words):
        raise SummaryRejected("unrelated")
    source_words = words_of(_HEAD.sub("", source))
    wide = sum(len(word) == 1 and bool(_WIDE.match(word)) for word in words) * 2 > len(words)
    if len(words) > 20 and _shared_share(words, source_words, 12 if wide else 6) > ECHO_SHARE:
        raise SummaryRejected("echo")
    if counter.count(text) >= counter.count(source):
        raise SummaryRejected("echo")
    if not _is_related(words, source_words):
        raise SummaryRejected("unrelated")
    result = cut_at_sentence(text, max_tokens, counter)
    if not any(map(str.isalnum, result)):
        raise SummaryRejected("too_long")
    return result


def clean_answer(text: str) -> str:
    """Return the answer without reasoning, wrapper tags, fences and headings; empty if its reasoning has no end."""
    text = text.replace("\x00", "").strip()
    if tag := _REASONING.match(text):
        _, end_tag, after = text.partition(f"</{tag[1]}>")
        text = after.strip() if end_tag else ""
    for _ in range(3):
        before = text
        text = _WRAPPER_TAG.sub("", text).strip()
        if fence := _FENCE.match(text):
            text = fence[1].strip()
        text = text[heading.end() :].strip() if (heading := _HEADING.match(text)) else text
        if text == before:
            break
    return text


def _refuses(text: str) -> bool:
    """Return whether an answer is a refusal or a question."""
    # Only at the beginning: a real summary may report that somebody was sorry.
    return bool(_REFUSAL.match(text) or _AS_AI.search(text[:400]))


def _is_data(text: str) -> bool:
    """Return whether the text is a tool call or JSON."""
    if _CALL.match(text):
        return True
    if text[0] not in "{[" or text[-1] not in "}]":
        return False
    try:
        return isinstance(parse_json(text, ARGUMENTS), (dict, list))
    except (ValueError, RecursionError):
        return False


_WORD = re.compile(r"[\w\u0300-\u036f\u0900-\u0eff\u1000-\u109f\u1780-\u17ff]+")
_WIDE = re.compile(f"[{SPACELESS}]")
_WIDE_OR_WORD = re.compile(f"[{SPACELESS}]|[^{SPACELESS}]+")


def words_of(text: str) -> list[str]:
    """Return the folded words in order; in scripts without spaces each character is a word."""
    if text.isascii():
        return _WORD.findall(text.lower())
    words: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if word.isascii():
            words.append(word)
        else:
            words += _WIDE_OR_WORD.findall(word)
    return words


def _shared_share(words: Sequence[str], others: Sequence[str], run: int) -> float:
    """Return the share of `words` that also stand in `others`, in runs of at least `run` words."""
    runs = list(zip(*(words[index:] for index in range(run)), strict=False))
    if not runs:
        return 0.0
    run_set = set(runs)
    common = {one for one in zip(*(others[index:] for index in range(run)), strict=False) if one in run_set}
    count, upto = 0, 0
    for index, one in enumerate(runs):
        if one in common:
            count += index + run - max(index, upto)
            upto = index + run
    return count / len(words)


def _repeats_itself(words: Sequence[str]) -> bool:
    """Return whether few words or runs make up most of the text, as of a model in a loop."""
    if len(words) < 30:
        return len(words) > 5 and len(set(words)) <= len(words) // 5
    runs = list(zip(words, words[1:], words[2:], strict=False))
    return len(set(runs)) < len(runs) * 0.4


def _is_related(words: Sequence[str], source: Sequence[str]) -> bool:
    """Return whether a summary shares enough words with its source, or numbers and names if it is a translation."""
    summary_words, source_words = key_words(words), key_words(source)
    if not summary_words and len(words) > 2:  # a few short words
        summary_words, source_words = set(words), set(source)
    wide = sum(1 for summary_word in summary_words if _WIDE.match(summary_word))
    least = (len(summary_words) - wide) * RELATED_WORDS + wide * RELATED_BIGRAMS
    shared = summary_words & source_words
    if len(shared) >= max(1.0, least):
        return True
    # A translation shares Latin words if the scripts differ, else numbers and identifiers, or several names.
    shared_ascii = {word for word in shared if word.isascii()}
    if _is_latin(summary_words) != _is_latin(source_words):
        return len(shared_ascii) >= 2
    identifiers = {word for word in summary_words if not word.isalpha()}
    same = len(identifiers & source_words)
    return (same >= 2 and same * 2 >= len(identifiers)) or (len(shared_ascii) >= 3 and len(shared_ascii) >= least / 2)


def _is_latin(words: set[str]) -> bool:
    """Return whether most words are in ASCII letters."""
    return sum(map(str.isascii, words)) * 2 >= len(words)


_TOO_COMMON = {word[:5] for word in PHRASES["common"]["words"]}


def key_words(words: Sequence[str]) -> set[str]:
    """Return the words that identify a text: beginnings of longer words, numbers, CJK bigrams."""
    keys: set[str] = set()
    before = ""
    for word in words:
        wide = len(word) == 1 and bool(_WIDE.match(word))
        if wide and before:
            keys.add(before + word)
        elif not wide and (len(word) > 3 or (word.isdecimal() and len(word) > 1) or not word.isascii()):
            keys.add(word if any(map(str.isdecimal, word)) else word[:5])
        before = word if wide else ""
    return keys - _TOO_COMMON


def cut_at_sentence(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return the beginning of a text that fits, up to the end of a sentence or word."""
    result = clip(text, max_tokens, counter)
    if len(result) == len(text):
        return text
    ends = [end.end() for end in _SENTENCE_END.finditer(result)]
    if ends and ends[-1] * 2 > len(result):
        return result[: ends[-1]].rstrip()
    space = result.rfind(" ")
    return (result[:space] if space * 2 > len(result) else result).rstrip()


def merge_texts(nodes: Sequence[SummaryNode], *, max_tokens: int, counter: TokenCounter) -> str:
    """Merge summaries into one text: the first lines of each after its handle, as many as fit, shared fairly. If there
    is no room for one line each, lines are cut first, then only the first and last nodes remain."""
    share = max(24, max_tokens // max(1, len(nodes)) - 16)  # a handle with its range takes up to 16
    units = [[clip(unit, share, counter) for unit in _units(node.text)] for node in nodes]
    order = [
        (index, line)
        for line in range(max(map(len, units), default=0))
        for index in spread_order(len(nodes))
        if line < len(units[index])
    ][: max(0, max_tokens)]

    def render(count: int) -> str:
        """Return the first `count` lines of `order`, below the handles of their nodes."""
        lines: dict[int, list[str]] = {}
        for index, line in order[:count]:
            lines.setdefault(index, []).append(units[index][line])
        return "\n".join(
            f"{node_handle(nodes[index].seq)} "
            f"({message_handle(nodes[index].from_message_seq, nodes[index].upto_message_seq)}): "
            + "\n".join(lines[index])
            for index in sorted(lines)
        )

    return render_most(len(order), render, max_tokens, counter) or clip(render(1), max_tokens, counter).strip()


def _units(text: str) -> list[str]:
    """Return the lines of a summary, long ones split into sentences; one empty line for an empty summary."""
    lines = filter(None, map(one_line, text.splitlines()))
    return [unit for line in lines for unit in ([line] if len(line) <= 300 else sentences_of(line))] or [""]


def extract_summary(removal: Evict | Merge, counter: TokenCounter) -> str:
    """Return the text of a node that no model writes, within the plan's size."""
    limit = removal.summary_tokens
    if isinstance(removal, Merge):
        text = merge_texts(removal.nodes, max_tokens=limit, counter=counter)
    elif removal.absorbed:
        older = merge_texts(removal.absorbed, max_tokens=limit // 2, counter=counter)
        rest = max(1, limit - counter.count(f"{older}\n"))
        text = f"{older}\n{render_extract(extract(removal.messages), max_tokens=rest, counter=counter)}".strip()
    else:
        text = render_extract(extract(removal.messages), max_tokens=limit, counter=counter)
    return text or "(no words)"
