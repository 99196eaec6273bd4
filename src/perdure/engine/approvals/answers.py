"""Calls that wait for a person or the caller, and the answers to them.

A run that stops at such calls leaves them open; its conversation says so, and takes nothing but answers. The answers
are stored with the run that goes on with them, in one transaction, so each is applied once: what was denied or brought
back has its result then, what was approved is run by the new run as any call.

A tool may be changed while a call of it waits. The call keeps a digest of what would have been run, and something else
is not run in its place: the model reads why, and may ask again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.context.sections.stubs import cut_outcome, cut_result, cut_stored
from perdure.context.sections.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation, ConversationKey, ConversationState
from perdure.core.errors import AnswerInvalid, ApprovalPending, ConversationBusy, InvalidArguments
from perdure.core.events import Event, MessageAdded, RunEnded, StoredEvent
from perdure.core.features import Point
from perdure.core.ids import AgentId, MessageId, ToolId
from perdure.core.incoming.json_limits import parse_json
from perdure.core.loops import FREE, with_text_argument
from perdure.core.messages import SEND_MESSAGE, Draft, Image, Message, Part, ToolCall, ToolDecision, Waits
from perdure.core.runs import Run, RunKey
from perdure.core.sources import Source
from perdure.core.specs import Tool, ToolCode, ToolOutcome, ToolSpec
from perdure.core.tools.answers import Answer, PendingCall, ToolReturn
from perdure.core.tools.arguments import ARGUMENTS, fit_arguments, parse_arguments, read_json
from perdure.core.tools.engine_specs import CONTEXT_TOOL_SPECS
from perdure.core.tools.rules import rules_in
from perdure.domain.provenance.policy import describe_sources, load_gate, writes_memory
from perdure.engine.log.orders import ORDER, why_not_after_order
from perdure.engine.log.run_log import OpenCall, RunLog, open_calls_in
from perdure.engine.log.tool_rules import RuleState, expected_states, prefill, why_not_for_run
from perdure.engine.ports import Ports, UnitInputs, show_result
from perdure.engine.records.rows import NEWEST, add_hook_context, result_draft
from perdure.storage.tx import Tx

SKILL = "skill"
"""The `type` of a skill among what a caller brings along; tools have none."""

LATEST_ANSWERS = 100
"""How many answers of a conversation are searched for one that is sent again."""

LATEST_ROWS = 1_000
"""How many rows of an agent's log are searched for ids that a new call that waits may not have."""

REASON_CHARS_MAX = 10_000

RETURN_CHARS, RETURN_SHARE, CHARS_PER_TOKEN = 5_000, 0.2, 4
"""A result from the caller is cut at so many characters, or at this share of the window if that is more."""


@dataclass(frozen=True, slots=True)
class WaitingCalls:
    """The run that stopped at calls that wait, the rows from the message with these calls on, and the open calls."""

    run: Run
    rows: tuple[Message, ...]
    open_calls: tuple[OpenCall, ...]

    @property
    def waiting(self) -> tuple[OpenCall, ...]:
        """The calls that nobody has decided yet, in the order of the model's answer."""
        return tuple(call for call in self.open_calls if call.waits)

    @property
    def message(self) -> Message:
        """The answer of the model that holds the calls."""
        return self.rows[0]


def find_pending(tx: Tx, conversation: Conversation) -> WaitingCalls | None:
    """Return the run of the conversation that stopped at calls which wait, with these calls; None: none wait."""
    return find_all_pending(tx, [conversation]).get(conversation.key)


def find_all_pending(tx: Tx, conversations: Sequence[Conversation]) -> Mapping[ConversationKey, WaitingCalls]:
    """Return conversation -> the run that stopped in it at calls which wait; others are left out."""
    waiting = {
        one.key: RunKey(one.agent_id, one.pending_run_seq) for one in conversations if one.pending_run_seq is not None
    }
    runs = tx.runs.list_by_keys([*waiting.values()])
    rows = tx.messages.views({one.key: one.pending_from for one in conversations if one.pending_from is not None})
    return {
        key: WaitingCalls(runs[run], tuple(rows[key]), open_calls_in(rows[key]))
        for key, run in waiting.items()
        if key in rows
    }


def approval_pending(tx: Tx, conversation: Conversation, *, what: str = "send a new message") -> ApprovalPending:
    """Return the error of a conversation with waiting calls. `what`: the refused action, a verb with its object."""
    pending = find_pending(tx, conversation)
    assert pending is not None
    calls = [f"{one.call.name}, {one.call.call_id}" for one in pending.waiting]
    return ApprovalPending(run_id=pending.run.id, message_id=pending.message.id, calls=calls, what=what)


def check_idle(tx: Tx, agent_id: AgentId, conversation_seq: int, *, what: str) -> ConversationState:
    """Return a conversation's state if nothing goes on in it, for the action `what`: a verb with its object. Raises:
    NotFound: it was deleted; ConversationBusy; ApprovalPending: calls wait."""
    opening = tx.conversations.get_state(agent_id, conversation_seq)
    if (busy := tx.runs.find_active(agent_id, conversation_seq)) is not None:
        raise ConversationBusy(busy.id)
    if opening.conversation.pending_run_seq is not None:
        raise approval_pending(tx, opening.conversation, what=what)
    return opening


def pending_calls(tx: Tx, conversation: Conversation) -> tuple[PendingCall, ...]:
    """The calls of a conversation that wait for an answer, in the order of the model's answer; none if none waits."""
    pending = find_pending(tx, conversation)
    if pending is None:
        return ()
    untrusted = write_waits(
        tx, pending.run, tools_of(tx, pending.run), before_seq=pending.message.seq if pending.waiting else 0
    )
    return tuple(
        PendingCall(
            agent_id=conversation.agent_id,
            conversation_id=conversation.id,
            run_id=pending.run.id,
            message_id=one.message.id,
            call=one.call,
            reason=untrusted.get(one.call.name, "") if one.call.awaits == "approval" else "",
            helper=pending.run.options.helper,
        )
        for one in pending.waiting
    )


def write_waits(tx: Tx, run: Run, tools: Mapping[str, Tool], *, before_seq: int = NEWEST) -> Mapping[str, str]:
    """Return tool -> why its calls wait for approval: they write memory after content from outside entered the context.

    Args:
        tools: the tools to look at, by name.
        before_seq: the number of the message that holds the calls; later messages do not count.
    """
    agent = tx.conversations.get_agent(run.key.agent_id, run.conversation_seq)
    gate = load_gate(tx, agent, run.conversation_seq, before_seq=before_seq)
    if gate.policy != "approve":
        return {}
    reason = f"it would write memory, and the conversation holds content from {describe_sources(gate.sources)}"
    return {name: reason for name, tool in tools.items() if writes_memory(tx, tool)}


def open_calls(tx: Tx, conversation: Conversation) -> tuple[ToolCall, ...]:
    """Return the calls without a result at which the conversation stopped, with the arguments as a person decided."""
    pending = find_pending(tx, conversation)
    calls = () if pending is None else pending.open_calls
    return tuple(ToolCall(call.call.call_id, call.call.name, call.arguments, call.call.awaits) for call in calls)


def client_specs(tx: Tx, agent_id: AgentId, digest: str) -> dict[str, ToolSpec]:
    """Return the tools that the caller of a run runs itself, by name. `digest`: the key of the stored set of tools."""
    return {
        shape["name"]: ToolSpec(
            name=shape["name"],
            description=shape.get("description") or "",
            parameters=shape.get("parameters") or {"type": "object", "properties": {}},
            kind="client",
        )
        for shape in tx.runs.client_tools(agent_id, digest)
        if shape.get("type") != SKILL
    }


def client_skills(tx: Tx, agent_id: AgentId, digest: str) -> Sequence[Mapping[str, Any]]:
    """Return the caller's skills of a stored set, each with name, description and location. `digest`: the set's key."""
    return [shape for shape in tx.runs.client_tools(agent_id, digest) if shape.get("type") == SKILL]


def with_client_tools(tx: Tx, run: Run, tools: Sequence[Mapping[str, Any]]) -> Run:
    """Store the caller's tools and skills with the run. Raises: TooMany: they are too long."""
    text = json.dumps(list(tools), ensure_ascii=False, sort_keys=True)
    tx.limits.check("client_limit_chars", len(text))
    return tx.runs.put_client_tools(run, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), tools)


def with_last_skills(tx: Tx, run: Run, last: str) -> Run:
    """Return the run with the skills of the conversation's last request, whose set has the key `last`."""
    skills, tools = client_skills(tx, run.key.agent_id, last), client_specs(tx, run.key.agent_id, last)
    return with_client_tools(tx, run, skills) if skills or not tools else run


def waits_by_tool(tools: Mapping[str, Tool], settings: Mapping[str, Any]) -> dict[str, Waits]:
    """Return tool -> whom its calls wait for: the caller, who runs it, or a person; others are left out."""
    approved, waived = rules_in(settings).approved, settings.get("approval_waived") or ()
    waits: dict[str, Waits] = {}
    for name, tool in tools.items():
        if tool.spec.kind == "client":
            waits[name] = "client"
        elif name in approved or (tool.spec.requires_approval and tool.id not in waived):
            waits[name] = "approval"
    return waits


def with_waits(
    tx: Tx,
    log: RunLog,
    settings: Mapping[str, Any],
    tools: Mapping[str, Tool],
    parts: tuple[Part, ...],
    *,
    refused: Collection[str] = (),
) -> tuple[Part, ...]:
    """Return the parts of a model's answer as they are stored (T5): each call with the arguments that tool rules fill
    in, with what it waits for, and with the digest of its tool if a person has to approve it.

    Args:
        settings, tools: of the agent and its run.
        refused: ids of calls that will not be run; they, and calls that can't be run, wait for nobody.
    """
    calls = [part for part in parts if isinstance(part, ToolCall)]
    called = {call.name: tools[call.name] for call in calls if call.name in tools}
    untrusted: dict[str, Waits] = dict.fromkeys(write_waits(tx, log.run, called), "approval")
    waits = {**untrusted, **waits_by_tool(tools, settings)}
    states: Sequence[RuleState] = ()
    if log.rule_scope is not None:
        states = expected_states(log.rule_scope, log.past_calls, [call.name for call in calls])
    loop = FREE if log.rule_scope is None else log.rule_scope.loop
    changed: dict[str, ToolCall] = {}
    only, tail = log.run.options.tools, log.steps[-1].recipe.tail if log.steps else ""
    for place, call in enumerate(calls):
        tool = tools.get(call.name)
        speaks = call.name == SEND_MESSAGE  # what else it was given is no reason to refuse the message
        parameters = {} if tool is None else tool.spec.parameters
        says = speaks and tool is not None and tool.spec.kind == "memory"
        arguments = with_text_argument(call.arguments, "message") if says else call.arguments
        arguments, ignored = loop.read_arguments(parameters, arguments, strict=speaks)
        call = replace(call, loop_arguments=loop.extra_arguments(parameters), ignored=tuple(ignored))
        arguments = prefill(arguments, states[place].arguments.get(call.name)) if states else arguments
        call = replace(call, arguments=arguments)
        broken = call.call_id in refused or (bool(states) and states[place].violation(call.name) is not None)
        broken = broken or (only is not None and why_not_for_run(only, call.name) is not None)
        if ORDER in tail:
            rules = states[place] if states else None
            broken = broken or why_not_after_order(tail, call.name, tools, rules) is not None
        broken = broken or tool is None or not is_usable(tool.spec, call.own_arguments)
        broken = broken or (says and not call.speech.strip())
        wait = None if broken else waits.get(call.name)
        digest = tool_digest(tx, tools[call.name]) if wait == "approval" else None
        changed[call.call_id] = replace(call, awaits=wait, tool_digest=digest, refused=broken)
    if any(call.awaits for call in changed.values()):
        changed = _with_unused_ids(tx, log, changed)
    return tuple(changed[part.call_id] if isinstance(part, ToolCall) else part for part in parts)


def is_usable(spec: ToolSpec, arguments: str) -> bool:
    """Whether a call with these arguments could be run, so that it makes sense to ask a person about it."""
    try:
        if spec.kind == "client":  # its schema is the caller's, and so is the check
            return isinstance(parse_json(arguments, ARGUMENTS) if arguments.strip() else {}, dict)
        parse_arguments(spec.name, spec.parameters, arguments)
    except (InvalidArguments, ValueError, RecursionError):
        return False
    return True


def _with_unused_ids(tx: Tx, log: RunLog, calls: Mapping[str, ToolCall]) -> dict[str, ToolCall]:
    """Return old id -> the call under a new id: a late or repeated answer must not be taken for an answer to it."""
    used_ids = recent_approval_ids(tx, log) | {call.call_id for message in log.messages for call in message.calls}
    renamed: dict[str, ToolCall] = {}
    for old, call in calls.items():
        call_id, count = call.call_id, 1
        while call.awaits is not None and (call_id in used_ids or (call_id != old and call_id in calls)):
            count += 1
            call_id = f"{call.call_id}-{count}"
        used_ids.add(call_id)
        renamed[old] = replace(call, call_id=call_id)
    return renamed


def recent_approval_ids(tx: Tx, log: RunLog) -> set[str]:
    """Return the ids of the calls of this conversation that have waited for a person or the caller recently."""
    agent_id, line = log.run.key.agent_id, log.run.conversation_seq
    newest = log.messages[-1].seq if log.messages else 0
    rows = tx.messages.view(agent_id, line, from_seq=max(0, newest - LATEST_ROWS), upto_seq=newest)
    answered = tx.runs.answers(agent_id, line, limit=LATEST_ANSWERS)
    taken = {call_id for _, answer in answered for call_id in answer["calls"]}
    return taken | {call.call_id for row in rows for call in row.calls if call.awaits is not None}


def check_answers(
    tx: Tx, agent: Agent, pending: WaitingCalls, answers: Sequence[Answer], *, partial: bool
) -> tuple[Answer, ...]:
    """Return the answers, if they are to all calls that wait, or with `partial` to some of them. Raises: AnswerInvalid:
    an answer is to another call, repeated, of the wrong kind, or its arguments don't fit the tool."""
    waiting = {one.call.call_id: one for one in pending.waiting}
    call_ids = [answer.call_id for answer in answers]
    known = not call_ids or {*call_ids} <= {*waiting} if partial else {*call_ids} == {*waiting}
    if not known or len({*call_ids}) < len(call_ids):
        raise AnswerInvalid(f"Invalid tool call IDs. Expected '{list(waiting)}', but received '{call_ids}'.")
    tools = {tool.spec.name: tool.spec for tool in tx.tools.list_by_agent(agent.id)}
    for answer in answers:
        call = waiting[answer.call_id].call
        if not isinstance(answer, ToolDecision):
            continue  # the caller ran it, perhaps in the server's place
        if answer.reason is not None and len(answer.reason) > REASON_CHARS_MAX:
            raise AnswerInvalid(
                f"the reason for call {call.call_id} has {len(answer.reason):,} characters: give at most"
                f" {REASON_CHARS_MAX:,}"
            )
        if answer.approve and call.awaits == "client":
            raise AnswerInvalid(
                f"call {call.call_id} of {call.name} is run by the caller: answer it with what the tool returned"
            )
        if answer.arguments is not None:
            _check_arguments(call, tools.get(call.name) or CONTEXT_TOOL_SPECS.get(call.name), answer.arguments)
    return tuple(answers)


def check_edited(tx: Tx, call: PendingCall, arguments: str) -> None:
    """Check that the call could be approved with these arguments, as JSON. Raises: AnswerInvalid."""
    spec = next((tool.spec for tool in tx.tools.list_by_agent(call.agent_id) if tool.spec.name == call.name), None)
    _check_arguments(call.call, spec or CONTEXT_TOOL_SPECS.get(call.name), arguments)


def _check_arguments(call: ToolCall, spec: ToolSpec | None, arguments: str) -> None:
    """Check that changed arguments fit the call's tool. Raises: AnswerInvalid."""
    if spec is None:
        raise AnswerInvalid(f"the agent has no tool {call.name} any more: deny call {call.call_id}")
    try:
        fit_arguments(call.name, spec.parameters, read_json(arguments))
    except (InvalidArguments, ValueError, RecursionError) as error:
        raise AnswerInvalid(f"the changed arguments of call {call.call_id} can't be used: {error}") from error


def answer_rows(
    pending: WaitingCalls,
    answers: Sequence[Answer],
    inputs: UnitInputs,
    *,
    most_chars: int,
    otid: str | None,
    shown: Mapping[str, ToolOutcome] | None = None,
) -> tuple[list[Draft], list[int]]:
    """Return the rows of answers with tokens: the answers, then results of denied and returned calls in order.

    Args:
        most_chars: of a text that the caller returned; longer ones are cut.
        otid: the client's own id of the message with the answers.
        shown: call -> the result that the caller brought, with what the model sees of it.
    """
    by_id = {answer.call_id: answer for answer in answers}
    parts: list[Part] = [answer for answer in answers if isinstance(answer, ToolDecision)]
    drafts: list[Draft] = []
    tokens: list[int] = []
    for call in pending.open_calls:
        match by_id.get(call.call.call_id):
            case ToolDecision(approve=False, reason=reason):
                why = f" User reason: {reason}" if reason else ""
                outcome = ToolOutcome(text=f"Error: request to call tool denied.{why}", status="error")
            case ToolReturn() as brought:
                outcome = (shown or {}).get(call.call.call_id) or ToolOutcome(text="")
                outcome = replace(
                    cut_outcome(outcome, brought.text, most_chars),
                    status=brought.status,
                    stdout=tuple(cut_stored(line, most_chars) for line in brought.stdout),
                    stderr=tuple(cut_stored(line, most_chars) for line in brought.stderr),
                    images=tuple(image for image in brought.images if isinstance(image, Image)),
                    sources=(Source.of("tool", call.call.name),),
                )
                parts.append(replace(outcome, images=(), shown_text=None).result(call.call))
            case _:
                continue
        drafts.append(result_draft(call.call, outcome, inputs))
        text = cut_result(outcome.text, None, outcome.shown_text)
        tokens.append(inputs.counter.count(text) + len(outcome.images) * IMAGE_TOKENS + MESSAGE_OVERHEAD_TOKENS)
    if not parts:
        return drafts, tokens
    message_id = MessageId(inputs.ids.new("message"))
    response = Draft(id=message_id, role="user", parts=tuple(parts), kind="approval", otid=otid)
    return [response, *drafts], [0, *tokens]


async def show_returns(
    agent_id: AgentId, conversation_seq: int, answers: Sequence[Answer], ports: Ports
) -> Mapping[str, ToolOutcome]:
    """Return call id -> the result that the caller brings for it, with the form that the model sees. Results that are
    not in it are shown unchanged. Raises: NotFound, StoreError."""
    if not any(isinstance(answer, ToolReturn) and answer.status == "success" for answer in answers):
        return {}

    def load(tx: Tx) -> tuple[Agent, Mapping[str, str]]:
        """Return the agent, and the tool names of the waiting calls by call id."""
        pending = find_pending(tx, tx.conversations.get_by_seq(agent_id, conversation_seq))
        names = {} if pending is None else {one.call.call_id: one.call.name for one in pending.waiting}
        return tx.conversations.get_agent(agent_id, conversation_seq), names

    agent, names = await ports.store.read(load)
    most_chars = return_limit_chars(agent, ports.inputs())
    shown: dict[str, ToolOutcome] = {}
    for answer in answers:
        if isinstance(answer, ToolReturn) and answer.status == "success" and answer.call_id in names:
            # Of the whole text, of which less may be stored: the error may stand in the middle.
            whole, tool = ToolOutcome(text=answer.text), names[answer.call_id]
            shown[answer.call_id] = await show_result(whole, tool, agent.settings, most_chars, ports)
    return shown


def return_limit_chars(agent: Agent, inputs: UnitInputs) -> int:
    """Return how many characters of a result from the caller are kept."""
    return max(RETURN_CHARS, int(inputs.window(agent)[0] * RETURN_SHARE * CHARS_PER_TOKEN))


def give_up_pending(
    tx: Tx, conversation: Conversation, why: str, inputs: UnitInputs
) -> tuple[Run, Sequence[StoredEvent]] | None:
    """End all open calls of a conversation with the result that they were not run, and cancel the run that stopped at
    them; return it and its new events, or None if no call waits. `why`: the reason, in words for the model."""
    pending = find_pending(tx, conversation)
    if pending is None:
        return None
    outcome = ToolOutcome(text=f"not run: {why}", status="error")
    drafts = [result_draft(call.call, outcome, inputs) for call in pending.open_calls]
    step_id = pending.message.step_id
    rows = [*tx.messages.append(pending.run, drafts, [20] * len(drafts), at=inputs.now, step_id=step_id)]
    if pending.run.context:
        rows += add_hook_context(tx, pending.run, inputs)[1]
    tx.conversations.put_pending(conversation.agent_id, conversation.seq, run_seq=None)
    run = tx.runs.cancel_stopped(pending.run.key)
    events: list[Event] = [MessageAdded(row.seq, row) for row in rows]
    events.append(RunEnded(run.id, "cancelled", run.usage, run.step_count))
    return run, tx.events.add(run.key, events, at=inputs.now)


def tools_of(tx: Tx, run: Run, *, own_names: Collection[str] = ()) -> dict[str, Tool]:
    """Return the tools that a run's calls may use, by name: the agent's, the engine's if it offers any, and the
    caller's, which replace others of the same name. `own_names`: names that the caller's tools don't replace, because a
    person was asked to approve the agent's own."""
    own = {tool.spec.name: tool for tool in tx.tools.list_by_agent(run.key.agent_id)}
    client: dict[str, Tool] = {}
    if run.client_tools is not None:
        specs = client_specs(tx, run.key.agent_id, run.client_tools)
        client = {name: Tool(id=ToolId(""), spec=spec) for name, spec in specs.items() if name not in own_names}
    return {**_CONTEXT_TOOLS, **own, **client} if own or client else own


_CONTEXT_TOOLS = {name: Tool(id=ToolId(""), spec=spec) for name, spec in CONTEXT_TOOL_SPECS.items()}


TOOL_FACTS: Point[[Tx, Tool], Mapping[str, Any]] = Point("tool_facts")
"""What a feature knows of what a call of this tool runs, as JSON."""


def tool_digest(tx: Tx, tool: Tool) -> str:
    """Return the SHA-256 of what a call of this tool runs: its kind and parameters, the code of a custom tool, and what
    features know of theirs. What the body of a Python function does is not known."""
    facts: dict[str, Any] = {"kind": tool.spec.kind, "parameters": tool.spec.parameters}
    if tool.spec.kind == "custom" and (code := tx.tools.code(tool.id)) is not None:
        facts["code"] = {name: getattr(code, name) for name in ToolCode.__slots__}
    for more in TOOL_FACTS(tx, tool):
        facts |= more
    text = json.dumps(facts, ensure_ascii=False, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def changed_tool_outcome(tx: Tx, call: ToolCall, tool: Tool | None) -> ToolOutcome | None:
    """Return an error result for an approved call whose tool has changed since approval was asked for; None: it has not
    changed, or it is gone, which is checked elsewhere."""
    if call.tool_digest is None or tool is None or tool_digest(tx, tool) == call.tool_digest:
        return None
    return ToolOutcome(
        text=f"not run: {call.name} was changed after approval of this call was asked for; call it again if you still"
        " need it, and approval will be asked for anew",
        status="error",
        refused=True,
    )
