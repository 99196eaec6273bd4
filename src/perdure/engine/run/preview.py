"""The next request of a conversation before a new message: T3 without writing anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perdure.context.request.assemble import Counts, View, tail
from perdure.context.sections.envelopes import engine_tokens
from perdure.context.window.budget import Certificate, Segment, segments
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.messages import Message
from perdure.core.nodes import SummaryNode
from perdure.core.runs import Prefix
from perdure.engine.estimates import (
    overcount_behind,
)
from perdure.engine.ports import UnitInputs, as_requested, in_effect
from perdure.engine.run.prefixes import (
    delta_texts,
    read_memory,
    recompile_prefix,
    rewrite_reason,
)
from perdure.engine.run.rows import NEWEST
from perdure.engine.run.tail import build_notes
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The next request of a conversation, as far as it is known before a new message.

    Args:
        view: the prefix and rows, without a call that is still open and what follows it.
        nodes: the summaries in view, oldest first.
        status: the volatile tail as of now.
        deltas: the memory edits that the request will tell the model. They are not in the view yet, but
            the certificate counts them.
        reason: why it will begin with a new prefix (the view's, not stored yet); None: it begins with the old one.
        measured_tokens: measured for the last request, if the estimate is corrected by exactly them.
    """

    agent: Agent
    conversation: Conversation
    view: View
    nodes: tuple[SummaryNode, ...]
    status: str
    counts: Counts
    deltas: tuple[str, ...]
    certificate: Certificate
    reason: str | None
    measured_tokens: int | None


def preview(tx: Tx, agent: Agent, conversation: Conversation, inputs: UnitInputs) -> Preview:
    """Build the next request of a conversation, with the certificate of its size."""
    counter, stubs, before = inputs.counter, conversation.stubs, agent
    agent = as_requested(in_effect(agent, inputs.models), inputs.models)
    memory = read_memory(tx, tx.conversations.get_state(agent.id, conversation.seq))
    current = None if conversation.prefix_seq is None else tx.prefixes.get(agent.id, conversation.prefix_seq)
    client_tools = current.client_tools if current else None
    reason = rewrite_reason(tx, agent, conversation, memory, current, client_tools=client_tools, inputs=inputs)
    if reason is None and agent.model != before.model:
        reason = "settings"
    nodes = tuple(tx.nodes.list_by_seqs(agent.id, conversation.seq, current.nodes)) if current else ()
    overcount = conversation.overcount
    prefix = current
    if prefix is None or reason is not None:
        prefix = recompile_prefix(
            tx, agent, conversation, memory, inputs, current, reason=reason or "first", client_tools=client_tools
        )
        overcount = overcount_behind(tx, agent, conversation, current, prefix, counter)
    pinned = tx.messages.list_by_seqs(agent.id, prefix.pinned) if prefix.pinned else ()
    rows = tx.messages.view(agent.id, conversation.seq, from_seq=prefix.from_message_seq, upto_seq=NEWEST)
    view = View.of(prefix, pinned, stubs).with_rows(without_open_calls(rows))
    deltas = delta_texts(tx, agent, conversation.seen, memory, prefix, inputs) if current is not None else ()
    notes = build_notes(tx, agent, prefix, None, (), inputs)
    status = tail(inputs.now, agent.timezone, memory.counts, prefix=prefix, notes=notes)
    active = tx.runs.find_active(agent.id, conversation.seq)
    parts = segments(view, stubs=stubs, status=status, run_seq=active.key.seq if active else None, counter=counter)
    window, reserve = inputs.window(agent)
    return Preview(
        agent=agent,
        conversation=conversation,
        view=view,
        nodes=nodes,
        status=status,
        counts=memory.counts,
        deltas=deltas,
        certificate=Certificate(
            window_tokens=window,
            reserve_tokens=reserve,
            segments=_add_to_messages(parts, sum(engine_tokens(text, counter) for text in deltas)),
            overcount=overcount,
        ),
        reason=reason,
        measured_tokens=_measured_tokens(tx, conversation, current) if reason is None else None,
    )


def without_open_calls(rows: Sequence[Message]) -> Sequence[Message]:
    """The rows up to the last one at which no call is open."""
    open_calls: set[str] = set()
    upto = 0
    for number, message in enumerate(rows, 1):
        open_calls -= {result.call_id for result in message.results}
        open_calls |= {call.call_id for call in message.calls}
        if not open_calls:
            upto = number
    return rows[:upto]


def _add_to_messages(parts: Sequence[Segment], tokens: int) -> tuple[Segment, ...]:
    """The segments, with these tokens added to the segment `messages`."""
    return tuple(replace(part, tokens=part.tokens + tokens) if part.name == "messages" else part for part in parts)


def _measured_tokens(tx: Tx, conversation: Conversation, prefix: Prefix | None) -> int | None:
    """The tokens measured for the last request, if the conversation's estimate is corrected by exactly them."""
    last = next(iter(tx.steps.list(conversation.agent_id, conversation_seq=conversation.seq, limit=1)), None)
    if last is None or prefix is None or last.status != "success" or last.recipe.prefix_seq != prefix.seq:
        return None
    measured = last.usage.input_tokens
    return measured if measured and last.recipe.tokens - measured == conversation.overcount else None
