"""Whether the steps of a turn get somewhere: pure functions of its messages.

A step is an answer whose calls all have results. It makes progress if one of its calls succeeded, and the turn had not
seen the same call with the same result before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.core.messages import Message, ToolCall, ToolResult

ARGUMENTS_CHARS, OUTCOME_CHARS, LINE_CHARS = 60, 60, 240


@dataclass(frozen=True, slots=True)
class ToolStep:
    """The calls of one answer, each with its result."""

    pairs: tuple[tuple[ToolCall, ToolResult], ...]

    @property
    def failed(self) -> bool:
        """Whether no call succeeded."""
        return all(result.status != "success" for _, result in self.pairs)

    @property
    def calls(self) -> frozenset[tuple[str, str]]:
        """The calls as (name, arguments)."""
        return frozenset(_key(call) for call, _ in self.pairs)


def tool_steps(messages: Iterable[Message]) -> list[ToolStep]:
    """Return the steps in these messages, oldest first. Steps with a call that has no result here are left out."""
    steps: list[ToolStep] = []
    calls: dict[str, ToolCall] = {}
    pairs: list[tuple[ToolCall, ToolResult]] = []
    for message in messages:
        if message.calls:
            calls, pairs = {call.call_id: call for call in message.calls}, []
        for result in message.results:
            if (call := calls.pop(result.call_id, None)) is not None:
                pairs.append((call, result))
                if not calls:
                    steps.append(ToolStep(tuple(pairs)))
    return steps


def count_stalled(steps: Sequence[ToolStep]) -> int:
    """Return how many of the newest steps, in a row, made no progress."""
    seen: set[tuple[str, str, str]] = set()
    stalled = 0
    for step in steps:
        new = {(*_key(call), result.text) for call, result in step.pairs if result.status == "success"} - seen
        stalled = 0 if new else stalled + 1
        seen |= new
    return stalled


def count_repeats(steps: Sequence[ToolStep]) -> int:
    """Return how many of the newest steps, in a row, failed with the same calls; 0: the newest did not fail."""
    count = 0
    for step in reversed(steps):
        if not step.failed or step.calls != steps[-1].calls:
            break
        count += 1
    return count


def step_line(step: ToolStep) -> str:
    """Return one line about a step: each call with the gist of its arguments, and its outcome."""
    line = "; ".join(f"{call.name}({_gist(call)}) -> {_outcome(result)}" for call, result in step.pairs)
    return _clip(line, LINE_CHARS)


def _key(call: ToolCall) -> tuple[str, str]:
    """A call's name and arguments; the order of the arguments does not matter."""
    try:
        return call.name, json.dumps(json.loads(call.own_arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.name, call.own_arguments


def _gist(call: ToolCall) -> str:
    """The arguments in a few characters."""
    try:
        arguments = json.loads(call.own_arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return _clip(call.own_arguments, ARGUMENTS_CHARS)
    values = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in arguments.values()]
    return _clip(", ".join(values), ARGUMENTS_CHARS)


def _outcome(result: ToolResult) -> str:
    """What came of a call, in a few characters."""
    text = result.text if result.shown_text is None else result.shown_text
    words = _clip(text[: 4 * OUTCOME_CHARS], OUTCOME_CHARS) or "nothing"
    return words if result.status == "success" else f"failed: {words}"


def _clip(text: str, chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
