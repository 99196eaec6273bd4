"""An agent at one moment: what a snapshot holds, by references to the log, and what became of a restore."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from perdure.core.blocks import Block
from perdure.core.ids import AgentId, ConversationId, StepId
from perdure.core.text.json_strings import sorted_json

VERSION = 1
"""The version of a snapshot as one object."""
HASH = "hash"
"""Where that has its hash."""
NOTE_CHARS = 500
SnapshotReason = Literal["manual", "before_restore"]
"""Why a snapshot was made: a person asked for it, or something was to be restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRef:
    """A block at a version. `isolated`: only the conversation has it, in place of the agent's of this label."""

    id: str
    label: str
    version: int
    isolated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRequest:
    """A request waiting behind a run: its messages as of `encode_drafts`, its options as of `RunOptions`."""

    run_id: str
    waiting_input: str
    max_steps: int
    background: bool
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePoint:
    """An agent and one of its conversations at one moment. Messages, versions, prefixes and summaries are named by
    their numbers: they lie in the log, so what is forgotten or erased there is gone here too.

    Attributes:
        step_id: the step at whose end it is; None: when the snapshot was made.
        upto_seq: the last message; later ones don't belong to it.
        settings_revision: of the agent's next request.
        next_node: the number of the next summary.
        gaps: what before it was out of view, as the store has it.
        seen: the versions of memory that the log had shown.
        tool_ids, blocks: what the agent had, in order.
        tool_names: of these tools, for people.
        queue: requests that waited.
    """

    agent_id: AgentId
    conversation_id: ConversationId
    conversation_seq: int
    step_id: StepId | None = None
    upto_seq: int
    first_seq: int
    prefix_seq: int | None
    settings_revision: int
    seen: Mapping[str, int]
    stubs: Mapping[int, int]
    overcount: int
    pending_run_seq: int | None = None
    pending_from: int | None = None
    next_node: int = 0
    gaps: Sequence[tuple[int, int, int, int]] = ()
    agent_type: str
    model: str
    follows_default: bool
    timezone: str
    system: str | None
    settings: Mapping[str, Any]
    conversation_settings: Mapping[str, Any] = field(default_factory=dict)
    tool_ids: Sequence[str] = ()
    tool_names: Sequence[str] = ()
    blocks: Sequence[BlockRef] = ()
    queue: Sequence[QueuedRequest] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A moment that is kept. `number` counts within the agent, from 1."""

    agent_id: AgentId
    number: int = 0
    reason: SnapshotReason
    moment: SavePoint
    note: str = ""
    created_by: str | None = None
    created_at: datetime

    @property
    def step_id(self) -> StepId | None:
        """The step at whose end the agent was so; None: it was so when the snapshot was made."""
        return self.moment.step_id

    @property
    def conversation_id(self) -> ConversationId:
        """The conversation that it holds."""
        return self.moment.conversation_id

    @property
    def waits(self) -> bool:
        """Whether calls of tools waited for a person or the caller."""
        return self.moment.pending_run_seq is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restore has done.

    Attributes:
        undo: the number of the snapshot that was made before it: restoring that takes the restore back.
        hidden: how many messages left the view.
        left: what is not as it was, a sentence each.
    """

    agent_id: AgentId
    conversation_id: ConversationId
    undo: int
    hidden: int
    left: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """An agent that was made from another one. `left`: what it has not got, a sentence each."""

    agent_id: AgentId
    name: str
    left: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDocument:
    """A snapshot as one object, which goes to others and comes back.

    Attributes:
        name, description: of the agent.
        blocks: each with its value there; other fields are those of when it was written.
        request_hash: the SHA-256 of what the next request begins with.
        earlier_messages: how many messages before those in view the agent has, which are not in it.
        rows: table -> rows of the log that the next request is built of, as the store has them.
        hash: `hash_of` all the rest.
    """

    version: int
    name: str
    description: str | None = None
    made_at: datetime
    moment: SavePoint
    blocks: Sequence[Block]
    request_hash: str
    earlier_messages: int
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    hash: str = ""


def hash_of(document: Mapping[str, Any]) -> str:
    """Return the hash of a snapshot document, without its own hash field."""
    content = {name: value for name, value in document.items() if name != HASH}
    return f"sha256:{hashlib.sha256(sorted_json(content).encode('utf-8', 'surrogatepass')).hexdigest()}"
