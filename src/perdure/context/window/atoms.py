"""Atoms: groups of rows that no plan may separate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.core.messages import Message


@dataclass(frozen=True, slots=True)
class Atom:
    """A message, or one with tool calls and all their results, in order."""

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
    """Group the rows of a legal log into atoms, in order. A cut between two atoms leaves two legal logs.

    Reasoning stays with its calls, in their message. Open calls at the end are one atom with the results so far.
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
