"""The agent's side of the protocol: sessions are conversations of one agent."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import version
from typing import Any, ParamSpec, TypeVar

import acp
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptCapabilities,
    PromptResponse,
    SessionCapabilities,
    SessionInfo,
    SessionListCapabilities,
    StopReason,
)

from perdure.core.errors import NotFound, PerdureError
from perdure.core.events import Delta, MemoryEdited, RunEnded, StoredEvent
from perdure.core.ids import ConversationId
from perdure.core.messages import ToolDecision
from perdure.core.runs import FAILED_REASONS
from perdure.features.acp.prompts import read_prompt
from perdure.features.acp.updates import RunUpdates, permission_call, replay
from perdure.library.agent import AsyncAgent

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

SESSIONS_LISTED, HISTORY_PAGE = 200, 500
ALLOW, REJECT = "allow", "reject"
OPTIONS = [
    PermissionOption(option_id=ALLOW, name="Allow", kind="allow_once"),
    PermissionOption(option_id=REJECT, name="Reject", kind="reject_once"),
]
_STOP_REASONS: dict[str, StopReason] = {
    "cancelled": "cancelled",
    "max_steps": "max_turn_requests",
    "max_tokens_exceeded": "max_tokens",
    "requires_approval": "end_turn",
}
"""Why a run ended -> the protocol's word for it; any other end is `end_turn`."""


@dataclass(slots=True)
class EditorSession:
    """A session of the editor.

    Args:
        cwd: the folder that the editor works in.
        is_cancelled: whether the editor asked for the end of the prompt that is answered now.
    """

    conversation: ConversationId
    cwd: str
    is_cancelled: bool = False


def with_protocol_errors(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Answer errors of Perdure as the protocol has them, with their text."""

    @wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except NotFound as error:
            raise acp.RequestError(-32002, str(error)) from error
        except PerdureError as error:
            raise acp.RequestError(-32602, str(error)) from error

    return run


class EditorAgent:
    """One agent of Perdure as an editor sees it."""

    def __init__(self, agent: AsyncAgent) -> None:
        self._agent = agent
        self._sessions: dict[str, EditorSession] = {}
        self._client: Any = None

    def on_connect(self, conn: Any) -> None:
        """Keep the connection: updates and questions go there."""
        self._client = conn

    async def initialize(self, protocol_version: int, **others: Any) -> InitializeResponse:
        """Say what is spoken here: the newest version that both know."""
        return InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION) or acp.PROTOCOL_VERSION,
            agent_info=Implementation(name="perdure", title=f"Perdure: {self._agent.name}", version=version("perdure")),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                session_capabilities=SessionCapabilities(list=SessionListCapabilities()),
            ),
        )

    async def authenticate(self, method_id: str, **others: Any) -> None:
        """Nobody has to: the editor starts this program as its user."""

    @with_protocol_errors
    async def new_session(self, cwd: str, **others: Any) -> NewSessionResponse:
        """Begin a conversation."""
        conversation = await self._agent.new_conversation()
        self._sessions[conversation.id] = EditorSession(conversation.id, cwd)
        return NewSessionResponse(session_id=conversation.id)

    @with_protocol_errors
    async def load_session(self, cwd: str, session_id: str, **others: Any) -> LoadSessionResponse:
        """Show a conversation again, from its beginning. Raises: RequestError: there is none of this id."""
        conversation = await self._agent.find_conversation(ConversationId(session_id))
        self._sessions[session_id] = EditorSession(conversation.id, cwd)
        after = -1
        while page := await self._agent.messages(
            conversation=conversation.id, limit=HISTORY_PAGE, after_seq=after, newest_first=False
        ):
            for message in page:
                for update in replay(message):
                    await self._client.session_update(session_id=session_id, update=update)
            after = page[-1].seq
        return LoadSessionResponse()

    @with_protocol_errors
    async def list_sessions(self, cwd: str | None = None, **others: Any) -> ListSessionsResponse:
        """List the conversations, the newest first."""
        found = (await self._agent.conversations(limit=SESSIONS_LISTED))[::-1]
        return ListSessionsResponse(
            sessions=[SessionInfo(session_id=one.id, cwd=cwd or "/", title=one.summary) for one in found]
        )

    @with_protocol_errors
    async def prompt(self, session_id: str, prompt: list[Any], **others: Any) -> PromptResponse:
        """Answer a message. While the answer comes, the editor is shown its pieces, calls and changes of memory, and
        asked about calls that need a person."""
        session = self._session(session_id)
        session.is_cancelled = False
        text, images = read_prompt(prompt)
        updates = RunUpdates({block.label: block.value for block in await self._agent.blocks.list()})
        ended = await self._show(
            session, updates, self._agent.stream(text, conversation=session.conversation, images=images)
        )
        while ended is not None and ended.stop_reason == "requires_approval" and not session.is_cancelled:
            decisions = await self._ask(session)
            if not decisions:
                break
            ended = await self._show(
                session, updates, self._agent.stream_answer(decisions, conversation=session.conversation)
            )
        if session.is_cancelled:
            return PromptResponse(stop_reason="cancelled")
        if ended is not None and ended.stop_reason in FAILED_REASONS and ended.stop_reason not in _STOP_REASONS:
            why = ended.failure.message if ended.failure is not None else ended.stop_reason
            raise acp.RequestError(-32603, f"the run failed: {why}")
        return PromptResponse(stop_reason=_STOP_REASONS.get(ended.stop_reason if ended else "", "end_turn"))

    async def cancel(self, session_id: str, **others: Any) -> None:
        """Stop the answer of a session; the prompt then ends with `cancelled`."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        session.is_cancelled = True
        try:
            await self._agent.cancel_all(conversation=session.conversation)
        except PerdureError:
            log.exception("session %s could not be cancelled", session_id)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Refuse what is no method of the protocol."""
        raise acp.RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Leave out what is no notification of the protocol."""

    def _session(self, session_id: str) -> EditorSession:
        """The session of this id. Raises: RequestError: none was begun or loaded."""
        if (session := self._sessions.get(session_id)) is None:
            raise acp.RequestError(-32002, f"there is no session {session_id!r:.80}: begin or load one first")
        return session

    async def _show(
        self, session: EditorSession, updates: RunUpdates, events: AsyncIterator[StoredEvent | Delta]
    ) -> RunEnded | None:
        """Send the updates of a run, and return its end."""
        ended: RunEnded | None = None
        async for sent in events:
            for update in updates.of(sent):
                await self._client.session_update(session_id=session.conversation, update=update)
            if isinstance(sent, StoredEvent) and isinstance(sent.event, MemoryEdited):
                block = await self._agent.blocks.get(sent.event.label)
                update = updates.changed(sent.event, block.value)
                await self._client.session_update(session_id=session.conversation, update=update)
            if isinstance(sent, StoredEvent) and isinstance(sent.event, RunEnded):
                ended = sent.event
        return ended

    async def _ask(self, session: EditorSession) -> list[ToolDecision]:
        """Ask the person in the editor about each call that waits for one; the answers. None where they cancelled."""
        decisions = list[ToolDecision]()
        for pending in await self._agent.pending(conversation=session.conversation):
            if pending.call.awaits != "approval":
                continue
            answer = await self._client.request_permission(
                session_id=session.conversation, tool_call=permission_call(pending), options=OPTIONS
            )
            if not isinstance(answer.outcome, AllowedOutcome):
                await self.cancel(session.conversation)
                return []
            is_allowed = answer.outcome.option_id == ALLOW
            reason = None if is_allowed else "the user rejected it in the editor"
            decisions.append(ToolDecision(pending.call_id, is_allowed, reason))
        return decisions
