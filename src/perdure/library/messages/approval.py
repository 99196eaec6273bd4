"""Calls that wait for the approval of a person, or for this program to run them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from perdure.core.agents import Agent
from perdure.core.blocks import Author, MemoryEdit
from perdure.core.errors import AnswerInvalid, InvalidInput, NotFound, RunFailed, StoreError
from perdure.core.events import Delta, RunEnded, StoredEvent
from perdure.core.ids import ConversationId
from perdure.core.messages import Text, ToolCall, ToolDecision
from perdure.core.runs import Run
from perdure.core.tools.answers import Answer, PendingCall, ToolReturn
from perdure.core.tools.rules import RequiresApproval
from perdure.domain.agents.units import update_agent
from perdure.engine.approvals.answers import check_edited, open_calls, pending_calls
from perdure.engine.approvals.askers import LISTED_MAX, find_asker, helpers_waiting
from perdure.engine.approvals.decisions import find_decisions
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.engine.run.accept import Accepted
from perdure.engine.run.previews import preview_edits
from perdure.library.messages.client_tools import ClientTool, ClientTools, client_tools_of
from perdure.library.messages.reply import Reply, add_accepted
from perdure.library.messages.requests import AsyncRequests
from perdure.library.parts.checks import check_text, outside
from perdure.library.parts.part import find_conversation, reads, writes
from perdure.storage.tx import Tx

COUNTED = 20
"""Of so many conversations the calls that wait are counted one by one."""


def _check_answer(answer: object) -> None:
    """Check the types of an answer's fields: what only looks true must not count as approval. Raises: InvalidInput."""
    fields: dict[str, bool]
    match answer:
        case ToolDecision(call_id, approve, reason, arguments):
            fields = {
                "call_id": isinstance(call_id, str),
                "approve": isinstance(approve, bool),
                "reason": reason is None or isinstance(reason, str),
                "arguments": arguments is None or isinstance(arguments, str),
            }
            hint = "texts, approve True or False, arguments as JSON"
        case ToolReturn(call_id, text, status, stdout, stderr):
            fields = {
                "call_id": isinstance(call_id, str),
                "text": isinstance(text, str),
                "status": status in ("success", "error"),
                "stdout": _is_lines(stdout),
                "stderr": _is_lines(stderr),
            }
            hint = "texts, status success or error, stdout and stderr tuples of texts"
        case _:
            raise InvalidInput(f"an answer is {answer!r:.80}: give a ToolDecision or a ToolReturn")
    for name, fits in fields.items():
        if not fits:
            raise InvalidInput(f"{type(answer).__name__}.{name} is {getattr(answer, name)!r:.80}: give {hint}")


def _is_lines(value: object) -> bool:
    """Whether a value is a list or tuple of texts."""
    return isinstance(value, (list, tuple)) and all(isinstance(line, str) for line in value)


class AsyncApproval(AsyncRequests):
    """The calls of an agent that wait; `AsyncAgent` has these methods."""

    @reads
    def pending(self, tx: Tx, *, conversation: ConversationId | None = None) -> Sequence[PendingCall]:
        """The waiting calls of a conversation (default: the agent's first), in the order of the model's answer; it
        takes only answers while there are any. Without any, the waiting calls of helpers that work for it, to be
        answered here too. Raises: InvalidInput, NotFound."""
        found = find_conversation(tx, self.id, conversation)
        if found.pending_run_seq is not None or tx.runs.find_active(*found.key) is None:
            return pending_calls(tx, found)
        waiting = helpers_waiting(tx, [found.key]).get(found.key, ())
        return [call for one in waiting for call in pending_calls(tx, one)]

    async def pending_edits(self, call: PendingCall) -> Sequence[MemoryEdit]:
        """The changes of blocks that a pending call would make if it ran now; nothing is changed. None of a tool that
        edits no block, and of a call that its tool would refuse. Raises: NotFound."""
        return await preview_edits(call, self._ports)

    async def approve(
        self,
        call_id: str | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        conversation: ConversationId | None = None,
    ) -> Reply | None:
        """Approve a pending call, by default all that wait for a person, and return the reply; None while other calls
        still wait. The same approval again returns the same reply; another decision is refused.

        Args:
            arguments: arguments in place of the model's own; the model sees that they changed.
        Raises: AnswerInvalid: no such call waits, or the arguments don't fit its tool; else as `send`.
        """
        edited = None if arguments is None else _arguments_json(arguments)
        calls = await self._calls_to_decide(call_id, conversation)
        if edited is not None and len(calls) > 1:
            raise AnswerInvalid("several calls wait: name the one that these arguments are for")
        return await self.answer([ToolDecision(call, True, None, edited) for call in calls], conversation=conversation)

    async def deny(
        self, call_id: str | None = None, *, reason: str | None = None, conversation: ConversationId | None = None
    ) -> Reply | None:
        """Deny a pending call (default: all that wait for a person) with a reason. Else as `approve`."""
        if reason is not None:
            check_text("reason", reason)
        calls = await self._calls_to_decide(call_id, conversation)
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
        """Answer pending calls and return the reply; None while other calls still wait. A `ToolDecision` answers a call
        that waits for a person, a `ToolReturn` holds the result of a call that this program ran. The same answers again
        return the same reply.

        Args:
            text: a message to send with the answers; the model reads it after the results.
            client_tools: the client tools of the next run; by default those of the run before. This call runs the
                functions among them, also for calls that wait already.
            max_steps: the limit of the next run; by default the steps that the run before has left, or with a `text`
                the default of `send`.
        Raises: AnswerInvalid; InvalidInput; RunFailed; StoreError.
        """
        tools = None if client_tools is None else client_tools_of(client_tools)
        accepted = await self._submit_answers(answers, text, conversation, tools, max_steps)
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
        """Answer pending calls and yield the events of the next run, as `stream` does; none while other calls still
        wait. Raises: as `answer`, but not RunFailed."""
        tools = None if client_tools is None else client_tools_of(client_tools)
        accepted = await self._submit_answers(answers, text, conversation, tools, max_steps)
        if not accepted.waits:
            async for sent in self._follow(accepted, tools, conversation):
                yield sent

    @writes
    def require_approval(self, tx: Tx, tool: str, required: bool = True, *, author: Author | None = None) -> None:
        """Require the approval of a person for each call of a tool, or no longer require it, from the agent's next
        answer on. Raises: NotFound: the agent has no such tool."""
        check_text("tool", tool)
        now = self._ports.clock.now()
        tx.agents.lock(self.id)
        settings = _approval_settings(tx, tx.agents.get(self.id), tool, required=required)
        update_agent(tx, self.id, {"settings": settings}, author=author or outside(), at=now)

    @reads
    def list_all(self, tx: Tx) -> Sequence[tuple[str, PendingCall]]:
        """(name of its agent, call) for each call that waits, in the first 1,000 conversations of all agents. A call of
        a helper has the name of the agent that it works for."""
        return [
            (tx.agents.get(find_asker(tx, tx.runs.get(call.run_id)).key.agent_id).name, call)
            for conversation in tx.conversations.list_pending(limit=LISTED_MAX)
            for call in pending_calls(tx, conversation)
        ]

    @reads
    def count(self, tx: Tx) -> int:
        """How many calls wait for a person; of more than `COUNTED` conversations, how many of these wait."""
        count = tx.conversations.count_pending()
        if not 0 < count <= COUNTED:
            return count
        waiting = tx.conversations.list_pending(limit=COUNTED)
        return sum(not call.awaits_client for one in waiting for call in pending_calls(tx, one))

    async def open_calls(self, conversation: ConversationId | None = None) -> Sequence[ToolCall]:
        """The calls at which a conversation has stopped, decided or not, each with the arguments that it was given."""
        return await self._ports.store.read(lambda tx: open_calls(tx, find_conversation(tx, self.id, conversation)))

    @reads
    def find_decisions(
        self, tx: Tx, conversation: ConversationId | None = None, call_id: str | None = None
    ) -> Sequence[str]:
        """The ids of calls that a person decided: this one, if it is; for None the last ones, if nothing followed."""
        return find_decisions(tx, find_conversation(tx, self.id, conversation), call_id)

    @reads
    def find_decided(self, tx: Tx, call_id: str) -> Sequence[ConversationId]:
        """The ids of the agent's conversations in which a call of this id was answered."""
        conversations = tx.conversations.list(self.id, limit=LISTED_MAX)
        return [conversation.id for conversation in conversations if find_decisions(tx, conversation, call_id)]

    async def check_arguments(self, call: PendingCall, arguments: str) -> None:
        """Check that the call could be approved with these arguments, as JSON. Raises: AnswerInvalid."""
        await self._ports.store.read(check_edited, call, arguments)

    async def _calls_to_decide(self, call_id: str | None, conversation: ConversationId | None) -> Sequence[str]:
        """The ids of the calls to decide: this call; with None all that wait for a person, or if none does those of the
        last decision. Raises: AnswerInvalid: there are none."""
        if call_id is not None:
            check_text("call_id", call_id)
            return [call_id]
        waiting = await self.pending(conversation=conversation)
        call_ids: Sequence[str] = [call.call_id for call in waiting if not call.awaits_client]
        if not call_ids:
            call_ids = await self.find_decisions(conversation)
        if not call_ids:
            names = ", ".join(f"{call.call_id} ({call.name})" for call in waiting) or "none"
            name = (await self._ports.store.read(lambda tx: tx.agents.get(self.id))).name
            raise AnswerInvalid(f"no call waits for approval: of agent {name!r} there wait {names}")
        return call_ids

    async def _submit_answers(
        self,
        answers: Sequence[Answer],
        text: str | None,
        conversation: ConversationId | None,
        tools: ClientTools | None,
        max_steps: int | None = None,
    ) -> Accepted:
        """The run that continues with these answers, or the stopped run while other calls wait. Where `tools` has
        functions for all of those, they are run first."""
        for answer in answers:
            _check_answer(answer)
        if text is not None:
            check_text("text", text)
        if tools is not None and answers:
            answered = {answer.call_id for answer in answers}
            open_calls = [
                call for call in await self.pending(conversation=conversation) if call.call_id not in answered
            ]
            if tools.runs(open_calls):
                # Decisions are stored before a function runs, because the function may have effects of its own.
                before = await self._submit_answers(answers, None, conversation, None)
                if before.waits:
                    answers = await tools.run(open_calls)
        return await self.send_request(
            RunRequest(
                agent_id=self.id,
                messages=() if text is None else (NewMessage((Text(text),)),),
                conversation_seq=await self._seq_of(conversation),
                answers=tuple(answers),
                partial=True,
                client_tools=None if tools is None else tools.shapes,
                max_steps=max_steps,
            )
        )

    async def _reply_to(
        self, accepted: Accepted, tools: ClientTools | None, conversation: ConversationId | None
    ) -> Reply:
        """The reply of the last run, after running functions that runs wait for. Raises: RunFailed, StoreError."""
        while True:
            try:
                reply = await self.reply_to(accepted)
            except StoreError as error:
                raise add_accepted(error, accepted.run.id) from error
            if reply.failure is not None:
                raise RunFailed(reply.failure.message, run_id=reply.run_id, stop_reason=reply.stop_reason, reply=reply)
            following = None
            if reply.stop_reason == "requires_approval":
                following = await self._run_functions(accepted.run, tools, conversation)
            if following is None:
                return reply
            accepted = following

    async def _follow(
        self, accepted: Accepted, tools: ClientTools | None, conversation: ConversationId | None
    ) -> AsyncIterator[StoredEvent | Delta]:
        """The events of the run, and of runs that continue with functions' results. Raises: StoreError."""
        following: Accepted | None = accepted
        while following is not None:
            accepted, following = following, None
            stopped = False
            try:
                async for sent in self.follow_accepted(accepted):
                    if isinstance(sent, StoredEvent) and isinstance(sent.event, RunEnded):
                        stopped = sent.event.stop_reason == "requires_approval"
                    yield sent
            except StoreError as error:
                raise add_accepted(error, accepted.run.id) from error
            if stopped:
                following = await self._run_functions(accepted.run, tools, conversation)

    async def _run_functions(
        self, stopped: Run, tools: ClientTools | None, conversation: ConversationId | None
    ) -> Accepted | None:
        """Run the functions that a run waits for, and return the run that continues with their results. None: it waits
        for something else too, or no longer."""
        if tools is None:
            return None
        waiting = await self.pending(conversation=conversation)
        if not tools.runs(waiting) or any(call.run_id != stopped.id for call in waiting):
            return None
        accepted = await self._submit_answers(await tools.run(waiting), None, conversation, None)
        return None if accepted.waits else accepted


def _arguments_json(arguments: Mapping[str, Any]) -> str:
    """The arguments as JSON. Raises: InvalidInput."""
    try:
        return json.dumps(dict(arguments), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"arguments can't be written as JSON: {error}") from error


def _approval_settings(tx: Tx, agent: Agent, name: str, *, required: bool) -> dict[str, object]:
    """The agent's settings, in which calls of this tool need a person's approval, or do not."""
    tools = tx.tools.with_own_names(tx.tools.list_by_agent(agent.id))
    tool = next((tool for tool in tools if name in (tool.spec.name, tool.own_name)), None)
    if tool is None:
        raise NotFound("tool", name, hint=f"agent {agent.name!r} has no such tool")
    name = tool.spec.name
    rules = [
        shape
        for shape in agent.settings.get("tool_rules", ())
        if not (shape["type"] == RequiresApproval.type and shape["tool_name"] == name)
    ]
    waived = [key for key in agent.settings.get("approval_waived", ()) if key not in (tool.id, name)]
    if required:
        rules.append({"tool_name": name, "type": RequiresApproval.type, "prompt_template": None})
    elif not required and tool.spec.requires_approval:
        waived.append(tool.id)  # not its name, which another tool may get
    settings = {key: value for key, value in agent.settings.items() if key not in ("tool_rules", "approval_waived")}
    settings |= {"tool_rules": rules} if rules else {}
    return settings | ({"approval_waived": waived} if waived else {})
