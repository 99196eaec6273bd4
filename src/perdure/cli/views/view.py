"""What a chat has to show, whoever it is shown to: `TextView` for people, `JsonView` for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perdure.app import ModelFacts
from perdure.context.request.explain import Explanation, RequestDiff
from perdure.context.window.overview import ContextOverview
from perdure.core.answers import PendingCall
from perdure.core.blocks import Block, BlockVersion
from perdure.core.conversations import Conversation, Reset
from perdure.core.errors import PerdureError
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import AgentId, ConversationId, StepId
from perdure.core.messages import Message, ToolCall
from perdure.core.passages import Passage
from perdure.library.agent import AsyncAgent
from perdure.library.reply import Reply
from perdure.library.services.steps import StepInfo

__all__ = ["AgentRow", "ConversationRow", "ModelRow", "View"]


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent with what a person chooses by. Without any message it was used last when it was made."""

    id: AgentId
    name: str
    model: str
    created_at: datetime
    used_at: datetime
    message_count: int


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation with what a person chooses by. `begins` is its first text, where it has no summary."""

    id: ConversationId
    number: int
    summary: str | None
    begins: str
    created_at: datetime
    used_at: datetime | None
    archived: bool
    current: bool


@dataclass(frozen=True, slots=True)
class ModelRow:
    """The model of an agent, what is known of it, and why the agent has it. `problem`: why it can't be used here."""

    handle: str
    reason: str
    facts: ModelFacts
    problem: str = ""


class View(Protocol):
    def greet(self, *lines: str) -> None:
        """Say who answers, before the first message."""

    def saw(self, sent: StoredEvent | Delta) -> None:
        """Something happened in the run that is being watched."""

    def replied(self, agent: AsyncAgent, reply: Reply) -> None:
        """The run has ended; all its events were given to `saw`."""

    def stopped_at(self, calls: Sequence[PendingCall]) -> None:
        """The run has stopped at these calls, and nobody is there to be asked."""

    def asked_about(self, call: PendingCall, number: int, count: int) -> None:
        """A person is asked about this call, the so many-th of so many."""

    def goes_on_with(self, calls: Sequence[ToolCall]) -> None:
        """The next run begins with what comes of these calls; their arguments are those they are run with."""

    def pending(self, calls: Sequence[PendingCall]) -> None:
        """The calls that wait."""

    def blocks(self, blocks: Sequence[Block]) -> None: ...

    def versions(self, label: str, versions: Sequence[BlockVersion]) -> None:
        """The history of a block, newest first."""

    def restored(self, block: Block, version: int, diff: str) -> None:
        """A block has the value of an earlier version again; `diff` is what that changed."""

    def found(self, query: str, messages: Sequence[Message], passages: Sequence[Passage]) -> None:
        """What a search came to, best first."""

    def recall(self, budget_tokens: int | None) -> None:
        """How many tokens may be recalled for a message; None: automatic recall is off."""

    def conversation(self, conversation: Conversation) -> None:
        """A new conversation was begun."""

    def conversations(self, rows: Sequence[ConversationRow]) -> None:
        """The conversations of the agent."""

    def goes_on_in(self, row: ConversationRow) -> None:
        """The chat goes on with this conversation."""

    def reset(self, resets: Sequence[Reset]) -> None:
        """Conversations have begun anew."""

    def agents(self, rows: Sequence[AgentRow]) -> None: ...

    def model(self, row: ModelRow) -> None:
        """The model of the agent."""

    def context(self, overview: ContextOverview, steps: Sequence[StepInfo] | None = None) -> None:
        """What fills the window, and the newest steps."""

    def explanation(self, found: Explanation) -> None:
        """What one request was made of and took."""

    def difference(self, old: StepId, new: StepId, found: RequestDiff) -> None:
        """How the requests of two steps differ."""

    def commands(self, commands: Mapping[str, str]) -> None:
        """Usage -> what it does, of every / command."""

    def hint(self, text: str) -> None:
        """What to do next; for people only."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def error(self, error: PerdureError) -> None: ...

    def waiting(self, what: str) -> None:
        """Something is waited for; for people only, and only until `idle` or the next output."""

    def idle(self) -> None:
        """Nothing is going on any more, whatever was."""
