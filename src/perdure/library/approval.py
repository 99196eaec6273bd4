"""Calls that wait: for a person to approve them, or for this program to run them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.app import App, Functions
from perdure.context.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.agents import Agent
from perdure.core.answers import Answer, PendingCall, ToolReturn
from perdure.core.conversations import Conversation
from perdure.core.errors import AnswerInvalid, InvalidArguments, InvalidInput, NotFound, RunFailed, StoreError
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import AgentId, ConversationId, MessageId, RunId, ToolId
from perdure.core.messages import Draft, Text, ToolDecision
from perdure.core.ports import CallContext
from perdure.core.tool_arguments import parse_arguments
from perdure.core.tool_rules import RequiresApproval, rules_of
from perdure.core.tools import Tool
from perdure.core.tx import Tx
from perdure.engine.accept import Accepted, Request
from perdure.engine.answers import pending_calls
from perdure.library.checks import USER, check_text
from perdure.library.reply import Reply, although_kept
from perdure.memory.agents import update_agent

__all__ = ["AsyncApproval", "ClientTool", "ClientTools", "client_tools_of", "set_approval"]

ClientTool = Callable[..., Any] | Mapping[str, Any]
"""A tool that this program runs: a Python function, which the library then runs by itself, or a mapping with name,
description and parameters (a JSON schema), whose calls are left to the caller."""

CLIENT_TOOLS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class ClientTools:
    """Such tools as a request has them, and the functions among them."""

    shapes: tuple[Mapping[str, Any], ...]
    functions: Functions


def client_tools_of(tools: Sequence[ClientTool]) -> ClientTools:
    """Raises: InvalidInput: no tool can be made of one, or two have one name."""
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise InvalidInput(f"client_tools is {tools!r:.80}: give a list of tools")
    tools = list(tools)
    functions, shapes = Functions(), list[Mapping[str, Any]]()
    if len(tools) > CLIENT_TOOLS_MAX:
        raise InvalidInput(f"{len(tools):,} client tools are too many: send at most {CLIENT_TOOLS_MAX:,}")
    for tool in tools:
        if isinstance(tool, Mapping):
            shapes.append(_shape(tool))
        elif not callable(tool):
            raise InvalidInput(
                f"a client tool is {tool!r:.80}: give an object with name, description and parameters, or a function"
            )
        else:
            spec = functions.add(tool)
            shapes.append({"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)})
    names = [shape["name"] for shape in shapes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"client_tools has {', '.join(twice)} more than once: give each tool one name")
    return ClientTools(tuple(shapes), functions)


def _shape(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    name, description, parameters = tool.get("name"), tool.get("description"), tool.get("parameters")
    if not isinstance(name, str) or not 1 <= len(name) <= 128 or name != name.strip():
        raise InvalidInput(f"a client tool has the name {name!r:.80}: give 1 to 128 characters")
    if description is not None and not isinstance(description, str):
        raise InvalidInput(f"client tool {name!r}: description is {description!r:.80}: give a text, or leave it out")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InvalidInput(f"client tool {name!r}: parameters is {parameters!r:.80}: give a JSON schema, of an object")
    try:
        json.dumps(parameters)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"client tool {name!r}: its parameters can't be written as JSON: {error}") from error
    return {
        "name": name,
        "description": description or "",
        "parameters": dict(parameters) if parameters else {"type": "object", "properties": {}},
    }


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
        None while other calls do.

        Args:
            arguments: what it is run with in place of the model's own; the model is told.
        Raises: AnswerInvalid: no such call waits, or the arguments don't fit its tool; else as `send`.
        """
        edited = None if arguments is None else _json(arguments)
        calls = await self._asked(call_id, conversation)
        if edited is not None and len(calls) > 1:
            raise AnswerInvalid("several calls wait: name the one that these arguments are for")
        return await self.answer(
            [ToolDecision(call.call_id, True, None, edited) for call in calls], conversation=conversation
        )

    async def deny(
        self, call_id: str | None = None, *, reason: str | None = None, conversation: ConversationId | None = None
    ) -> Reply | None:
        """Refuse a pending call, by default all that wait; the model is told, with the reason. As `approve`."""
        if reason is not None:
            check_text("reason", reason)
        calls = await self._asked(call_id, conversation)
        return await self.answer(
            [ToolDecision(call.call_id, False, reason) for call in calls], conversation=conversation
        )

    async def answer(
        self,
        answers: Sequence[Answer],
        *,
        text: str | None = None,
        conversation: ConversationId | None = None,
        client_tools: Sequence[ClientTool] | None = None,
    ) -> Reply | None:
        """Answer pending calls: a `ToolDecision` for one that waits for a person, a `ToolReturn` with what came of one
        that this program ran. The reply once all are answered; None while others still wait. The same answers again
        give the same run's reply.

        Args:
            text: what is said along with it; the model reads it behind the results.
            client_tools: those of the run that goes on, from now on; by default as they were.
        Raises: AnswerInvalid; RunFailed; StoreError.
        """
        request = await self._answer_request(answers, text, conversation, client_tools)
        accepted = await self._app.runner.accept(request)
        return None if accepted.waits else await self._reply_to(accepted)

    async def stream_answer(
        self,
        answers: Sequence[Answer],
        *,
        text: str | None = None,
        conversation: ConversationId | None = None,
    ) -> AsyncIterator[StoredEvent | Delta]:
        """Answer pending calls and follow what happens; nothing while others still wait. Raises: as `answer`, but for
        RunFailed."""
        accepted = await self._app.runner.accept(await self._answer_request(answers, text, conversation, None))
        if not accepted.waits:
            async for sent in self._app.runner.follow(accepted.run, known=accepted.events):
                yield sent

    async def require_approval(self, tool: str, required: bool = True) -> None:
        """Have a person approve each call of a tool, or no more, also of one that asks for it by itself. It holds from
        the agent's next answer on. Raises: NotFound: the agent has no such tool."""
        check_text("tool", tool)
        now = self._app.ports.clock.now()
        await self._app.store.write(set_approval, self.id, tool, required=required, at=now)

    async def _asked(self, call_id: str | None, conversation: ConversationId | None) -> list[PendingCall]:
        waiting = await self.pending(conversation=conversation)
        found = [call for call in waiting if (not call.awaits_client if call_id is None else call.call_id == call_id)]
        if not found:
            there = ", ".join(f"{call.call_id} ({call.name})" for call in waiting) or "none"
            what = "no call waits for approval" if call_id is None else f"call {call_id!r:.80} does not wait"
            raise AnswerInvalid(f"{what}: of agent {self.info.name!r} there wait {there}")
        return found

    async def _answer_request(
        self,
        answers: Sequence[Answer],
        text: str | None,
        conversation: ConversationId | None,
        client_tools: Sequence[ClientTool] | None,
    ) -> Request:
        for answer in answers:
            _check_answer(answer)
        ports = self._app.ports
        line = await self._app.store.read(self._line, conversation)
        drafts: tuple[Draft, ...] = ()
        tokens: tuple[int, ...] = ()
        if text is not None:
            check_text("text", text)
            drafts = (Draft(id=MessageId(ports.ids.new("message")), role="user", parts=(Text(text),)),)
            tokens = (ports.counter.count(text) + MESSAGE_OVERHEAD_TOKENS,)
        return Request(
            run_id=RunId(ports.ids.new("run")),
            agent_id=self.id,
            conversation_seq=line.seq,
            drafts=drafts,
            tokens=tokens,
            max_steps=self._app.settings.max_steps,
            answers=tuple(answers),
            partial=True,
            client_tools=None if client_tools is None else client_tools_of(client_tools).shapes,
        )

    async def _reply_to(self, accepted: Accepted) -> Reply:
        """Raises: RunFailed, StoreError."""
        try:
            events = await self._app.runner.outcome(accepted.run, known=accepted.events)
        except StoreError as error:
            raise although_kept(error, accepted.run.id) from error
        reply = Reply.of(events)
        if reply.failure is not None:
            raise RunFailed(reply.failure.message, run_id=reply.run_id, stop_reason=reply.stop_reason, reply=reply)
        return reply

    async def _with_functions(self, reply: Reply, tools: ClientTools, conversation: ConversationId | None) -> Reply:
        """The reply after the functions that it waits for were run here, as often as it takes."""
        specs = {spec.name: spec for spec in tools.functions.specs()}
        while reply.stop_reason == "requires_approval":
            waiting = await self.pending(conversation=conversation)
            mine = [call for call in waiting if call.run_id == reply.run_id and call.awaits_client]
            if not mine or len(mine) < len(waiting) or any(call.name not in specs for call in mine):
                return reply
            answers = []
            for call in mine:
                try:
                    arguments = parse_arguments(call.name, specs[call.name].parameters, call.call.arguments)
                    context = CallContext(
                        agent_id=self.id,
                        conversation_id=call.conversation_id,
                        run_id=call.run_id,
                        call_id=call.call_id,
                    )
                    tool = Tool(id=ToolId(""), spec=specs[call.name])
                    outcome = await tools.functions.call(tool, arguments, context)
                except InvalidArguments as error:
                    answers.append(ToolReturn(call.call_id, str(error), "error"))
                else:
                    answers.append(
                        ToolReturn(call.call_id, outcome.text, outcome.status, outcome.stdout, outcome.stderr)
                    )
            following = await self.answer(answers, conversation=conversation)
            if following is None:
                return reply
            reply = following
        return reply

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
    waived = [one for one in agent.settings.get("approval_waived", ()) if one != name]
    if required and (not tool.spec.requires_approval or name in rules_of(agent.settings).approved):
        kept.append({"tool_name": name, "type": RequiresApproval.type, "prompt_template": None})
    elif not required and tool.spec.requires_approval:
        waived.append(name)
    settings = {key: value for key, value in agent.settings.items() if key not in ("tool_rules", "approval_waived")}
    settings |= {"tool_rules": kept} if kept else {}
    settings |= {"approval_waived": waived} if waived else {}
    return update_agent(tx, agent_id, {"settings": settings}, author=USER, at=at)


def _json(arguments: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(arguments), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"arguments can't be written as JSON: {error}") from error
