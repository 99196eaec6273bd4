"""`Tx`: what a unit of work may do inside one transaction, as synchronous verbs by noun.

Verbs by cost: `get` one, raises; `find` maybe None; `list` a bounded page, in order of sequence numbers unless said
otherwise. Every root row belongs to an organisation: a `Tx` sees its own organisation only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perdure.core.agents import Agent
from perdure.core.blocks import Author, Block, BlockVersion
from perdure.core.conversations import Conversation
from perdure.core.events import Event, StoredEvent
from perdure.core.ids import AgentId, ArchiveId, BlockId, ConversationId, MessageId, OrgId, PassageId, RunId, StepId
from perdure.core.messages import Draft, Message, Part, Role
from perdure.core.passages import Archive, Passage, TagMatch
from perdure.core.runs import Failure, Lease, Prefix, Recipe, Run, RunKey, Step, StepStatus, StopReason, Usage
from perdure.core.text import Query
from perdure.core.tools import Tool

__all__ = [
    "Agents",
    "Archives",
    "Blocks",
    "Conversations",
    "Events",
    "Found",
    "MessageFilter",
    "Messages",
    "PassageFilter",
    "Passages",
    "Prefixes",
    "Runs",
    "Steps",
    "Tools",
    "Tx",
]


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate of a full-text search. `score` is the database's own rank over the whole file, higher is better: good
    for choosing candidates, not for comparing agents."""

    seq: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Which messages: all conditions hold. Times are of `occurred_at`, both ends included."""

    conversation_seq: int | None = None
    roles: tuple[Role, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    before_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageFilter:
    """Which passages: all conditions hold. Times are of `occurred_at`, both ends included."""

    tags: tuple[str, ...] = ()
    tag_match: TagMatch = "any"
    since: datetime | None = None
    until: datetime | None = None


class Agents(Protocol):
    def add(self, agent: Agent) -> Agent:
        """The agent with its number. Raises: AlreadyExists."""
        ...

    def get(self, agent_id: AgentId) -> Agent:
        """Raises: NotFound."""
        ...

    def model(self, agent_id: AgentId) -> str:
        """The handle of the agent's model, and nothing else of it. Raises: NotFound."""
        ...

    def lock(self, agent_id: AgentId) -> None:
        """Make other transactions that lock the agent wait for this one's end, where they run side by side."""
        ...

    def find_by_name(self, name: str) -> Agent | None: ...

    def list(self, *, limit: int = 50, after: AgentId | None = None) -> Sequence[Agent]:
        """Newest first; `after` is the last agent of the page before."""
        ...

    def last_used(self) -> Agent | None:
        """The agent with the newest run; without any run, the newest agent."""
        ...

    def put(self, agent: Agent) -> Agent:
        """The agent as changed; its settings revision grows if its type, model, prompt or settings did. Raises:
        NotFound."""
        ...

    def delete(self, agent_id: AgentId) -> None:
        """Remove the agent and all its children, the only way a log is ever removed. Raises: NotFound."""
        ...


class Blocks(Protocol):
    def add(self, block: Block, *, author: Author) -> Block:
        """The block at version 0, with its version row. Raises: AlreadyExists."""
        ...

    def get(self, block_id: BlockId) -> Block:
        """Raises: NotFound."""
        ...

    def put(self, block: Block, *, expected: int, author: Author, at: datetime) -> Block:
        """The block at version `expected + 1`, with its version row. Raises: VersionConflict, NotFound."""
        ...

    def delete(self, block_id: BlockId) -> None:
        """Raises: NotFound."""
        ...

    def list(self, *, label: str | None = None, limit: int = 50, after: BlockId | None = None) -> Sequence[Block]:
        """Oldest first."""
        ...

    def attach(self, agent_id: AgentId, block_id: BlockId) -> None:
        """Raises: NotFound; AlreadyExists: the agent has another block of that label."""
        ...

    def detach(self, agent_id: AgentId, block_id: BlockId) -> None:
        """Raises: NotFound: it is not attached."""
        ...

    def of_agent(self, agent_id: AgentId) -> Sequence[Block]:
        """In the order they were attached."""
        ...

    def current(self, agent_id: AgentId) -> Mapping[BlockId, int]:
        """Block id -> version, of the agent's blocks: enough to know whether anything changed."""
        ...

    def find(self, agent_id: AgentId, label: str) -> Block | None: ...

    def agents_of(self, block_id: BlockId) -> Sequence[AgentId]: ...

    def versions(self, block_id: BlockId, *, limit: int = 100, before: int | None = None) -> Sequence[BlockVersion]:
        """Newest first."""
        ...

    def version(self, block_id: BlockId, version: int) -> BlockVersion:
        """Raises: NotFound."""
        ...


class Archives(Protocol):
    def add(self, archive: Archive) -> Archive: ...

    def get(self, archive_id: ArchiveId) -> Archive:
        """Raises: NotFound."""
        ...

    def attach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Raises: NotFound. Attaching twice is no error."""
        ...

    def of_agent(self, agent_id: AgentId) -> Sequence[Archive]:
        """In the order they were attached; the first one takes what the agent inserts."""
        ...

    def tags(self, archive_id: ArchiveId, *, limit: int = 20) -> Sequence[tuple[str, int]]:
        """(tag, number of passages), the most used first."""
        ...


class Passages(Protocol):
    def add(self, passage: Passage) -> Passage:
        """The passage with its sequence number, at once searchable. Raises: NotFound: no such archive."""
        ...

    def get(self, passage_id: PassageId) -> Passage:
        """Raises: NotFound."""
        ...

    def delete(self, passage_id: PassageId) -> None:
        """Raises: NotFound."""
        ...

    def list(
        self, archive_id: ArchiveId, *, where: PassageFilter | None = None, limit: int = 100, after_seq: int = -1
    ) -> Sequence[Passage]: ...

    def newest(self, archive_id: ArchiveId, *, where: PassageFilter, limit: int) -> Sequence[Passage]: ...

    def match(self, archive_id: ArchiveId, query: Query, *, where: PassageFilter, limit: int) -> Sequence[Found]:
        """Candidates of a full-text search, best first."""
        ...

    def by_seqs(self, archive_id: ArchiveId, seqs: Sequence[int]) -> Sequence[Passage]: ...


class Conversations(Protocol):
    def add(self, agent_id: AgentId, conversation_id: ConversationId, *, at: datetime) -> Conversation:
        """A new conversation; an agent's first one has number 0 and is its default."""
        ...

    def get(self, conversation_id: ConversationId) -> Conversation:
        """Raises: NotFound."""
        ...

    def at(self, agent_id: AgentId, seq: int) -> Conversation:
        """Raises: NotFound."""
        ...

    def list(self, agent_id: AgentId, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]: ...

    def show(self, agent_id: AgentId, seq: int, seen: Mapping[BlockId, int], *, prefix: Prefix | None = None) -> None:
        """Record which block versions the conversation's log now shows, and its new prefix if there is one."""
        ...


class Messages(Protocol):
    def append(
        self,
        agent_id: AgentId,
        drafts: Sequence[Draft],
        *,
        conversation_seq: int,
        at: datetime,
        tokens: Sequence[int],
        run: Run | None = None,
        step_id: StepId | None = None,
    ) -> Sequence[Message]:
        """The messages with their numbers, consecutive, at once searchable. Raises: NotFound: no such agent."""
        ...

    def get(self, message_id: MessageId) -> Message:
        """Raises: NotFound."""
        ...

    def list(
        self,
        agent_id: AgentId,
        *,
        conversation_seq: int | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        limit: int = 100,
        newest_first: bool = False,
        engine_kinds: bool = False,
    ) -> Sequence[Message]:
        """A page in order of `seq`; the engine's own messages are left out unless asked for."""
        ...

    def view(
        self,
        agent_id: AgentId,
        conversation_seq: int,
        *,
        from_seq: int,
        upto_seq: int,
        settings_revision: int | None = None,
    ) -> Sequence[Message]:
        """Every row of a conversation in [from_seq, upto_seq], the engine's own included: what a model is shown. With a
        settings revision, as it was shown then, whatever was revised or removed since."""
        ...

    def run_tokens(self, agent_id: AgentId, conversation_seq: int, *, from_seq: int) -> Sequence[tuple[int, int]]:
        """(first message's number, tokens) of each run that a view from `from_seq` on shows, oldest first."""
        ...

    def of_run(self, run: Run) -> Sequence[Message]:
        """The run's input and everything that followed from it."""
        ...

    def count(self, agent_id: AgentId) -> int:
        """How many messages the agent's history has, the engine's own left out."""
        ...

    def match(self, agent_id: AgentId, query: Query, *, where: MessageFilter, limit: int) -> Sequence[Found]:
        """Candidates of a full-text search, best first."""
        ...

    def newest(self, agent_id: AgentId, *, where: MessageFilter, limit: int) -> Sequence[Message]: ...

    def by_seqs(self, agent_id: AgentId, seqs: Sequence[int]) -> Sequence[Message]: ...

    def revise(self, message_id: MessageId, parts: Sequence[Part] | None, *, author: Author, at: datetime) -> None:
        """Show other parts from now on, or None to remove from view; the row itself stays.

        Raises: NotFound; InvalidInput: a call or result would be torn from its other half.
        """
        ...


class Runs(Protocol):
    def add(
        self,
        agent_id: AgentId,
        run_id: RunId,
        *,
        conversation_seq: int,
        at: datetime,
        max_steps: int,
        background: bool,
        lease_owner: str | None,
        lease_until: datetime | None,
        waiting_input: str | None,
    ) -> Run:
        """A queued run, reserved for the process that accepted it until `lease_until`. Its messages are the next that
        this transaction appends; unless it has to wait behind another run: then `waiting_input` is its encoded input,
        which becomes messages when the run is claimed."""
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

    def active(self, agent_id: AgentId, conversation_seq: int) -> Run | None:
        """The oldest run of a conversation that has not ended: the only one that may be claimed."""
        ...

    def claimable(self, *, at: datetime, limit: int = 32) -> Sequence[Run]:
        """The oldest unended run of every conversation whose lease has run out, or is held by nobody."""
        ...

    def held(self, *, limit: int = 32) -> Sequence[Run]:
        """The oldest unended run of every conversation, whoever holds it."""
        ...

    def claim(
        self, key: RunKey, *, owner: str, at: datetime, until: datetime, dead_owner: str | None = None
    ) -> Run | None:
        """The run, now running under a lease of `owner` with a higher number; None if it has ended, is not the oldest
        of its conversation, or somebody else's lease holds. `dead_owner`: a holder known to be gone, whose lease is
        void."""
        ...

    def hold(self, key: RunKey, lease: Lease, *, until: datetime | None) -> Run:
        """The run, its lease extended, or with None as it is; nobody else can take it within this transaction.

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

    def request_cancel(self, key: RunKey) -> bool:
        """Whether the run had not ended and had no such request yet."""
        ...

    def end(
        self, key: RunKey, *, reason: StopReason, usage: Usage, step_count: int, failure: Failure | None, at: datetime
    ) -> Run: ...

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
    ) -> Step: ...

    def get(self, step_id: StepId) -> Step:
        """Raises: NotFound."""
        ...

    def of_run(self, key: RunKey) -> Sequence[Step]: ...

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


class Prefixes(Protocol):
    def add(self, prefix: Prefix) -> Prefix:
        """The prefix with its number. Raises: NotFound: no such agent."""
        ...

    def at(self, agent_id: AgentId, seq: int) -> Prefix:
        """Raises: NotFound."""
        ...


class Events(Protocol):
    def add(self, key: RunKey, events: Sequence[Event], *, at: datetime) -> Sequence[StoredEvent]:
        """The events with their numbers, consecutive within the run."""
        ...

    def list(self, key: RunKey, *, after: int = 0, limit: int = 1000) -> Sequence[StoredEvent]:
        """In order; added messages come with the message."""
        ...

    def trim_deltas(self, key: RunKey, *, keep: int, since: datetime) -> int:
        """Remove stored previews that are older than `since` or beyond the newest `keep`; how many went. A run's newest
        event always stays."""
        ...


class Tools(Protocol):
    def put(self, tool: Tool, *, at: datetime) -> Tool:
        """Create the tool, or change the one of that name; the stored one. The settings revision of agents that have it
        grows when it changes."""
        ...

    def find_by_name(self, name: str) -> Tool | None: ...

    def list(self, *, limit: int = 200) -> Sequence[Tool]: ...

    def attach(self, agent_id: AgentId, name: str) -> None:
        """Raises: NotFound. Attaching twice is no error."""
        ...

    def detach(self, agent_id: AgentId, name: str) -> None: ...

    def of_agent(self, agent_id: AgentId) -> Sequence[Tool]:
        """Sorted by name."""
        ...


class Tx(Protocol):
    """One transaction."""

    @property
    def org_id(self) -> OrgId: ...
    @property
    def agents(self) -> Agents: ...
    @property
    def blocks(self) -> Blocks: ...
    @property
    def archives(self) -> Archives: ...
    @property
    def passages(self) -> Passages: ...
    @property
    def conversations(self) -> Conversations: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def prefixes(self) -> Prefixes: ...
    @property
    def events(self) -> Events: ...
    @property
    def tools(self) -> Tools: ...
