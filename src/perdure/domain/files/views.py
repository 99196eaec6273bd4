"""What agents see of files: which may be open, how much of each is in view, and its lines with their numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.context.retrieval.expand import largest
from perdure.core.agents import Agent
from perdure.core.files import AgentFile, File
from perdure.core.ids import AgentId
from perdure.core.ports import TokenCounter
from perdure.domain.files.text import read_lines
from perdure.storage.tx import Tx

__all__ = ["FileLimits", "FileView", "close_oldest", "limits_of", "open_view", "open_where_room", "pages_of", "view_of"]

_BY_WINDOW = ((8_000, 3, 5_000), (32_000, 5, 15_000), (128_000, 10, 25_000), (200_000, 10, 40_000))
_LARGEST = (15, 40_000)

SECTION_SHARE = 0.25
"""Of the window, what files may take in the prompt; `UNASKED_SHARE`, what files may that nobody asked to open."""
UNASKED_SHARE = 0.1
LEAST_VIEW_TOKENS = 50  # less says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """What an agent may have of files at once.

    Args:
        max_open: files that are open.
        view_chars: of one file's lines in view, without their numbers.
        section_tokens: of all open files in the prompt.
        unasked_tokens: of those that are opened because their folder is new.
    """

    max_open: int
    view_chars: int
    section_tokens: int
    unasked_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileView:
    """Lines `first_line` to `last_line` of a file as they are shown, each behind its number; no lines: the last is
    before the first.

    Args:
        left: lines behind them.
        cut: the last one goes on, and is shown in part.
    """

    first_line: int
    last_line: int
    text: str
    line_count: int
    cut: bool = False

    @property
    def left(self) -> int:
        return max(0, self.line_count - self.last_line)

    @property
    def heading(self) -> str:
        """What is shown, as Letta's agents read it."""
        lines = f"(out of {self.line_count} lines)"
        if self.first_line <= 1 and not self.left:
            return f"[Viewing file start {lines}]"
        return f"[Viewing lines {self.first_line} to {self.last_line} {lines}]"

    @property
    def whole(self) -> str:
        """Heading and lines."""
        return "\n".join(filter(None, (self.heading, self.text)))


def limits_of(agent: Agent, window_tokens: int) -> FileLimits:
    """By the agent's settings `max_files_open` and `file_view_chars`, else by its window."""
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


def view_of(
    tx: Tx, file: File, first: int, last: int | None, *, max_chars: int, tokens: int, counter: TokenCounter
) -> FileView:
    """Lines `first` to `last` (None: the end) of a file, as many as fit. The first one is shown in part if need be."""
    last = file.line_count if last is None else min(last, file.line_count)
    max_chars = min(max_chars, max(0, tokens) * 8)  # more than this fits no budget
    lines = list(read_lines(tx, file.id, first, last, max_chars=max_chars)) if first <= last else []
    shown = [f"{line.number}: {line.text}{'…' if line.cut else ''}" for line in lines]
    count = largest(len(shown), lambda count: counter.count("\n".join(shown[:count])) <= tokens)
    if lines and not count:
        start = shown[0]
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
        text="\n".join(shown[:count]),
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
    """The file, open with these lines in view as far as they fit, and what is in view of it."""
    view = view_of(tx, file.file, first, last, max_chars=limits.view_chars, tokens=tokens, counter=counter)
    return tx.agent_files.open(agent_id, file.file.id, first, view.last_line, at=at), view


def close_oldest(tx: Tx, agent_id: AgentId, limits: FileLimits) -> list[AgentFile]:
    """Close the files that were used longest ago, until no more are open than may be; those that were closed."""
    closed = list(tx.agent_files.opened(agent_id)[limits.max_open :])
    for file in closed:
        tx.agent_files.close(agent_id, file.file.id)
    return closed


def open_where_room(
    tx: Tx, agent_id: AgentId, files: Sequence[File], limits: FileLimits, *, counter: TokenCounter, at: datetime
) -> list[AgentFile]:
    """Open these files from their beginning, as long as none has to be closed for it and they take little; those that
    were opened."""
    opened = list(tx.agent_files.opened(agent_id))
    there = {file.file.id for file in opened}
    left = limits.unasked_tokens - sum(map(_tokens_of_view, opened))
    made: list[AgentFile] = []
    readable = [file for file in files if file.status == "completed" and file.id not in there]
    for behind, file in enumerate(readable, start=1 - len(readable)):
        if len(opened) + len(made) >= limits.max_open or left < LEAST_VIEW_TOKENS:
            break
        agent_file = tx.agent_files.get(agent_id, file.id)
        share = max(LEAST_VIEW_TOKENS, left // 2) if behind else left  # a long one leaves room for those behind it
        one, view = open_view(tx, agent_id, agent_file, limits, tokens=share, counter=counter, at=at)
        left -= counter.count(view.whole)
        made.append(one)
    return made


def pages_of(starts: Sequence[int], first: int, last: int) -> str:
    """`, page 3` or `, pages 3-4`; empty where there are no pages."""
    if not starts:
        return ""
    one, other = max(1, bisect_right(starts, first)), max(1, bisect_right(starts, last))
    return f", page {one}" if one == other else f", pages {one}-{other}"


def _tokens_of_view(file: AgentFile) -> int:
    """About what the view of an open file takes, without reading it."""
    lines = max(0, file.last_line - file.first_line + 1)
    return int(file.file.char_count * lines / max(1, file.file.line_count) / 3) + lines
