"""What a context engine is: two pure functions over a `Situation`, and callbacks that may do nothing.

An engine only plans. Perdure checks each plan, carries it out in one transaction and stores what requests are built
of, so that every request can be rebuilt, whatever the engine does later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from perdure.context.sections.stubs import row_tokens, stub_chars
from perdure.context.window.extract import extract, render_extract
from perdure.context.window.plan import STUB_TOKENS, Evict, Plan, Situation, Stub, plan
from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.messages import Message
from perdure.core.runs import StopReason

LIFE_CYCLE = ("bootstrap", "ingest", "after_turn", "maintain", "before_subagent", "after_subagent", "dispose")
"""The callbacks of an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConversation:
    """The conversation that a callback is about."""

    agent_id: AgentId
    conversation_id: ConversationId
    conversation_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A run that has ended, with its messages in order."""

    run_id: RunId
    stop_reason: StopReason | None
    messages: tuple[Message, ...]


class ContextEngine:
    """The base of all engines: override what yours does differently.

    One object serves all conversations of a process whose agents have the same options. `plan` and `assemble` are pure:
    the same situation gives the same plan. They and callbacks without `async` are called in a thread of their own.
    What raises, takes longer than `timeout_s`, or returns a plan that can't be carried out is not called again in this
    run: `sliding_window` takes over, and the event `engine.quarantined` says why.

    Attributes:
        owns_compaction: Perdure prepares no summaries in the background, and puts none of them into the view.
        absorbs: the summary of a compaction that a client asks for takes the place of all others.
        system_prompt_addition: text for the system prompt of each conversation. It is read when the engine is made.
        timeout_s: the most seconds that one call may take.
    """

    owns_compaction: bool = False
    absorbs: bool = False
    system_prompt_addition: str = ""
    timeout_s: float = 5.0

    def assemble(self, situation: Situation) -> Plan | None:
        """Return a plan for a request that fits already; None: it is sent as it is."""
        return None

    def plan(self, situation: Situation) -> Plan | None:
        """Return the next step that makes a request smaller which does not fit; it is called again until it fits.

        Raises: IrreducibleFloor: nothing makes it fit.
        """
        return plan(situation)

    def bootstrap(self, conversation: EngineConversation, messages: Sequence[Message]) -> Awaitable[None] | None:
        """Learn of a conversation, once in each process, before its first request there. `messages`: its view."""

    def ingest(self, conversation: EngineConversation, messages: Sequence[Message]) -> Awaitable[None] | None:
        """Learn of new messages, in order: before each request, and when a run has ended."""

    def after_turn(self, conversation: EngineConversation, turn: Turn) -> Awaitable[None] | None:
        """Learn that a run has ended. The next run may have begun, but has not called this engine yet."""

    def maintain(self, conversation: EngineConversation) -> Awaitable[None] | None:
        """Do slow work in the background, after `after_turn`. It may take a hundred times `timeout_s`."""

    def before_subagent(
        self, conversation: EngineConversation, agent_id: AgentId, message: str
    ) -> Awaitable[None] | None:
        """Learn that the agent is about to write to another one."""

    def after_subagent(
        self, conversation: EngineConversation, agent_id: AgentId, reply: Sequence[str], error: str | None
    ) -> Awaitable[None] | None:
        """Learn the messages of the other agent's reply, or the error; neither, if the sender does not wait for one."""

    def dispose(self) -> Awaitable[None] | None:
        """Release what the engine holds: the process is about to end."""

    def overrides(self, name: str) -> bool:
        """Whether the engine has a method of this name of its own: the base's do nothing, so they are not called."""
        return getattr(type(self), name) is not getattr(ContextEngine, name) or name in vars(self)


class ShippedEngine(ContextEngine):
    """An engine of Perdure's: its functions are pure and quick, so they run inside the transaction of a request."""

    name: ClassVar[str]


class PagedEngine(ShippedEngine):
    """A ladder of steps, see `context.window.plan`: few deep evictions, and a tree of summaries."""

    name = "paged"


class Compressor:
    """The base of all compressors. Both functions are pure."""

    name: ClassVar[str] = ""

    def shorten(self, situation: Situation) -> Stub | None:
        """Return which messages to show in part before any leaves the view; None: there is nothing to shorten."""
        return None

    def summarise(self, situation: Situation, removal: Evict) -> str | None:
        """Return the summary of what leaves, at most `removal.summary_tokens` long; None: a model writes it."""
        return None


class StubResults(Compressor):
    """Old results of tools are shown by a handle before anything leaves the view; the newest stay as they are."""

    name = "stubs"

    def __init__(self, *, keep_results: int = 3, chars: int = 0) -> None:
        """Make the compressor.

        Args:
            keep_results: how many of the newest results stay.
            chars: how much of an older one is shown.

        Raises: InvalidInput.
        """
        for name, value in (("keep_results", keep_results), ("chars", chars)):
            if type(value) is not int or value < 0:
                raise InvalidInput(f"{name} is {value!r:.80}: give a whole number from 0 on")
        self._keep, self._chars = keep_results, chars

    def shorten(self, situation: Situation) -> Stub | None:
        """Return which older tool results to cut, where that saves room; None: none, or the agent can't open them."""
        if not situation.can_open:
            return None
        results = [row for row in (*situation.pinned, *situation.rows) if row.role == "tool"]
        stubs = dict(situation.stubs)
        for row in results[: max(0, len(results) - self._keep)]:
            whole = situation.stubs.get(row.seq, stub_chars(row))
            is_read = row.run_seq != situation.run_seq or row.seq <= situation.seen_upto
            if not is_read or whole <= self._chars or situation.tokens_of(row) <= STUB_TOKENS * 2:
                continue
            if row_tokens(row, {**stubs, row.seq: self._chars}, situation.counter) < situation.tokens_of(row):
                stubs[row.seq] = self._chars
        changed = [seq for seq, chars in stubs.items() if situation.stubs.get(seq) != chars]
        return Stub(stubs, sent=True) if changed else None


class Extract(Compressor):
    """What leaves is summarised by code, without a model: identifiers, decisions, open questions, numbers."""

    name = "extract"

    def summarise(self, situation: Situation, removal: Evict) -> str | None:
        """Return an extract of the messages that leave; None: it would be empty, or has to replace other summaries."""
        if removal.absorbed:  # what these say is in no message that leaves
            return None
        found = extract(removal.messages)
        return render_extract(found, max_tokens=removal.summary_tokens, counter=situation.counter) or None


class Composition(ContextEngine):
    """A context engine made of two: if a request does not fit, the compressor shortens texts first; if that is not
    enough, the assembler plans what leaves. Callbacks go to the assembler."""

    def __init__(self, assembler: ContextEngine, compressor: Compressor) -> None:
        self.assembler, self.compressor = assembler, compressor
        self.owns_compaction, self.absorbs = assembler.owns_compaction, assembler.absorbs
        self.system_prompt_addition = assembler.system_prompt_addition
        self.timeout_s = assembler.timeout_s
        for name in LIFE_CYCLE:  # set only where there is one, so that `overrides` finds no other
            if assembler.overrides(name):
                setattr(self, name, getattr(assembler, name))

    def assemble(self, situation: Situation) -> Plan | None:
        """Return the assembler's plan, with the compressor's summary."""
        return self._with_summary(situation, self.assembler.assemble(situation))

    def plan(self, situation: Situation) -> Plan | None:
        """Return what the compressor can shorten, else the assembler's plan; None if the request fits."""
        if situation.certificate.fits:
            return None
        shorter = self.compressor.shorten(situation)
        return shorter or self._with_summary(situation, self.assembler.plan(situation))

    def overrides(self, name: str) -> bool:
        """Whether this engine has its own version of a method; for `assemble` the assembler decides."""
        return self.assembler.overrides(name) if name == "assemble" else super().overrides(name)

    def _with_summary(self, situation: Situation, next_plan: Plan | None) -> Plan | None:
        """Return the plan with the compressor's summary of the messages that leave, if it writes one."""
        if not isinstance(next_plan, Evict) or not next_plan.atoms or next_plan.prepared or next_plan.text is not None:
            return next_plan
        return replace(next_plan, text=self.compressor.summarise(situation, next_plan))
