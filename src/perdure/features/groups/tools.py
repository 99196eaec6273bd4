"""The tools by which an agent writes to other agents: each message begins an ordinary run of the other agent.

A call that is repeated after a crash finds the runs that it began, by an idempotency key made of its own run and call:
so nobody gets a message twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.app import App
from perdure.core.agents import AgentFilter
from perdure.core.errors import NoReply, PerdureError, ToolError
from perdure.core.ids import AgentId, is_id
from perdure.core.messages import Text
from perdure.core.ports import CallContext
from perdure.core.specs import Tool, ToolOutcome
from perdure.engine.compaction.engine_turns import subagent_call
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.engine.run.accept import Accepted
from perdure.features.groups.sending import Sender
from perdure.storage.tx import Tx

WAIT_TOOL = "send_message_to_agent_and_wait_for_reply"
ASYNC_TOOL = "send_message_to_agent_async"
TAGS_TOOL = "send_message_to_agents_matching_tags"
ALL_TAGS_TOOL = "send_message_to_agents_matching_all_tags"

AGENTS_MAX = 500
"""The most agents that one call writes to."""


class AgentMessages:
    """`FeatureToolbox` of these tools."""

    def __init__(self, app: App) -> None:
        self._app = app

    def missing(self, tool: Tool) -> str | None:
        return None

    async def close(self) -> None:
        """Nothing is held open."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        ports = self._app.ports
        if not context.agent_id:
            raise ToolError(f"{tool.spec.name} writes to other agents in an agent's name: run it as a tool of an agent")
        sender = await Sender.of(self._app, context)
        if not arguments["message"].strip():
            raise ToolError("the message is empty: say something")
        sending = _Sending(sender, arguments["message"])
        name = tool.spec.name
        if name == TAGS_TOOL:
            return await sending.ask_all(arguments["match_all"], arguments["match_some"])
        if name == ALL_TAGS_TOOL:
            return await sending.ask_all(arguments["tags"], ())
        target = _agent_id(arguments["other_agent_id"])
        if name == ASYNC_TOOL:
            async with subagent_call(ports, context, target, sending.message):
                await sending.send(target, waits=False)
            return ToolOutcome(text="Successfully sent message")
        return ToolOutcome(text=_render({"agent_id": target, "response": await sending.ask(target)}))


@dataclass(frozen=True, slots=True)
class _Sending:
    """One call of a tool that writes to agents, and its message."""

    sender: Sender
    message: str

    async def ask_all(self, match_all: Sequence[str], match_some: Sequence[str]) -> ToolOutcome:
        """Send the message to all agents with these tags; return their replies as JSON, each or why there is none."""
        targets = await self.sender.ports.store.read(_list_targets, self.sender.context.agent_id, match_all, match_some)
        places = asyncio.Semaphore(self.sender.settings.agent_sends_at_once)

        async def ask(target: AgentId, name: str) -> dict[str, Any]:
            answer: dict[str, Any] = {"agent_id": target, "name": name}
            async with places:
                try:
                    return answer | {"response": await self.ask(target)}
                except PerdureError as error:
                    return answer | _problem_shape(error)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(target, name)) for target, name in targets.items()]
        answers = [task.result() for task in tasks]
        replied = any("response" in answer for answer in answers)
        return ToolOutcome(text=_render(answers), status="success" if replied else "error")

    async def ask(self, target: AgentId) -> list[str]:
        """Send the message to an agent and return its answer, message by message. Raises: NoReply; as `send`."""
        async with subagent_call(self.sender.ports, self.sender.context, target, self.message) as reply:
            accepted = await self.send(target, waits=True)
            texts, _ = await self.sender.reply_to(accepted, limit_s=self.sender.settings.agent_reply_s)
            reply += texts
        return reply

    async def send(self, target: AgentId, *, waits: bool) -> Accepted:
        """Accept the message as a run of the other agent's first conversation; `waits`: its reply is waited for.

        Raises: ToolError, NotFound, ApprovalPending, ModelNotFound, MessageTooLarge, StoreError.
        """
        sender = self.sender.context.agent_id
        if target == sender:
            raise ToolError("other_agent_id is your own: write to another agent")
        note = (
            "your answer goes back to it"
            if waits
            else "it does not wait for an answer; to send one, use a tool that writes to agents"
        )
        text = f"[Incoming message from agent with ID '{sender}' - {note}]\n\n{self.message}"
        request = RunRequest(
            agent_id=target,
            messages=(NewMessage((Text(text),), sender_id=sender),),
            max_steps=self.sender.settings.max_steps,
            sent_chars=len(self.message),
        )
        return await self.sender.accept(request, waits=waits)


def _agent_id(text: str) -> AgentId:
    """The id in an argument. Raises: ToolError."""
    if not is_id("agent", text.strip()):
        raise ToolError(f"other_agent_id is {text[:80]!r}: give the id of an agent, agent- and a uuid")
    return AgentId(text.strip())


def _render(answer: Any) -> str:
    return json.dumps(answer, ensure_ascii=False)


def _problem_shape(error: PerdureError) -> dict[str, Any]:
    """Why an agent has no reply, for the list of all answers."""
    run = {"run_id": error.run_id} if isinstance(error, NoReply) else {}
    return {"error": str(error), "type": type(error).__name__, **run}


def _list_targets(tx: Tx, me: AgentId, match_all: Sequence[str], match_some: Sequence[str]) -> Mapping[AgentId, str]:
    """The ids and names of agents with these tags, oldest first, without hidden ones and `me`, the sender.

    Raises: ToolError: none, or too many.
    """
    if not match_all and not match_some:
        raise ToolError("no tags: name at least one")
    where = AgentFilter(tags=tuple(match_all or match_some), all_tags=bool(match_all), hidden=False)
    targets = dict[AgentId, str]()
    after: AgentId | None = None
    while page := tx.agents.page(where=where, ascending=True, limit=AGENTS_MAX, after=after):
        after = page[-1].id
        for agent in page:
            if agent.id != me and (not match_some or not set(match_some).isdisjoint(agent.tags)):
                targets[agent.id] = agent.name
        if len(targets) > AGENTS_MAX:
            raise ToolError(f"more than {AGENTS_MAX} agents have these tags, the limit of a call: name more tags")
    if not targets:
        raise ToolError(f"no other agent has these tags: {', '.join([*match_all, *match_some])}")
    return targets
