"""What is out of view, opened: messages and summary nodes as text of a bounded size, each answer naming the arguments
that show the rest.

Pure functions of values; `domain.conversations.handles` reads the rows. Every line of a message or summary stands
behind its number and a bar (`12| text`), so nothing that was said can pass for an answer's own line. A message's lines
end at line feeds only: all other characters are shown as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial

from perdure.core.errors import ToolError
from perdure.core.messages import Message, Reasoning, Text, ToolCall, ToolResult
from perdure.core.nodes import SummaryNode, message_handle, node_handle
from perdure.core.ports import TokenCounter

__all__ = [
    "SHARES",
    "Budget",
    "Lines",
    "Piece",
    "Span",
    "body_of",
    "check_lines",
    "first_fitting",
    "heading",
    "largest",
    "left_out",
    "list_messages",
    "list_nodes",
    "parse_lines",
    "parse_rows",
    "pieces_of",
    "show_message",
]

CHARS_PER_TOKEN = 8  # more text than this cannot fit, so it need not be counted
NAME_CHARS = 40
SHARES = (3, 3, 6, 12)  # a message in a list gets at most this part of the answer; less when nothing would fit


@dataclass(frozen=True, slots=True)
class Budget:
    """How large an answer may be, as `counter` counts it."""

    counter: TokenCounter
    tokens: int

    @property
    def chars(self) -> int:
        """No text that fits is taken to be longer."""
        return max(0, self.tokens) * CHARS_PER_TOKEN

    def fits(self, text: str) -> bool:
        return self.counter.count(text) <= self.tokens

    def cut(self, text: str) -> str:
        """As much of the beginning as fits."""
        return text[: largest(min(len(text), self.chars), lambda chars: self.fits(text[:chars]))]


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number in [1, most] that fits, 0 if none does; what is returned was tried, whatever `fits` is."""
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


def first_fitting(widths: Sequence[int], most: int, render: Callable[[int, int], str], budget: Budget) -> str | None:
    """What `render` makes of a width and a number of things, as many as fit with the first width with which one does;
    None if none does with any."""

    def fits(width: int, count: int) -> bool:
        return budget.fits(render(width, count))

    for width in widths:
        if count := largest(most, partial(fits, width)):
            return render(width, count)
    return None


# -- arguments ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """The numbers [`first`, `last`]; None: no bound."""

    first: int | None = None
    last: int | None = None

    def within(self, first: int, last: int) -> tuple[int, int]:
        """What of [first, last] it covers; the first is larger than the last if nothing."""
        return max(first, self.first or 0), last if self.last is None else min(last, self.last)


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines [`first`, `last`] of a message, from 1; with `from_char` the characters from there on of one line."""

    first: int = 1
    last: int | None = None
    from_char: int | None = None
    upto_char: int | None = None


_SPAN = re.compile(r"(?P<one>\d{1,15})|(?P<first>\d{1,15})?(?:\.\.|-)(?P<last>\d{1,15})?", re.ASCII)


def parse_rows(text: str) -> Span:
    """Numbers of messages or nodes, `20..30`. Raises: ToolError."""
    return _span(text, "rows", "20..30, 20.. or 20")


def parse_lines(text: str) -> Lines:
    """Lines `120..180`, or characters `3:500..900` of line 3. Raises: ToolError."""
    how = "120..180, 120.. or 120; 3:500..900 for characters of line 3"
    line, colon, chars = text.strip().strip("\"'`").partition(":")
    span = _span(line, "lines", how)
    if not colon:
        return Lines(max(1, span.first or 1), span.last)
    within = _span(chars, "lines", how)
    if span.first is None or span.first != span.last:
        raise ToolError(f"lines={text[:40]!r} can't be used: write {how}")
    return Lines(max(1, span.first), max(1, span.first), max(1, within.first or 1), within.last)


def _span(text: str, argument: str, how: str) -> Span:
    found = _SPAN.fullmatch("".join(text.split()).strip("\"'`"))
    if found is None:
        raise ToolError(f"{argument}={text[:40]!r} can't be used: write {how}")
    if (one := found["one"]) is not None:
        return Span(int(one), int(one))
    first, last = (None if end is None else int(end) for end in (found["first"], found["last"]))
    if first is not None and last is not None and first > last:
        raise ToolError(f"{argument}={text[:40]!r} ends before it begins: write {how}")
    return Span(first, last)


# -- the text of a message ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of a message's part, and the line of the message's text that it begins with; `tool`: whose call or
    result it is."""

    text: str
    first_line: int
    tool: str | None = None
    called: bool = False


def pieces_of(message: Message) -> list[Piece]:
    """What a message says, part by part: texts, calls with their arguments, results. Reasoning is left out."""
    parts = [part for part in message.parts if not isinstance(part, Reasoning)]
    pieces: list[Piece] = []
    line = 1
    for part in parts:
        match part:
            case Text(text=text):
                piece = Piece(text, line)
            case ToolCall():
                piece = Piece(f"call {part.name}({part.arguments})", line, part.name, called=True)
            case ToolResult():
                text = part.text if len(parts) == 1 else f"result of {part.name}: {part.text}"
                piece = Piece(text, line, part.name)
        pieces.append(piece)
        line += piece.text.count("\n") + 1
    return pieces


def body_of(message: Message) -> str:
    """The whole text of a message, whose lines `lines` counts."""
    return "\n".join(piece.text for piece in pieces_of(message))


def heading(message: Message, zone: tzinfo) -> str:
    """`msg-17, tool, 2026-11-20 10:00, result of look`."""
    about = [message_handle(message.seq), message.role, _date(message.occurred_at, zone)]
    if results := message.results:
        about.append(f"result of {', '.join(_name(part.name) for part in results[:3])}")
        if any(part.status == "error" for part in results):
            about.append("error")
    return ", ".join(about)


def _name(name: str) -> str:
    return " ".join(name.split())[:NAME_CHARS]


def _date(moment: datetime, zone: tzinfo) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M}"


# -- messages ----------------------------------------------------------------------------------------------------------


def show_message(message: Message, span: Lines, budget: Budget, *, zone: tzinfo) -> str:
    """A message's lines, as many as fit. Raises: ToolError: there are no such lines."""
    body = body_of(message)
    lines = body.split("\n")
    check_lines(message, lines, span)
    title = f"{heading(message, zone)}; lines 1..{len(lines)}, {len(body):,} characters"
    for above in (title, ""):

        def render(shown: str, go_on: str, above: str = above) -> str:
            return _answer(above, shown, f'[Go on: lines="{go_on}"]' if go_on else "")

        if (answer := _excerpt(lines, span, render, budget)) is not None:
            return answer
    return budget.cut(f"{message_handle(message.seq)}: no line of it fits into {budget.tokens} tokens")


def check_lines(message: Message, lines: Sequence[str], span: Lines) -> None:
    """Nothing, when the span begins within the text. Raises: ToolError."""
    if span.first > len(lines):
        raise ToolError(f"{message_handle(message.seq)} has lines 1..{len(lines)}, there is no line {span.first}")
    if span.from_char is not None and span.from_char > max(1, len(lines[span.first - 1])):
        raise ToolError(
            f"line {span.first} of {message_handle(message.seq)} has {len(lines[span.first - 1])} characters,"
            f" there is no character {span.from_char}"
        )


def _excerpt(lines: Sequence[str], span: Lines, render: Callable[[str, str], str], budget: Budget) -> str | None:
    """What `render` makes of the numbered lines that fit and of the argument that goes on; None if nothing fits.

    A line that does not fit by itself is shown in part.
    """
    first, last = span.first, len(lines) if span.last is None else min(span.last, len(lines))
    if span.from_char is None:
        numbered, chars = [], 0
        for number in range(first, last + 1):
            chars += len(lines[number - 1]) + 1
            if chars > budget.chars:
                break
            numbered.append(f"{number}| {lines[number - 1]}")

        def shown(count: int) -> str:
            go_on = f"{first + count}.." if first + count <= len(lines) else ""
            return render("\n".join(numbered[:count]), go_on)

        if count := largest(len(numbered), lambda count: budget.fits(shown(count))):
            return shown(count)
    line, begin = lines[first - 1], span.from_char or 1
    window = line[begin - 1 : begin - 1 + budget.chars if span.upto_char is None else span.upto_char][: budget.chars]

    def part(count: int) -> str:
        if begin + count <= len(line):
            go_on = f"{first}:{begin + count}.."
        else:
            go_on = f"{first + 1}.." if first < len(lines) else ""
        mark = f"{first}:{begin}..{begin + count - 1} of {len(line)}| "
        return render(mark + window[:count], go_on)

    if not window and span.from_char is not None:  # an empty line, asked for by its characters
        go_on = f"{first + 1}.." if first < len(lines) else ""
        return answer if budget.fits(answer := render(f"{first}| ", go_on)) else None
    count = largest(len(window), lambda count: budget.fits(part(count)))
    return part(count) if count else None


def list_messages(
    title: str, messages: Sequence[Message], left: Callable[[int], str], budget: Budget, *, zone: tzinfo
) -> str:
    """Messages one after the other, as many as fit; a long one is cut and says how to go on.

    Args:
        left: what to say of the rest when so many are shown. If not one can be, it is all that is said.
    """
    for index, share in enumerate(SHARES):
        titled = title if index == 0 else ""
        part = Budget(budget.counter, budget.tokens // share)
        entries: list[str] = []
        spent = budget.counter.count(titled)
        for message in messages:
            entries.append(_entry(message, part, zone))
            spent += budget.counter.count(entries[-1]) + 1
            if spent > budget.tokens:
                break
        for count in range(len(entries), 0, -1):
            if budget.fits(answer := _answer(titled, *entries[:count], left(count))):
                return answer
    return budget.cut(left(0))


def _entry(message: Message, budget: Budget, zone: tzinfo) -> str:
    handle, above = message_handle(message.seq), heading(message, zone)

    def render(shown: str, go_on: str) -> str:
        return _answer(above, shown, f'[goes on: handle="{handle}", lines="{go_on}"]' if go_on else "")

    lines = body_of(message).split("\n")
    return _excerpt(lines, Lines(), render, budget) or f"{handle}, {message.role}: cut, open {handle}"


def left_out(first: int, last: int, middle: int | None, handle: Callable[[int, int], str]) -> str:
    """The line that says how to open the rest [first, last], as a whole or by its halves, the second from `middle`."""
    rest = handle(first, last)
    if middle is None or not first < middle <= last:
        return f"[Left out: {rest}]"
    return f"[Left out: {rest}; or in parts: {handle(first, middle - 1)}, {handle(middle, last)}]"


# -- nodes -------------------------------------------------------------------------------------------------------------


def list_nodes(
    title: str, nodes: Sequence[SummaryNode], budget: Budget, *, zone: tzinfo, about: Callable[[SummaryNode], str]
) -> str:
    """Nodes with their texts if these fit, else with what `about` says of each, cut, else by their handles.

    All are named if it can be done; else the answer tells the `rows` that name the others.
    """

    def entry(node: SummaryNode, width: int | None) -> str:
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
        return f'rows="{first}"' if first == last else f'rows="{first}..{last}"'

    def some(titled: int, count: int) -> str:
        rest = nodes[count:]
        middle = rest[len(rest) // 2].seq if rest else None
        left = left_out(rest[0].seq, rest[-1].seq, middle, rows) if rest else ""
        return _answer(title if titled else "", *(entry(node, 0) for node in nodes[:count]), left)

    return first_fitting((1, 0), len(nodes), some, budget) or budget.cut(title)


def _answer(*paragraphs: str) -> str:
    return "\n".join(filter(None, paragraphs))
