"""Assembly: from a prefix, the log and a recipe to the request; and the canonical form of a request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.context.envelopes import envelope
from perdure.context.prefix import Counts
from perdure.core.errors import IllegalLog
from perdure.core.messages import Message, parts_to_json
from perdure.core.models import ModelOptions, ModelRequest
from perdure.core.runs import Prefix, Recipe
from perdure.core.zones import zone

__all__ = ["View", "assemble", "canonical", "check_legal", "cut_point", "tail"]


@dataclass(frozen=True, slots=True)
class View:
    """What a conversation's model is shown: a prefix and the log rows that follow it, legal by construction.

    A view only grows; a new prefix begins a new one. Legality is checked on the rows that are added, so that a long
    view costs no more to extend than a short one.
    """

    prefix: Prefix
    messages: tuple[Message, ...] = ()

    @property
    def next_seq(self) -> int:
        """The first sequence number that this view does not know of."""
        return self.messages[-1].seq + 1 if self.messages else self.prefix.from_message_seq

    def following(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Those of the conversation's `messages` (in order) that come after the view's own; none if there is a gap.

        An agent's rows are numbered without gaps, so behind one stands a row that the caller does not have: another
        conversation's, or one that was put into this.
        """
        seq = self.next_seq
        rows = [message for message in messages if message.seq >= seq]
        return rows if rows and rows[0].seq == seq and rows[-1].seq == seq + len(rows) - 1 else ()

    def extended(self, messages: Sequence[Message]) -> View:
        """The view with these rows after its own. Raises: IllegalLog."""
        if not messages:
            return self
        check_legal(messages)
        return View(self.prefix, self.messages + tuple(messages))


def assemble(model: str, view: View, recipe: Recipe, *, options: ModelOptions | None = None) -> ModelRequest:
    """The request that the recipe stands for; `view` reaches from its prefix to `recipe.upto_message_seq`."""
    return ModelRequest(
        model=model,
        system=view.prefix.system,
        tools=view.prefix.tools,
        messages=view.messages,
        tail=recipe.tail,
        options=options or ModelOptions(),
    )


def check_legal(messages: Sequence[Message]) -> None:
    """Nothing, when every call is followed by its one result before anything else is said.

    Raises: IllegalLog.
    """
    open_calls: set[str] = set()
    for message in messages:
        if message.role == "tool":
            for result in message.results:
                if result.call_id not in open_calls:
                    raise IllegalLog(
                        f"{message.id} has a result for {result.call_id!r}, which was not asked or answered twice"
                    )
                open_calls.remove(result.call_id)
            continue
        if open_calls:
            raise IllegalLog(f"{message.id} stands between call {min(open_calls)!r} and its result")
        for call in message.calls:
            if call.call_id in open_calls:
                raise IllegalLog(f"{message.id} has two calls with the id {call.call_id!r}")
            open_calls.add(call.call_id)
    if open_calls:
        raise IllegalLog(f"call {min(open_calls)!r} has no result")


def canonical(request: ModelRequest) -> bytes:
    """Our canonical form of a request: tools, system, messages, tail, one JSON line each. Equal bytes, equal
    request."""
    return "\n".join(_lines(request)).encode("utf-8", "surrogatepass")


def _lines(request: ModelRequest) -> Iterator[str]:
    for tool in request.tools:
        yield _line({"tool": tool})
    yield _line({"system": request.system})
    for message in request.messages:
        yield f'{{"role":"{message.role}","kind":"{message.kind}","parts":{parts_to_json(message.parts)}}}'
    if request.tail:
        yield _line({"tail": request.tail})


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def tail(now: datetime, timezone: str, counts: Counts) -> str:
    """The volatile tail: the date where the agent lives, and current counts. It is in the recipe, not in the log."""
    local = now.astimezone(zone(timezone))
    return envelope(
        "context_status",
        date=local.date().isoformat(),
        weekday=local.strftime("%A"),
        time=local.strftime("%H:%M"),
        timezone=timezone,
        recall_messages=counts.messages,
        archival_passages=counts.passages,
    )


def cut_point(runs: Sequence[tuple[int, int]], *, budget_tokens: int) -> int | None:
    """Where the view should begin so that it fits again: the first message of a run.

    A run begins after everything before it was answered, so no call is ever cut from its result.

    Args:
        runs: (first message's sequence number, tokens of the run), oldest first; the last one always stays.
    Returns: the sequence number; None when there is nothing that could go.
    """
    kept = 0
    start: int | None = None
    for first_seq, tokens in reversed(runs):
        kept += tokens
        if start is not None and kept > budget_tokens:
            break
        start = first_seq
    return start if runs and start != runs[0][0] else None
