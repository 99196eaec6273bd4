"""What a compaction's plan is made of, from the rows of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack

from perdure.context.request.assemble import View
from perdure.context.window.budget import Certificate
from perdure.context.window.plan import KEEP_SHARE, Situation
from perdure.core.agents import Agent
from perdure.core.conversations import CompactionSettings, Conversation, SummarySettings
from perdure.core.nodes import SummaryNode
from perdure.core.ports import TokenCounter
from perdure.core.runs import Prefix
from perdure.storage.tx import Tx

NO_RUN = -1
"""Where no run is under way, so that all but the newest atom may leave."""


class RunState(TypedDict, total=False):
    """The fields of `Situation` that tell of the current run."""

    run_seq: int
    turn_from: int | None
    seen_upto: int
    sent_upto: int
    can_open: bool


def situation_of(
    agent: Agent,
    conversation: Conversation,
    view: View,
    nodes: Sequence[SummaryNode],
    certificate: Certificate,
    counter: TokenCounter,
    *,
    prepared: Sequence[SummaryNode] = (),
    **run: Unpack[RunState],
) -> Situation:
    """Build the situation of a conversation's next request, with the agent's settings."""
    compaction = CompactionSettings.of(agent)
    share = compaction.keep_share
    return Situation(
        certificate=certificate,
        nodes=tuple(nodes),
        pinned=view.pinned,
        rows=view.rows,
        stubs=conversation.stubs,
        keep_share=KEEP_SHARE if share is None else share,
        prepared=tuple(prepared),
        summaries=SummarySettings.of(agent),
        compaction=compaction,
        counter=counter,
        **(RunState(run_seq=NO_RUN) | run),
    )


def load_prepared(tx: Tx, prefix: Prefix) -> Sequence[SummaryNode]:
    """Load the summaries that are not in view yet, oldest first. One of messages that were revised since does not
    count."""
    agent_id, conversation_seq = prefix.agent_id, prefix.conversation_seq
    shown = set(prefix.nodes)

    def is_prepared(node: SummaryNode) -> bool:
        if node.seq in shown:
            return False
        if node.level:  # a plan takes it only for the same children
            return True
        return node.from_message_seq >= prefix.from_message_seq and not tx.nodes.is_outdated(node)

    return [node for node in tx.nodes.list_newest(agent_id, conversation_seq) if is_prepared(node)]
