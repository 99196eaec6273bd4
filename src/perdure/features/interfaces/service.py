"""Messages to an agent whose answers an interface shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from perdure.core.events import Delta, RunEnded, StoredEvent
from perdure.core.ids import ConversationId
from perdure.core.messages import ToolDecision
from perdure.features.interfaces.interface import AgentInterface, InterfaceFeed, finish
from perdure.library.agent import AsyncAgentById
from perdure.library.messages.sending import SendOptions
from perdure.library.parts.part import AsyncPart


class AsyncTalks(AsyncPart):
    """Talks with an agent; `AsyncAgent` has this method."""

    async def talk(
        self,
        text: str,
        interface: AgentInterface,
        *,
        conversation: ConversationId | None = None,
        **options: Unpack[SendOptions],
    ) -> RunEnded:
        """Send a message, have an interface show all that the agent says and does, and return why the answer ended.

        The interface's `approval` decides calls that wait for a person. Those that it leaves open go on waiting.
        `SendOptions` are as in `send`. Raises: as `send`, but not RunFailed: the interface's `run_ended` is told.
        """
        agent, feed = AsyncAgentById(self._app, self._id), InterfaceFeed(interface)
        try:
            ended = await _show(agent.stream(text, conversation=conversation, **options), feed)
            while ended.stop_reason == "requires_approval":
                waiting = await agent.pending(conversation=conversation)
                choices = [(one, await finish(interface.approval(one))) for one in waiting if not one.awaits_client]
                decisions = [ToolDecision(one.call_id, bool(choice)) for one, choice in choices if choice is not None]
                if not decisions:
                    break
                answered = agent.stream_answer(decisions, conversation=conversation)
                if (after := await _show(answered, feed, ended)) is ended:
                    break  # other calls still wait
                ended = after
            return ended
        finally:
            await finish(interface.close())


async def _show(
    events: AsyncIterator[StoredEvent | Delta], feed: InterfaceFeed, ended: RunEnded | None = None
) -> RunEnded:
    """Show the events of a run and return its end; `ended`: what is returned if there is no run."""
    async for sent in events:
        await feed.show(sent)
        if isinstance(sent, StoredEvent) and isinstance(sent.event, RunEnded):
            ended = sent.event
    assert ended is not None
    return ended
