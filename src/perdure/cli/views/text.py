"""For people: a chat, and the results of commands as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from perdure.cli.chat.models import price
from perdure.cli.chat.render import RunRenderer, diff_view
from perdure.cli.chat.terminal import Terminal
from perdure.cli.views.fold import fold, local_time, plural, visible
from perdure.cli.views.pending import argument_lines, plain_text
from perdure.cli.views.table import new_table
from perdure.cli.views.view import AgentRow, ConversationRow, ModelRow, View
from perdure.core.answers import PendingCall
from perdure.core.blocks import Author, Block, BlockVersion
from perdure.core.conversations import Reset
from perdure.core.errors import PerdureError
from perdure.core.events import Delta, RunQueued, StoredEvent
from perdure.core.messages import ToolCall
from perdure.library.agent import AsyncAgent
from perdure.library.reply import Reply

ABOUT_CHARS = 60
NO_TOOLS = "no tools: it can't keep a memory"


class TextView(View):
    """Text on a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._run = RunRenderer(terminal)
        self._resume_calls: Sequence[ToolCall] = ()  # of the next run
        self._resumed = False  # whether the current run began with such calls

    def show(self, shape: object, *parts: RenderableType) -> None:
        self.print(*parts)

    def show_long(self, shape: object, *parts: RenderableType) -> None:
        self._terminal.page(*parts)

    def print(self, *parts: RenderableType) -> None:
        self._terminal.show(*parts)

    def error(self, error: PerdureError) -> None:
        self._terminal.error(str(error))

    def show_reply(self, agent: AsyncAgent, reply: Reply) -> None:
        complete = reply.failure is None and reply.stop_reason not in ("cancelled", "requires_approval")
        if complete and not reply.text and not self._resumed:
            self.note("(the agent said nothing)")

    def hint(self, text: str) -> None:
        self._terminal.hint(text)

    def note(self, text: str) -> None:
        self._terminal.note(Text(visible(text), style="yellow"))

    def show_status(self, text: str) -> None:
        self._terminal.show_status(text)

    def clear_status(self) -> None:
        self._terminal.clear_status()
        self._terminal.end_line()

    def greet(self, *lines: str) -> None:
        self._terminal.note(*(Text(visible(line)) for line in lines))

    def show_event(self, event: StoredEvent | Delta) -> None:
        if isinstance(event, StoredEvent) and isinstance(event.event, RunQueued):
            self._run = RunRenderer(self._terminal, self._resume_calls)
            self._resumed, self._resume_calls = bool(self._resume_calls), ()
        self._run.show_event(event)

    def show_stop(self, calls: Sequence[PendingCall]) -> None:
        for call in calls:
            self._terminal.note(pending_view(call))

    def show_question(self, call: PendingCall, number: int, count: int) -> None:
        self._terminal.note(pending_view(call, f"{number} of {count}" if count > 1 else ""))

    def resume_with(self, calls: Sequence[ToolCall]) -> None:
        self._resume_calls = calls


def pending_view(call: PendingCall, place: str = "") -> RenderableType:
    """A waiting call: its tool, its id, and its arguments one a line; `place` says which of several it is."""
    who = "for the program that sent the message" if call.awaits_client else "for you"
    head = Text.assemble(
        ("⚙ ", "yellow"),
        (plain_text(call.name), "bold"),
        (f" waits {who}", "yellow"),
        (f"  {place}" if place else "", "bold"),
        (f"  {plain_text(call.call_id)}", "dim"),
    )
    return Group(head, *(Padding(Text(line), (0, 0, 0, 4)) for line in argument_lines(call.arguments)))


def blocks_view(blocks: Iterable[Block]) -> Iterator[RenderableType]:
    """Each block: label, size and flags, then the description, then the value."""
    for block in blocks:
        yield Text.assemble(
            (visible(block.label), "bold cyan"),
            f"  {len(block.value):,}/{block.limit_chars:,} characters  version {block.version}",
            ("  read-only" if block.read_only else "", "yellow"),
        )
        if block.description:
            yield Padding(Text(visible(block.description), style="dim"), (0, 0, 0, 2))
        value = Text(visible(block.value)) if block.value else Text("(empty)", style="dim")
        yield Padding(value, (0, 0, 0, 2))


def versions_view(label: str, versions: Iterable[BlockVersion]) -> Iterator[RenderableType]:
    """The versions of a block: when and by whom each was written, and its diff."""
    for version in versions:
        yield Text.assemble(
            (f"{visible(label)} version {version.version}", "bold"),
            (f"  {local_time(version.created_at)}  by {author_name(version.author)}", "dim"),
        )
        diff = diff_view(version.diff)
        no_diff = Text("    (as it was made)" if version.version == 0 else "    (the value stayed)", style="dim")
        yield diff if diff.plain else no_diff


def author_name(author: Author) -> str:
    """The author of an edit and its run."""
    name = {"user": "you", "agent": "the agent", "system": "Perdure"}[author.kind]
    return f"{name} in {author.run_id}" if author.run_id else name


def agents_view(rows: Sequence[AgentRow]) -> RenderableType:
    """The agents as a table."""
    if not rows:
        return Text("There are no agents yet.")
    styles = {"name": "bold", "id": "dim"}
    table = new_table("name", "id", "model", "last used", "messages", right=("messages",), styles=styles)
    for row in rows:
        model = f"{visible(row.info.model)}{' (default)' if row.info.follows_default else ''}"
        names = (visible(row.info.name), row.info.id, model)
        table.add_row(*names, local_time(row.used_at), f"{row.message_count:,}")
    return table


def conversations_view(rows: Iterable[ConversationRow]) -> RenderableType:
    """The conversations of an agent as a table, with a mark at the one that the chat continues."""
    table = new_table("", "number", "about", "last message", "")
    for row in rows:
        used_at = row.info.last_message_at
        table.add_row(
            Text("▸" if row.current else "", style="bold cyan"),
            str(row.info.seq),
            about_conversation(row),
            "" if used_at is None else local_time(used_at),
            Text("" if row.info.archived_at is None else "archived", style="dim"),
        )
    return table


def about_conversation(row: ConversationRow) -> Text:
    """What a conversation is about: its summary, or what was said first."""
    if row.info.summary:
        return Text(visible(fold(row.info.summary, ABOUT_CHARS)), style="bold")
    return Text(visible(fold(row.first_text, ABOUT_CHARS)) if row.first_text else "(nothing said yet)", style="dim")


def reset_view(resets: Sequence[Reset]) -> RenderableType:
    """What a reset of conversations did."""
    count = sum(reset.message_count for reset in resets)
    effect = f"{plural(count, 'message')} out of view" if resets else "Nothing was in view"
    return Text(f"{effect}; memory blocks, archives and files are as they were.")


def model_view(row: ModelRow) -> Iterator[RenderableType]:
    """The handle and why the agent has it, then window, prices and abilities."""
    facts = row.facts
    yield Text.assemble((visible(row.handle), "bold cyan"), f"  ({visible(row.reason)})")
    if row.problem:
        yield Text(f"  {visible(row.problem)}", style="yellow")
    source = "" if facts.known else "  (in no catalog: a careful guess)"
    yield Text(f"  window {facts.window_tokens:,} tokens, answer up to {facts.max_output_tokens:,}{source}")
    if facts.input_price is None and facts.output_price is None:
        yield Text("  price unknown", style="dim")
    elif not facts.input_price and not facts.output_price:
        yield Text("  no price by the token")
    else:
        prices = (("input", facts.input_price), ("cached", facts.cached_price), ("output", facts.output_price))
        yield Text(f"  a million tokens: {', '.join(f'{name} {price(value)}' for name, value in prices)}")
    abilities = {
        "tools": facts.tools,
        "several at once": facts.parallel_tools,
        "can be made to call one": facts.forced_tool,
        "reasoning": facts.reasoning,
    }
    yield Text(f"  {', '.join(name for name, has in abilities.items() if has) or NO_TOOLS}")
