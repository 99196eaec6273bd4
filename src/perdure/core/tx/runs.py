"""`tx.runs`: the verbs of runs and of who may work on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from perdure.core.conversations import Opening
from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.messages import Draft
from perdure.core.runs import Failure, Lease, Run, RunKey, RunStatus, StopReason, Usage

__all__ = ["RunFilter", "Runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs: all conditions hold; an empty tuple is none."""

    agent_ids: tuple[AgentId, ...] = ()
    conversation_id: ConversationId | None = None
    conversation_seq: int | None = None
    statuses: tuple[RunStatus, ...] = ()
    stop_reason: StopReason | None = None
    background: bool | None = None


class Runs(Protocol):
    def add(
        self,
        opening: Opening,
        run_id: RunId,
        *,
        drafts: Sequence[Draft] = (),
        at: datetime,
        max_steps: int,
        background: bool,
        running: bool = False,
        lease_owner: str | None,
        lease_until: datetime | None,
        waiting_input: str | None,
    ) -> Run:
        """A queued run, reserved for the process that accepted it until `lease_until`; or with `running` one that this
        process holds from the start, under its first lease. It takes the numbers for its messages, the `drafts`, and
        puts their ids into the directory; they are then to be appended. Unless it has to wait behind another run: then
        `waiting_input` is its encoded input, which becomes messages when the run is claimed.

        Raises: NotFound: the agent.
        """
        ...

    def get(self, run_id: RunId) -> Run:
        """Raises: NotFound."""
        ...

    def at(self, key: RunKey) -> Run:
        """Raises: NotFound."""
        ...

    def list(self, agent_id: AgentId, *, limit: int = 100, before_seq: int | None = None) -> Sequence[Run]:
        """Newest first."""
        ...

    def page(
        self,
        where: RunFilter,
        *,
        limit: int = 100,
        newest_first: bool = True,
        after: Run | None = None,
        before: Run | None = None,
    ) -> Sequence[Run]:
        """A page of the runs of all agents, in the order asked for: by number for one agent, by time for several.

        `after` and `before` are relative to that order; with `before` alone the page leads up to it.
        """
        ...

    def active(self, agent_id: AgentId, conversation_seq: int) -> Run | None:
        """The only run of a conversation that may be claimed: one that goes on with answered calls, else the oldest
        that has not ended, unless calls wait for an answer."""
        ...

    def claimable(self, *, at: datetime, limit: int = 32) -> Sequence[Run]:
        """The oldest unended run of every conversation whose lease has run out, or is held by nobody; the oldest first,
        those of the same moment by agent and number."""
        ...

    def held(self, *, limit: int = 32) -> Sequence[Run]:
        """The oldest unended run of every conversation, whoever holds it; in the same order."""
        ...

    def claim(
        self, key: RunKey, *, owner: str, at: datetime, until: datetime, dead_owner: str | None = None
    ) -> Run | None:
        """The run, now running under a lease of `owner` with a higher number; None if it has ended, is not the oldest
        of its conversation, or somebody else's lease holds. `dead_owner`: a holder known to be gone, whose lease is
        void."""
        ...

    def hold(self, key: RunKey, lease: Lease, *, until: datetime | None, known: Run | None = None) -> Run:
        """The run, its lease extended, or with None as it is; nobody else can take it within this transaction.

        Args:
            known: the run as it was read under this lease: what nobody can have changed since is not read again.
        Raises: LeaseLost: it is no longer held under this lease, or has ended.
        """
        ...

    def release(self, owner: str) -> int:
        """Give back every unended run that this owner holds or has reserved; how many."""
        ...

    def begin_input(self, key: RunKey, *, first_message_seq: int) -> None:
        """Record where the run's messages begin."""
        ...

    def waiting_input(self, key: RunKey) -> str | None: ...

    def resume(
        self,
        run: Run,
        *,
        resumes: int,
        begins_at: int,
        turn_from: int,
        answer: Mapping[str, Any],
        waiting_input: str | None,
    ) -> Run:
        """The run, which was just added, as one that goes on with answered calls; see `Run`. `answer` tells what was
        answered; `waiting_input` is what was said along with it, encoded."""
        ...

    def answers(self, agent_id: AgentId, conversation_seq: int, *, limit: int) -> Sequence[tuple[RunKey, Any]]:
        """The newest runs of a conversation that went on with answers, and what was answered, newest first."""
        ...

    def put_client_tools(self, run: Run, digest: str, tools: Sequence[Mapping[str, Any]]) -> Run:
        """The run, which was just added, with the tools that its caller runs. A set is kept once for each agent."""
        ...

    def client_tools(self, agent_id: AgentId, digest: str) -> Sequence[Mapping[str, Any]]:
        """The set of tools that runs were given under this digest; none if there is no such set."""
        ...

    def request_cancel(self, key: RunKey) -> bool:
        """Whether the run had not ended and had no such request yet."""
        ...

    def set_context(self, run: Run, context: Sequence[str]) -> Run:
        """The run with this in place of what waited for its next request."""
        ...

    def spend(self, key: RunKey, usage: Usage) -> None:
        """Add what was used besides the run's steps to its usage."""
        ...

    def end(
        self, run: Run, *, reason: StopReason, usage: Usage, step_count: int, failure: Failure | None, at: datetime
    ) -> Run:
        """The ended run; `run` is its row as this transaction has read it. One that has ended already is left as it
        is. Raises: NotFound."""
        ...

    def cancel_stopped(self, key: RunKey) -> Run:
        """The run, cancelled, if it had stopped at calls that wait for an answer; any other is left as it is. Raises:
        NotFound."""
        ...

    def remember_key(self, key: RunKey, conversation_seq: int, idempotency_key: str, *, digest: str) -> None: ...

    def find_by_key(self, agent_id: AgentId, conversation_seq: int, idempotency_key: str) -> tuple[Run, str] | None:
        """The run that was accepted under this key, and the digest of its input."""
        ...

    def start_calls(self, key: RunKey, call_ids: Sequence[str], *, lease: Lease, at: datetime) -> None:
        """Record that foreign calls are about to run under this lease."""
        ...

    def started_calls(self, key: RunKey) -> Mapping[str, int]:
        """call id -> number of the lease under which it was last started."""
        ...
