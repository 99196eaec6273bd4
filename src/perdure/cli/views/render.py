"""The events of a run on a terminal: streamed text, folded tool calls, memory edits as diffs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text as Line

from perdure.cli.views.terminal import Terminal
from perdure.cli.views.view import call_line, first_names, outcome, places_read, plural, visible
from perdure.core import events
from perdure.core.ids import StepId
from perdure.core.messages import Message, Reasoning, Text, ToolCall, ToolResult
from perdure.core.nodes import message_handle
from perdure.core.text.line_diff import diff_lines

_MAKING_ROOM = {
    "evict": "the window is full: summarising what was said first…",
    "merge": "the window is full: joining summaries…",
    "stub": "the window is full: shortening what is longest…",
    "swap": "putting summaries in the place of what was said first…",
    "engine": "the context engine makes room…",
}

PLACES_MAX = 8
RECALLED_MAX = 4
DIFF_LINES_MAX = 40
DIFF_STYLES = {"+": "green", "-": "red", " ": "dim", "…": "dim"}


def diff_view(diff: str, *, indent: str = "    ", limit: int | None = DIFF_LINES_MAX) -> Line:
    """The lines of a diff in colours, at most `limit`; None: all."""
    lines = list(diff_lines(diff))
    view = Line("\n").join(
        Line(f"{indent}{mark} {visible(text)}".rstrip(), style=DIFF_STYLES[mark]) for mark, text in lines[:limit]
    )
    if limit is not None and len(lines) > limit:
        view.append(f"\n{indent}… {len(lines) - limit} more lines", style="dim")
    return view


class RunRenderer:
    """Shows the events of one run. Deltas are previews of a message: of the message itself only what they did not show
    is written. Without a streaming terminal there are no previews.

    Args:
        calls: the calls of an earlier run whose results this run begins with.
    """

    def __init__(self, terminal: Terminal, calls: Sequence[ToolCall] = ()) -> None:
        self._terminal = terminal
        self._previews: dict[str, dict[str, str]] = {}  # message id -> kind of delta -> text on the screen
        self._preview_step: StepId | None = None
        self._calls = {call.call_id: call for call in calls}  # without a result yet, in their order
        self._printed: set[str] = set()  # ids of calls whose line is on the screen

    def show_event(self, event: events.StoredEvent | events.Delta) -> None:
        """Show what an event of the run, or a preview of a message, means to a person."""
        if isinstance(event, events.Delta):
            self._preview(event)
            return
        match event.event:
            case events.RunQueued():
                self._terminal.show_status("waiting for its turn…")
            case events.ModelChanged(old=old, new=new):
                text = f"{visible(new)} answers from now on, no longer {visible(old)}"
                why = "this agent follows the default model; /model HANDLE pins one"
                self._terminal.print_note(Line(f"◆ {text}: {why}"))
            case events.StepStarted():
                self._terminal.show_status("thinking…")
            case events.DeltaStreamed(delta=delta):
                self._preview(delta)
            case events.MessageAdded(message=Message(role="assistant") as message):
                self._show_message(message)
            case events.MessageAdded(message=Message(role="tool") as message):
                for result in message.results:
                    self._show_result(result)
            case events.ToolStarted(name=name):
                self._terminal.show_status(f"running {visible(name)}…")
            case events.MemoryEdited() as edit:
                self._show_edit(edit)
            case events.MemoryRecalled() as recalled:
                names = list(dict.fromkeys(visible(str(source["name"])) for source in recalled.sources))
                text = f"recalled {len(recalled.sources)}: {first_names(names, RECALLED_MAX)}"
                if recalled.problem is not None:
                    text = f"nothing recalled: {visible(recalled.problem)}"
                self._terminal.print_note(Line(f"◆ {text}", style="dim"))
            case events.EngineQuarantined() as quarantined:
                text = f"context engine {visible(quarantined.engine)} failed: {visible(quarantined.reason)};"
                self._terminal.print_note(Line(f"{text} {quarantined.takes_over} takes over", style="yellow"))
            case events.ViewFull(by=by):
                self._terminal.show_status(_MAKING_ROOM[by])
            case events.ViewCompacted(merged=False) as compacted:
                which = message_handle(compacted.from_message_seq, compacted.upto_message_seq)
                maker = {"model": "by the model", "engine": "by the context engine"}.get(
                    compacted.made_by, "an extract"
                )
                text = f"▤ {which} left the window behind a summary ({maker}); nothing is lost: /context, /search"
                self._terminal.print_note(Line(text, style="dim"))
            case events.RowsCut(stubs=stubs):
                handles = ", ".join(map(message_handle, stubs))
                self._terminal.print_note(
                    Line(f"▤ {handles} is too long for the window: the model sees a part", style="dim")
                )
            case events.StepAbandoned(step_id=step_id):
                self._show_abandoned(step_id)
            case events.RunCancelRequested():
                self._terminal.show_status("cancelling…")
            case events.RunEnded() as end:
                self._show_end(end)

    def _preview(self, delta: events.Delta) -> None:
        """Show a piece of a message that is still being made."""
        if delta.kind == "progress":
            self._terminal.show_status(f"{visible(delta.text)}…")
        if not self._terminal.streaming:
            return
        match delta.kind:
            case "text":
                self._terminal.write(delta.text, "words")
            case "reasoning":
                self._terminal.write(delta.text, "thought")
            case "tool_name":
                self._terminal.show_status(f"calling {visible(delta.text)}…")
                return
            case _:
                return
        self._preview_step = delta.step_id
        preview = self._previews.setdefault(delta.message_id, {})
        preview[delta.kind] = preview.get(delta.kind, "") + delta.text

    def _show_message(self, message: Message) -> None:
        """Show what the previews did not show of a message."""
        preview = self._previews.pop(message.id, {})
        self._preview_step = None
        reasoning = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
        text = "".join(part.text for part in message.parts if isinstance(part, Text))
        preview_text = preview.get("reasoning", "")
        if reasoning.startswith(preview_text) and reasoning != preview_text:
            self._terminal.write(reasoning[len(preview_text) :], "thought")
        preview_text = preview.get("text", "")
        if not text.startswith(preview_text):
            self._terminal.print_note(Line("(the answer became another one; this is what was kept:)", style="dim"))
            preview_text = ""
        if not preview_text:
            text = message.text
        if text != preview_text:
            self._terminal.write(text[len(preview_text) :], "words")
        self._terminal.end_line()
        for call in message.calls:
            self._calls[call.call_id] = call
        if message.calls:
            self._terminal.show_status(f"running {visible(message.calls[0].name)}…")

    def _show_edit(self, edit: events.MemoryEdited) -> None:
        """Show the diff of a memory edit below its call."""
        # Memory tools run one after the other, and an edit's event comes right before its result: the edit belongs to
        # the first call that is open and does not wait for a decision.
        call = next((call for call in self._calls.values() if call.awaits is None), None)
        if call is not None and call.call_id not in self._printed:
            self._show_tool_line(call_line(call))
            self._printed.add(call.call_id)
        self._terminal.print_note(
            Line.assemble("  ", (visible(edit.label), "bold"), (f"  version {edit.version}", "dim")),
            diff_view(edit.diff),
        )

    def _show_result(self, result: ToolResult) -> None:
        """Show a call on one line, with its result or the places that it read."""
        call = self._calls.pop(result.call_id, None) or ToolCall(result.call_id, result.name, "")
        if result.question is not None:
            return  # the agent's message has the question
        if result.call_id in self._printed and result.status == "success":
            return  # its diff is enough
        text, places = f"{call_line(call)} → {outcome(result)}", places_read(result)
        if places and (text.endswith("…") or _tool_text(text).cell_len > self._terminal.width):
            self._show_tool_line(f"{call_line(call)} → {plural(len(places), 'place')}:")
            for place in places[:PLACES_MAX]:
                self._terminal.print_note(Line(f"  {visible(place)}", style="dim"))
            if len(places) > PLACES_MAX:
                self._terminal.print_note(Line(f"  … and {len(places) - PLACES_MAX:,} more", style="dim"))
            return
        self._show_tool_line(text, failed=result.status == "error")

    def _show_tool_line(self, text: str, *, failed: bool = False) -> None:
        line = _tool_text(text, style="yellow" if failed else "dim")
        if not failed:  # an error is short, and shown in full
            line.truncate(max(20, self._terminal.width), overflow="ellipsis")
        self._terminal.print_note(line)

    def _show_abandoned(self, step_id: StepId) -> None:
        """Say that the previews of a step are void."""
        if self._preview_step == step_id:
            self._terminal.print_note(
                Line("(the partial answer above is void: its process died; the model is asked again)", style="yellow")
            )
            self._preview_step = None
        self._terminal.show_status("thinking…")

    def _show_end(self, end: events.RunEnded) -> None:
        """Show why the run ended, unless it ended as usual."""
        partial = self._preview_step is not None
        self._terminal.end_line()
        self._terminal.clear_status()
        if end.failure is not None:
            void = "; the partial answer above is void" if partial else ""
            self._terminal.print_error(
                f"the run ended with {end.stop_reason}: {end.failure.message.rstrip('.')}. Your message is kept{void}."
            )
        elif end.stop_reason == "cancelled":
            void = ": the partial answer above was not kept, your message was" if partial else ""
            self._terminal.print_note(Line(f"cancelled{void}", style="yellow"))
        elif end.stop_reason == "max_steps":
            self._terminal.print_note(
                Line(f"stopped after {end.step_count} model calls (max_steps); say “go on” to continue", style="yellow")
            )
        elif end.stop_reason not in ("end_turn", "tool_rule", "requires_approval"):  # the session shows waiting calls
            self._terminal.print_note(Line(f"stopped: {end.stop_reason}", style="yellow"))


def _tool_text(text: str, *, style: str = "") -> Line:
    return Line(f"⚙ {visible(text)}".replace("\n", " "), style=style)
