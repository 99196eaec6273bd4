"""Render messages and summary nodes as text of a bounded size, with the arguments that show the rest.

Pure functions of values; `domain.conversations.handles` reads the rows. Every line of a message or summary follows its
number and a bar (`12| text`), so that no message can imitate an answer's own line. Lines end at line feeds only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial

from perdure.core.errors import ToolError
from perdure.core.messages import Image, Message, Text, ToolCall, ToolResult
from perdure.core.nodes import SummaryNode, message_handle, node_handle
from perdure.core.ports import TokenCounter

CHARS_PER_TOKEN = 8  # more text than this can't fit, so it is not counted
NAME_CHARS = 40
SHARES = (3, 3, 6, 12)  # a message in a list gets at most 1/n of the answer; the next n is tried if nothing fits


@dataclass(frozen=True, slots=True)
class Budget:
    """The most tokens of an answer, counted by `counter`."""

    counter: TokenCounter
    tokens: int

    @property
    def chars(self) -> int:
        """The most characters of a text that may fit."""
        return max(0, self.tokens) * CHARS_PER_TOKEN

    def fits(self, text: str) -> bool:
        return self.counter.count(text) <= self.tokens

    def cut(self, text: str) -> str:
        """Return as much of the beginning as fits."""
        return text[: largest(min(len(text), self.chars), lambda chars: self.fits(text[:chars]))]


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number in [1, most] that fits, 0 if none does; the result was tried, whatever `fits` is."""
    if most > 0 and fits(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def render_first_fit(widths: Sequence[int], most: int, render: Callable[[int, int], str], budget: Budget) -> str | None:
    """Return `render(width, count)` for the first width at which an item fits, with as many items as fit; else None."""

    def fits(width: int, count: int) -> bool:
        """Whether the answer fits with texts of this width and so many entries."""
        return budget.fits(render(width, count))

    for width in widths:
        if count := largest(most, partial(fits, width)):
            return render(width, count)
    return None


@dataclass(frozen=True, slots=True)
class RowSpan:
    """The numbers [`first`, `last`]; None: no bound."""

    first: int | None = None
    last: int | None = None

    def within(self, first: int, last: int) -> tuple[int, int]:
        """Return the overlap with [first, last]; the first is larger than the last if there is none."""
        return max(first, self.first or 0), last if self.last is None else min(last, self.last)


@dataclass(frozen=True, slots=True)
class LineSpan:
    """The lines [`first`, `last`] of a message, from 1; with `from_char`, characters of one line."""

    first: int = 1
    last: int | None = None
    from_char: int | None = None
    upto_char: int | None = None


_SPAN = re.compile(r"(?P<one>\d{1,15})|(?P<first>\d{1,15})?(?:\.\.|-)(?P<last>\d{1,15})?", re.ASCII)


def parse_rows(text: str, argument: str = "rows", least: int = 0) -> RowSpan:
    """Parse a range of numbers from `least`, `20..30`. Raises: ToolError, which names the tool's `argument`."""
    return _span(text, argument, "20..30, 20.. or 20", least)


def parse_lines(text: str) -> LineSpan:
    """Parse lines `120..180`, or characters `3:500..900` of line 3. Raises: ToolError."""
    how = "120..180, 120.. or 120; 3:500..900 for characters of line 3"
    line, colon, chars = text.strip().strip("\"'`").partition(":")
    span = _span(line, "lines", how)
    if not colon:
        return LineSpan(span.first or 1, span.last)
    chars_span = _span(chars, "lines", how)
    if span.first is None or span.first != span.last:
        raise ToolError(f"lines={text[:40]!r} can't be used: write {how}")
    return LineSpan(span.first, span.first, chars_span.first or 1, chars_span.last)


def _span(text: str, argument: str, how: str, least: int = 1) -> RowSpan:
    """Parse `20..30`, `20..`, `..30` or `20`, from `least`. Raises: ToolError, naming `argument` and `how` to write."""
    plain = "".join(text.split()).strip("\"'`")
    match, problem = _SPAN.fullmatch(plain), "can't be used"
    if match is not None:
        ends = match["one"] or match["first"], match["one"] or match["last"]
        first, last = (None if end is None else int(end) for end in ends)
        if first is not None and last is not None and first > last:
            problem = "ends before it begins"
        elif plain.startswith("-"):
            problem = "can't be used: they are not counted from the end"
        elif any(end is not None and end < least for end in (first, last)):
            problem = f"can't be used: they are counted from {least}"
        else:
            return RowSpan(first, last)
    raise ToolError(f"{argument}={text[:40]!r} {problem}: write {how}")


@dataclass(frozen=True, slots=True)
class MessagePiece:
    """The text of a message's part, with the number of its first line; `tool`: the tool of a call or result."""

    text: str
    first_line: int
    tool: str | None = None
    is_call: bool = False


def pieces_of(message: Message) -> list[MessagePiece]:
    """Return a message's texts, pictures as lines, calls with arguments, and results, part by part."""
    parts = [part for part in message.parts if isinstance(part, (Text, Image, ToolCall, ToolResult))]
    pieces: list[MessagePiece] = []
    line = 1
    for part in parts:
        match part:
            case Text(text=text) | Image(text=text):
                piece = MessagePiece(text, line)
            case ToolCall():
                piece = MessagePiece(f"call {part.name}({part.arguments})", line, part.name, is_call=True)
            case ToolResult():
                text = part.text if len(parts) == 1 else f"result of {part.name}: {part.text}"
                piece = MessagePiece(text, line, part.name)
        pieces.append(piece)
        line += piece.text.count("\n") + 1
    return pieces


def body_of(message: Message) -> str:
    """Return the whole text of a message; the argument `lines` counts its lines."""
    return "\n".join(piece.text for piece in pieces_of(message))


def heading(message: Message, zone: tzinfo) -> str:
    """Return the heading of a message: `msg-17, tool, 2026-11-20 10:00, result of look`."""
    about = [message_handle(message.seq), message.role, _date(message.occurred_at, zone)]
    if results := message.results:
        about.append(f"result of {', '.join(' '.join(part.name.split())[:NAME_CHARS] for part in results[:3])}")
        if any(part.status == "error" for part in results):
            about.append("error")
    return ", ".join(about)


def _date(moment: datetime, zone: tzinfo) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M}"


def show_message(message: Message, span: LineSpan, budget: Budget, *, zone: tzinfo) -> str:
    """Render a message's lines, as many as fit. Raises: ToolError: there are no such lines."""
    body = body_of(message)
    lines = body.split("\n")
    check_lines(message, lines, span)
    title = f"{heading(message, zone)}; lines 1..{len(lines)}, {len(body):,} characters"
    for title_line in (title, ""):

        def render(excerpt: str, go_on: str, title_line: str = title_line) -> str:
            """Return the answer with an excerpt and the argument that continues it."""
            return _answer(title_line, excerpt, f'[Go on: lines="{go_on}"]' if go_on else "")

        if (answer := _excerpt(lines, span, render, budget)) is not None:
            return answer
    return budget.cut(f"{message_handle(message.seq)}: no line of it fits into {budget.tokens} tokens")


def check_lines(message: Message, lines: Sequence[str], span: LineSpan) -> None:
    """Check that the span begins within the text. Raises: ToolError."""
    if span.first > len(lines):
        raise ToolError(f"{message_handle(message.seq)} has lines 1..{len(lines)}, there is no line {span.first}")
    if span.from_char is not None and span.from_char > max(1, len(lines[span.first - 1])):
        raise ToolError(
            f"line {span.first} of {message_handle(message.seq)} has {len(lines[span.first - 1])} characters,"
            f" there is no character {span.from_char}"
        )


def _excerpt(lines: Sequence[str], span: LineSpan, render: Callable[[str, str], str], budget: Budget) -> str | None:
    """Return `render(excerpt, rest)` for as many numbered lines as fit, where `rest` is the `lines` argument that
    continues; None if nothing fits. A line too long to fit alone is shown in part."""
    first, last = span.first, len(lines) if span.last is None else min(span.last, len(lines))
    if span.from_char is None:
        numbered, chars = [], 0
        for number in range(first, last + 1):
            chars += len(lines[number - 1]) + 1
            if chars > budget.chars:
                break
            numbered.append(f"{number}| {lines[number - 1]}")

        def render_lines(count: int) -> str:
            """Return the answer with the first `count` lines."""
            go_on = f"{first + count}.." if first + count <= len(lines) else ""
            return render("\n".join(numbered[:count]), go_on)

        if count := largest(len(numbered), lambda count: budget.fits(render_lines(count))):
            return render_lines(count)
    line, begin = lines[first - 1], span.from_char or 1
    window = line[begin - 1 : begin - 1 + budget.chars if span.upto_char is None else span.upto_char][: budget.chars]

    def render_part(count: int) -> str:
        """Return the answer with the first `count` characters of a line that is too long."""
        if begin + count <= len(line):
            go_on = f"{first}:{begin + count}.."
        else:
            go_on = f"{first + 1}.." if first < len(lines) else ""
        mark = f"{first}:{begin}..{begin + count - 1} of {len(line)}| "
        return render(mark + window[:count], go_on)

    if not window and span.from_char is not None:  # characters of an empty line
        go_on = f"{first + 1}.." if first < len(lines) else ""
        return answer if budget.fits(answer := render(f"{first}| ", go_on)) else None
    count = largest(len(window), lambda count: budget.fits(render_part(count)))
    return render_part(count) if count else None


def list_messages(
    title: str, messages: Sequence[Message], render_rest: Callable[[int], str], budget: Budget, *, zone: tzinfo
) -> str:
    """Render messages one after the other, as many as fit; a long one is cut, with the arguments that continue it.
    `render_rest`: number of messages shown -> the line about the rest, which is the whole answer if none fits."""
    for index, share in enumerate(SHARES):
        heading_line = title if index == 0 else ""
        part = Budget(budget.counter, budget.tokens // share)
        entries: list[str] = []
        tokens = budget.counter.count(heading_line)
        for message in messages:
            entries.append(_entry(message, part, zone))
            tokens += budget.counter.count(entries[-1]) + 1
            if tokens > budget.tokens:
                break
        for count in range(len(entries), 0, -1):
            if budget.fits(answer := _answer(heading_line, *entries[:count], render_rest(count))):
                return answer
    return budget.cut(render_rest(0))


def _entry(message: Message, budget: Budget, zone: tzinfo) -> str:
    """Render one message of a list within a budget of its own."""
    handle, above = message_handle(message.seq), heading(message, zone)

    def render(excerpt: str, go_on: str) -> str:
        """Return one entry of the list with an excerpt and the argument that continues it."""
        return _answer(above, excerpt, f'[goes on: handle="{handle}", lines="{go_on}"]' if go_on else "")

    lines = body_of(message).split("\n")
    return _excerpt(lines, LineSpan(), render, budget) or f"{handle}, {message.role}: cut, open {handle}"


def rest_hint(first: int, last: int, middle: int | None, handle: Callable[[int, int], str]) -> str:
    """Return the line about the rest [first, last]: its handle, and those of its halves, the second from `middle`."""
    whole = handle(first, last)
    if middle is None or not first < middle <= last:
        return f"[Left out: {whole}]"
    return f"[Left out: {whole}; or in parts: {handle(first, middle - 1)}, {handle(middle, last)}]"


def list_nodes(
    title: str, nodes: Sequence[SummaryNode], budget: Budget, *, zone: tzinfo, about: Callable[[SummaryNode], str]
) -> str:
    """Render summary nodes with their texts if these fit; else with a shorter text, `about(node)`; else only their
    handles. If not even all handles fit, the answer names the `rows` argument that lists the rest."""

    def entry(node: SummaryNode, width: int | None) -> str:
        """Return a node with so many characters about it; 0: its handles alone, None: its whole text."""
        handles = f"{node_handle(node.seq)}: {message_handle(node.from_message_seq, node.upto_message_seq)}"
        if width == 0:
            return handles
        dates = f"{_date(node.since, zone)} to {_date(node.until, zone)}"
        if width is None:
            return f"{handles}, {dates}\n" + "\n".join(f"| {line}" for line in node.text.split("\n"))
        text = about(node)
        return f"{handles}, {dates}\n| {text if len(text) <= width else text[:width] + '…'}"

    whole = sum(len(node.text) for node in nodes) <= budget.chars
    for width in (None, 400, 120, 40, 0):
        if width is None and not whole:
            continue
        if budget.fits(answer := _answer(title, *(entry(node, width) for node in nodes))):
            return answer

    def rows(first: int, last: int) -> str:
        """Return the `rows` argument for a range of entries."""
        return f'rows="{first}"' if first == last else f'rows="{first}..{last}"'

    def render_handles(with_title: int, count: int) -> str:
        """Return the title if it is 1, the handles of the first `count` nodes without their texts, and a line about the
        others."""
        rest = nodes[count:]
        middle = rest[len(rest) // 2].seq if rest else None
        left = rest_hint(rest[0].seq, rest[-1].seq, middle, rows) if rest else ""
        return _answer(title if with_title else "", *(entry(node, width=0) for node in nodes[:count]), left)

    return render_first_fit((1, 0), len(nodes), render_handles, budget) or budget.cut(title)


def _answer(*paragraphs: str) -> str:
    return "\n".join(filter(None, paragraphs))
