"""What a chat shows: `TextView` shows it to people, `JsonView` to programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

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


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent in a list. `used_at` is the time of its newest message, or of its creation."""

    id: AgentId
    name: str
    model: str
    created_at: datetime
    used_at: datetime
    message_count: int


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation in a list. `first_text` is its first message, empty where it has a summary."""

    id: ConversationId
    number: int
    summary: str | None
    first_text: str
    created_at: datetime
    used_at: datetime | None
    archived: bool
    current: bool


@dataclass(frozen=True, slots=True)
class ModelRow:
    """The model of an agent, its facts, and why the agent has it. `problem` says why it can't be used here."""

    handle: str
    reason: str
    facts: ModelFacts
    problem: str = ""


class View:
    """Shows a chat and the results of commands. Each method shows nothing here; a subclass overrides what it shows."""

    def greet(self, *lines: str) -> None:
        """Show who answers, before the first message."""

    def show_event(self, event: StoredEvent | Delta) -> None:
        """Show an event of the run that is followed."""

    def show_reply(self, agent: AsyncAgent, reply: Reply) -> None:
        """Show the end of a run whose events `show_event` got."""

    def show_stop(self, calls: Sequence[PendingCall]) -> None:
        """Show the calls at which the run stops, where no person can decide them."""

    def show_question(self, call: PendingCall, number: int, count: int) -> None:
        """Show the call that a person decides next; `number` counts from 1."""

    def resume_with(self, calls: Sequence[ToolCall]) -> None:
        """Set the calls whose results the next run begins with; their arguments are those that run."""

    def show_pending(self, calls: Sequence[PendingCall]) -> None: ...

    def show_blocks(self, blocks: Sequence[Block]) -> None: ...

    def show_versions(self, label: str, versions: Sequence[BlockVersion]) -> None:
        """Show the history of a block, newest first."""

    def show_restore(self, block: Block, version: int, diff: str) -> None:
        """Show that a block has the value of an earlier version again; an empty `diff`: it had it before."""

    def show_results(self, query: str, messages: Sequence[Message], passages: Sequence[Passage]) -> None:
        """Show what a search found, best first."""

    def show_recall(self, budget_tokens: int | None) -> None:
        """Show how many tokens may be recalled for a message; None: automatic recall is off."""

    def show_new_conversation(self, conversation: Conversation) -> None: ...

    def show_conversations(self, rows: Sequence[ConversationRow]) -> None: ...

    def show_switch(self, row: ConversationRow) -> None:
        """Show the conversation that the chat continues."""

    def show_reset(self, resets: Sequence[Reset]) -> None: ...

    def show_agents(self, rows: Sequence[AgentRow]) -> None: ...

    def show_model(self, row: ModelRow) -> None: ...

    def show_context(self, overview: ContextOverview, steps: Sequence[StepInfo] | None = None) -> None:
        """Show what fills the window, and the newest steps."""

    def show_explanation(self, explanation: Explanation) -> None:
        """Show the parts of one request and what they cost."""

    def show_diff(self, old: StepId, new: StepId, diff: RequestDiff) -> None:
        """Show how the requests of two steps differ."""

    def show_commands(self, commands: Mapping[str, str]) -> None:
        """Show the / commands: usage -> help."""

    def hint(self, text: str) -> None:
        """Show a person what to do next."""

    def note(self, text: str) -> None:
        """Show something a person should know."""

    def error(self, error: PerdureError) -> None: ...

    def show_status(self, text: str) -> None:
        """Show a person what is going on, until `clear_status` or the next output."""

    def clear_status(self) -> None: ...
