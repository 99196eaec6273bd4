"""A run's events on a terminal: words as they come, tool calls folded, memory edits as diffs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text as Line

from perdure.cli.chat.terminal import Terminal
from perdure.cli.views.fold import call_line, diff_lines, outcome, places_read, visible
from perdure.core.events import (
    Delta,
    DeltaStreamed,
    MemoryEdited,
    MemoryRecalled,
    MessageAdded,
    RowsCut,
    RunCancelRequested,
    RunEnded,
    RunQueued,
    StepAbandoned,
    StepStarted,
    StoredEvent,
    ToolStarted,
    ViewCompacted,
    ViewFull,
)
from perdure.core.ids import StepId
from perdure.core.messages import Message, Reasoning, Text, ToolCall, ToolResult
from perdure.core.nodes import message_handle

__all__ = ["RunRenderer", "diff_view"]

_MAKING_ROOM = {
    "evict": "summarising what was said first…",
    "merge": "joining summaries…",
    "stub": "shortening what is longest…",
}

PLACES_NAMED = 8
RECALLED_NAMED = 4
DIFF_LINES = 40
DIFF_STYLES = {"+": "green", "-": "red", " ": "dim", "…": "dim"}


def diff_view(diff: str, *, indent: str = "    ") -> Line:
    """The changed lines of a diff in their colours, at most 40 of them."""
    lines = list(diff_lines(diff))
    shown = Line("\n").join(
        Line(f"{indent}{mark} {visible(text)}".rstrip(), style=DIFF_STYLES[mark]) for mark, text in lines[:DIFF_LINES]
    )
    if len(lines) > DIFF_LINES:
        shown.append(f"\n{indent}… {len(lines) - DIFF_LINES} more lines", style="dim")
    return shown


class RunRenderer:
    """Shows one run. Deltas are previews, the message that follows is the fact: of it only what they did not show is
    printed. Without a streaming terminal there are no previews.

    Args:
        decided: the calls that the run goes on with, which stand in an earlier one.
    """

    def __init__(self, terminal: Terminal, decided: Sequence[ToolCall] = ()) -> None:
        self._terminal = terminal
        self._previews: dict[str, dict[str, str]] = {}  # message -> kind -> text that stands on the screen
        self._previewing: StepId | None = None
        self._calls = {call.call_id: call for call in decided}  # without a result yet, in their order
        self._told: set[str] = set()  # calls whose line is printed already

    def saw(self, sent: StoredEvent | Delta) -> None:
        if isinstance(sent, Delta):
            self._preview(sent)
            return
        match sent.event:
            case RunQueued():
                self._terminal.waiting("waiting for its turn…")
            case StepStarted():
                self._terminal.waiting("thinking…")
            case DeltaStreamed(delta=delta):
                self._preview(delta)
            case MessageAdded(message=Message(role="assistant") as message):
                self._said(message)
            case MessageAdded(message=Message(role="tool") as message):
                for result in message.results:
                    self._returned(result)
            case ToolStarted(name=name):
                self._terminal.waiting(f"running {visible(name)}…")
            case MemoryEdited() as edit:
                self._edited(edit)
            case MemoryRecalled() as recalled:
                self._recalled(recalled)
            case ViewFull(by=by):
                self._terminal.waiting("the window is full: " + _MAKING_ROOM[by])
            case ViewCompacted(merged=False) as compacted:
                self._compacted(compacted)
            case RowsCut(stubs=stubs):
                handles = ", ".join(map(message_handle, stubs))
                self._terminal.note(Line(f"▤ {handles} is too long for the window: the model sees a part", style="dim"))
            case StepAbandoned(step_id=step_id):
                self._abandoned(step_id)
            case RunCancelRequested():
                self._terminal.waiting("cancelling…")
            case RunEnded() as end:
                self._ended(end)
            case _:
                pass

    def _preview(self, delta: Delta) -> None:
        if not self._terminal.streaming:
            return
        match delta.kind:
            case "text":
                self._terminal.words(delta.text)
            case "reasoning":
                self._terminal.thought(delta.text)
            case "tool_name":
                self._terminal.waiting(f"calling {visible(delta.text)}…")
                return
            case _:
                return
        self._previewing = delta.step_id
        shown = self._previews.setdefault(delta.message_id, {})
        shown[delta.kind] = shown.get(delta.kind, "") + delta.text

    def _recalled(self, event: MemoryRecalled) -> None:
        names = list(dict.fromkeys(visible(str(source["name"])) for source in event.sources))
        more = f", and {len(names) - RECALLED_NAMED} more" if len(names) > RECALLED_NAMED else ""
        told = f"recalled {len(event.sources)}: {', '.join(names[:RECALLED_NAMED])}{more}"
        if event.problem is not None:
            told = f"nothing recalled: {visible(event.problem)}"
        self._terminal.note(Line(f"◆ {told}", style="dim"))

    def _said(self, message: Message) -> None:
        shown = self._previews.pop(message.id, {})
        self._previewing = None
        thought = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
        spoken = "".join(part.text for part in message.parts if isinstance(part, Text))
        if thought.startswith(before := shown.get("reasoning", "")) and thought != before:
            self._terminal.thought(thought[len(before) :])
        before = shown.get("text", "")
        if not spoken.startswith(before):
            self._terminal.note(Line("(the answer became another one; this is what was kept:)", style="dim"))
            before = ""
        if not before:
            spoken = message.text
        if spoken != before:
            self._terminal.words(spoken[len(before) :])
        self._terminal.end_line()
        for call in message.calls:
            self._calls[call.call_id] = call
        if message.calls:
            self._terminal.waiting(f"running {visible(message.calls[0].name)}…")

    def _compacted(self, compacted: ViewCompacted) -> None:
        which = message_handle(compacted.from_message_seq, compacted.upto_message_seq)
        by = "by the model" if compacted.made_by == "model" else "an extract"
        text = f"▤ {which} left the window behind a summary ({by}); nothing is lost: /context, /search"
        self._terminal.note(Line(text, style="dim"))

    def _edited(self, edit: MemoryEdited) -> None:
        # A memory tool's edit is told right before its result, and memory tools run one after the other; what waits for
        # somebody is not run before them.
        call = next((call for call in self._calls.values() if call.awaits is None), None)
        if call is not None and call.call_id not in self._told:
            self._tool_line(call_line(call))
            self._told.add(call.call_id)
        self._terminal.note(
            Line.assemble("  ", (visible(edit.label), "bold"), (f"  version {edit.version}", "dim")),
            diff_view(edit.diff),
        )

    def _returned(self, result: ToolResult) -> None:
        call = self._calls.pop(result.call_id, None) or ToolCall(result.call_id, result.name, "")
        if result.question is not None:
            return  # the agent says it next
        if result.call_id in self._told and result.status == "success":
            return  # its diff says it all
        told, places = f"{call_line(call)} → {outcome(result)}", places_read(result)
        if places and (told.endswith("…") or _line(told).cell_len > self._terminal.width):
            self._tool_line(f"{call_line(call)} → {len(places):,} place{'s' * (len(places) > 1)}:")
            for place in places[:PLACES_NAMED]:
                self._terminal.note(Line(f"  {visible(place)}", style="dim"))
            if len(places) > PLACES_NAMED:
                self._terminal.note(Line(f"  … and {len(places) - PLACES_NAMED:,} more", style="dim"))
            return
        self._tool_line(told, failed=result.status == "error")

    def _tool_line(self, text: str, *, failed: bool = False) -> None:
        line = _line(text, style="yellow" if failed else "dim")
        if not failed:  # what went wrong is short, and read to its end
            line.truncate(max(20, self._terminal.width), overflow="ellipsis")
        self._terminal.note(line)

    def _abandoned(self, step_id: StepId) -> None:
        if self._previewing == step_id:
            self._terminal.note(
                Line("(the partial answer above is void: its process died; the model is asked again)", style="yellow")
            )
            self._previewing = None
        self._terminal.waiting("thinking…")

    def _ended(self, end: RunEnded) -> None:
        partial = self._previewing is not None
        self._terminal.end_line()
        self._terminal.idle()
        if end.failure is not None:
            void = "; the partial answer above is void" if partial else ""
            self._terminal.error(
                f"the run ended with {end.stop_reason}: {end.failure.message.rstrip('.')}. Your message is kept{void}."
            )
        elif end.stop_reason == "cancelled":
            void = ": the partial answer above was not kept, your message was" if partial else ""
            self._terminal.note(Line(f"cancelled{void}", style="yellow"))
        elif end.stop_reason == "max_steps":
            self._terminal.note(
                Line(f"stopped after {end.step_count} model calls (max_steps); say “go on” to continue", style="yellow")
            )
        elif end.stop_reason not in ("end_turn", "tool_rule", "requires_approval"):  # of the last, whoever asks tells
            self._terminal.note(Line(f"stopped: {end.stop_reason}", style="yellow"))


def _line(text: str, *, style: str = "") -> Line:
    return Line(f"⚙ {visible(text)}".replace("\n", " "), style=style)
