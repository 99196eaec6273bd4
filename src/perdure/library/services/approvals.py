"""Approvals: the calls of agents that wait for a person or for their caller, and which tools ask for approval.

Answers go the way of messages: `MessageService.submit`.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.app import App
from perdure.core.agents import Agent
from perdure.core.answers import PendingCall
from perdure.core.blocks import Author
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ConversationId
from perdure.core.messages import ToolCall
from perdure.core.tools.rules import RequiresApproval
from perdure.domain.agents.units import update_agent
from perdure.engine.approvals.answers import check_edited, open_calls, pending_calls
from perdure.engine.approvals.decisions import find_decisions
from perdure.library.checks import check_text, outside
from perdure.library.services.conversations import find_conversation
from perdure.storage.tx import Tx

LISTED_MAX = 1_000
"""Conversations that are looked at for one answer."""


class ApprovalService:
    """The operations on calls that wait. Where `conversation` is None, the agent's first is meant."""

    def __init__(self, app: App) -> None:
        self._ports = app.ports

    async def list(self, agent_id: AgentId, conversation: ConversationId | None = None) -> Sequence[PendingCall]:
        """The calls that wait in a conversation, in the order of the model's answer. Raises: InvalidInput, NotFound."""
        return await self._ports.store.read(lambda tx: pending_calls(tx, find_conversation(tx, agent_id, conversation)))

    async def list_all(self) -> Sequence[tuple[str, PendingCall]]:
        """The calls that wait in the first 1,000 conversations of all agents, each with the name of its agent."""

        def read(tx: Tx) -> Sequence[tuple[str, PendingCall]]:
            return [
                (tx.agents.get(line.agent_id).name, call)
                for line in tx.conversations.list_pending(limit=LISTED_MAX)
                for call in pending_calls(tx, line)
            ]

        return await self._ports.store.read(read)

    async def list_open(self, agent_id: AgentId, conversation: ConversationId | None = None) -> Sequence[ToolCall]:
        """The calls that the conversation's next run begins with, decided or not, with the arguments as decided."""
        return await self._ports.store.read(lambda tx: open_calls(tx, find_conversation(tx, agent_id, conversation)))

    async def find_decisions(
        self, agent_id: AgentId, conversation: ConversationId | None = None, call_id: str | None = None
    ) -> Sequence[str]:
        """This call, if it was answered; without one the calls that a person decided last, if nothing came after."""
        return await self._ports.store.read(
            lambda tx: find_decisions(tx, find_conversation(tx, agent_id, conversation), call_id)
        )

    async def find_decided(self, agent_id: AgentId, call_id: str) -> Sequence[ConversationId]:
        """The agent's conversations in which a call of this id was answered."""

        def read(tx: Tx) -> Sequence[ConversationId]:
            lines = tx.conversations.list(agent_id, limit=LISTED_MAX)
            return [line.id for line in lines if find_decisions(tx, line, call_id)]

        return await self._ports.store.read(read)

    async def check_arguments(self, call: PendingCall, arguments: str) -> None:
        """Check that the call could be approved with these arguments, as JSON. Raises: AnswerInvalid."""
        await self._ports.store.read(check_edited, call, arguments)

    async def require(
        self, agent_id: AgentId, tool: str, required: bool = True, *, author: Author | None = None
    ) -> None:
        """Require the approval of a person for each call of a tool, or no longer require it."""
        check_text("tool", tool)
        now = self._ports.clock.now()

        def require(tx: Tx) -> None:
            tx.agents.lock(agent_id)
            settings = _approval_settings(tx, tx.agents.get(agent_id), tool, required=required)
            update_agent(tx, agent_id, {"settings": settings}, author=author or outside(), at=now)

        await self._ports.store.write(require)


def _approval_settings(tx: Tx, agent: Agent, name: str, *, required: bool) -> dict[str, object]:
    """The agent's settings, in which calls of this tool need a person's approval, or do not."""
    tool = next((tool for tool in tx.tools.list_by_agent(agent.id) if tool.spec.name == name), None)
    if tool is None:
        raise NotFound("tool", name, hint=f"agent {agent.name!r} has no such tool")
    rules = [
        shape
        for shape in agent.settings.get("tool_rules", ())
        if not (shape["type"] == RequiresApproval.type and shape["tool_name"] == name)
    ]
    waived = [one for one in agent.settings.get("approval_waived", ()) if one not in (tool.id, name)]
    if required:
        rules.append({"tool_name": name, "type": RequiresApproval.type, "prompt_template": None})
    elif not required and tool.spec.requires_approval:
        waived.append(tool.id)  # not its name, which another tool may get
    settings = {key: value for key, value in agent.settings.items() if key not in ("tool_rules", "approval_waived")}
    settings |= {"tool_rules": rules} if rules else {}
    return settings | ({"approval_waived": waived} if waived else {})
