"""Search messages by a pattern within bounds, and render the lines that match.

Each answer says where the search stopped, and the arguments that continue it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import islice

from perdure.context.sections.expand import Budget, LineSpan, body_of, check_lines, heading, pieces_of, render_first_fit
from perdure.core.errors import ToolError
from perdure.core.ids import MessageId
from perdure.core.messages import Message
from perdure.core.nodes import message_handle
from perdure.core.tools.engine_specs import REPEATING_TOOLS, tools_with
from perdure.domain.conversations.handles import LogRows, read_rows
from perdure.domain.conversations.patterns import Match, Pattern, PatternSlow
from perdure.storage.tx import Tx

SCANNED_ROWS, SCANNED_CHARS = 5_000, 4_000_000  # of one call with a pattern
ROW_MATCHES = 3  # of one message, when several are shown
CLIPS = (200, 60, 20)  # characters shown of a line that matches, the first that fits

_SEARCHES = frozenset(tools_with("recalls"))


@dataclass(frozen=True, slots=True)
class LineHits:
    """The matching lines of a message, in order, up to a limit; `more`: the number of the next matching line."""

    message: Message
    matches: tuple[Match, ...]
    more: int | None = None


@dataclass(frozen=True, slots=True)
class LogScan:
    """The hits of a search, and where it stopped: (message number, line number); None: all was searched."""

    hits: Sequence[LineHits]
    stopped: tuple[int, int] | None


def _scan(
    messages: Iterator[Message],
    search: Pattern,
    *,
    first_line: tuple[int, int],
    most: int,
    text_of: Callable[[Message], Sequence[tuple[int, str]]],
    skip: Callable[[int], str],
    per_row: int | None = None,
) -> LogScan:
    """Search messages in order until `most` lines match or a bound is reached.

    Args:
        first_line: (message number, line number) at which the search begins.
        text_of: message -> (number of the first line, text) of each of its texts to search.
        skip: message number -> the tool's argument that skips it, for the error when the pattern takes too long there.
        per_row: the most matching lines of one message, which stops the search only of this message; None: no limit.

    Raises: ToolError: the pattern takes too long in the first message.
    """
    hits: list[LineHits] = []
    count = chars = rows = 0
    for message in messages:
        if rows >= SCANNED_ROWS or chars >= SCANNED_CHARS or count >= most or (rows and search.over):
            return LogScan(hits, (message.seq, 1))
        begin = first_line[1] if message.seq == first_line[0] else 1
        row_limit = most - count if per_row is None else per_row
        matches: list[Match] = []
        try:
            for number, text in text_of(message):
                chars += len(text)
                if (rest := _from_line(number, text, begin)) is None:
                    continue
                for match in islice(search.matches(rest, first_line=max(number, begin)), row_limit + 1 - len(matches)):
                    matches.append(match)  # noqa: PERF402  # matches before the time limit stay
        except PatternSlow:
            if not matches and not rows:
                hint = f", or pass over it: {skip(message.seq)}" if skip(message.seq) else ""
                raise ToolError(
                    f"the pattern takes too long in {message_handle(message.seq)}: use a simpler one{hint}"
                ) from None
            if not matches:
                return LogScan(hits, (message.seq, begin))
            after = matches[-1].line + 1  # not this place again, or going on would lead nowhere
            if per_row is None:
                return LogScan([*hits, LineHits(message, tuple(matches))], (message.seq, after))
            return LogScan([*hits, LineHits(message, tuple(matches), after)], (message.seq + 1, 1))
        rows += 1
        more = matches[row_limit].line if len(matches) > row_limit else None
        if matches:
            hits.append(LineHits(message, tuple(matches[:row_limit]), more))
            count += len(matches[:row_limit])
        if more is not None and per_row is None:
            return LogScan(hits, (message.seq, more))
    return LogScan(hits, None)


def _from_line(number: int, text: str, begin: int) -> str | None:
    """Return `text` from the line `begin` on, if its first line has the number `number`; None: it ends before that."""
    if begin <= number:
        return text
    rest = text.split("\n", begin - number)
    return rest[-1] if len(rest) > begin - number else None


def _search_texts(message: Message, *, whole: bool) -> list[tuple[int, str]]:
    """Return (number of its first line, text) of a message's texts. Without `whole`, calls of search tools and results
    of tools that repeat stored texts are left out: they would match every search again."""
    return [
        (piece.first_line, piece.text)
        for piece in pieces_of(message)
        if whole or piece.tool is None or piece.tool not in (_SEARCHES if piece.is_call else REPEATING_TOOLS)
    ]


def clip_line(line: str, match: Match, width: int = CLIPS[0]) -> str:
    """Return the line, or its part of `width` characters around the match, with ellipses."""
    if len(line) <= width:
        return line
    first = max(0, min(match.start - width // 3, len(line) - width))
    last = min(len(line), first + width)
    return ("…" if first else "") + line[first:last] + ("…" if last < len(line) else "")


def _match_position(line: str, match: Match, width: int) -> str:
    """Return the line number of a match, `120`, and if the line is clipped the character too: `120:4904`."""
    return str(match.line) if len(line) <= width else f"{match.line}:{match.start + 1}"


def grep_log(
    tx: Tx, rows: LogRows, search: Pattern, budget: Budget, *, first_line: int, whole: bool, call_message_id: MessageId
) -> str:
    """Return the lines that match as a tool's answer within `budget`, newest message first.

    Args:
        first_line: the line of the newest message with which the search begins.
        whole: also search calls and results of tools that only repeat what is stored elsewhere.
        call_message_id: the message of the call, which holds the pattern itself.

    Raises: ToolError.
    """
    scan = _scan(
        read_rows(tx, rows, newest_first=True),
        search,
        first_line=(rows.last, first_line),
        most=budget.tokens // 4 + 1,
        text_of=lambda message: (
            [] if message.id == call_message_id and not whole else _search_texts(message, whole=whole)
        ),
        skip=lambda seq: f'from="{message_handle(seq - 1)}"' if seq > rows.first else "",
    )
    label = message_handle(rows.first, rows.last)
    bodies = [(hit, body_of(hit.message).split("\n")) for hit in scan.hits]
    lines = [(hit.message, body[match.line - 1], match) for hit, body in bodies for match in hit.matches]

    def end_line(count: int) -> str:
        """The last line of the result after `count` hits: where to go on, or that everything was searched."""
        stopped = (lines[count][0].seq, lines[count][2].line) if count < len(lines) else scan.stopped
        if stopped is None:
            return f"[{'Newest first. ' if lines else 'No match. '}All of {label} was searched]"
        seq, line = stopped
        go_on = message_handle(seq) + (f":{line}" if line > 1 else "")
        return f'[{"Newest first" if lines else "No match yet"}. Go on: from="{go_on}"]'

    def render(width: int, count: int) -> str:
        """The first `count` hits in lines of `width` characters, and the last line."""
        entries = [
            f"{message_handle(message.seq)}:{_match_position(text, match, width)} {message.role}| "
            f"{clip_line(text, match, width)}"
            for message, text, match in lines[:count]
        ]
        return "\n".join((*entries, end_line(count)))

    return render_first_fit(CLIPS, len(lines), render, budget) or budget.cut(end_line(0))


def grep_messages(tx: Tx, rows: LogRows, search: Pattern, budget: Budget, timezone: tzinfo) -> str:
    """Return a tool's answer: messages with their first matching lines, oldest first, by budget. Raises: ToolError."""
    scan = _scan(
        read_rows(tx, rows),
        search,
        first_line=(rows.first, 1),
        most=budget.tokens // 4 + 1,
        text_of=lambda message: [(1, body_of(message))],
        skip=lambda seq: f'rows="{seq + 1}.."' if seq < rows.last else "",
        per_row=ROW_MATCHES,
    )
    hits = [(hit, body_of(hit.message).split("\n")) for hit in scan.hits]

    def end_line(count: int) -> str:
        """The last line of the result after `count` hits: where to go on, or that everything was searched."""
        stopped = hits[count][0].message.seq if count < len(hits) else scan.stopped[0] if scan.stopped else None
        if stopped is None or stopped > rows.last:
            return f"[{'' if hits else 'No match. '}All of {message_handle(rows.first, rows.last)} was searched]"
        return f'[{"" if hits else "No match yet. "}Go on: rows="{stopped}.."]'

    def render(width: int, count: int) -> str:
        """The first `count` messages, with lines of `width` characters, and the last line."""
        entries = [_entry(hit, lines, width, around=1, timezone=timezone) for hit, lines in hits[:count]]
        return "\n".join((*entries, end_line(count)))

    return render_first_fit(CLIPS, len(hits), render, budget) or budget.cut(end_line(0))


def grep_lines(message: Message, span: LineSpan, search: Pattern, budget: Budget, timezone: tzinfo) -> str:
    """Return the matching lines of one message within `span` as a tool's answer within `budget`. Raises: ToolError."""
    body = body_of(message)
    lines = body.split("\n")
    check_lines(message, lines, span)
    if span.from_char is not None:
        raise ToolError("a pattern searches whole lines: give lines without characters")
    last = len(lines) if span.last is None else min(span.last, len(lines))
    text = body if (span.first, last) == (1, len(lines)) else "\n".join(lines[span.first - 1 : last])
    scan = _scan(
        iter([message]),
        search,
        first_line=(message.seq, span.first),
        most=budget.tokens // 4 + 1,
        text_of=lambda _: [(span.first, text)],
        skip=lambda _: "",
    )
    matches = scan.hits[0].matches if scan.hits else ()

    def end_line(count: int) -> str:
        """The last line of the result after `count` hits: where to go on, or that everything was searched."""
        line = matches[count].line if count < len(matches) else scan.stopped[1] if scan.stopped else None
        label = f"lines {span.first}..{last} of {len(lines)} searched"
        if line is None or line > last:
            return f"[{'' if matches else 'No match. '}{label}]"
        return f'[Go on: lines="{line}..{last}"]'

    def render(width: int, count: int) -> str:
        """The first `count` hits in lines of `width` characters, and the last line."""
        entry = _entry(LineHits(message, matches[:count]), lines, width, around=2, timezone=timezone)
        return f"{entry}\n{end_line(count)}"

    return render_first_fit(CLIPS, len(matches), render, budget) or budget.cut(end_line(0))


def _entry(hit: LineHits, lines: Sequence[str], width: int, *, around: int, timezone: tzinfo) -> str:
    """Render a message's matching lines (`12> text`) with `around` lines before and after each (`13| text`).

    Long lines are clipped; at a narrow width only the matches are shown.
    """
    around = around if width == CLIPS[0] else 0
    matching = {match.line: match for match in hit.matches}
    numbers: dict[int, None] = {}
    for line in matching:
        numbers |= dict.fromkeys(range(max(1, line - around), min(len(lines), line + around) + 1))
    entry = [heading(hit.message, timezone)]
    for number in sorted(numbers):
        text, match = lines[number - 1], matching.get(number)
        mark = f"{_match_position(text, match, width)}>" if match else f"{number}|"
        entry.append(f"{mark} {clip_line(text, match or Match(number, 0, 0), width)}")
    if hit.more is not None:
        entry.append(f'[more in it: handle="{message_handle(hit.message.seq)}", lines="{hit.more}.."]')
    return "\n".join(entry)
