"""Summaries by a model: what it is shown, how it is asked, and whether what it answers may stand for the messages.

A summary is not believed: one that is no summary is rejected (`check_summary`), and what a good one lacks of what our
own code found is put behind it (`with_missing`). Everything is linear in the texts.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from perdure.context.prompts import summary_prompt
from perdure.context.window.extract import SPACELESS, Extract, Item, by_value, clip, lines_of, most_that_fit, spread
from perdure.core.ids import AgentId, MessageId
from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import Message, Text, ToolCall, ToolResult
from perdure.core.models import ModelOptions, ModelRequest
from perdure.core.nodes import message_handle
from perdure.core.ports import TokenCounter
from perdure.core.text.markup import escape_tags
from perdure.core.tools.arguments import ARGUMENTS

__all__ = ["RejectedReason", "SummaryRejected", "check_summary", "summary_request", "transcript", "with_missing"]

RejectedReason = Literal["empty", "apology", "prompt", "echo", "too_long", "unrelated"]

TOO_LONG = 1.25  # times the limit; what is a little over it is cut
ECHOED = 0.6  # of a summary, what may stand in the source word for word, in runs of six words or twelve characters
PROMPTED = 0.4  # of a summary, or of the prompt, what may stand in the other in runs of three words
RELATED_WORDS, RELATED_BIGRAMS = 0.2, 0.1  # of a summary's different words or CJK bigrams, what the source must have
ALSO_MAX = 60  # items that are put behind a summary at most
NAME_CHARS = 60
DELTA_CHARS = 200


class SummaryRejected(Exception):
    """A model's answer can't stand for the messages.

    `reason`: `empty`; `apology`: it refuses or asks back; `prompt`: it repeats what it was told; `echo`: it repeats the
    source, or is no shorter; `too_long`; `unrelated`: it has hardly anything in common with the source, or repeats
    itself, or is a tool call or data.
    """

    def __init__(self, reason: RejectedReason) -> None:
        super().__init__(f"the summary was rejected: {reason}")
        self.reason: RejectedReason = reason


# What the summariser is shown


class _Caps(NamedTuple):
    """How many characters are shown of one text, by what it is."""

    user: int
    assistant: int
    call: int
    result: int
    delta: int = DELTA_CHARS


@dataclass(frozen=True, slots=True)
class _Entry:
    seq: int
    head: str
    pieces: tuple[tuple[str, str, str], ...]  # (what it is, what stands before its text, its text)

    def shown(self, caps: _Caps) -> str:
        texts = (before + _cut(text, getattr(caps, kind)) for kind, before, text in self.pieces)
        return f"{self.head} {' '.join(texts)}"


def _ladder() -> tuple[_Caps, ...]:
    """Caps from "everything" down to a few words: results give way first, users' words last."""
    rungs = [_Caps(10**9, 10**9, 10**9, 10**9)]

    def lower(name: str, start: int, end: int, factor: float) -> None:
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


def transcript(messages: Sequence[Message], *, max_tokens: int, counter: TokenCounter) -> str:
    """The messages as a summariser is shown them: one paragraph each, with handle, role, time and text.

    What is too long is cut in the middle: tool results first, then arguments of calls, then what the agent said, then
    what users said; at last whole messages are left out. What was cut is said. Engine messages other than memory
    deltas are left out, and so is reasoning. Lines after a message's first are indented, so that no text can pass for
    another message. Of at least one message it is never empty: it is a full stop where nothing else fits.
    """
    if not messages:
        return ""
    whole = message_handle(messages[0].seq, messages[-1].seq)
    entries = [entry for message in messages if (entry := _entry(message)) is not None]
    if not entries:
        return _first_that_fits((f"[{whole}: no words]", whole, "…"), max_tokens, counter)

    def over(rung: int) -> bool:
        return counter.count("\n".join(entry.shown(_LADDER[rung]) for entry in entries)) > max_tokens

    rung = bisect_left(range(len(_LADDER)), True, key=lambda at: not over(at))
    if rung < len(_LADDER):
        text = "\n".join(entry.shown(_LADDER[rung]) for entry in entries)
        if counter.count(text) <= max_tokens:
            return text
    by_users = [at for at, entry in enumerate(entries) if entry.pieces[0][0] == "user"]
    others = [at for at, entry in enumerate(entries) if entry.pieces[0][0] != "user"]
    order = [*(by_users[at] for at in spread(len(by_users))), *(others[at] for at in spread(len(others)))]
    some = most_that_fit(
        min(len(order), max(0, max_tokens)),
        lambda count: "\n".join(_with_gaps(entries, set(order[:count]))),
        max_tokens,
        counter,
    )
    return some or _first_that_fits((f"[{whole} left out]", whole, "…"), max_tokens, counter)


def _entry(message: Message) -> _Entry | None:
    pieces: list[tuple[str, str, str]] = []
    if message.kind == "message":
        for part in message.parts:
            match part:
                case Text(text=text) if text.strip():
                    pieces.append(("user" if message.role == "user" else "assistant", "", _indented(text)))
                case ToolCall(name=name, arguments=arguments):
                    pieces.append(("call", f"called {_label(name)} with ", _indented(arguments)))
                case ToolResult(name=name, text=text, status=status):
                    did = "failed" if status == "error" else "answered"
                    pieces.append(("result", f"{_label(name)} {did}: ", _indented(text)))
                case _:
                    pass
    elif message.kind == "memory_delta":
        pieces.append(("delta", "memory was edited: ", _indented(message.text)))
    if not pieces:
        return None
    who = f"{message.role} {_label(message.name)}" if message.name else message.role
    return _Entry(
        message.seq, f"[{message_handle(message.seq)} {who} {message.occurred_at:%Y-%m-%d %H:%M}]", tuple(pieces)
    )


def _indented(text: str) -> str:
    return "\n  ".join(text.strip().splitlines())


def _label(name: str) -> str:
    return " ".join(name.replace("]", ")").split())[:NAME_CHARS]


def _cut(text: str, chars: int) -> str:
    """The text, or its beginning and end with a word on what is missing between them."""
    if len(text) <= chars + 40:
        return text
    head, tail = text[: chars * 3 // 5], text[len(text) - chars * 2 // 5 :]
    return f"{head} [… {len(text) - len(head) - len(tail):,} characters left out …] {tail}".strip()


def _with_gaps(entries: Sequence[_Entry], kept: set[int]) -> Iterator[str]:
    """The kept entries in their shortest form, and between them which ones are missing."""
    start = 0
    for at in (*sorted(kept), len(entries)):
        if at > start:
            yield f"[{message_handle(entries[start].seq, entries[at - 1].seq)} left out]"
        if at < len(entries):
            yield entries[at].shown(_LADDER[-1])
        start = at + 1


def _first_that_fits(texts: Sequence[str], max_tokens: int, counter: TokenCounter) -> str:
    """The first of these; if none fits, a full stop, the shortest text that is none."""
    return next((text for text in texts if counter.count(text) <= max_tokens), ".")


# How it is asked

_NOWHERE = datetime(1970, 1, 1, tzinfo=UTC)


def summary_request(model: str, transcript: str, *, previous: str, max_summary_tokens: int) -> ModelRequest:
    """The request for a summary of a transcript, or of older summaries, of at most so many tokens as we estimate them.

    Args:
        previous: the summary of what came before; shown so that references can be understood. May be empty.
    """
    limit = max(1, max_summary_tokens)
    # The estimate takes 2.4 tokens for an English word with its space, 1.5 for a Chinese character.
    system = summary_prompt().replace("{words}", str(max(5, limit * 2 // 5)))
    system = system.replace("{characters}", str(max(8, limit * 3 // 5)))
    before = (
        f"<earlier>\n{escape_tags(previous)}\n</earlier>\nThat is recorded already.\n\n" if previous.strip() else ""
    )
    text = f"{before}<source>\n{escape_tags(transcript)}\n</source>\n\nWrite the record of the source."
    message = Message(
        id=MessageId("message-00000000-0000-4000-8000-000000000000"),
        agent_id=AgentId("agent-00000000-0000-4000-8000-000000000000"),
        seq=0,
        conversation_seq=0,
        role="user",
        parts=(Text(text),),
        created_at=_NOWHERE,
        occurred_at=_NOWHERE,
    )
    # Room for a summary that is a little too long, which is better than one whose end is missing.
    options = ModelOptions(max_output_tokens=limit * 3 // 2 + 64)
    return ModelRequest(model=model, system=system, messages=(message,), options=options)


# Whether the answer is a summary

_THOUGHT = re.compile(r"\s*<(think|thinking|reasoning)>")
_FENCE = re.compile(r"\A```[\w-]{0,20}[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_WRAPPING = re.compile(r"\A<(?:summary|record|source)>|</(?:summary|record|source)>\Z", re.IGNORECASE)
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
_REFUSALS = (
    r"(?:i['’]?m|i am) (?:\w+ )?(?:sorry|afraid|unable|not able)|(?:my )?(?:sincere )?apologies|i apologi[sz]e",
    r"sorry[.!,]|sorry,? (?:but |that )?(?:i|we|there|this|that)\b|unfortunately,? i (?:can|am|do|could|have)",
    r"i (?:can ?not|can['’]t|won['’]t|do not|don['’]t) (?:assist|help|summari|provide|do that|comply|see|have)\b",
    r"(?:could|can|would) you (?:please )?(?:provide|share|clarify|paste|send|tell)",
    r"how (?:can|may) i (?:help|assist)|please (?:provide|share|paste|send|give me|let me)",
    r"(?:there is|there['’]s|i see) no (?:conversation|transcript|source)",
    r"(?:the|your) (?:conversation|transcript|source|message)s? (?:is|seems(?: to be)?) (?:empty|missing|blank)",
    r"(?:i['’]d be|i['’]m|i am) (?:happy|glad|ready) to|bitte (?:geben|gib|stell|teil|senden)",
    r"als (?:ki|sprachmodell)\b|(?:es )?tut mir (?:\w+ )?leid|entschuldig|verzeihung|leider (?:kann|konnte|darf) ich",
    r"ich kann (?:\w+ )?(?:nicht|keine)|lo (?:siento|lamento)|disculp[ae]|perdón|no puedo",
    r"como (?:una? )?(?:ia|modelo|inteligencia)\b|por favor,? proporcion|(?:je suis )?(?:vraiment )?désolée?",
    r"je ne (?:peux|suis) pas|en tant qu|veuillez|mi dispiace|non posso|in quanto ia|desculpe|sinto muito|lamento\b",
    r"não posso|infelizmente,? (?:eu )?não|het spijt me|sorry, maar|ik kan (?:\w+ )?(?:niet|geen)|przepraszam",
    r"üzgünüm|maaf\b|к сожалению, я|извините|простите|прошу прощения|я не могу|как (?:ии|языковая)\b|آسف|أعتذر",
    r"عذر[اًا]|لا أستطيع|لا يمكنني|मुझे खेद|क्षमा|माफ|申し訳|すみません|ごめん|恐れ入りますが|私はAI|죄송|미안",
    r"저는 AI|(?:很|非常|真的|十分|实在)?(?:抱歉|对不起|對不起|遗憾)(?=[，,。！!、\s]|[我但无無]|\Z)|不好意思[，,]",
    r"请您?(?:提供|给出|粘贴|发送)|作为(?:一个|一名|一款)?(?:AI|人工智能|语言模型|大模型)",
    r"我(?:无法|無法|不能)(?:帮|协助|提供|总结|完成|处理|满足)",
)
_REFUSAL = re.compile(rf"\A[\s*_#>-]{{0,3}}(?:{'|'.join(_REFUSALS)})", re.IGNORECASE)
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


def check_summary(text: str, *, source: str, request: ModelRequest, max_tokens: int, counter: TokenCounter) -> str:
    """The summary, cleaned of fences, headings and what was thought before it, within `max_tokens`.

    One that is up to a quarter too long loses its last sentences.

    Args:
        source: what was summarised: the transcript that the request holds.

    Raises: SummaryRejected.
    """
    text = _cleaned(text)
    if not any(map(str.isalnum, text)) or _NOTHING.fullmatch(text):
        raise SummaryRejected("empty")
    if counter.count(text) > max_tokens * TOO_LONG:
        raise SummaryRejected("apology" if _refuses(text) else "too_long")
    if _is_data(text):
        raise SummaryRejected("unrelated")
    if _refuses(text):
        raise SummaryRejected("apology")
    words, prompt = _words(_HEAD.sub("", text)), _words(request.system)
    if max(_shared(words, prompt, 3), _shared(prompt, words, 3)) > PROMPTED:
        raise SummaryRejected("prompt")
    if _repeats_itself(words):
        raise SummaryRejected("unrelated")
    shown = _words(_HEAD.sub("", source))
    wide = sum(len(word) == 1 and bool(_WIDE.match(word)) for word in words) * 2 > len(words)
    if len(words) > 20 and _shared(words, shown, 12 if wide else 6) > ECHOED:
        raise SummaryRejected("echo")
    if counter.count(text) >= counter.count(source):
        raise SummaryRejected("echo")
    if not _is_related(words, shown):
        raise SummaryRejected("unrelated")
    fitting = _cut_at_sentence(text, max_tokens, counter)
    if not any(map(str.isalnum, fitting)):
        raise SummaryRejected("too_long")
    return fitting


def _cleaned(text: str) -> str:
    text = text.replace("\x00", "").strip()
    if thought := _THOUGHT.match(text):
        _, closed, after = text.partition(f"</{thought[1]}>")
        text = after.strip() if closed else ""
    for _ in range(3):
        before = text
        text = _WRAPPING.sub("", text).strip()
        if fenced := _FENCE.match(text):
            text = fenced[1].strip()
        text = text[found.end() :].strip() if (found := _HEADING.match(text)) else text
        if text == before:
            break
    return text


def _refuses(text: str) -> bool:
    # Only at the beginning: a real summary may well report that somebody was sorry.
    return bool(_REFUSAL.match(text) or _AS_AI.search(text[:400]))


def _is_data(text: str) -> bool:
    """A tool call as text, or JSON: no summary, even if it is made of the source's words."""
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


def _words(text: str) -> list[str]:
    """Folded words in order; of scripts without spaces each character is one."""
    if text.isascii():
        return _WORD.findall(text.lower())
    words: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if word.isascii():
            words.append(word)
        else:
            words += _WIDE_OR_WORD.findall(word)
    return words


def _shared(words: Sequence[str], others: Sequence[str], run: int) -> float:
    """The share of `words` that stand among the others in the same order, in runs of at least `run`."""
    runs = list(zip(*(words[at:] for at in range(run)), strict=False))
    if not runs:
        return 0.0
    wanted = set(runs)
    known = {one for one in zip(*(others[at:] for at in range(run)), strict=False) if one in wanted}
    covered, upto = 0, 0
    for at, one in enumerate(runs):
        if one in known:
            covered += at + run - max(at, upto)
            upto = at + run
    return covered / len(words)


def _repeats_itself(words: Sequence[str]) -> bool:
    """A model that is caught in a loop says few things many times."""
    if len(words) < 30:
        return len(words) > 5 and len(set(words)) <= len(words) // 5
    runs = list(zip(words, words[1:], words[2:], strict=False))
    return len(set(runs)) < len(runs) * 0.4


_COMMON = re.findall(
    r"\w+",
    "about after again agent also answer asked assistant been before being could conversation does from have into"
    " message more summary that their them then there they this user wants were what when where which while will"
    " with would your 用户 助手 对话 用戶",
)


def _is_related(words: Sequence[str], source: Sequence[str]) -> bool:
    """Whether enough of a summary's words are the source's; of a translated one, enough of its numbers and names."""
    mine, theirs = _telling(words), _telling(source)
    if not mine and len(words) > 2:  # a few short words
        mine, theirs = set(words), set(source)
    wide = sum(1 for one in mine if _WIDE.match(one))
    needed = (len(mine) - wide) * RELATED_WORDS + wide * RELATED_BIGRAMS
    shared = mine & theirs
    if len(shared) >= max(1.0, needed):
        return True
    # In a translation, what both languages write alike: all that is in Latin letters if their scripts differ, else
    # numbers and identifiers, or several names.
    alike = {word for word in shared if word.isascii()}
    if _is_latin(mine) != _is_latin(theirs):
        return len(alike) >= 2
    coded = {word for word in mine if not word.isalpha()}
    same = len(coded & theirs)
    return (same >= 2 and same * 2 >= len(coded)) or (len(alike) >= 3 and len(alike) >= needed / 2)


def _is_latin(words: set[str]) -> bool:
    return sum(map(str.isascii, words)) * 2 >= len(words)


_TOO_COMMON = {word[:5] for word in _COMMON}


def _telling(words: Sequence[str]) -> set[str]:
    """The words that tell what a text is about: beginnings of longer words, numbers, CJK bigrams."""
    found: set[str] = set()
    before = ""
    for word in words:
        wide = len(word) == 1 and bool(_WIDE.match(word))
        if wide and before:
            found.add(before + word)
        elif not wide and (len(word) > 3 or (word.isdecimal() and len(word) > 1) or not word.isascii()):
            found.add(word if any(map(str.isdecimal, word)) else word[:5])
        before = word if wide else ""
    return found - _TOO_COMMON


def _cut_at_sentence(text: str, max_tokens: int, counter: TokenCounter) -> str:
    fitting = clip(text, max_tokens, counter)
    if len(fitting) == len(text):
        return text
    ends = [end.end() for end in _SENTENCE_END.finditer(fitting)]
    if ends and ends[-1] * 2 > len(fitting):
        return fitting[: ends[-1]].rstrip()
    space = fitting.rfind(" ")
    return (fitting[:space] if space * 2 > len(fitting) else fitting).rstrip()


# What a summary lacks

_DIGITS = re.compile(r"\d(?:[\d.,:/'’–T-]*\d)?")
_GROUPED = re.compile(r"(?<=\d)[,'’\u00a0\u202f](?=\d{3}(?!\d))")


def with_missing(summary: str, extract: Extract, *, max_tokens: int, counter: TokenCounter) -> str:
    """The summary, and behind it what it lacks of the decisions, open questions, paths, identifiers and numbers, with
    their handles, the most valuable first, as far as that fits. Unchanged if it lacks nothing.

    What only stood in a tool's result or a call's arguments counts if several messages have it.
    """
    folded = summary.casefold()
    numbers = set(_DIGITS.findall(_GROUPED.sub("", summary)))
    telling = _telling(_words(summary))

    def told(name: str, item: Item) -> bool:
        if name in ("questions", "decisions"):
            mine = _telling(_words(item.text))
            return len(mine & telling) * 2 >= len(mine) if mine else item.text.casefold() in folded
        if name == "numbers":
            return set(_DIGITS.findall(_GROUPED.sub("", item.text))) <= numbers
        return item.text.casefold() in folded

    wanted = [
        (name, item)
        for name, item in by_value(extract)
        if name in ("questions", "decisions") or (name in ("paths", "identifiers", "numbers") and item.worth > 1)
    ]
    missing = [(name, item) for name, item in wanted[: ALSO_MAX * 4] if not told(name, item)][:ALSO_MAX]

    def render(count: int) -> str:
        return f"{summary}\n\nAlso: {' | '.join(lines_of(missing[:count]))}" if count else summary

    return most_that_fit(len(missing), render, max_tokens, counter) or summary
