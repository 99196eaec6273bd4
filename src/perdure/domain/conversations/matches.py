"""What matches a pattern: messages searched within bounds, and answers made of the lines that were found.

Each answer says how far the search came, and the arguments that go on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import islice

from perdure.context.retrieval.expand import Budget, Lines, body_of, check_lines, first_fitting, heading, pieces_of
from perdure.core.errors import ToolError
from perdure.core.ids import MessageId
from perdure.core.messages import Message
from perdure.core.nodes import message_handle
from perdure.core.tools.spec import REPEATING_TOOLS
from perdure.domain.conversations.handles import Rows, read_rows
from perdure.domain.conversations.patterns import Match, PatternSlow, Search
from perdure.storage.tx import Tx

__all__ = ["clipped", "grep", "matching_lines", "matching_messages"]

SCANNED_ROWS, SCANNED_CHARS = 2_000, 4_000_000  # of one call with a pattern
ROW_MATCHES = 3  # of one message, when several are shown
CLIPS = (200, 60, 20)  # characters shown of a line that matches, the first that fits

_SEARCHES = frozenset({"archival_memory_search", "context_expand", "context_grep", "conversation_search"})


@dataclass(frozen=True, slots=True)
class Hit:
    """Lines of a message that match, in order; `more`: the next one that was not taken."""

    message: Message
    matches: tuple[Match, ...]
    more: int | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """What a search found, and the message and line at which it stopped; None: at the end."""

    hits: Sequence[Hit]
    stopped: tuple[int, int] | None


def _scan(
    messages: Iterator[Message],
    search: Search,
    *,
    first_line: tuple[int, int],
    most: int,
    text_of: Callable[[Message], Sequence[tuple[int, str]]],
    skip: Callable[[int], str],
    per_row: int | None = None,
) -> Scan:
    """Search messages in their order until `most` lines were found or a bound is reached.

    Args:
        first_line: the number of a message, and the line of it to begin with.
        text_of: the texts to search in a message, each with the number of its first line.
        skip: the argument that passes over a message, said when the pattern takes too long in it.

    Raises: ToolError: the pattern takes too long in the first message.
    """
    hits: list[Hit] = []
    count = chars = rows = 0
    for message in messages:
        if rows >= SCANNED_ROWS or chars >= SCANNED_CHARS or count >= most or (rows and search.over):
            return Scan(hits, (message.seq, 1))
        begin = first_line[1] if message.seq == first_line[0] else 1
        wanted = most - count if per_row is None else per_row
        matches: list[Match] = []
        try:
            for at, text in text_of(message):
                chars += len(text)
                if (rest := _from_line(at, text, begin)) is None:
                    continue
                for match in islice(search.matches(rest, first_line=max(at, begin)), wanted + 1 - len(matches)):
                    matches.append(match)  # noqa: PERF402  # what was found before the time was up stays
        except PatternSlow:
            if not matches and not rows:
                hint = f", or pass over it: {skip(message.seq)}" if skip(message.seq) else ""
                raise ToolError(
                    f"the pattern takes too long in {message_handle(message.seq)}: use a simpler one{hint}"
                ) from None
            if not matches:
                return Scan(hits, (message.seq, begin))
            after = matches[-1].line + 1  # not this place again, or going on would lead nowhere
            if per_row is None:
                return Scan([*hits, Hit(message, tuple(matches))], (message.seq, after))
            return Scan([*hits, Hit(message, tuple(matches), after)], (message.seq + 1, 1))
        rows += 1
        more = matches[wanted].line if len(matches) > wanted else None
        if matches:
            hits.append(Hit(message, tuple(matches[:wanted]), more))
            count += len(matches[:wanted])
        if more is not None and per_row is None:
            return Scan(hits, (message.seq, more))
    return Scan(hits, None)


def _from_line(at: int, text: str, begin: int) -> str | None:
    """The part of a text, whose first line has the number `at`, from line `begin` on; None if it ends before."""
    if begin <= at:
        return text
    rest = text.split("\n", begin - at)
    return rest[-1] if len(rest) > begin - at else None


def _searched(message: Message, *, whole: bool) -> list[tuple[int, str]]:
    return [
        (piece.first_line, piece.text)
        for piece in pieces_of(message)
        if whole or piece.tool is None or piece.tool not in (_SEARCHES if piece.called else REPEATING_TOOLS)
    ]


def clipped(line: str, match: Match, width: int = CLIPS[0]) -> str:
    """The line, or the part of it round the match."""
    if len(line) <= width:
        return line
    first = max(0, min(match.start - width // 3, len(line) - width))
    last = min(len(line), first + width)
    return ("…" if first else "") + line[first:last] + ("…" if last < len(line) else "")


def _place(line: str, match: Match, width: int) -> str:
    """`120`, or `120:4904` with the character of the match where only a part of the line is shown."""
    return str(match.line) if len(line) <= width else f"{match.line}:{match.start + 1}"


def grep(
    tx: Tx, rows: Rows, search: Search, budget: Budget, *, first_line: int, whole: bool, asked_by: MessageId
) -> str:
    """The lines that match, newest message first, from line `first_line` of the newest on.

    Args:
        whole: also look at what only repeats: results of searches, and the calls that searched.
        asked_by: the message of the call, which holds the pattern itself.

    Raises: ToolError.
    """
    scan = _scan(
        read_rows(tx, rows, newest_first=True),
        search,
        first_line=(rows.last, first_line),
        most=budget.tokens // 4 + 1,
        text_of=lambda message: [] if message.id == asked_by and not whole else _searched(message, whole=whole),
        skip=lambda seq: f'from="{message_handle(seq - 1)}"' if seq > rows.first else "",
    )
    searched = message_handle(rows.first, rows.last)
    bodies = [(hit, body_of(hit.message).split("\n")) for hit in scan.hits]
    found = [(hit.message, body[match.line - 1], match) for hit, body in bodies for match in hit.matches]

    def end(count: int) -> str:
        stopped = (found[count][0].seq, found[count][2].line) if count < len(found) else scan.stopped
        if stopped is None:
            return f"[{'Newest first. ' if found else 'No match. '}All of {searched} was searched]"
        seq, line = stopped
        go_on = message_handle(seq) + (f":{line}" if line > 1 else "")
        return f'[{"Newest first" if found else "No match yet"}. Go on: from="{go_on}"]'

    def shown(width: int, count: int) -> str:
        lines = [
            f"{message_handle(message.seq)}:{_place(line, match, width)} {message.role}| {clipped(line, match, width)}"
            for message, line, match in found[:count]
        ]
        return "\n".join((*lines, end(count)))

    return first_fitting(CLIPS, len(found), shown, budget) or budget.cut(end(0))


def matching_messages(tx: Tx, rows: Rows, search: Search, budget: Budget, at: tzinfo) -> str:
    """Messages with lines that match, oldest first, each with its first ones."""
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

    def end(count: int) -> str:
        stopped = hits[count][0].message.seq if count < len(hits) else scan.stopped[0] if scan.stopped else None
        if stopped is None or stopped > rows.last:
            return f"[{'' if hits else 'No match. '}All of {message_handle(rows.first, rows.last)} was searched]"
        return f'[{"" if hits else "No match yet. "}Go on: rows="{stopped}.."]'

    def shown(width: int, count: int) -> str:
        return "\n".join((*(_entry(hit, lines, width, around=1, at=at) for hit, lines in hits[:count]), end(count)))

    return first_fitting(CLIPS, len(hits), shown, budget) or budget.cut(end(0))


def matching_lines(message: Message, wanted: Lines, search: Search, budget: Budget, at: tzinfo) -> str:
    """The lines of one message that match, within those that are wanted."""
    body = body_of(message)
    lines = body.split("\n")
    check_lines(message, lines, wanted)
    if wanted.from_char is not None:
        raise ToolError("a pattern searches whole lines: give lines without characters")
    last = len(lines) if wanted.last is None else min(wanted.last, len(lines))
    text = body if (wanted.first, last) == (1, len(lines)) else "\n".join(lines[wanted.first - 1 : last])
    scan = _scan(
        iter([message]),
        search,
        first_line=(message.seq, wanted.first),
        most=budget.tokens // 4 + 1,
        text_of=lambda _: [(wanted.first, text)],
        skip=lambda _: "",
    )
    matches = scan.hits[0].matches if scan.hits else ()

    def end(count: int) -> str:
        line = matches[count].line if count < len(matches) else scan.stopped[1] if scan.stopped else None
        searched = f"lines {wanted.first}..{last} of {len(lines)} searched"
        if line is None or line > last:
            return f"[{'' if matches else 'No match. '}{searched}]"
        return f'[Go on: lines="{line}..{last}"]'

    def shown(width: int, count: int) -> str:
        entry = _entry(Hit(message, matches[:count]), lines, width, around=2, at=at)
        return f"{entry}\n{end(count)}"

    return first_fitting(CLIPS, len(matches), shown, budget) or budget.cut(end(0))


def _entry(hit: Hit, lines: Sequence[str], width: int, *, around: int, at: tzinfo) -> str:
    """A message's matching lines (`12> text`) with so many of its `lines` round them (`13| text`), long ones clipped;
    without these if it must be narrow."""
    around = around if width == CLIPS[0] else 0
    matching = {match.line: match for match in hit.matches}
    numbers: dict[int, None] = {}
    for line in matching:
        numbers |= dict.fromkeys(range(max(1, line - around), min(len(lines), line + around) + 1))
    shown = [heading(hit.message, at)]
    for number in sorted(numbers):
        text, match = lines[number - 1], matching.get(number)
        mark = f"{_place(text, match, width)}>" if match else f"{number}|"
        shown.append(f"{mark} {clipped(text, match or Match(number, 0, 0), width)}")
    if hit.more is not None:
        shown.append(f'[more in it: handle="{message_handle(hit.message.seq)}", lines="{hit.more}.."]')
    return "\n".join(shown)
