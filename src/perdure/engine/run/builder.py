"""What building a request needs in its transaction, and the size of what was built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.errors import IrreducibleFloor
from perdure.core.events import Event, MessageAdded
from perdure.core.messages import Message, MessageKind
from perdure.core.runs import Failure
from perdure.engine.context_engines.registry import FALLBACK, EngineInUse
from perdure.engine.ports import UnitInputs
from perdure.engine.run.finish import end_run
from perdure.engine.run.log import Progress, RunLog
from perdure.engine.run.next_action import Finish
from perdure.engine.run.prefixes import (
    Memory,
)
from perdure.engine.run.rows import engine_drafts
from perdure.storage.tx import Tx


@dataclass(slots=True, kw_only=True)
class RequestBuilder:
    """The state of building a request inside one transaction.

    Args:
        log: with all rows that were added.
        events: of this transaction, not stored yet.
        view_tokens: the upper estimate of all rows behind the prefix.
        overcount: by how many tokens the estimate of prefix and rows is too high.
        rewrite_reason: why the prefix was written in this transaction; None: it was not.
        leaves_out_notes: no other room can be made than that of the agent's working notes.
    """

    tx: Tx
    inputs: UnitInputs
    log: RunLog
    events: list[Event]
    agent: Agent
    conversation: Conversation
    memory: Memory
    view_tokens: int
    overcount: int
    rewrite_reason: str | None = None
    leaves_out_notes: bool = False

    @property
    def engine(self) -> EngineInUse:
        """The context engine that plans; another one takes over from one that failed in this run."""
        return FALLBACK if self.inputs.quarantined else self.inputs.engines.of(self.agent)

    def append(self, kind: MessageKind, texts: Sequence[str]) -> None:
        """Append the engine's own envelopes to the run's log."""
        drafts, tokens = engine_drafts(kind, texts, self.inputs)
        self.add(self.tx.messages.append(self.log.run, drafts, tokens, at=self.inputs.now))

    def end(self, error: Exception) -> Progress:
        """End the run, because its request can't be made small enough."""
        end = Finish(IrreducibleFloor.stop_reason, Failure(kind=IrreducibleFloor.kind, message=str(error)))
        return end_run(self.tx, self.log, end, self.events, self.inputs)

    def add(self, messages: Sequence[Message]) -> None:
        """Take in rows that were appended to the run's log."""
        self.log = replace(self.log, messages=(*self.log.messages, *messages))
        self.events += [MessageAdded(message.seq, message) for message in messages]
        self.view_tokens += sum(message.tokens for message in messages)


@dataclass(frozen=True, slots=True)
class RequestSize:
    """The size of a request with the tail `status`: `estimated` tokens, of which `overcount` are known to be too many,
    times `factor`; whether that is within the window, and its share of the window.

    `without_notes`: the size without working notes, where the request does not fit with them.
    """

    status: str
    estimated: int
    overcount: int
    factor: float
    fits: bool
    filled: float
    without_notes: RequestSize | None = None
