"""Where a chat or a command shows its results: `TextView` is for people, `JsonView` for programs."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table

from perdure.app import ModelFacts
from perdure.core.agents import Agent
from perdure.core.answers import PendingCall
from perdure.core.conversations import Conversation
from perdure.core.errors import PerdureError
from perdure.core.events import Delta, StoredEvent
from perdure.core.messages import ToolCall
from perdure.library.agent import AsyncAgent
from perdure.library.reply import Reply


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent in a list. `used_at` is the time of its newest message, or of its creation."""

    info: Agent
    used_at: datetime
    message_count: int


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation in a list. `first_text` is its first message, empty where it has a summary; the chat continues the
    `current` one."""

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


class View:
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

    def note(self, text: str) -> None:
        """Show something a person should know."""

    def show_status(self, text: str) -> None:
        """Show a person what is going on, until `clear_status` or the next output."""

    def clear_status(self) -> None:
        """End what `show_status` shows."""

    def greet(self, *lines: str) -> None:
        """Show who answers, before the first message."""

    def show_event(self, event: StoredEvent | Delta) -> None:
        """Show an event of the run that is followed."""

    def show_stop(self, calls: Sequence[PendingCall]) -> None:
        """Show the calls at which the run stops, where no person can decide them."""

    def show_question(self, call: PendingCall, number: int, count: int) -> None:
        """Show the call that a person decides next; `number` counts from 1."""

    def resume_with(self, calls: Sequence[ToolCall]) -> None:
        """Set the calls whose results the next run begins with; their arguments are those that run."""


def new_table(
    *columns: str,
    right: Container[str] = (),
    styles: Mapping[str, str] | None = None,
    head: bool = True,
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
