"""Where a chat or a command shows its results: `TextView` is for people, `JsonView` for programs. Texts are shortened,
and those from elsewhere made safe to show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perdure.app import ModelFacts
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.errors import PerdureError
from perdure.core.events import Delta, StoredEvent
from perdure.core.messages import ToolCall, ToolResult
from perdure.core.passages import Passage
from perdure.core.text.json_strings import json_object, json_or
from perdure.core.text.reprs import plural as plural
from perdure.core.text.words import stems
from perdure.core.tools.engine_specs import FILE_TOOLS
from perdure.library.agent import AsyncAgent
from perdure.library.messages.reply import Reply

ARGUMENT_CHARS = 60
OUTCOME_CHARS = 80
SNIPPET_CHARS = 160
SHOWN_CHARS = 200

# Text of an agent, a tool or a file must not move the cursor, rename the window or colour the screen.
_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_CONTROLS |= {0x7F: "␡"} | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
# These reverse the direction of the text after them, up to the end of the line.
_CONTROLS |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}

# As a tool begins what it shows of a file.
_PLACE = re.compile(
    r"^(?P<path>\S[^\n]{0,300}?)"
    r"(?:: lines (?P<lines>\d+-\d+)(?: of \d+)?(?:, (?P<page>pages? [\d-]+))?|:(?P<line>\d+)$)",
    re.MULTILINE,
)
_WORD = re.compile(r"\w+")


def visible(text: str) -> str:
    """`text` with control characters as symbols and direction marks as \\uXXXX; line breaks and tabs stay."""
    return text.replace("\r\n", "\n").translate(_CONTROLS)


def fold(text: str, chars: int) -> str:
    """`text` on one line of at most `chars` characters; … marks a cut."""
    line = " ".join(text[: chars * 8].split())  # limits the work on texts of megabytes
    return line if len(line) <= chars and len(text) <= chars * 8 else f"{line[: chars - 1]}…"


def first_names(names: Sequence[str], count: int) -> str:
    """The first names, and how many more there are."""
    more = len(names) - count
    return ", ".join(names[:count]) + (f" and {more:,} more" if more > 0 else "")


def short_id(name: str) -> str:
    """The beginning of an id, enough to name it."""
    return name[: name.find("-") + 9]


def local_time(at: datetime) -> str:
    """Date and minute in this machine's time zone."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def price(dollars: float | None) -> str:
    """US dollars per million tokens, as people write them."""
    if dollars is None:
        return "?"
    return "free" if dollars == 0 else f"${dollars:,.3f}".rstrip("0").rstrip(".")


def place(passage: Passage) -> str:
    """Where a passage comes from: file and lines, or its archive."""
    source = passage.source
    if "file_name" not in source:
        return "archive"
    page = f" (page {source['page']})" if source.get("page") else ""
    return f"{source['file_name']}:{source.get('first_line')}-{source.get('last_line')}{page}"


def call_line(call: ToolCall) -> str:
    """A call as code: one leading text by position, the rest by name, long values folded."""
    if (arguments := json_object(call.arguments or "{}")) is None:
        return f"{call.name}({fold(call.arguments, ARGUMENT_CHARS)})"
    # Models write arguments in any order: of two texts only the names tell which replaces which.
    is_plain = sum(isinstance(value, str) for value in arguments.values()) == 1
    parts = [
        _value_text(value) if is_plain and place == 0 and isinstance(value, str) else f"{name}={_value_text(value)}"
        for place, (name, value) in enumerate(arguments.items())
    ]
    return f"{call.name}({', '.join(parts)})"


def outcome(result: ToolResult) -> str:
    """The result of a call in a few words."""
    if result.status == "error":
        return f"error: {fold(result.text.removeprefix('Error: '), OUTCOME_CHARS * 2)}"
    if places := places_read(result):
        return fold(", ".join(places), OUTCOME_CHARS * 2)
    value = json_or(result.text, None)
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        value = value["results"]
    if isinstance(value, list):
        return plural(len(value), "result")
    return "ok" if isinstance(value, dict) else fold(result.text, OUTCOME_CHARS) or "ok"


def places_read(result: ToolResult) -> list[str]:
    """The places of files in a result, such as `docs/plan.pdf:17-18 (page 2)`; none for other tools."""
    places: dict[str, None] = {}
    if result.name not in FILE_TOOLS or result.status == "error":
        return []
    for match in _PLACE.finditer(result.text[:200_000]):
        page = f" ({match['page']})" if match["page"] else ""
        places[f"{match['path']}:{match['lines'] or match['line']}{page}"] = None
    return list(places)


def snippet(text: str, query: str) -> tuple[str, list[tuple[int, int]]]:
    """The part of `text` around the first match, on one line, and the spans of the matches in it."""
    spans = match_spans(text, query)
    start = max(0, spans[0][0] - SNIPPET_CHARS // 3) if spans else 0
    part = text[start : start + SNIPPET_CHARS]
    line = " ".join(visible(part).split())
    line = f"{'…' if start else ''}{line}{'…' if start + SNIPPET_CHARS < len(text) else ''}"
    return line, match_spans(line, query)


def match_spans(text: str, query: str) -> list[tuple[int, int]]:
    """Return (start, end) of the matches of `query` in `text`: words of equal stem, or equal pairs of characters."""
    tokens = set(stems(query))
    pairs = {token for token in tokens if len(token) == 2 and not token.isascii()}
    spans: list[tuple[int, int]] = []
    for word in _WORD.finditer(text[:20_000]):
        start, end = word.span()
        starts = [at for at in range(start, end - 1) if text[at : at + 2] in pairs]
        if starts:
            for at in starts:
                if spans and spans[-1][1] >= at:
                    spans[-1] = (spans[-1][0], at + 2)
                else:
                    spans.append((at, at + 2))
        elif tokens.intersection(stems(word.group())):
            spans.append((start, end))
    return spans


def _value_text(value: Any) -> str:
    """An argument as code, folded."""
    if isinstance(value, str):
        return json.dumps(fold(value, ARGUMENT_CHARS), ensure_ascii=False)
    return fold(json.dumps(value, ensure_ascii=False), ARGUMENT_CHARS)


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent in a list. `used_at` is the time of its newest message, or of its creation."""

    info: Agent
    used_at: datetime


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation in a list. `first_text`: its first message, without a summary; `current`: the chat is in it."""

    info: Conversation
    first_text: str
    current: bool


@dataclass(frozen=True, slots=True)
class ModelRow:
    """The model of an agent, its facts, and why the agent has it. `problem` says why it can't be used here."""

    handle: str
    reason: str
    facts: ModelFacts
    problem: str = ""


class Output:
    """Shows a chat and the results of commands. A method without a body shows nothing to programs."""

    def show(self, shape: object, *parts: RenderableType) -> None:
        """Show a result.

        Args:
            shape: what programs get, as one line of JSON.
            parts: what people get, as by `print`.
        """
        raise NotImplementedError

    def show_long(self, shape: object, *parts: RenderableType) -> None:
        """Show a result that can be longer than the screen, as by `show`."""
        self.show(shape, *parts)

    def finish(self) -> None:
        """Show what waits until the store is closed: a person can read a long result for hours."""

    def error(self, error: PerdureError) -> None:
        """Show an error."""
        raise NotImplementedError

    def show_reply(self, agent: AsyncAgent, reply: Reply) -> None:
        """Show the end of a run whose events `show_event` got."""
        raise NotImplementedError

    def print(self, *parts: RenderableType) -> None:
        """Print a result for people, one part below the other; a `str` is printed as it is."""

    def hint(self, text: str) -> None:
        """Show a person what to do next."""

    def print_note(self, *notes: RenderableType) -> None:
        """Show a person something about the chat, beside the answers."""

    def note(self, text: str) -> None:
        """Show something a person should know."""

    def show_status(self, text: str) -> None:
        """Show a person what is going on, until `clear_status` or the next output."""

    def clear_status(self) -> None:
        """End what `show_status` shows."""

    def show_event(self, event: StoredEvent | Delta) -> None:
        """Show an event of the run that is followed."""

    def resume_with(self, calls: Sequence[ToolCall]) -> None:
        """Set the calls whose results the next run begins with; their arguments are those that run."""


@dataclass(frozen=True, slots=True)
class WidthLayout:
    """What is laid out when the width of the terminal is known, which `make` is given in cells."""

    make: Callable[[int], Iterable[RenderableType]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.make(options.max_width)


def new_table(
    *columns: str, right: Container[str] = (), styles: Mapping[str, str] | None = None, head: bool = True
) -> Table:
    """A table of these columns.

    Args:
        right: the columns of numbers, which are aligned to the right and never broken.
        styles: column -> style of its cells.
        head: whether the names of the columns stand above them.
    """
    table = Table(box=None, show_header=head and any(columns), header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        style, number = (styles or {}).get(name), name in right
        table.add_column(name, style=style, overflow="fold", justify="right" if number else "left", no_wrap=number)
    return table


def line_view(what: str, id_: str | None, text: str | None) -> RenderableType:
    """What something is, its id, and the beginning of its text."""
    shown = "(deleted)" if text is None else fold(text, SHOWN_CHARS)
    head = Text.assemble(visible(what.strip()), (f"  {visible(id_ or '')}", "dim"))
    return Group(Padding(head, (0, 0, 0, 2)), *([Padding(Text(visible(shown)), (0, 0, 0, 4))] if shown else []))


def ids_view(ids: Sequence[str | None]) -> RenderableType:
    """Ids on a line."""
    return Padding(Text("  ".join(visible(one) for one in ids if one), style="dim"), (0, 0, 0, 2))


def indented(text: str) -> RenderableType:
    """A text below what it is of."""
    return Padding(Text(visible(text)) if text else Text("(no text)", style="dim"), (0, 0, 0, 2))
