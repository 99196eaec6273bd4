"""What a companion is given to read: what was said and done in its agent's conversations, as numbered lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from perdure.core.messages import Message, ToolCall
from perdure.core.ports import TokenCounter
from perdure.core.text.markup import escape_tags

TAG = "system-reminder"
ERROR_PATTERNS = "error_patterns"
"""The label of a block in which an agent keeps how its calls of tools fail."""

MESSAGE_CHARS, CALL_CHARS, FAILED_MAX = 8_000, 300, 30
"""Characters that are shown of a message, and of a call or its result; how many failed calls are listed."""
CONTINUATION = "    "
"""How the second and later lines of a message begin: lines with a number are not indented so far."""


@dataclass(frozen=True, slots=True)
class PassInput:
    """The text for a companion; the last message in it, None: there is none; and whether more messages follow."""

    text: str
    last: Message | None
    is_full: bool


def build_pass_input(
    agent_name: str,
    labels: Sequence[str],
    messages: Sequence[Message],
    *,
    zone: tzinfo,
    counter: TokenCounter,
    budget_tokens: int,
    finish_tool: str,
) -> PassInput:
    """Build the text for a companion from as many of the messages as fit a budget, the first in any case.

    Args:
        labels: of the blocks that companion and agent share.
        messages: in order, of all conversations that are read.
        zone: of the times in the text.
    """
    lines: list[str] = []
    several = len({message.conversation_seq for message in messages}) > 1
    last, is_full, used, number = None, False, 0, 0
    shown: list[Message] = []
    for message in messages:
        line = _line(message, zone, several=several)
        if line:
            number += 1
            line = f"{number}. {line}"
            tokens = counter.count(line)
            if lines and used + tokens > budget_tokens:
                is_full = True
                break
            used += tokens
            lines.append(line)
        last = message
        shown.append(message)
    parts = [
        f"<{TAG}>",
        f"You are a sleeptime agent: you keep the memory of the agent {agent_name!r}, which is not waiting for you."
        " What was said and done in its conversations since your last pass follows as numbered lines.",
        f"The memory blocks that you share with it: {', '.join(labels) or 'none'}. Edit them where the lines say"
        f" something that lasts, then call {finish_tool} with your reason.",
    ]
    if ERROR_PATTERNS in labels and (failed := list(_failed_calls(shown))):
        parts += [
            f"These calls of tools failed. Keep the block {ERROR_PATTERNS} from them: a line for each way in which they"
            " fail, with what helps; one line for calls that fail alike; without what is solved.",
            *failed[-FAILED_MAX:],
        ]
    parts += ["Messages:", *(lines or ["(none)"]), f"</{TAG}>"]
    return PassInput("\n".join(parts), last, is_full)


def _line(message: Message, zone: tzinfo, *, several: bool) -> str:
    """A message as the text behind its number; empty: there is nothing to read in it."""
    said = message.text.strip() if message.role in ("user", "assistant", "system") else ""
    calls = [_call(call) for call in message.calls if not call.speech]
    results = [f"{result.name} returned: {_cut(result.text)}" for result in message.results]
    text = "\n".join(filter(None, (said, *calls, *results)))
    if not text:
        return ""
    if len(text) > MESSAGE_CHARS:
        text = f"{text[:MESSAGE_CHARS]}… [cut: {len(text):,} characters]"
    time = message.occurred_at.astimezone(zone).strftime("%Y-%m-%d %H:%M")
    place = f", conversation {message.conversation_seq}" if several else ""
    name = f" {message.name}" if message.name and message.role == "user" else ""
    text = f"{message.role}{name} ({time}{place}): {escape_tags(text, (TAG,))}"
    return f"\n{CONTINUATION}".join(text.splitlines())


def _call(call: ToolCall) -> str:
    """A call in a few words."""
    return f"[called {call.name} with {_cut(call.own_arguments)}]"


def _failed_calls(messages: Sequence[Message]) -> Iterator[str]:
    """A line for each call that failed."""
    arguments: Mapping[str, str] = {call.call_id: call.own_arguments for one in messages for call in one.calls}
    for message in messages:
        for result in message.results:
            if result.status == "error":
                text = f"- {result.name} with {_cut(arguments.get(result.call_id, '?'))}: {_cut(result.text)}"
                yield escape_tags(" ".join(text.split()), (TAG,))


def _cut(text: str) -> str:
    """The beginning of a text, in one line."""
    text = " ".join(text.split())
    return text if len(text) <= CALL_CHARS else f"{text[:CALL_CHARS]}…"
