"""For people: a chat and the results of commands as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from perdure.cli.chat.render import RunRenderer, diff_view
from perdure.cli.chat.terminal import Terminal
from perdure.cli.views.context import context_view, explanation_view, request_diff_view, short_id, steps_view
from perdure.cli.views.facts import model_view
from perdure.cli.views.fold import fold, local_time, place, plural, snippet, visible
from perdure.cli.views.pending import argument_lines, plain_text
from perdure.cli.views.table import new_table
from perdure.cli.views.view import AgentRow, ConversationRow, ModelRow, View
from perdure.context.request.explain import Explanation, RequestDiff
from perdure.context.window.overview import ContextOverview
from perdure.core.answers import PendingCall
from perdure.core.blocks import Author, Block, BlockVersion
from perdure.core.conversations import Conversation, Reset
from perdure.core.errors import PerdureError
from perdure.core.events import Delta, RunQueued, StoredEvent
from perdure.core.ids import StepId
from perdure.core.messages import Message, ToolCall
from perdure.core.passages import Passage
from perdure.library.agent import AsyncAgent
from perdure.library.reply import Reply
from perdure.library.services.steps import StepInfo

ABOUT_CHARS = 60


class TextView(View):
    """Text on a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._run = RunRenderer(terminal)
        self._resume_calls: Sequence[ToolCall] = ()  # of the next run
        self._resumed = False  # whether the current run began with such calls

    def greet(self, *lines: str) -> None:
        self._terminal.note(*(Text(visible(line)) for line in lines))

    def show_event(self, event: StoredEvent | Delta) -> None:
        if isinstance(event, StoredEvent) and isinstance(event.event, RunQueued):
            self._run = RunRenderer(self._terminal, self._resume_calls)
            self._resumed, self._resume_calls = bool(self._resume_calls), ()
        self._run.show_event(event)

    def show_reply(self, agent: AsyncAgent, reply: Reply) -> None:
        complete = reply.failure is None and reply.stop_reason not in ("cancelled", "requires_approval")
        if complete and not reply.text and not self._resumed:
            self.note("(the agent said nothing)")

    def show_stop(self, calls: Sequence[PendingCall]) -> None:
        for call in calls:
            self._terminal.note(_pending(call))

    def show_question(self, call: PendingCall, number: int, count: int) -> None:
        self._terminal.note(_pending(call, f"{number} of {count}" if count > 1 else ""))

    def resume_with(self, calls: Sequence[ToolCall]) -> None:
        self._resume_calls = calls

    def show_pending(self, calls: Sequence[PendingCall]) -> None:
        for call in calls:
            self._terminal.show(_pending(call))
        if not calls:
            self._terminal.show(Text("No call waits for anybody in this conversation."))

    def show_blocks(self, blocks: Sequence[Block]) -> None:
        if not blocks:
            self._terminal.show(Text("This agent has no memory blocks."))
        for block in blocks:
            self._terminal.show(block_view(block))

    def show_versions(self, label: str, versions: Sequence[BlockVersion]) -> None:
        for version in versions:
            head = Text.assemble(
                (f"{visible(label)} version {version.version}", "bold"),
                (f"  {local_time(version.created_at)}  by {author_name(version.author)}", "dim"),
            )
            diff = diff_view(version.diff)
            no_diff = Text("    (as it was made)" if version.version == 0 else "    (the value stayed)", style="dim")
            self._terminal.show(head, diff if diff.plain else no_diff)

    def show_restore(self, block: Block, version: int, diff: str) -> None:
        label = visible(block.label)
        restored = f"{label} has the value of version {version} again, as version {block.version}."
        self._terminal.show(Text(restored if diff else f"{label} has the value of version {version} already."))
        if diff:
            self._terminal.show(diff_view(diff))

    def show_results(self, query: str, messages: Sequence[Message], passages: Sequence[Passage]) -> None:
        if not messages and not passages:
            self._terminal.show(
                Text(f"Nothing found for {visible(query)!r}, neither in the history nor in the archive.")
            )
            return
        rows: list[tuple[str, str, str]] = [
            (local_time(message.occurred_at), message.role, message.text) for message in messages
        ]
        rows += [(local_time(passage.occurred_at), visible(place(passage)), passage.text) for passage in passages]
        table = new_table()
        for date, source, text in rows:
            line, spans = snippet(text, query)
            body = Text(line)
            for start, end in spans:
                body.stylize("bold yellow", start, end)
            table.add_row(Text(date, style="dim"), Text(source, style="cyan"), body)
        self._terminal.show(table)

    def show_recall(self, budget_tokens: int | None) -> None:
        if budget_tokens is None:
            self._terminal.show(Text("Automatic recall is off."))
        else:
            text = f"Automatic recall is on: up to {budget_tokens:,} tokens of memory go with each message."
            self._terminal.show(Text(text))

    def show_new_conversation(self, conversation: Conversation) -> None:
        about = "" if conversation.summary is None else f", {visible(fold(conversation.summary, ABOUT_CHARS))!r}"
        self._terminal.show(
            Text(f"A new conversation{about}: nothing said before is in view, memory and search are the same.")
        )

    def show_conversations(self, rows: Sequence[ConversationRow]) -> None:
        table = new_table("", "number", "about", "last message", "")
        for row in rows:
            table.add_row(
                Text("▸" if row.current else "", style="bold cyan"),
                Text(str(row.number)),
                _about(row),
                Text("" if row.used_at is None else local_time(row.used_at)),
                Text("archived" if row.archived else "", style="dim"),
            )
        self._terminal.show(table)

    def show_switch(self, row: ConversationRow) -> None:
        self._terminal.show(Text.assemble(f"Conversation {row.number}: ", _about(row)))

    def show_reset(self, resets: Sequence[Reset]) -> None:
        messages = plural(sum(reset.message_count for reset in resets), "message")
        effect = f"{messages} out of view" if resets else "Nothing was in view"
        self._terminal.show(Text(f"{effect}; memory blocks, archives and files are as they were."))

    def show_agents(self, rows: Sequence[AgentRow]) -> None:
        if not rows:
            self._terminal.show(Text("There are no agents yet."))
            return
        table = new_table("name", "id", "model", "last used", "messages", right=("messages",))
        for row in rows:
            table.add_row(
                Text(visible(row.name), style="bold"),
                Text(row.id, style="dim"),
                Text(visible(row.model)),
                Text(local_time(row.used_at)),
                Text(f"{row.message_count:,}"),
            )
        self._terminal.show(table)

    def show_model(self, row: ModelRow) -> None:
        self._terminal.show(model_view(row))

    def show_context(self, overview: ContextOverview, steps: Sequence[StepInfo] | None = None) -> None:
        self._terminal.show(context_view(overview, width=self._terminal.width))
        if steps:
            self._terminal.show(Text(), steps_view(steps))

    def show_explanation(self, explanation: Explanation) -> None:
        self._terminal.show(explanation_view(explanation))

    def show_diff(self, old: StepId, new: StepId, diff: RequestDiff) -> None:
        self._terminal.show(request_diff_view(diff, names=(short_id(old), short_id(new))))

    def show_commands(self, commands: Mapping[str, str]) -> None:
        table = new_table()
        for usage, help in commands.items():
            table.add_row(Text(usage, style="bold"), Text(help))
        self._terminal.show(table)

    def hint(self, text: str) -> None:
        self._terminal.hint(text)

    def note(self, text: str) -> None:
        self._terminal.note(Text(visible(text), style="yellow"))

    def error(self, error: PerdureError) -> None:
        self._terminal.error(str(error))

    def show_status(self, text: str) -> None:
        self._terminal.show_status(text)

    def clear_status(self) -> None:
        self._terminal.clear_status()
        self._terminal.end_line()


def block_view(block: Block) -> RenderableType:
    """A block: label, size and flags, then the description, then the value."""
    head = Text.assemble(
        (visible(block.label), "bold cyan"),
        f"  {len(block.value):,}/{block.limit_chars:,} characters  version {block.version}",
        ("  read-only" if block.read_only else "", "yellow"),
    )
    parts: list[RenderableType] = [head]
    if block.description:
        parts.append(Padding(Text(visible(block.description), style="dim"), (0, 0, 0, 2)))
    value = Text(visible(block.value)) if block.value else Text("(empty)", style="dim")
    parts.append(Padding(value, (0, 0, 0, 2)))
    return Group(*parts)


def _pending(call: PendingCall, place: str = "") -> RenderableType:
    """A waiting call: its tool, its id, and its arguments one a line."""
    who = "for the program that sent the message" if call.awaits_client else "for you"
    head = Text.assemble(
        ("⚙ ", "yellow"),
        (plain_text(call.name), "bold"),
        (f" waits {who}", "yellow"),
        (f"  {place}" if place else "", "bold"),
        (f"  {plain_text(call.call_id)}", "dim"),
    )
    return Group(head, *(Padding(Text(line), (0, 0, 0, 4)) for line in argument_lines(call.arguments)))


def _about(row: ConversationRow) -> Text:
    if row.summary:
        return Text(visible(fold(row.summary, ABOUT_CHARS)), style="bold")
    return Text(visible(fold(row.first_text, ABOUT_CHARS)) if row.first_text else "(nothing said yet)", style="dim")


def author_name(author: Author) -> str:
    """The author of an edit and its run."""
    name = {"user": "you", "agent": "the agent", "system": "Perdure"}[author.kind]
    return f"{name} in {author.run_id}" if author.run_id else name
