"""Calls that wait, with plain calls; every method is the asynchronous one's of `library.approval`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.core.answers import Answer, PendingCall
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import ConversationId
from perdure.library.approval import AsyncApproval
from perdure.library.client_tools import ClientTool
from perdure.library.portal import Portal
from perdure.library.reply import Reply

__all__ = ["Approval"]


class Approval:
    """The calls of an agent that wait; see `AsyncApproval`. `Agent` has these methods."""

    _portal: Portal
    _inner: AsyncApproval

    def pending(self, *, conversation: ConversationId | None = None) -> Sequence[PendingCall]:
        """The calls that wait in a conversation."""
        return self._portal.run(self._inner.pending(conversation=conversation))

    def approve(
        self,
        call_id: str | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        conversation: ConversationId | None = None,
    ) -> Reply | None:
        """Let a pending call be run, by default all that wait for a person."""
        return self._portal.run(self._inner.approve(call_id, arguments=arguments, conversation=conversation))

    def deny(
        self, call_id: str | None = None, *, reason: str | None = None, conversation: ConversationId | None = None
    ) -> Reply | None:
        """Refuse a pending call, by default all that wait."""
        return self._portal.run(self._inner.deny(call_id, reason=reason, conversation=conversation))

    def answer(
        self,
        answers: Sequence[Answer],
        *,
        text: str | None = None,
        conversation: ConversationId | None = None,
        client_tools: Sequence[ClientTool] | None = None,
        max_steps: int | None = None,
    ) -> Reply | None:
        """Answer pending calls."""
        return self._portal.run(
            self._inner.answer(
                answers, text=text, conversation=conversation, client_tools=client_tools, max_steps=max_steps
            )
        )

    def stream_answer(
        self,
        answers: Sequence[Answer],
        *,
        text: str | None = None,
        conversation: ConversationId | None = None,
        client_tools: Sequence[ClientTool] | None = None,
        max_steps: int | None = None,
    ) -> Iterator[StoredEvent | Delta]:
        """Answer pending calls and follow what happens."""
        return self._portal.iterate(
            self._inner.stream_answer(
                answers, text=text, conversation=conversation, client_tools=client_tools, max_steps=max_steps
            )
        )

    def require_approval(self, tool: str, required: bool = True) -> None:
        """Have a person approve each call of a tool, or no more."""
        self._portal.run(self._inner.require_approval(tool, required))
