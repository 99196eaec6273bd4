"""Atoms: the rows of a view that no plan may part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.core.messages import Message

__all__ = ["Atom", "atoms"]


@dataclass(frozen=True, slots=True)
class Atom:
    """A message, or one with tool calls and all that answers them, in order."""

    messages: tuple[Message, ...]

    @property
    def from_seq(self) -> int:
        return self.messages[0].seq

    @property
    def upto_seq(self) -> int:
        return self.messages[-1].seq

    @property
    def run_seq(self) -> int | None:
        return self.messages[0].run_seq


def atoms(messages: Sequence[Message]) -> tuple[Atom, ...]:
    """The rows of a legal log as atoms, in order. Cutting between two of them leaves two legal logs.

    Reasoning, signed or not, stands in the message of its calls, and so goes where they go. Calls that are still
    unanswered at the end make an atom with what has been answered.
    """
    return tuple(_atoms(messages))


def _atoms(messages: Sequence[Message]) -> Iterator[Atom]:
    open_calls: set[str] = set()
    rows: list[Message] = []
    for message in messages:
        if not open_calls and rows:
            yield Atom(tuple(rows))
            rows = []
        rows.append(message)
        open_calls |= {call.call_id for call in message.calls}
        open_calls -= {result.call_id for result in message.results}
    if rows:
        yield Atom(tuple(rows))
