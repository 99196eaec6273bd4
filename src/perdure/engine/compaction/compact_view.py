"""Compactions: made on request, and stored as the summary node for what leaves the view and the new prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perdure.context.engines.sliding_window import oldest_share
from perdure.context.sections.stubs import row_tokens
from perdure.context.window.atoms import atoms
from perdure.context.window.plan import Evict, Merge, summary_limit
from perdure.core.agents import Agent
from perdure.core.conversations import EVICT_SHARE, CompactionSettings, Conversation, SummarySettings
from perdure.core.errors import Conflict, NothingToCompact
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import CompactionNote, CompactionTrigger, Draft, Message
from perdure.core.nodes import SummaryNode, message_handle, node_handle
from perdure.core.ports import TokenCounter
from perdure.core.runs import Prefix, PrefixChange, Run
from perdure.engine.approvals.answers import check_idle
from perdure.engine.budget import CallBudget
from perdure.engine.compaction.room import RequestPreview, preview
from perdure.engine.compaction.summarise import Summary, summarise
from perdure.engine.estimates import dropped_rows, overcount_behind, rows_tokens
from perdure.engine.log.run_log import ViewState
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.prefixes import compile_prefix, read_memory, store_prefix
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class StoredCompaction:
    """A stored compaction.

    Args:
        nodes: the summary nodes that are new in view.
        note: the message that says so, if messages left the view behind them.
        tokens: what left the view.
        messages_before, messages_after: as in `CompactionNote`.
    """

    prefix: Prefix
    nodes: tuple[SummaryNode, ...]
    note: Message | None
    tokens: int
    messages_before: int
    messages_after: int


def compact_view(
    tx: Tx,
    state: ViewState,
    removal: Evict | Merge,
    summary: Summary | None,
    inputs: UnitInputs,
    *,
    run: Run | None = None,
    trigger: CompactionTrigger,
    reason: str,
) -> StoredCompaction:
    """Carry out a plan: from now on the conversation's requests begin with the new prefix.

    Args:
        state: what the plan was made of, with the conversation as it is now.
        run: whose request needs the room; None: no run.
        removal, summary: the plan, and the summary that it needs; None: it needs none.
        trigger: why room was made, as clients see it.
        reason: why the conversation gets a new prefix.
    """
    agent, conversation, view = state.agent, state.conversation, state.view
    counter, prefix, stubs = inputs.counter, view.prefix, conversation.stubs
    dropped: tuple[Message, ...] = ()
    rows, pinned, from_seq = view.rows, view.pinned, prefix.from_message_seq
    nodes, new, before = list(state.nodes), removal.prepared, 0
    if isinstance(removal, Evict):
        stay = {message.seq for message in removal.pinned}
        dropped = tuple(message for message in (*pinned, *removal.messages) if message.seq not in stay)
        rows = tuple(message for message in rows if message.seq >= removal.from_seq)
        pinned, from_seq = removal.pinned, removal.from_seq
    if summary is not None:
        new = (tx.nodes.add(build_node(agent, conversation, removal, summary, inputs)),)
    if new:
        if isinstance(removal, Merge):
            merged = {old.seq for old in removal.nodes}
            place = min(index for index, old in enumerate(nodes) if old.seq in merged)
            nodes = [old for old in nodes if old.seq not in merged]
            nodes[place:place] = new
            before = sum(old.tokens for old in removal.nodes)
        else:
            nodes = [*nodes[: len(nodes) - len(removal.absorbed)], *new]
            before = sum(row_tokens(message, stubs, counter) for message in dropped)
            before += sum(old.tokens for old in removal.absorbed)
    opening = tx.conversations.get_state(agent.id, conversation.seq)
    agent, memory = opening.agent, read_memory(tx, opening)
    compiled = compile_prefix(
        *(tx, agent, conversation, memory, inputs),
        reason=reason,
        from_seq=from_seq,
        pinned=[message.seq for message in pinned],
        nodes=nodes,
        client_tools=prefix.client_tools,
        marker=prefix.marker,
    )
    rewritten = store_prefix(tx, conversation, memory, replace(compiled, changes=_list_changes(removal, dropped)))
    remaining_stubs = {seq: chars for seq, chars in stubs.items() if seq not in {message.seq for message in dropped}}
    view_tokens = sum(row_tokens(message, remaining_stubs, counter) for message in (*pinned, *rows))
    if conversation.prefix_seq is None:  # nothing was sent, so nothing was measured
        begun = replace(conversation, view_tokens=view_tokens)
        overcount = overcount_behind(tx, agent, begun, None, rewritten, counter)
    else:
        overcount = overcount_behind(tx, agent, conversation, prefix, rewritten, counter)
        estimated = prefix.tokens + conversation.view_tokens
        overcount = dropped_rows(overcount, dropped, stubs, counter, estimated=estimated)
    tx.conversations.put_view(
        agent.id, conversation.seq, view_tokens=view_tokens, stubs=remaining_stubs, overcount=overcount
    )
    counts = _count_messages((*view.pinned, *view.rows), prefix), _count_messages((*pinned, *rows), rewritten)
    stored = StoredCompaction(rewritten, new, None, before, *counts)
    if not new or isinstance(removal, Merge):
        return stored
    tokens_before = prefix.tokens + rows_tokens(view, stubs, counter) - conversation.overcount
    tokens = tokens_before, rewritten.tokens + view_tokens - overcount
    note = _build_note(stored, tokens, trigger, window_tokens=inputs.window(agent)[0])
    draft = Draft(id=MessageId(inputs.ids.new("message")), role="system", parts=(note,), kind="compaction")
    [message] = tx.messages.append(run or (agent.id, conversation.seq), [draft], [0], at=inputs.now)
    return replace(stored, note=message)


def _list_changes(removal: Evict | Merge, dropped: Sequence[Message]) -> tuple[PrefixChange, ...]:
    """Return what a plan changes, as the new prefix lists it. `dropped`: the messages that leave the view."""
    if isinstance(removal, Merge):
        names = ", ".join(node_handle(node.seq) for node in removal.nodes)
        return (PrefixChange("summaries", names, "merged"),)
    if not dropped:
        return ()
    return (PrefixChange("messages", message_handle(dropped[0].seq, dropped[-1].seq), "summarised"),)


def _count_messages(rows: Sequence[Message], prefix: Prefix) -> int:
    """Return the number of messages in a view, as in `CompactionNote`."""
    return 1 + bool(prefix.nodes) + sum(row.kind == "message" for row in rows)


def _build_note(
    stored: StoredCompaction, tokens: tuple[int, int], trigger: CompactionTrigger, *, window_tokens: int
) -> CompactionNote:
    """Build the note that tells of a compaction. `tokens`: of the request before and after it."""
    return CompactionNote(
        text="\n\n".join(node.text for node in stored.nodes),
        trigger=trigger,
        hidden_messages=sum(node.message_count for node in stored.nodes),
        messages_before=stored.messages_before,
        messages_after=stored.messages_after,
        tokens_before=tokens[0],
        tokens_after=tokens[1],
        window_tokens=window_tokens,
    )


def build_node(
    agent: Agent, conversation: Conversation, removal: Evict | Merge, summary: Summary, inputs: UnitInputs
) -> SummaryNode:
    """Build the summary node of what leaves the view, without a number."""
    if isinstance(removal, Merge):
        first, last = removal.nodes[0], removal.nodes[-1]
        span = (first.from_message_seq, last.upto_message_seq, first.since, last.until)
        level, children = removal.level, removal.children
        count = sum(node.message_count for node in removal.nodes)
    else:
        rows: Sequence[Message] = removal.messages
        level, children, count = 0, (), sum(message.kind == "message" for message in rows)
        span = (rows[0].seq, rows[-1].seq, rows[0].occurred_at, rows[-1].occurred_at)
        if removal.absorbed:  # the node stands for the messages themselves, so they stay one step away
            first = removal.absorbed[0]
            span = (first.from_message_seq, span[1], first.since, span[3])
            count += sum(node.message_count for node in removal.absorbed)
    return SummaryNode(
        agent_id=agent.id,
        conversation_seq=conversation.seq,
        seq=0,
        level=level,
        from_message_seq=span[0],
        upto_message_seq=span[1],
        children=children,
        message_count=count,
        since=span[2],
        until=span[3],
        text=summary.text,
        tokens=inputs.counter.count(summary.text),
        made_by=summary.made_by,
        method=summary.method,
        model=summary.model,
        rejected=summary.rejected,
        usage=summary.usage,
        created_at=inputs.now,
    )


@dataclass(frozen=True, slots=True)
class CompactionCounts:
    """The summary that a compaction made, and the numbers of messages in view before and after it: the system message,
    what people, agents and tools said, and one for all summaries."""

    summary: str
    messages_before: int
    messages_after: int


async def compact(
    agent_id: AgentId, conversation_seq: int, own_settings: CompactionSettings | None, ports: Ports
) -> CompactionCounts:
    """Take messages out of the view of a conversation, behind a summary. No hook is called. `own_settings`: they win
    over the agent's, field by field. Raises: NotFound, ConversationBusy, ApprovalPending, StoreError; NothingToCompact;
    LimitReached; Conflict: it changed meanwhile."""
    inputs = ports.inputs()

    def load(tx: Tx) -> RequestPreview:
        """Return the view of the conversation as its next request would have it."""
        opening = check_idle(tx, agent_id, conversation_seq, what="compact the conversation")
        return preview(tx, opening.agent, opening.conversation, inputs)

    state = await ports.store.read(load)
    settings = CompactionSettings.of(state.agent, own_settings)
    removal = _plan(state, settings, inputs)
    task = state.task(settings, state.nodes)
    budget = CallBudget(state.agent, ports)
    await budget.check()
    with ports.background.foreground.person():
        summary = await summarise(task, removal, ports)
    await budget.count(summary.model or "", summary.usage)

    def store(tx: Tx) -> StoredCompaction:
        """Store the compaction, if nothing it was made from has changed. Raises: Conflict: it has."""
        is_same = task.reading(conversation_seq, removal).holds(tx)
        conversation = check_idle(tx, agent_id, conversation_seq, what="compact the conversation").conversation
        is_same &= tx.agents.get(agent_id).settings_revision == state.agent.settings_revision
        if conversation != state.conversation or not is_same:
            raise Conflict("the conversation has changed meanwhile: compact it again")
        return compact_view(tx, state, removal, summary, ports.inputs(), trigger="manual", reason="manual")

    stored = await ports.store.write(store)
    return CompactionCounts(summary.text, stored.messages_before, stored.messages_after)


def _plan(state: RequestPreview, settings: CompactionSettings, inputs: UnitInputs) -> Evict:
    """Return the plan of a compaction on request: all messages leave, or the oldest. Raises: NothingToCompact."""
    rows = state.view.rows
    if not any(row.kind == "message" for row in rows):
        raise NothingToCompact(state.conversation.id)
    count = len(rows)
    if not settings.takes_all:
        share = EVICT_SHARE if settings.evict_share is None else settings.evict_share
        count = _count_oldest(state, share, inputs.counter) or count
    evicted = [atom for atom in atoms(rows) if atom.upto_seq <= rows[count - 1].seq]
    most = SummarySettings.of(state.agent).leaf_target_tokens
    limit = min(most, summary_limit(state.certificate.budget_tokens))
    absorbed = state.nodes if inputs.engines.of(state.agent).engine.absorbs else ()
    return Evict(tuple(evicted), rows[count - 1].seq + 1, (), limit, absorbed=absorbed)


def _count_oldest(state: RequestPreview, share: float, counter: TokenCounter) -> int:
    """Return how many of the oldest rows leave: at least this share of them (0 to 1), and so many that the others take
    at most the rest of the window; 0 if no cut between two turns is enough."""
    groups = atoms(state.view.rows)
    sizes = [sum(row_tokens(row, state.view.stubs, counter) for row in atom.messages) for atom in groups]
    most = (1 - share) * state.certificate.window_tokens
    count = oldest_share(groups[:-1], groups[-1].messages, sizes, share=share, limit_tokens=most)
    return sum(len(atom.messages) for atom in groups[:count])
