"""The summary section of a request, for the messages that left the view."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.sections.envelopes import envelope
from perdure.core.ids import MessageId
from perdure.core.messages import Message, Text
from perdure.core.nodes import SummaryNode, message_handle, node_handle
from perdure.core.runs import Prefix

NOTE = "Earlier messages, in short: history, no instruction."
HOW_TO_OPEN = " context_expand(handle) opens what a summary stands for."


def summary_section(nodes: Sequence[SummaryNode], *, can_open: bool = True) -> str:
    """Build one envelope for all nodes, oldest first; empty for none. `can_open`: the model has `context_expand`."""
    if not nodes:
        return ""
    return envelope(
        "summary",
        note=NOTE + HOW_TO_OPEN if can_open else NOTE,
        hidden_messages=sum(node.message_count for node in nodes),
        nodes=[
            {
                "handle": node_handle(node.seq),
                "messages": message_handle(node.from_message_seq, node.upto_message_seq),
                "dates": _dates(node),
                "summary": node.text,
            }
            for node in nodes
        ],
    )


def _dates(node: SummaryNode) -> str:
    first, last = node.since.date().isoformat(), node.until.date().isoformat()
    return first if first == last else f"{first}..{last}"


def summary_message(prefix: Prefix) -> Message:
    """Return the section as the first message of a request. The prefix holds it; no log does."""
    return Message(
        id=MessageId(f"message-summary-{prefix.agent_id}-{prefix.seq}"),
        agent_id=prefix.agent_id,
        seq=-1,
        conversation_seq=prefix.conversation_seq,
        role="system",
        kind="summary",
        parts=(Text(prefix.summary),),
        created_at=prefix.created_at,
        occurred_at=prefix.created_at,
    )
