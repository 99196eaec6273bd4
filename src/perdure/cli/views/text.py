"""For people: a chat, and the results of commands as text."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from perdure.cli.views import view
from perdure.cli.views.render import RunRenderer, diff_view
from perdure.cli.views.terminal import Terminal
from perdure.core.blocks import Block, BlockVersion
from perdure.core.conversations import Reset
from perdure.core.errors import PerdureError
from perdure.core.events import Delta, RunQueued, StoredEvent
from perdure.core.ids import AgentId
from perdure.core.messages import ToolCall, ToolResult
from perdure.core.text.reprs import attributes
from perdure.core.tools.answers import PendingCall
from perdure.library.agent import AsyncAgent
from perdure.library.messages.reply import Reply
from perdure.library.messages.transcripts import TranscriptEntry

ABOUT_CHARS = 60
WITH_IDS_CELLS = 110
NO_TOOLS = "no tools: it can't keep a memory"
LINES_MAX = 200
CHARS_MAX = 20_000
_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories that are invisible or change the direction of text: with them a person could approve something
else than what runs."""


class TextView(Terminal, view.Output):
    """Text on a terminal."""

    def __init__(self, out: TextIO, err: TextIO, *, interactive: bool, coloured: bool | None = None) -> None:
        super().__init__(out, err, interactive=interactive, coloured=coloured)
        self._run = RunRenderer(self)
        self._resume_calls: Sequence[ToolCall] = ()  # of the next run
        self._resumed = False  # whether the current run began with such calls
        self._waiting: list[Callable[[], None]] | None = None  # what `finish` shows

    def show(self, shape: object, *parts: RenderableType) -> None:
        self.print(*parts)

    def show_long(self, shape: object, *parts: RenderableType) -> None:
        self._waiting = [partial(self.page, *parts)]

    def finish(self) -> None:
        waiting, self._waiting = self._waiting or (), None
        for show in waiting:
            show()

    def hint(self, text: str) -> None:
        if self._waiting is None:
            super().hint(text)
        else:
            self._waiting.append(partial(super().hint, text))

    def error(self, error: PerdureError) -> None:
        self.print_error(str(error))

    def show_reply(self, agent: AsyncAgent, reply: Reply) -> None:
        complete = reply.failure is None and reply.stop_reason not in ("cancelled", "requires_approval")
        if complete and not reply.text and not self._resumed:
            self.note("(the agent said nothing)")

    def note(self, text: str) -> None:
        self.print_note(Text(view.visible(text), style="yellow"))

    def show_event(self, event: StoredEvent | Delta) -> None:
        if isinstance(event, StoredEvent) and isinstance(event.event, RunQueued):
            self._run = RunRenderer(self, self._resume_calls)
            self._resumed, self._resume_calls = bool(self._resume_calls), ()
        self._run.show_event(event)

    def resume_with(self, calls: Sequence[ToolCall]) -> None:
        self._resume_calls = calls


def pending_view(call: PendingCall, place: str = "") -> RenderableType:
    """A waiting call: its tool, id, and arguments, one on each line; `place`: its number if several wait."""
    who = "for the program that sent the message" if call.awaits_client else "for you"
    head = Text.assemble(
        ("⚙ ", "yellow"),
        (plain_text(call.name), "bold"),
        (f" waits {who}", "yellow"),
        (f"  {place}" if place else "", "bold"),
        (f"  {plain_text(call.call_id)}", "dim"),
    )
    reason = [Padding(Text(plain_text(call.reason), style="yellow"), (0, 0, 0, 4))] if call.reason else []
    return Group(head, *reason, *(Padding(Text(line), (0, 0, 0, 4)) for line in argument_lines(call.arguments)))


def blocks_view(blocks: Iterable[Block]) -> Iterator[RenderableType]:
    """Each block: label, size and flags, then the description, then the value."""
    for block in blocks:
        yield Text.assemble(
            (view.visible(block.label), "bold cyan"),
            f"  {len(block.value):,}/{block.limit_chars:,} characters  version {block.version}",
            ("  read-only" if block.read_only else "", "yellow"),
            ("  protected" if block.is_protected else "", "yellow"),
        )
        if block.description:
            yield Padding(Text(view.visible(block.description), style="dim"), (0, 0, 0, 2))
        value = Text(view.visible(block.value)) if block.value else Text("(empty)", style="dim")
        yield Padding(value, (0, 0, 0, 2))


def versions_view(label: str, versions: Iterable[BlockVersion], own: AgentId) -> Iterator[RenderableType]:
    """The versions of a block of the agent with the id `own`: when, by whom and why each was written, and its diff."""
    for version in versions:
        author = version.author
        agent = "the agent" if author.agent_id == own else view.visible(version.agent_name) or "the agent"
        who = {"user": "you", "agent": agent, "system": "Perdure"}[author.kind]
        who += f" in {author.run_id}" if author.run_id else ""
        yield Text.assemble(
            (f"{view.visible(label)} version {version.version}", "bold"),
            (f"  {view.local_time(version.created_at)}  by {who}", "dim"),
        )
        if version.reason:
            yield Text(f"    {view.visible(version.reason)}")
        if outside := [source for source in version.author.sources if not source.source.is_trusted]:
            yield Text(
                f"    may come from {', '.join(view.visible(str(one.source)) for one in outside[:5])}", style="yellow"
            )
        diff = diff_view(version.diff)
        no_diff = Text("    (as it was made)" if version.version == 0 else "    (the value stayed)", style="dim")
        yield diff if diff.plain else no_diff


def agents_view(rows: Sequence[view.AgentRow]) -> RenderableType:
    """A table of agents. In a narrow terminal without their ids, which commands need only to tell equal names apart."""

    def lay_out(width: int) -> Iterator[RenderableType]:
        are_named = len({row.info.name for row in rows}) == len(rows)
        left_out = {"id"} if are_named and width < WITH_IDS_CELLS else set[str]()
        names = [name for name in ("name", "id", "model", "last used", "messages") if name not in left_out]
        table = view.new_table(*names, right=("messages",), styles={"name": "bold", "id": "dim"})
        for row in rows:
            cells = {
                "name": view.visible(row.info.name),
                "id": row.info.id,
                "model": f"{view.visible(row.info.model)}{' (default)' if row.info.follows_default else ''}",
                "last used": view.local_time(row.used_at),
                "messages": f"{row.info.message_count:,}",
            }
            table.add_row(*(cells[name] for name in names))
        yield table

    return view.WidthLayout(lay_out) if rows else Text("There are no agents yet.")


def conversations_view(rows: Iterable[view.ConversationRow]) -> RenderableType:
    """The conversations of an agent as a table, with a mark at the one that the chat continues."""
    table = view.new_table("", "number", "about", "last message", "")
    for row in rows:
        used_at = row.info.last_message_at
        table.add_row(
            Text("▸" if row.current else "", style="bold cyan"),
            str(row.info.seq),
            about_conversation(row),
            "" if used_at is None else view.local_time(used_at),
            Text("" if row.info.archived_at is None else "archived", style="dim"),
        )
    return table


def about_conversation(row: view.ConversationRow) -> Text:
    """What a conversation is about: its summary, or what was said first."""
    if row.info.summary:
        return Text(view.visible(view.fold(row.info.summary, ABOUT_CHARS)), style="bold")
    return Text(
        view.visible(view.fold(row.first_text, ABOUT_CHARS)) if row.first_text else "(nothing said yet)", style="dim"
    )


def reset_view(resets: Sequence[Reset]) -> RenderableType:
    """What a reset of conversations did."""
    count = sum(reset.message_count for reset in resets)
    effect = f"{view.plural(count, 'message')} out of view" if resets else "Nothing was in view"
    return Text(f"{effect}; memory blocks, archives and files are as they were.")


def model_view(row: view.ModelRow) -> Iterator[RenderableType]:
    """The handle and why the agent has it, then window, prices and abilities."""
    facts = row.facts
    yield Text.assemble((view.visible(row.handle), "bold cyan"), f"  ({view.visible(row.reason)})")
    if row.problem:
        yield Text(f"  {view.visible(row.problem)}", style="yellow")
    source = "" if facts.known else "  (in no catalog: a careful guess)"
    yield Text(f"  window {facts.window_tokens:,} tokens, answer up to {facts.max_output_tokens:,}{source}")
    if facts.input_price is None and facts.output_price is None:
        yield Text("  price unknown", style="dim")
    elif not facts.input_price and not facts.output_price:
        yield Text("  no price by the token")
    else:
        prices = (("input", facts.input_price), ("cached", facts.cached_price), ("output", facts.output_price))
        yield Text(f"  a million tokens: {', '.join(f'{name} {view.price(value)}' for name, value in prices)}")
    abilities = {
        "tools": facts.tools,
        "several at once": facts.parallel_tools,
        "can be made to call one": facts.forced_tool,
        "reasoning": facts.reasoning,
    }
    yield Text(f"  {', '.join(name for name, has in abilities.items() if has) or NO_TOOLS}")


def settings_view(settings: Mapping[str, Any]) -> RenderableType:
    """A table of settings: a text as it is, other values as JSON."""
    table = view.new_table("setting", "value", styles={"setting": "bold"})
    for name, value in settings.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        table.add_row(view.visible(name), view.visible(shown))
    return table


def transcript_view(
    entries: Sequence[TranscriptEntry], agent_name: str, *, conversations: bool = False, style: str = ""
) -> Iterator[RenderableType]:
    """The messages, oldest first, without the rows of tools, whose results stand beside their calls.

    Args:
        conversations: whether a line names the conversation wherever it changes.
        style: of everything.
    """
    results = {result.call_id: result for entry in entries for result in entry.message.results}
    line: int | None = None
    speaker: tuple[str, str] | None = None
    for entry in entries:
        message = entry.message
        if message.role == "tool" and message.kind == "message":
            continue
        if conversations and message.conversation_seq != line:
            line, speaker = message.conversation_seq, None
            yield Text(f"── conversation {line} ──", style="dim")
        name = message.name or ("You" if message.role == "user" else message.role.capitalize())
        now = (view.local_time(message.occurred_at), agent_name if message.role == "assistant" else name)
        if now != speaker:
            yield Text.assemble((view.visible(now[1]), f"bold {style}"), (f"  {now[0]}", "dim"))
            speaker = now
        for part in _parts(entry, results, style):
            yield Padding(part, (0, 0, 0, 2))


def _parts(entry: TranscriptEntry, results: dict[str, ToolResult], style: str) -> Iterator[RenderableType]:
    """What is said in a message, its calls and its edits of memory."""
    message = entry.message
    for decision in message.decisions:
        reason = f": {view.visible(decision.reason)}" if decision.reason else ""
        yield Text(
            f"{'approved' if decision.approve else 'denied'} {view.visible(decision.call_id)}{reason}", style="dim"
        )
    if message.text and message.kind == "message":
        yield Text(view.visible(message.text), style=style)
    for call in message.calls:
        if call.speech:
            continue
        result = results.get(call.call_id)
        text = f"⚙ {view.call_line(call)} → {'no result' if result is None else view.outcome(result)}"
        failed = result is not None and result.status == "error"
        yield Text(view.visible(text).replace("\n", " "), style="yellow" if failed else "dim")
    for edit in entry.edits:
        yield Text.assemble((view.visible(edit.label), f"bold {style}"), (f"  version {edit.version}", "dim"))
        yield diff_view(edit.diff, indent="  ")
    if entry.failure is not None:
        yield Text(f"no answer: {view.visible(entry.failure.message)}", style="red")


def last_turns(entries: Sequence[TranscriptEntry], count: int) -> Sequence[TranscriptEntry]:
    """The last turns of a conversation: each begins with a message that is not the agent's."""
    starts = [
        place
        for place, entry in enumerate(entries)
        if entry.message.role in ("user", "system") and entry.message.kind == "message"
    ]
    return entries[starts[-count] :] if 0 < count <= len(starts) else entries if count else ()


def plain_json(value: Any) -> str:
    """`value` as JSON on one line; invisible characters are written as \\uXXXX."""
    return plain_text(json.dumps(value, ensure_ascii=False))


def pending_text(call: PendingCall) -> str:
    """A waiting call on one line."""
    who = "the program that sent the message" if call.awaits_client else "you"
    helper = f" in its helper {plain_text(call.helper)}" if call.helper else ""
    return f"{plain_text(call.name)} {plain_json(call.arguments)}{helper} waits for {who} ({plain_text(call.call_id)})"


def argument_lines(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Arguments one a line, texts of several lines below their names; what is over the limits is only counted."""
    lines = list(_unlimited_lines(arguments))
    count = chars = 0
    for line in lines[:LINES_MAX]:
        if count and chars + len(line) > CHARS_MAX:
            break
        yield line if len(line) <= CHARS_MAX else f"{line[:CHARS_MAX]}… {len(line) - CHARS_MAX:,} more characters"
        count, chars = count + 1, chars + len(line)
    if count < len(lines):
        yield f"… {len(lines) - count:,} more lines; `perdure approval list --json` has all of it"


def _unlimited_lines(arguments: Mapping[str, Any]) -> Iterator[str]:
    if not arguments:
        yield "(no arguments)"
    for name, value in arguments.items():
        if isinstance(value, str) and "\n" in value.rstrip("\n"):
            yield f"{plain_text(name)}:"
            yield from (f"  {plain_text(line)}" for line in value.split("\n"))
        else:
            yield f"{plain_text(name)}: {plain_json(value)}"


def pending_shape(call: PendingCall) -> dict[str, Any]:
    """A waiting call as JSON."""
    return attributes(call, "agent_id", "conversation_id", "run_id", "reason", "helper") | call_shape(call.call)


def call_shape(call: ToolCall) -> dict[str, Any]:
    """A waiting call as JSON inside the reply of its run."""
    arguments = json.loads(call.arguments) if call.arguments.strip() else {}
    return {"call_id": call.call_id, "name": call.name, "arguments": arguments, "awaits": call.awaits}


def plain_text(text: str) -> str:
    """`text` on one line; invisible characters are written as \\uXXXX."""
    return "".join(
        json.dumps(char)[1:-1] if char != "\t" and unicodedata.category(char) in _INVISIBLE else char for char in text
    )
