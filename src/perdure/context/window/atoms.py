"""The rows of a log, grouped so that a cut between two groups leaves two legal logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core.messages import UNSEEN_KINDS, Message


@dataclass(frozen=True, slots=True)
class Atom:
    """Rows that no plan may separate: a message, or one with tool calls and all their results, in order."""

    messages: tuple[Message, ...]

    @property
    def upto_seq(self) -> int:
        """The number of its last row."""
        return self.messages[-1].seq

    @property
    def run_seq(self) -> int | None:
        """The run of its first row."""
        return self.messages[0].run_seq


def atoms(messages: Sequence[Message]) -> list[Atom]:
    """Group the rows of a legal log into atoms, in order. A cut between two atoms leaves two legal logs.

    Reasoning stays with its calls, in their message. Open calls at the end are one atom with the results so far. What
    no model sees belongs to the row before it.
    """
    groups: list[list[Message]] = []
    open_calls: set[str] = set()
    for message in messages:
        if not groups or not (open_calls or message.kind in UNSEEN_KINDS):
            groups.append([])
        groups[-1].append(message)
        open_calls |= {call.call_id for call in message.calls}
        open_calls -= {result.call_id for result in message.results}
    return [Atom(tuple(rows)) for rows in groups]
