"""Calls that wait: for a person to approve them, or for this program to run them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from perdure.app import App
from perdure.context.window.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.agents import Agent
from perdure.core.answers import Answer, PendingCall, ToolReturn
from perdure.core.conversations import Conversation
from perdure.core.errors import AnswerInvalid, InvalidInput, NotFound, RunFailed, StoreError
from perdure.core.events import Delta, RunEnded, StoredEvent
from perdure.core.ids import AgentId, ConversationId, RunId, input_id
from perdure.core.messages import Draft, Text, ToolDecision
from perdure.core.runs import Run
from perdure.core.tools.rules import RequiresApproval, rules_of
from perdure.domain.agents.units import update_agent
from perdure.engine.approvals.answers import pending_calls
from perdure.engine.approvals.decisions import last_decisions
from perdure.engine.run.accept import Accepted, Request
from perdure.library.checks import USER, check_number, check_text
from perdure.library.client_tools import ClientTool, ClientTools, client_tools_of
from perdure.library.reply import Reply, although_kept
from perdure.storage.tx import Tx

__all__ = ["AsyncApproval", "set_approval"]


def _check_answer(answer: object) -> None:
    """Nothing, when all fields are of their types: whatever is not False must not pass for a yes. Raises:
    InvalidInput."""
    fields: dict[str, bool]
    match answer:
        case ToolDecision(call_id, approve, reason, arguments):
            fields = {
                "call_id": isinstance(call_id, str),
                "approve": isinstance(approve, bool),
                "reason": reason is None or isinstance(reason, str),
                "arguments": arguments is None or isinstance(arguments, str),
            }
            wanted = "texts, approve True or False, arguments as JSON"
        case ToolReturn(call_id, text, status, stdout, stderr):
            fields = {
                "call_id": isinstance(call_id, str),
                "text": isinstance(text, str),
                "status": status in ("success", "error"),
                "stdout": _is_lines(stdout),
                "stderr": _is_lines(stderr),
            }
            wanted = "texts, status success or error, stdout and stderr tuples of texts"
        case _:
            raise InvalidInput(f"an answer is {answer!r:.80}: give a ToolDecision or a ToolReturn")
    for name, fits in fields.items():
        if not fits:
            raise InvalidInput(f"{type(answer).__name__}.{name} is {getattr(answer, name)!r:.80}: give {wanted}")


def _is_lines(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(line, str) for line in value)


class AsyncApproval:
    """The calls of an agent that wait; `AsyncAgent` has these methods."""

    _app: App
    id: AgentId
    info: Agent

    async def pending(self, *, conversation: ConversationId | None = None) -> Sequence[PendingCall]:
        """The calls that wait in a conversation (default: the agent's first), in the order they were asked. While there
        are any, it takes answers only. Raises: InvalidInput, NotFound."""
        return await self._app.store.read(lambda tx: pending_calls(tx, self._line(tx, conversation)))

    async def approve(
        self,
        call_id: str | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        conversation: ConversationId | None = None,
    ) -> Reply | None:
        """Let a pending call be run, by default all that wait for a person; the reply once nothing waits any more, or
        None while other calls do. Said again it is the same reply; after another decision it is refused.

        Args:
            arguments: what it is run with in place of the model's own; the model is told.
        Raises: AnswerInvalid: no such call waits, or the arguments don't fit its tool; else as `send`.
        """
        edited = None if arguments is None else _json(arguments)
        calls = await self._asked(call_id, conversation)
        if edited is not None and len(calls) > 1:
            raise AnswerInvalid("several calls wait: name the one that these arguments are for")
        return await self.answer([ToolDecision(call, True, None, edited) for call in calls], conversation=conversation)

    async def deny(
        self, call_id: str | None = None, *, reason: str | None = None, conversation: ConversationId | None = None
    ) -> Reply | None:
        """Refuse a pending call, by default all that wait; the model is told, with the reason. As `approve`."""
        if reason is not None:
            check_text("reason", reason)
        calls = await self._asked(call_id, conversation)
        return await self.answer([ToolDecision(call, False, reason) for call in calls], conversation=conversation)

    async def answer(
        self,
        answers: Sequence[Answer],
        *,
        text: str | None = None,
        conversation: ConversationId | None = None,
        client_tools: Sequence[ClientTool] | None = None,
        max_steps: int | None = None,
    ) -> Reply | None:
        """Answer pending calls: a `ToolDecision` for one that waits for a person, a `ToolReturn` with what came of one
        that this program ran. The reply once all are answered; None while others still wait. The same answers again
        give the same run's reply.

        Args:
            text: what is said along with it; the model reads it behind the results.
            client_tools: those of the run that goes on, from now on; by default as they were. Functions are run by this
                call, also for what waits already, as `send` does.
            max_steps: of the run that goes on; by default what is left of the limit of the one that stopped, or with a
                `text` as `send` has it.
        Raises: AnswerInvalid; InvalidInput; RunFailed; StoreError.
        """
        tools = None if client_tools is None else client_tools_of(client_tools)
        accepted = await self._answered(answers, text, conversation, tools, max_steps)
        return None if accepted.waits else await self._reply_to(accepted, tools, conversation)

    async def stream_answer(
        self,
        answers: Sequence[Answer],
        *,
        text: str | None = None,
        conversation: ConversationId | None = None,
        client_tools: Sequence[ClientTool] | None = None,
        max_steps: int | None = None,
    ) -> AsyncIterator[StoredEvent | Delta]:
        """Answer pending calls and follow what happens, as `stream` does; nothing while others still wait. Raises: as
        `answer`, but for RunFailed."""
        tools = None if client_tools is None else client_tools_of(client_tools)
        accepted = await self._answered(answers, text, conversation, tools, max_steps)
        if not accepted.waits:
            async for sent in self._follow(accepted, tools, conversation):
                yield sent

    async def require_approval(self, tool: str, required: bool = True) -> None:
        """Have a person approve each call of a tool, or no more, also of one that asks for it by itself. It holds from
        the agent's next answer on. Raises: NotFound: the agent has no such tool."""
        check_text("tool", tool)
        now = self._app.ports.clock.now()
        await self._app.store.write(set_approval, self.id, tool, required=required, at=now)

    async def _asked(self, call_id: str | None, conversation: ConversationId | None) -> Sequence[str]:
        """The ids of the calls that a decision is about; none that waits, if it is the last one said again."""
        if call_id is not None:
            check_text("call_id", call_id)
            return [call_id]
        waiting = await self.pending(conversation=conversation)
        found: Sequence[str] = [call.call_id for call in waiting if not call.awaits_client]
        if not found:
            found = await self._app.store.read(lambda tx: last_decisions(tx, self._line(tx, conversation)))
        if not found:
            there = ", ".join(f"{call.call_id} ({call.name})" for call in waiting) or "none"
            raise AnswerInvalid(f"no call waits for approval: of agent {self.info.name!r} there wait {there}")
        return found

    async def _answered(
        self,
        answers: Sequence[Answer],
        text: str | None,
        conversation: ConversationId | None,
        tools: ClientTools | None,
        max_steps: int | None = None,
    ) -> Accepted:
        """The run that goes on with these answers, or the one that still waits for others."""
        for answer in answers:
            _check_answer(answer)
        check_number("max_steps", max_steps)
        ports = self._app.ports
        line = await self._app.store.read(self._line, conversation)
        drafts: tuple[Draft, ...] = ()
        tokens: tuple[int, ...] = ()
        run_id = RunId(ports.ids.new("run"))
        if text is not None:
            check_text("text", text)
            drafts = (Draft(id=input_id(run_id, 0, ports.ids), role="user", parts=(Text(text),)),)
            tokens = (ports.counter.count(text) + MESSAGE_OVERHEAD_TOKENS,)
            max_steps = self._app.settings.max_steps if max_steps is None else max_steps
        if tools is not None and answers:
            given = {answer.call_id for answer in answers}
            left = [call for call in await self.pending(conversation=conversation) if call.call_id not in given]
            if tools.runs(left):
                # What was decided is stored before a function is run, which may have an effect of its own.
                before = await self._answered(answers, None, conversation, None)
                if before.waits:
                    answers = await tools.run(left)
        return await self._app.runner.accept(
            Request(
                run_id=run_id,
                agent_id=self.id,
                conversation_seq=line.seq,
                drafts=drafts,
                tokens=tokens,
                max_steps=max_steps,
                answers=tuple(answers),
                partial=True,
                client_tools=None if tools is None else tools.shapes,
            )
        )

    async def _reply_to(
        self, accepted: Accepted, tools: ClientTools | None, conversation: ConversationId | None
    ) -> Reply:
        """The reply, after the functions that it waits for were run here, as often as it takes. Raises: RunFailed,
        StoreError."""
        while True:
            try:
                events = await self._app.runner.outcome(accepted.run, known=accepted.events)
            except StoreError as error:
                raise although_kept(error, accepted.run.id) from error
            reply = Reply.of(events)
            if reply.failure is not None:
                raise RunFailed(reply.failure.message, run_id=reply.run_id, stop_reason=reply.stop_reason, reply=reply)
            following = None
            if reply.stop_reason == "requires_approval":
                following = await self._brought_back(accepted.run, tools, conversation)
            if following is None:
                return reply
            accepted = following

    async def _follow(
        self, accepted: Accepted, tools: ClientTools | None, conversation: ConversationId | None
    ) -> AsyncIterator[StoredEvent | Delta]:
        """What the run tells, then what those tell that go on with what functions here brought back. Raises:
        StoreError."""
        following: Accepted | None = accepted
        while following is not None:
            accepted, following = following, None
            stopped = False
            try:
                async for sent in self._app.runner.follow(accepted.run, known=accepted.events):
                    if isinstance(sent, StoredEvent) and isinstance(sent.event, RunEnded):
                        stopped = sent.event.stop_reason == "requires_approval"
                    yield sent
            except StoreError as error:
                raise although_kept(error, accepted.run.id) from error
            if stopped:
                following = await self._brought_back(accepted.run, tools, conversation)

    async def _brought_back(
        self, stopped: Run, tools: ClientTools | None, conversation: ConversationId | None
    ) -> Accepted | None:
        """The run that goes on after the functions that this one waits for were run here. None: it waits for something
        else too, or no more."""
        if tools is None:
            return None
        waiting = await self.pending(conversation=conversation)
        if not tools.runs(waiting) or any(call.run_id != stopped.id for call in waiting):
            return None
        accepted = await self._answered(await tools.run(waiting), None, conversation, None)
        return None if accepted.waits else accepted

    def _line(self, tx: Tx, conversation: ConversationId | None) -> Conversation:
        if conversation is None:
            return tx.conversations.at(self.id, 0)
        check_text("conversation", conversation)
        found = tx.conversations.get(conversation)
        if found.agent_id != self.id:
            raise NotFound("conversation", conversation, hint=f"agent {self.info.name!r} has no such conversation")
        return found


def set_approval(tx: Tx, agent_id: AgentId, name: str, *, required: bool, at: datetime) -> Agent:
    """The agent, for which calls of this tool now need a person's approval, or don't. Raises: NotFound."""
    tx.agents.lock(agent_id)
    agent = tx.agents.get(agent_id)
    tool = next((tool for tool in tx.tools.of_agent(agent_id) if tool.spec.name == name), None)
    if tool is None:
        raise NotFound("tool", name, hint=f"agent {agent.name!r} has no such tool")
    kept = [
        shape
        for shape in agent.settings.get("tool_rules", ())
        if not (shape["type"] == RequiresApproval.type and shape["tool_name"] == name)
    ]
    waived = [one for one in agent.settings.get("approval_waived", ()) if one not in (tool.id, name)]
    if required and (not tool.spec.requires_approval or name in rules_of(agent.settings).approved):
        kept.append({"tool_name": name, "type": RequiresApproval.type, "prompt_template": None})
    elif not required and tool.spec.requires_approval:
        waived.append(tool.id)  # not its name, which another tool may get
    settings = {key: value for key, value in agent.settings.items() if key not in ("tool_rules", "approval_waived")}
    settings |= {"tool_rules": kept} if kept else {}
    settings |= {"approval_waived": waived} if waived else {}
    return update_agent(tx, agent_id, {"settings": settings}, author=USER, at=at)


def _json(arguments: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(arguments), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"arguments can't be written as JSON: {error}") from error
