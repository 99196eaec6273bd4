"""`tx.steps` and `tx.prefixes`: the verbs of model calls and of what they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from perdure.core.ids import AgentId, StepId
from perdure.core.models import Exchange
from perdure.core.runs import Failure, Lease, Prefix, Recipe, Run, RunKey, Step, StepStatus, StopReason, Usage

__all__ = ["Prefixes", "Steps"]


class Steps(Protocol):
    def add(
        self,
        run: Run,
        step_id: StepId,
        *,
        index: int,
        model: str,
        recipe: Recipe,
        lease: Lease,
        at: datetime,
        held: bool = False,
    ) -> Step:
        """A step that is about to be asked.

        Args:
            held: the run was added, claimed or held in this transaction, so that it is known to be there.
        Raises: NotFound: there is no such run.
        """
        ...

    def get(self, step_id: StepId) -> Step:
        """Raises: NotFound."""
        ...

    def of_run(self, key: RunKey) -> Sequence[Step]: ...

    def list(
        self,
        agent_id: AgentId,
        *,
        conversation_seq: int | None = None,
        limit: int = 100,
        before: Step | None = None,
    ) -> Sequence[Step]:
        """The agent's steps, or those of one conversation, newest first; with `before` those that came before it."""
        ...

    def last_at(self, agent_id: AgentId) -> datetime | None:
        """When the agent's last model call began."""
        ...

    def end(
        self,
        step: Step,
        *,
        status: StepStatus,
        at: datetime,
        usage: Usage | None = None,
        stop_reason: StopReason | None = None,
        failure: Failure | None = None,
    ) -> Step: ...

    def factor(self, model: str) -> float:
        """How many tokens the model's provider is known to count for each one estimated; at least 1."""
        ...

    def learn_factor(self, model: str, factor: float) -> None:
        """Remember a factor in place of the one known before."""
        ...

    def put_exchange(self, step: Step, exchange: Exchange) -> None:
        """Keep what went over the wire at this step; a second one replaces the first."""
        ...

    def exchange(self, step: Step) -> Exchange | None: ...


class Prefixes(Protocol):
    def add(self, prefix: Prefix) -> Prefix:
        """The prefix with its number. Raises: NotFound: no such agent."""
        ...

    def at(self, agent_id: AgentId, seq: int) -> Prefix:
        """Raises: NotFound."""
        ...
