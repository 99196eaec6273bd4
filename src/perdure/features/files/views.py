"""The text of files, split into stored parts and read as lines; and views of files: which files of an agent may be
open, and their numbered lines in view.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.context.sections.expand import largest
from perdure.core.agents import Agent
from perdure.core.ids import AgentId, FileId
from perdure.core.ports import TokenCounter
from perdure.features.files.file_tables import AgentFiles, Files
from perdure.features.files.values import PART_CHARS, AgentFile, File, FilePart
from perdure.storage.tx import Tx

PAGE_PARTS = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, from 1, without its line feed; `cut`: only its beginning was read."""

    number: int
    text: str
    cut: bool = False


def parts_of(text: str) -> Iterator[FilePart]:
    """Yield the text in parts that end with a line, or inside a line that is longer than a part."""
    offset, line, char, seq = 0, 1, 0, 0
    while offset < len(text):
        end = offset + PART_CHARS
        if end < len(text) and (feed := text.rfind("\n", offset, end)) >= 0:
            end = feed + 1
        piece = text[offset:end]
        yield FilePart(seq=seq, first_line=line, first_char=char, text=piece)
        feeds = piece.count("\n")
        line, char = line + feeds, (0 if feeds else char) + len(piece) - (piece.rfind("\n") + 1)
        offset, seq = offset + len(piece), seq + 1


def read_lines(tx: Tx, file_id: FileId, first: int, last: int, *, max_chars: int) -> Iterator[Line]:
    """Yield lines `first` to `last` until `max_chars`; the last line may be cut there."""
    number, pending, chars_left = 0, "", max_chars
    for part in _parts(tx, file_id, first):
        number = number or part.first_line
        *whole, rest = part.text.split("\n")
        for line_end in whole:
            text, pending = pending + line_end, ""
            if number >= first:
                if len(text) > chars_left:
                    yield Line(number, text[:chars_left], cut=True)
                    return
                yield Line(number, text)
                chars_left -= len(text) + 1
            number += 1
            if number > last:
                return
        pending = pending + rest if number >= first else ""  # the line goes on in the next part
        if len(pending) > chars_left:
            yield Line(number, pending[:chars_left], cut=True)
            return
    if pending:
        yield Line(number, pending)


def read_text(tx: Tx, file_id: FileId, *, max_chars: int) -> str:
    """Return the first `max_chars` characters of the text."""
    pieces: list[str] = []
    size = 0
    for part in _parts(tx, file_id, 1):
        pieces.append(part.text)
        size += len(part.text)
        if size >= max_chars:
            break
    return "".join(pieces)[:max_chars]


def _parts(tx: Tx, file_id: FileId, from_line: int) -> Iterator[FilePart]:
    """Yield the stored parts, beginning with the one that contains line `from_line`."""
    after = -1
    while page := tx.of(Files).parts(file_id, from_line=from_line, after_seq=after, limit=PAGE_PARTS):
        yield from page
        after = page[-1].seq


_BY_WINDOW = ((8_000, 3, 5_000), (32_000, 5, 15_000), (128_000, 10, 25_000), (200_000, 10, 40_000))
_LARGEST = (15, 40_000)

SECTION_SHARE = 0.25
"""The share of the window that files may take in the prompt."""
UNASKED_SHARE = 0.1
"""The share of it for files that Perdure opens by itself."""
LEAST_VIEW_TOKENS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """The limits of an agent's open files.

    Args:
        max_open: the most open files.
        view_chars: the most characters of one file's lines in view, without line numbers.
        section_tokens: the most tokens of all open files in the prompt.
        unasked_tokens: the most tokens of files that Perdure opens by itself.
    """

    max_open: int
    view_chars: int
    section_tokens: int
    unasked_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileView:
    """Lines `first_line` to `last_line` of a file, each after its number; without lines the last is before the first.

    Args:
        cut: only the beginning of the last line is shown.
    """

    first_line: int
    last_line: int
    text: str
    line_count: int
    cut: bool = False

    @property
    def lines_left(self) -> int:
        """How many lines follow."""
        return max(0, self.line_count - self.last_line)

    @property
    def heading(self) -> str:
        """The heading in the form that Letta's agents read."""
        lines = f"(out of {self.line_count} lines)"
        if self.first_line <= 1 and not self.lines_left:
            return f"[Viewing file start {lines}]"
        return f"[Viewing lines {self.first_line} to {self.last_line} {lines}]"

    @property
    def whole(self) -> str:
        """Heading and lines."""
        return "\n".join(filter(None, (self.heading, self.text)))


def limits_of(agent: Agent, window_tokens: int) -> FileLimits:
    """Return an agent's limits by its settings `max_files_open` and `file_view_chars`, else by its window."""
    defaults = next(((count, chars) for window, count, chars in _BY_WINDOW if window_tokens <= window), _LARGEST)
    max_open, view_chars = (
        value if isinstance(value := agent.settings.get(name), int) and value > 0 else default
        for name, default in zip(("max_files_open", "file_view_chars"), defaults, strict=True)
    )
    return FileLimits(
        max_open=max_open,
        view_chars=view_chars,
        section_tokens=int(window_tokens * SECTION_SHARE),
        unasked_tokens=int(window_tokens * UNASKED_SHARE),
    )


def read_view(
    tx: Tx, file: File, first: int, last: int | None, *, max_chars: int, tokens: int, counter: TokenCounter
) -> FileView:
    """Read lines `first` to `last` (None: the end) of a file, as many as fit; a first line that is too long is cut."""
    last = file.line_count if last is None else min(last, file.line_count)
    max_chars = min(max_chars, max(0, tokens) * 8)  # more than this fits no budget
    lines = list(read_lines(tx, file.id, first, last, max_chars=max_chars)) if first <= last else []
    lines_text = [f"{line.number}: {line.text}{'…' if line.cut else ''}" for line in lines]
    count = largest(len(lines_text), lambda count: counter.count("\n".join(lines_text[:count])) <= tokens)
    if lines and not count:
        start = lines_text[0]
        chars = largest(len(start), lambda chars: counter.count(f"{start[:chars]}…") <= tokens)
        return FileView(
            first_line=first,
            last_line=first if chars else first - 1,
            text=f"{start[:chars]}…" if chars else "",
            line_count=file.line_count,
            cut=True,
        )
    return FileView(
        first_line=first,
        last_line=first + count - 1,
        text="\n".join(lines_text[:count]),
        line_count=file.line_count,
        cut=bool(count) and lines[count - 1].cut,
    )


def open_view(
    tx: Tx,
    agent_id: AgentId,
    file: AgentFile,
    limits: FileLimits,
    *,
    first: int = 1,
    last: int | None = None,
    tokens: int,
    counter: TokenCounter,
    at: datetime,
) -> tuple[AgentFile, FileView]:
    """Open a file with lines `first` to `last` (None: the end) in view, as many as fit in `tokens`; return both."""
    view = read_view(tx, file.file, first, last, max_chars=limits.view_chars, tokens=tokens, counter=counter)
    return tx.of(AgentFiles).open(agent_id, file.file.id, first, view.last_line, at=at), view


def close_oldest(tx: Tx, agent_id: AgentId, limits: FileLimits) -> list[AgentFile]:
    """Close the least recently used files above the limit; return them."""
    closed = list(tx.of(AgentFiles).list_open(agent_id)[limits.max_open :])
    for file in closed:
        tx.of(AgentFiles).close(agent_id, file.file.id)
    return closed


def open_if_room(
    tx: Tx, agent_id: AgentId, files: Sequence[File], limits: FileLimits, *, counter: TokenCounter, at: datetime
) -> None:
    """Open files at their beginning, as far as that closes no others."""
    opened = list(tx.of(AgentFiles).list_open(agent_id))
    open_ids = {file.file.id for file in opened}
    tokens_left = limits.unasked_tokens - sum(map(_tokens_of_view, opened))
    readable = [file for file in files if file.status == "completed" and file.id not in open_ids]
    for file in readable:
        if len(opened) >= limits.max_open or tokens_left < LEAST_VIEW_TOKENS:
            break
        agent_file = tx.of(AgentFiles).get(agent_id, file.id)
        is_last = file is readable[-1]  # else it leaves room for the next ones
        share = tokens_left if is_last else max(LEAST_VIEW_TOKENS, tokens_left // 2)
        one, view = open_view(tx, agent_id, agent_file, limits, tokens=share, counter=counter, at=at)
        tokens_left -= counter.count(view.whole)
        opened.append(one)


def page_label(starts: Sequence[int], first: int, last: int) -> str:
    """Return `, page 3` or `, pages 3-4` for lines of a file; empty for a file without pages.

    `starts`: the first line of each page.
    """
    if not starts:
        return ""
    from_page, to_page = max(1, bisect_right(starts, first)), max(1, bisect_right(starts, last))
    return f", page {from_page}" if from_page == to_page else f", pages {from_page}-{to_page}"


def _tokens_of_view(file: AgentFile) -> int:
    """Estimate the tokens of an open file's view without reading it."""
    lines = max(0, file.last_line - file.first_line + 1)
    return int(file.file.char_count * lines / max(1, file.file.line_count) / 3) + lines
