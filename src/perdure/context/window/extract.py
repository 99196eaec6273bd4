"""Extract statements, decisions, open questions, identifiers, paths, numbers and names from messages by patterns.

A model's summary is checked against the extract; without a model the extract is the summary. Every pattern runs in
time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Final

from perdure.context.sections.expand import largest
from perdure.core.messages import Message, Text, ToolCall, ToolResult
from perdure.core.models import without_notice
from perdure.core.nodes import message_handle
from perdure.core.ports import TokenCounter
from perdure.core.text.tables import read_table
from perdure.core.text.words import SPACELESS

SENTENCE_CHARS = 240  # a longer sentence is cut
PROSE_CHARS = 60_000  # of a longer text only both ends are searched for sentences and names
TOKENS_PER_PART = 24_000  # different words of one part; of more, those at both ends
FOUND_PER_PART = 60  # items of one kind in one part; of more, those at both ends


@dataclass(frozen=True, slots=True)
class Item:
    """One extracted item: `text` stands word for word in a text, in call arguments or in a result of message `seq`.

    `worth`: 3 from a user, 2 from the agent, 1 from a call's arguments, 0 from a result; one more if several messages
    have it (then `seq` is the first of them).
    """

    seq: int
    text: str
    worth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """The extracted items by field, in the order of the messages, no text twice within a field.

    Args:
        tasks: what the last request of a user asks for, in its first sentence.
        statements: the first sentence of each user message, and what users say about themselves.
        decisions: sentences with an agreement or a promise.
        questions: questions of users without an answer, and open tasks.
        identifiers: ids, hashes, names from code, e-mail and web addresses.
        numbers: with unit, or the words next to them; dates, times and versions too.
        names: capitalised words within a sentence; in scripts that have capitals.
        replies: the first sentence of each answer of the agent.
    """

    tasks: tuple[Item, ...] = ()
    statements: tuple[Item, ...] = ()
    decisions: tuple[Item, ...] = ()
    questions: tuple[Item, ...] = ()
    identifiers: tuple[Item, ...] = ()
    paths: tuple[Item, ...] = ()
    numbers: tuple[Item, ...] = ()
    names: tuple[Item, ...] = ()
    replies: tuple[Item, ...] = ()


# Field -> its weight when room is short. A text of two fields counts for the first.
_FIELDS = ("tasks", "questions", "decisions", "statements", "paths", "identifiers", "numbers", "names", "replies")
_WEIGHTS = dict(zip(_FIELDS, (4.7, 4, 4.5, 5, 3, 3, 3, 1, 1), strict=True))
_SENTENCES = {"tasks": "task", "questions": "open", "decisions": "decided", "statements": "user", "replies": "agent"}

_END = re.compile(
    r"[.!?…]{1,6}[\"'”’»)\]]{0,3}(?=\s|$)|[。！？｡؟۔।]{1,6}[\"'”’）」』]{0,3}|[\n\r\x0b\x0c\x85\u2028\u2029]+"
)
PHRASES: Final = read_table(__file__, "phrases.toml")
_ABBREVIATED = tuple(PHRASES["abbreviated"]["words"])
_QUESTION = re.compile(r"[?？؟][\"'”’»)\]）」』]{0,3}$")
_GREETING = 14  # characters; a shorter first sentence counts only if it is the only one

_WORDS, _SPACELESS_WORDS = (
    {name: "|".join(table.get(key, ())) for name, table in PHRASES.items()} for key in ("words", "spaceless")
)
# All but `_TO_DO` match lower-case text: ignoring case takes three times as long.
_DECISION, _DECISION_SPACELESS = re.compile(rf"\b(?:{_WORDS['decision']})"), re.compile(_SPACELESS_WORDS["decision"])
_TO_DO = re.compile(rf"\b(?:{_WORDS['to_do']})|{_SPACELESS_WORDS['to_do']}")
_ABOUT_SELF = re.compile(rf"\b(?:{_WORDS['about_self']})\b|{_SPACELESS_WORDS['about_self']}")
_DEFERRAL = re.compile(rf"\b(?:{_WORDS['deferral']})|{_SPACELESS_WORDS['deferral']}")

_TOKEN = re.compile(r"[A-Za-z0-9_./\\~@:#%&?=+$-]{3,}")
_WIDE_PATH = re.compile(r"(?:~|[A-Za-z]:)?(?:[/\\][\w.+-]{1,80}){2,20}")
_ESCAPED = re.compile(r"\\(?:[nrtbf\"]|u[0-9a-fA-F]{4})")  # in a call's arguments, which are JSON
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,15}://[^/].+")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w", re.ASCII)
_PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.@~+#%$-].*", re.ASCII)
_DATE_OR_RATIO = re.compile(r"[\d/:.+-]+")
_FILE = re.compile(
    r"[\w.+-]*\w\.(?:py|[jt]sx?|json|ya?ml|toml|ini|cfg|md|txt|rst|[ct]sv|xlsx?|docx?|pptx?|pdf|html?|css|sql|sh|rs|go|[ch]"
    r"|[ch]pp|java|kt|rb|php|log|xml|png|jpe?g|gif|svg|webp|zip|gz|tar|mp[34]|wav|db|lock|env|ipynb|parquet)(?::\d+)*",
    re.ASCII,
)
_CODE = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]+)+|\w*[a-z]\w*[A-Z]\w*|\w+_\w+", re.ASCII)
_CODED = re.compile(r"#\d+|(?=[A-Za-z\d#_-]*\d)(?=[\d#_-]*[A-Za-z])[A-Za-z\d#][A-Za-z\d_.:#-]*[A-Za-z\d]", re.ASCII)
_MEASURE = re.compile(r"v?\d[\d.,:/x-]*(?:[A-Za-z]{0,4}|T[\d:.+-]+Z?)", re.ASCII)
_EXTENSION_END = re.compile(r"(.*\.[A-Za-z0-9]{1,5})[^\x00-\x7f]+")

_NUMBER = re.compile(r"\d(?:[\d.,:/'’–T-]{0,30}\d)?")
_BEFORE = re.compile(
    rf"(?:(?:[^\W\d]\w{{0,24}}(?: |['\"]?[:=] ?['\"]?)){{1,2}}|[{SPACELESS}]{{1,6}})?[vV$€£¥₹₽₩#~≈±+-]? ?$"
)
_AFTER = re.compile(
    rf"(?: ?(?:[%‰$€£¥₹₽₩]|°[CF]?))?"
    rf"(?:[{SPACELESS}]{{1,4}}|[ -]?(?![{SPACELESS}])[^\W\d_]{{1,20}}(?: [^\W\d_]{{1,20}})?)?"
)
_SPACELESS_ONE = re.compile(f"[{SPACELESS}]")

_UPPER = "A-ZÀ-ÖØ-ÞĀ-žΑ-ΫЀ-Я"
_CASED = "A-Za-zÀ-ɏΆ-ώЀ-ӿ"
_NAME_WORD = rf"[{_UPPER}][{_CASED}]{{1,30}}(?:['’-][{_CASED}]{{1,30}}){{0,3}}"
_NAME = re.compile(
    rf"{_NAME_WORD}(?: (?:(?:de|da|di|du|del|la|le|van|von|der|den|of|bin|al) ){{0,2}}{_NAME_WORD}){{0,4}}"
)
_NO_NAMES = frozenset({"I'm", "I'll", "I've", "I'd", "I’m", "I’ll", "I’ve", "I’d", "OK", "The", "This", "That", "TODO"})


class _Collector:
    """Collects the items of one field, in order, each text once."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}  # by text
        self._repeated: set[str] = set()  # texts of several messages

    def add(self, seq: int, text: str, worth: int) -> None:
        """Add a text of a message; a repeated text only gains a little worth."""
        item = self._items.get(text)
        if item is None:
            self._items[text] = Item(seq, text, worth)
        elif item.seq != seq:
            best = max(item.worth - (text in self._repeated), worth) + 1
            self._repeated.add(text)
            if best > item.worth:
                self._items[text] = Item(item.seq, text, best)

    def items(self) -> tuple[Item, ...]:
        """Return the items in the order of their first appearance."""
        return tuple(self._items.values())


def extract(texts: Sequence[Message]) -> Extract:
    """Extract the items of these messages, in order. Engine messages and reasoning are skipped."""
    collectors = {field.name: _Collector() for field in fields(Extract)}
    open_questions: list[tuple[int, str]] = []  # not answered yet
    deferred: list[tuple[int, str]] = []  # answered with "I'll have a look"
    task: tuple[int, str] | None = None
    for message in texts:
        if message.kind != "message":
            continue
        seq = message.seq
        for part in message.parts:
            match part:
                case Text(text=text):
                    by_user = message.role == "user"
                    text = text if by_user else without_notice(text)
                    worth = 3 if by_user else 2
                    _add_details(collectors, seq, text, worth)
                    sentences = [one for end in _ends(text, PROSE_CHARS) for one in sentences_of(end)]
                    _add_sentences(collectors, seq, sentences, worth)
                    for name in _limit(_names(text)):
                        collectors["names"].add(seq, name, worth)
                    if by_user:
                        task = next(((seq, one) for one in sentences if _is_long(one)), task)
                        open_questions += [
                            (seq, cut) for one in sentences if _QUESTION.search(one) and (cut := _quote(one, -1))
                        ]
                    elif message.role == "assistant" and sentences:
                        if _DEFERRAL.search(" ".join(sentences[:4])[:600].lower()):
                            deferred += open_questions
                        open_questions = []
                case ToolCall(arguments=arguments):
                    _add_details(collectors, seq, _ESCAPED.sub(lambda one: "\n" * len(one[0]), arguments), 1)
                case ToolResult(text=text):
                    _add_details(collectors, seq, text, 0)
    for seq, question in (*deferred, *open_questions):
        collectors["questions"].add(seq, question, 3)
    if task is not None:
        collectors["tasks"].add(task[0], task[1][:SENTENCE_CHARS].rstrip(), 3)
    items = {name: one.items() for name, one in collectors.items()}
    said = {item.text: item.seq for item in items["statements"]}  # a sentence that was said before is no news
    items["tasks"] = tuple(item for item in items["tasks"] if said.get(item.text, item.seq) == item.seq)
    items["questions"] = tuple(sorted(items["questions"], key=lambda item: item.seq))
    return Extract(**items)


def _add_sentences(collectors: dict[str, _Collector], seq: int, sentences: Sequence[str], worth: int) -> None:
    """Collect statements, decisions, tasks and replies from the sentences of one text."""
    by_user = worth == 3
    is_long = list(map(_is_long, sentences))
    first = is_long.index(True) if True in is_long else 0
    self_count = 0
    for index, one in enumerate(sentences):
        lower = one.lower()
        if index == first:
            collectors["statements" if by_user else "replies"].add(seq, one[:SENTENCE_CHARS].rstrip(), worth)
        elif by_user and self_count < 3 and _ABOUT_SELF.search(lower):
            self_count += 1
            collectors["statements"].add(seq, one[:SENTENCE_CHARS].rstrip(), worth)
        if _QUESTION.search(one) is None and (match := _DECISION.search(lower) or _DECISION_SPACELESS.search(one)):
            collectors["decisions"].add(seq, _quote(one, match.start()), worth)
        if to_do := _TO_DO.search(one):
            collectors["questions"].add(seq, _quote(one, to_do.start()), worth)


def _is_long(sentence: str) -> bool:
    """Return whether a sentence is more than a greeting."""
    return len(sentence) > _GREETING or bool(_SPACELESS_ONE.search(sentence))


def _quote(sentence: str, index: int) -> str:
    """Return the sentence, or the piece of a long one around position `index`; -1: its end."""
    if len(sentence) <= SENTENCE_CHARS:
        return sentence
    start = len(sentence) - SENTENCE_CHARS if index < 0 else 0 if index < SENTENCE_CHARS // 2 else index
    return sentence[start : start + SENTENCE_CHARS].strip()


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text with their marks, in order, none empty; a line's end ends a sentence too."""
    start = 0
    for end in _END.finditer(text):
        if end[0] == "." and text[max(0, end.end() - 6) : end.end()].endswith(_ABBREVIATED):
            continue
        if sentence := text[start : end.end()].strip():
            yield sentence
        start = end.end()
    if rest := text[start:].strip():
        yield rest


def _ends(text: str, limit_chars: int) -> tuple[str, ...]:
    """Return the text, or the beginning and end of a longer one, cut at spaces if any are near."""
    if len(text) <= limit_chars:
        return (text,)
    head = text[: limit_chars * 2 // 3]
    tail = text[len(head) - limit_chars :]
    return head[: head.find(" ", -80) % len(head) + 1], tail[max(0, tail.find(" ", 0, 80)) :]


def _limit(texts: Iterable[str]) -> Sequence[str]:
    """Return the texts, each once; of more than `FOUND_PER_PART`, those at both ends."""
    unique = list(dict.fromkeys(texts))
    tail = FOUND_PER_PART // 3
    return unique if len(unique) <= FOUND_PER_PART else unique[: FOUND_PER_PART - tail] + unique[-tail:]


def _add_details(collectors: dict[str, _Collector], seq: int, text: str, worth: int) -> None:
    """Collect the identifiers, paths and numbers of one text."""
    paths: list[str] = []
    identifiers: list[str] = []
    rest = text
    if not text.isascii() and ("/" in text or "\\" in text):
        wide = dict.fromkeys(one for one in _WIDE_PATH.findall(text) if not one.isascii())
        paths += [cut[1] if (cut := _EXTENSION_END.fullmatch(one)) else one for one in wide]
        rest = _WIDE_PATH.sub(lambda one: one[0] if one[0].isascii() else " ", text)
    tokens = list(dict.fromkeys(_TOKEN.findall(rest)))
    if len(tokens) > TOKENS_PER_PART:
        tokens[TOKENS_PER_PART // 2 : -TOKENS_PER_PART // 2] = ()
    for token in tokens:
        # A text may have a megabyte of words: most are plain and end here.
        if token.isalpha() and (token.islower() or token[1:].islower() or token.isupper()):
            continue
        pieces = (token,) if "://" in token else re.split("[=&?]", token) if len(token) < 2_000 else ()
        for piece in pieces:
            stripped = piece.strip(":=?&%+").rstrip(".:#-\\@$")
            if 3 <= len(stripped) <= 300:
                kind = _kind(stripped)
                if kind is not None:
                    (paths if kind == "paths" else identifiers).append(stripped)
    for one in _limit(paths):
        collectors["paths"].add(seq, one, worth)
    for one in _limit(identifiers):
        collectors["identifiers"].add(seq, one, worth)
    for end in _ends(text, PROSE_CHARS if worth >= 2 else PROSE_CHARS // 3):
        for one in islice(_numbers(end, keep_plain=worth >= 2), FOUND_PER_PART):
            collectors["numbers"].add(seq, one, worth)


def specific_names(text: str) -> Sequence[str]:
    """Return the paths, addresses, and identifiers with a digit that a text names, in order, each once."""
    names = dict.fromkeys(stripped for token in _TOKEN.findall(text) if (stripped := token.strip(":=?&%+.#-\\@$")))
    kinds = {name: _kind(name) for name in names if 3 <= len(name) <= 300}
    return [
        name
        for name, kind in kinds.items()
        if (kind == "paths" and not name.replace("/", "").isalpha())
        or (kind == "identifiers" and (any(map(str.isdecimal, name)) or "@" in name or "://" in name))
    ]


def _kind(token: str) -> str | None:
    """Return `paths`, `identifiers`, or None for a plain word, a number, or data."""
    if "://" in token:
        return "identifiers" if _ADDRESS.fullmatch(token) else None
    if len(token) > 160:
        return None
    if "/" in token or "\\" in token:
        if _DATE_OR_RATIO.fullmatch(token):
            return None
        is_path = _PATH.fullmatch(token) or _FILE.search(token) or token.count("/") > 1
        return "paths" if is_path and any(map(str.isalpha, token)) else None
    if "@" in token:
        return "identifiers" if _EMAIL.fullmatch(token) else None
    if _FILE.fullmatch(token):
        return "paths"
    if _MEASURE.fullmatch(token):
        return None
    return "identifiers" if _CODE.fullmatch(token) or _CODED.fullmatch(token) else None


def _numbers(text: str, *, keep_plain: bool) -> Iterator[str]:
    """Yield numbers with the words next to them; numbers alone only if `keep_plain`; no parts of identifiers."""
    last_end = 0
    for match in _NUMBER.finditer(text):
        start, end = match.span()
        if start < last_end:
            continue
        before, earlier = text[start - 1 : start], text[start - 2 : start - 1] if start > 1 else ""
        version = before in ("v", "V") and not earlier.isalnum()
        if not version and (before.isalnum() or before == "_") and not _SPACELESS_ONE.match(before):
            continue
        if text[end : end + 1].isdigit():  # too long a row of digits to be a number
            continue
        if before and before in "-/.\\#@" and earlier.isalpha() and not _SPACELESS_ONE.match(earlier):
            continue
        if (not before or before == "\n") and text[end : end + 2] in (". ", ") "):
            continue
        window = max(last_end, start - 48)
        if "://" in text[window:start].rpartition(" ")[2]:
            continue
        prefix = _BEFORE.search(text[window:start])
        suffix = _AFTER.match(text, end)
        begin = window + prefix.start() if prefix else start
        stop = suffix.end() if suffix else end
        if text[stop : stop + 1].isdigit() or text[stop : stop + 1] == "_":
            if stop > end and text[end].isalpha():
                continue  # letters and digits by turns: a hash
            stop = end
        last_end = stop
        piece = text[begin:stop].strip()
        if keep_plain or len(piece) > end - start:
            yield piece


def _names(text: str) -> Iterator[str]:
    """Yield capitalised words that do not open a sentence."""
    for end in _ends(text, PROSE_CHARS):
        for match in _NAME.finditer(end):
            start, name = match.start(), match[0]
            before = end[start - 1 : start]
            within = before == " " and start > 1 and (end[start - 2].isalnum() or end[start - 2] in ",;)%'’")
            if not within and not _SPACELESS_ONE.match(before):
                continue
            if name not in _NO_NAMES and name[0].isupper() and (len(name) > 3 or not name.isupper()):
                yield name


def spread_order(count: int) -> list[int]:
    """Return 0..count-1 in an order that spreads over the whole: both ends, the middle, the quarters, and so on."""
    order = list(dict.fromkeys((0, count - 1))) if count > 0 else []
    gaps = [(0, count - 1)]
    for first, last in gaps:  # grows while it is walked, widest gaps first
        if last - first > 1:
            middle = (first + last) // 2
            order.append(middle)
            gaps += [(first, middle), (middle, last)]
    return order


def clip(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return the longest beginning of a text that fits."""
    if counter.count(text) <= max_tokens:
        return text
    most = min(len(text), max(0, max_tokens) * 40)
    return text[: largest(most, lambda chars: counter.count(text[:chars]) <= max_tokens)]


def render_most(count: int, render: Callable[[int], str], max_tokens: int, counter: TokenCounter) -> str:
    """Return `render(n)` for the largest n up to `count` that fits; empty if none does."""
    best = largest(count, lambda n: counter.count(render(n)) <= max_tokens)
    return render(best) if best else ""


def render_extract(extract: Extract, *, max_tokens: int, counter: TokenCounter) -> str:
    """Render the most valuable items as lines with the handles of their messages; empty if nothing fits. User
    statements, decisions and open questions come first, then details by message, then the agent's replies."""
    order = rank_items(extract)[: max(0, max_tokens)]

    def render(count: int) -> str:
        """Return the first `count` items as lines."""
        return "\n".join(render_items(order[:count]))

    return render_most(len(order), render, max_tokens, counter) or clip(render(1), max_tokens, counter).strip()


def rank_items(extract: Extract) -> list[tuple[str, Item]]:
    """Return (field, item), the most valuable first: fields in turn, in each the highest worth, spread over the log."""
    ranked: list[tuple[float, str, Item]] = []
    seen: set[tuple[int, str]] = set()
    for name, weight in _WEIGHTS.items():
        items: Sequence[Item] = getattr(extract, name)
        items = [item for item in items if (item.seq, item.text) not in seen]
        seen.update((item.seq, item.text) for item in items)
        places = sorted(spread_order(len(items)), key=lambda index: -items[index].worth)
        for rank, index in enumerate(places, 1):
            ranked.append((rank / weight * (2 if items[index].worth == 0 else 1), name, items[index]))
    return [(name, item) for _, name, item in sorted(ranked, key=lambda one: one[0])]


def render_items(chosen: Sequence[tuple[str, Item]], handle: Callable[[int], str] = message_handle) -> list[str]:
    """Render (field, item) as lines: one per sentence; details of a message on one. Each begins with a handle."""
    sentences: dict[str, list[tuple[int, str]]] = {name: [] for name in _SENTENCES}
    details: dict[int, list[str]] = {}
    sentence_texts: dict[int, list[str]] = {}
    for name, item in chosen:
        if name in sentences:
            sentences[name].append((item.seq, one_line(item.text)))
            sentence_texts.setdefault(item.seq, []).append(item.text)
    for name, item in chosen:
        if name not in sentences and not any(item.text in one for one in sentence_texts.get(item.seq, ())[:20]):
            details.setdefault(item.seq, []).append(one_line(item.text))
    sentence_lines = {
        name: [f"{handle(seq)} {_SENTENCES[name]}: {text}" for seq, text in sorted(lines)]
        for name, lines in sentences.items()
    }
    detail_lines = [f"{handle(seq)}: {'; '.join(texts)}" for seq, texts in sorted(details.items())]
    return [
        *sentence_lines["statements"],
        *sentence_lines["decisions"],
        *sentence_lines["questions"],
        *sentence_lines["tasks"],
        *detail_lines,
        *sentence_lines["replies"],
    ]


def one_line(text: str) -> str:
    """Return a text with single spaces in place of all white space."""
    return " ".join(text.split())
