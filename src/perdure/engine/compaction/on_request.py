"""Compaction that a client asks for, of a conversation in which no run is under way."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.context.engines.sliding_window import oldest_share
from perdure.context.retrieval.stubs import row_tokens
from perdure.context.window.atoms import atoms
from perdure.context.window.plan import Evict, summary_limit
from perdure.core.conversations import EVICT_SHARE, CompactionSettings, Conversation, SummarySettings
from perdure.core.errors import Conflict, ConversationBusy, NothingToCompact
from perdure.core.ids import AgentId
from perdure.core.ports import TokenCounter
from perdure.engine.approvals.answers import approval_pending
from perdure.engine.budget import CallBudget
from perdure.engine.compaction.compact_view import Compaction, compact_view
from perdure.engine.compaction.summarise import SummaryTask, summarise
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.preview import Preview, preview
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class Compacted:
    """The summary that a compaction made, and the numbers of messages in view before and after it: the system message,
    what people, agents and tools said, and one for all summaries."""

    summary: str
    messages_before: int
    messages_after: int


async def compact(
    agent_id: AgentId, conversation_seq: int, own_settings: CompactionSettings | None, ports: Ports
) -> Compacted:
    """Take messages out of the view of a conversation, behind a summary. No hook is called.

    Args:
        own_settings: they win over the agent's, field by field.

    Raises: NotFound, ConversationBusy, ApprovalPending, StoreError; NothingToCompact; LimitReached; Conflict: it
        changed meanwhile.
    """
    inputs = ports.inputs()
    state = await ports.store.read(_load, agent_id, conversation_seq, inputs)
    settings = CompactionSettings.of(state.agent, own_settings)
    removal = _plan(state, settings, inputs)
    task = SummaryTask(
        agent=state.agent,
        settings=settings,
        nodes=state.nodes,
        budget_tokens=state.certificate.budget_tokens,
        view=state.view,
        overcount=state.certificate.overcount,
    )
    budget = CallBudget(state.agent, ports)
    await budget.check()
    with ports.background.foreground.person():
        summary = await summarise(task, removal, ports)
    await budget.count(summary.model or "", summary.usage)

    def store(tx: Tx) -> Compaction:
        is_same = task.reading(conversation_seq, removal).holds(tx)
        conversation = _check_idle(tx, agent_id, conversation_seq)
        is_same &= tx.agents.get(agent_id).settings_revision == state.agent.settings_revision
        if conversation != state.conversation or not is_same:
            raise Conflict("the conversation has changed meanwhile: compact it again")
        return compact_view(
            tx,
            state.agent,
            conversation,
            state.view,
            state.nodes,
            removal,
            summary,
            ports.inputs(),
            run=None,
            trigger="manual",
            reason="manual",
        )

    stored = await ports.store.write(store)
    return Compacted(summary.text, stored.messages_before, stored.messages_after)


def _load(tx: Tx, agent_id: AgentId, conversation_seq: int, inputs: UnitInputs) -> Preview:
    """What the next request of the conversation would show."""
    conversation = _check_idle(tx, agent_id, conversation_seq)
    return preview(tx, tx.conversations.get_agent(agent_id, conversation_seq), conversation, inputs)


def _check_idle(tx: Tx, agent_id: AgentId, conversation_seq: int) -> Conversation:
    """The conversation, in which nothing goes on or waits. Raises: NotFound, ConversationBusy, ApprovalPending."""
    conversation = tx.conversations.get_state(agent_id, conversation_seq).conversation
    if (busy := tx.runs.find_active(agent_id, conversation_seq)) is not None:
        raise ConversationBusy(busy.id)
    if conversation.pending_run_seq is not None:
        raise approval_pending(tx, conversation, what="compact the conversation")
    return conversation


def _plan(state: Preview, settings: CompactionSettings, inputs: UnitInputs) -> Evict:
    """What leaves the view: everything, or the oldest part of it. Raises: NothingToCompact."""
    rows = state.view.rows
    if not any(row.kind == "message" for row in rows):
        raise NothingToCompact(state.conversation.id)
    count = len(rows)
    if not settings.takes_all:
        share = EVICT_SHARE if settings.evict_share is None else settings.evict_share
        count = _oldest(state, share, inputs.counter) or count
    evicted = [atom for atom in atoms(rows) if atom.upto_seq <= rows[count - 1].seq]
    most = SummarySettings.of(state.agent).leaf_target_tokens
    limit = min(most, summary_limit(state.certificate.budget_tokens))
    absorbed = state.nodes if inputs.engines.of(state.agent).engine.absorbs else ()
    return Evict(tuple(evicted), rows[count - 1].seq + 1, (), limit, absorbed=absorbed)


def _oldest(state: Preview, share: float, counter: TokenCounter) -> int:
    """How many of the oldest rows leave: at least this share of them, and so many that the rest takes at most the rest
    of the window; 0 if no cut between two turns is enough."""
    groups = atoms(state.view.rows)
    sizes = [sum(row_tokens(row, state.view.stubs, counter) for row in atom.messages) for atom in groups]
    most = (1 - share) * state.certificate.window_tokens
    count = oldest_share(groups[:-1], groups[-1].messages, sizes, share=share, most=most)
    return sum(len(atom.messages) for atom in groups[:count])
