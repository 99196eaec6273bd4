"""Summaries that are prepared in the background, so that a full window has them ready and no user waits for them.

After a run, when enough of the window is full, a model summarises the oldest messages in view. The summary is stored
as a node that no prefix names yet. The view stays as it is until a plan takes the node. A kill loses at most the call.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from perdure.context.sections.assemble import parse_recalled
from perdure.context.window.leaves import CHUNK_SHARE, is_due, next_preparation
from perdure.context.window.plan import Evict, prepared_leaves
from perdure.core.agents import Agent
from perdure.core.conversations import CompactionSettings, ConversationKey, SummarySettings
from perdure.engine.compaction.compact_view import build_node
from perdure.engine.compaction.revise import DueSummary, rewrite_revised, write_due
from perdure.engine.compaction.room import RequestPreview, preview
from perdure.engine.compaction.summarise import Summary, load_prepared
from perdure.engine.log.run_log import RunLog
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.workers.background import CallPostponed, KeyedWorker
from perdure.storage.tx import Tx

LOOK_SHARE = 0.125
"""The share of a leaf that is said between two looks at what is due."""


@dataclass(frozen=True, slots=True)
class _InspectedView:
    """The view of a conversation when it was looked at for what is due: its prefix, and its tokens."""

    prefix_seq: int
    tokens: int


class Preparations:
    """The summaries that one process prepares."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._worker = KeyedWorker("preparing summaries", self._prepare)
        self._looks: dict[ConversationKey, _InspectedView] = {}  # of conversations to look at
        self._idle: dict[ConversationKey, _InspectedView] = {}  # the last look at which nothing was due

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that are going on."""
        return self._worker.tasks

    def note_run(self, conversation_key: ConversationKey, agent: Agent | None, ended: RunLog) -> None:
        """Prepare summaries in the background if the last request of `agent` filled enough of its window."""
        if agent is None or not ended.steps:
            return
        if self._ports.background.mode == "never" or self._ports.engine_calls.engines.of(agent).engine.owns_compaction:
            return
        settings, recipe = SummarySettings.of(agent), ended.steps[-1].recipe
        window, reserve = self._ports.inputs().window(agent)
        # What was recalled is another time less, or none: it makes no room needed.
        tokens = recipe.tokens - recipe.overcount - self._ports.counter.count(parse_recalled(recipe.tail))
        if not settings.background or tokens < settings.context_threshold * (window - reserve):
            self._idle.pop(conversation_key, None)
            return
        # Looking what is due reads the whole view. If nothing was, it is worth it only after some more has been said.
        step = min(settings.leaf_chunk_tokens, int((window - reserve) * CHUNK_SHARE)) * LOOK_SHARE
        idle, look = self._idle.get(conversation_key), _InspectedView(recipe.prefix_seq, tokens)
        if idle is None or idle.prefix_seq != look.prefix_seq or tokens - idle.tokens >= step:
            self._looks[conversation_key] = look
            self._worker.start(conversation_key)

    def note_change(self, conversation_key: ConversationKey) -> None:
        """Have summaries of messages that were changed written again in the background."""
        if self._ports.background.mode != "never":
            self._worker.start(conversation_key)

    async def close(self) -> None:
        """Let tasks finish for a few seconds, then stop them."""
        await self._worker.close()

    async def _prepare(self, conversation_key: ConversationKey) -> None:
        """Prepare what is due in a conversation. What fails is tried again after the next run."""
        look = None
        try:
            await rewrite_revised(conversation_key, self._ports)
            look = self._looks.pop(conversation_key, None)
            if await write_due(conversation_key, self._ports, _load_due, _store) and look is not None:
                self._idle[conversation_key] = look
        except CallPostponed:
            if look is not None:
                self._looks.setdefault(conversation_key, look)
            raise


def _load_due(tx: Tx, conversation_key: ConversationKey, inputs: UnitInputs) -> DueSummary[RequestPreview] | None:
    """Return the next summary that is due in a conversation, with its view; None: none is due. Raises: NotFound."""
    state = preview(
        tx, tx.conversations.get_agent(*conversation_key), tx.conversations.get_by_seq(*conversation_key), inputs
    )
    situation = state.situation(inputs.counter, load_prepared(tx, state.view.prefix))
    settings = CompactionSettings.of(state.agent)
    if not is_due(situation) or settings.keep_share is not None:
        return None  # an agent with its own share of what leaves has that summarised in one
    if (removal := next_preparation(situation)) is None:
        return None
    leaves = (node for node, _ in prepared_leaves(situation))
    return DueSummary(state, removal, state.task(settings, (*state.nodes, *leaves)))


def _store(tx: Tx, due: DueSummary[RequestPreview], summary: Summary, inputs: UnitInputs) -> bool:
    """Store the summary as a node that no prefix contains yet; return False if its messages are no longer in view."""
    state = due.place
    agent_id, conversation_seq = state.agent.id, state.conversation.seq
    if not due.task.reading(conversation_seq, due.removal).holds(tx):
        return False
    conversation = tx.conversations.get_by_seq(agent_id, conversation_seq)
    if conversation.prefix_seq is None or conversation.first_seq != state.conversation.first_seq:
        return False
    if isinstance(due.removal, Evict):  # a merge is taken only for the same nodes
        prefix = tx.prefixes.get(agent_id, conversation.prefix_seq)
        if prefix.from_message_seq > due.removal.messages[0].seq:
            return False
    tx.nodes.add(build_node(state.agent, conversation, due.removal, summary, inputs))
    return True
