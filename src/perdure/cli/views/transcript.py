"""A transcript as text: who said what and when, tool calls on a line each, edits of memory as diffs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from perdure.cli.chat.render import diff_view
from perdure.cli.views.fold import call_line, local_time, outcome, visible
from perdure.core.messages import Message, ToolResult
from perdure.library.services.transcripts import TranscriptEntry


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
        now = (local_time(message.occurred_at), _speaker(message, agent_name))
        if now != speaker:
            yield Text.assemble((visible(now[1]), f"bold {style}"), (f"  {now[0]}", "dim"))
            speaker = now
        for part in _parts(entry, results, style):
            yield Padding(part, (0, 0, 0, 2))


def _speaker(message: Message, agent_name: str) -> str:
    """Who a message is from."""
    if message.role == "assistant":
        return agent_name
    return message.name or ("You" if message.role == "user" else message.role.capitalize())


def _parts(entry: TranscriptEntry, results: dict[str, ToolResult], style: str) -> Iterator[RenderableType]:
    """What is said in a message, its calls and its edits of memory."""
    message = entry.message
    for decision in message.decisions:
        reason = f": {visible(decision.reason)}" if decision.reason else ""
        yield Text(f"{'approved' if decision.approve else 'denied'} {visible(decision.call_id)}{reason}", style="dim")
    if message.text and message.kind == "message":
        yield Text(visible(message.text), style=style)
    for call in message.calls:
        if call.speech:
            continue
        result = results.get(call.call_id)
        text = f"⚙ {call_line(call)} → {'no result' if result is None else outcome(result)}"
        failed = result is not None and result.status == "error"
        yield Text(visible(text).replace("\n", " "), style="yellow" if failed else "dim")
    for edit in entry.edits:
        yield Text.assemble((visible(edit.label), f"bold {style}"), (f"  version {edit.version}", "dim"))
        yield diff_view(edit.diff, indent="  ")


def last_turns(entries: Sequence[TranscriptEntry], count: int) -> Sequence[TranscriptEntry]:
    """The last turns of a conversation: each begins with a message that is not the agent's."""
    starts = [
        place
        for place, entry in enumerate(entries)
        if entry.message.role in ("user", "system") and entry.message.kind == "message"
    ]
    return entries[starts[-count] :] if 0 < count <= len(starts) else entries if count else ()
