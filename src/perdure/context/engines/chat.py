"""The window of a chat of another program: which of its messages a model sees, and what stands for the others.

The messages are those of OpenAI's chat API, as mappings. All functions are pure; the program stores the window.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from perdure.context.engines.check import check_plan
from perdure.context.engines.port import ContextEngine
from perdure.context.sections.envelopes import HOW_TO_OPEN, NOTE, envelope
from perdure.context.sections.stubs import apply_stubs, row_tokens
from perdure.context.sections.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS, ScriptTokenCounter
from perdure.context.window.budget import Certificate, Segment
from perdure.context.window.extract import clip
from perdure.context.window.plan import Evict, Merge, Plan, Situation, Stub
from perdure.context.window.summary import extract_summary, transcript
from perdure.core.errors import InvalidInput
from perdure.core.messages import Message, Part, Role, Text, ToolCall, ToolResult, parts_to_json, unlogged_message
from perdure.core.nodes import SummaryNode, message_handle, node_handle
from perdure.core.ports import TokenCounter

ChatMessage = Mapping[str, Any]
Summarise = Callable[[str, int], str]
"""Writes a summary of a text, in at most so many tokens."""

RESERVE_SHARE, RESERVE_TOKENS = 4, 8_000
"""What is kept free for the answer by default: so many tokens, at most one in four."""
PLANS_MAX = 200
_SYSTEM = ("system", "developer")
_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}


@dataclass(frozen=True, slots=True)
class ChatSummary:
    """A summary of the messages `first` to `last`, by their places in the chat; its handle is `node-` and `number`.

    Args:
        count: how many messages it stands for.
        level, children: 0 and none for a summary of messages; of others, how deep, and the numbers of their summaries.
    """

    number: int
    first: int
    last: int
    count: int
    text: str
    tokens: int
    level: int = 0
    children: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """What a model sees of a chat.

    Args:
        first: the place from which on all messages are shown; of those before it only the system messages that begin
            the chat, and those at the places `pinned`.
        stubs: place of a message -> how many of its characters are shown.
        summaries: all that were ever made; `shown` has the numbers of those in the window, oldest first.
        tokens: the upper estimate of the request, tools included.
        budget_tokens: the most tokens that the request may take.
        can_open: the request says how the model opens what a summary stands for.
    """

    first: int = 0
    pinned: tuple[int, ...] = ()
    stubs: Mapping[int, int] = field(default_factory=dict)
    summaries: tuple[ChatSummary, ...] = ()
    shown: tuple[int, ...] = ()
    tokens: int = 0
    budget_tokens: int = 0
    can_open: bool = True


def plan(
    messages: Sequence[ChatMessage],
    *,
    window_tokens: int,
    before: Window | None = None,
    reserve_tokens: int | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
    engine: ContextEngine | None = None,
    summarise: Summarise | None = None,
    count: Callable[[str], int] | None = None,
    can_open: bool = True,
) -> Window:
    """Return the window of a chat's next request: the former one, for the provider's cache, as long as that fits.

    Args:
        messages: the whole chat; messages are only ever added at its end.
        before: the window of the request before; None: there was none.
        reserve_tokens: kept free for the answer; by default 8,000, at most a quarter of the window.
        engine: what plans; None: Perdure's own. Only its `plan` and `assemble` are called.
        summarise: writes summaries; None: code extracts them.
        count: an upper estimate of the tokens of a text; None: the one for an unknown model.
        can_open: the model has a tool `context_expand(handle)`, so long messages may be shown in part.

    Raises: IrreducibleFloor: it can't be made to fit; InvalidInput: the messages are no chat, or the engine plans
        without end; PlanRefused: the engine's plan can't be carried out.
    """
    counter = ScriptTokenCounter() if count is None else _EstimatingCounter(count)
    reserve = min(RESERVE_TOKENS, window_tokens // RESERVE_SHARE) if reserve_tokens is None else reserve_tokens
    chat = _ChatLog.of(messages, tools, counter)
    engine, window = engine or ContextEngine(), replace(before or Window(), can_open=can_open)
    for _ in range(PLANS_MAX):
        situation = chat.situation(window, window_tokens, reserve)
        certificate = situation.certificate
        window = replace(window, tokens=certificate.tokens, budget_tokens=certificate.budget_tokens)
        next_plan = engine.assemble(situation) if certificate.fits else engine.plan(situation)
        if next_plan is None:
            return window
        window = _carry_out(window, situation, check_plan(situation, next_plan), summarise)
    raise InvalidInput(f"the engine planned {PLANS_MAX} times for one request: it has to return None at some point")


def assemble(messages: Sequence[ChatMessage], window: Window) -> list[ChatMessage]:
    """Return the messages to send: the first system messages, the summaries, and what the window shows of the others.

    Messages that are shown whole are the caller's own objects.
    """
    first = _count_system(messages)
    shown: list[ChatMessage] = list(messages[:first])
    summaries = {summary.number: summary for summary in window.summaries}
    if nodes := [summaries[number] for number in window.shown]:
        shown.append({"role": "system", "content": _summary_text(nodes, can_open=window.can_open)})
    places = [*window.pinned, *range(max(first, window.first), len(messages))]
    return [*shown, *(_cut_to_stub(messages[place], place, window.stubs) for place in places)]


@dataclass(frozen=True, slots=True)
class _EstimatingCounter:
    """A `TokenCounter` over a function that estimates the tokens of a text; no lower estimate is known."""

    _count: Callable[[str], int]

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        return self._count(text)

    def at_least(self, text: str) -> int:
        """Return a lower bound of the tokens; the caller's counter promises none."""
        return 0


@dataclass(frozen=True, slots=True)
class _ChatLog:
    """A chat as rows of a log: the place of a message is its number, and each user's message begins a run."""

    rows: tuple[Message, ...]
    system_tokens: int
    tool_tokens: int
    counter: TokenCounter

    @classmethod
    def of(cls, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]], counter: TokenCounter) -> _ChatLog:
        """Read a chat; the system messages that begin it only count as tokens. Raises: InvalidInput."""
        if isinstance(messages, str) or not all(isinstance(message, Mapping) for message in messages):
            raise InvalidInput(f"messages are {messages!r:.80}: give a list of objects with role and content")
        first, run_seq, rows = _count_system(messages), 0, list[Message]()
        tool_names: dict[str, str] = {}
        for place, message in enumerate(messages):
            if place < first:
                continue
            run_seq += message.get("role") == "user"
            rows.append(_row(message, place, run_seq, tool_names, counter))
        system = sum(counter.count(_text(one)) + MESSAGE_OVERHEAD_TOKENS for one in messages[:first])
        return cls(tuple(rows), system, counter.count(json.dumps(list(tools))) if tools else 0, counter)

    def situation(self, window: Window, window_tokens: int, reserve: int) -> Situation:
        """Return what an engine plans from: the request with this window, `reserve` tokens of it for the answer."""
        by_place = {row.seq: row for row in self.rows}
        rows = tuple(row for row in self.rows if row.seq >= window.first)
        pinned = tuple(by_place[place] for place in window.pinned)
        summaries = {one.number: one for one in window.summaries}
        shown = [summaries[number] for number in window.shown]
        run = self.rows[-1].run_seq or 0 if self.rows else 0
        answered = [row.seq for row in self.rows if row.role == "assistant" and row.run_seq == run]
        seen = max(answered, default=0) - 1  # a model has answered all rows before its newest answer
        sizes = {row.seq: row_tokens(row, window.stubs, self.counter) for row in (*pinned, *rows)}
        newest = sum(sizes[row.seq] for row in (*pinned, *rows) if row.run_seq == run)
        summary = (
            self.counter.count(_summary_text(shown, can_open=window.can_open)) + MESSAGE_OVERHEAD_TOKENS if shown else 0
        )
        segments = (
            Segment("tools", self.tool_tokens),
            Segment("system prompt", self.system_tokens),
            Segment("summary", summary),
            Segment("messages", sum(sizes.values()) - newest),
            Segment("newest turn", newest),
        )
        return Situation(
            certificate=Certificate(window_tokens=window_tokens, reserve_tokens=reserve, segments=segments),
            nodes=tuple(map(_node, shown)),
            pinned=pinned,
            rows=rows,
            run_seq=run,
            stubs=window.stubs,
            seen_upto=seen,
            sent_upto=seen,
            can_open=window.can_open,
            counter=self.counter,
        )


def _count_system(messages: Sequence[ChatMessage]) -> int:
    """Return how many system messages begin the chat."""
    roles = [message.get("role") for message in messages]
    return next((place for place, role in enumerate(roles) if role not in _SYSTEM), len(messages))


def _text(message: ChatMessage) -> str:
    """Return the text of a message, the texts of several parts joined by line ends."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if isinstance(part.get("text"), str))


def _row(message: ChatMessage, place: int, run_seq: int, tool_names: dict[str, str], counter: TokenCounter) -> Message:
    """Return a message as log row `place`. `tool_names`: call id -> tool of earlier calls. Raises: InvalidInput."""
    role: Literal["system"] | Role | None = _ROLES.get(str(message.get("role")))
    if role is None and message.get("role") in _SYSTEM:
        role = "system"
    if role is None:
        roles = ", ".join((*_SYSTEM, *_ROLES))
        raise InvalidInput(f"messages[{place}] has the role {message.get('role')!r:.40}: give one of {roles}")
    text, content = _text(message), message.get("content")
    parts: list[Part] = [Text(text)] if text and role != "tool" else []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        tool_names[str(call.get("id"))] = str(function.get("name"))
        parts.append(ToolCall(str(call.get("id")), str(function.get("name")), str(function.get("arguments") or "")))
    if role == "tool":
        call_id = str(message.get("tool_call_id"))
        parts.append(ToolResult(call_id, tool_names.get(call_id, ""), text, "success"))
    images = 0 if content is None or isinstance(content, str) else sum("text" not in part for part in content)
    tokens = counter.count(parts_to_json(tuple(parts))) + images * IMAGE_TOKENS + MESSAGE_OVERHEAD_TOKENS
    return replace(unlogged_message(role, ""), seq=place, parts=tuple(parts), run_seq=run_seq, tokens=tokens)


def _cut_to_stub(message: ChatMessage, place: int, stubs: Mapping[int, int]) -> ChatMessage:
    """Return the message as the window shows it: of one with a stub (place -> characters), only so much text."""
    if place not in stubs:
        return message
    role: Role = _ROLES.get(str(message.get("role")), "system")
    row = replace(unlogged_message(role, _text(message)), seq=place)
    text, content = apply_stubs(row, stubs).text, message.get("content")
    if content is None or isinstance(content, str):
        return {**message, "content": text}
    return {**message, "content": [{"type": "text", "text": text}, *(part for part in content if "text" not in part)]}


def _node(summary: ChatSummary) -> SummaryNode:
    """Return a summary as an engine sees it; a chat tells no times."""
    row = unlogged_message("system", "")
    return SummaryNode(
        agent_id=row.agent_id,
        conversation_seq=0,
        seq=summary.number,
        level=summary.level,
        from_message_seq=summary.first,
        upto_message_seq=summary.last,
        children=summary.children,
        message_count=summary.count,
        since=row.created_at,
        until=row.created_at,
        text=summary.text,
        tokens=summary.tokens,
        made_by="extract",
        created_at=row.created_at,
    )


def _summary_text(nodes: Sequence[ChatSummary], *, can_open: bool) -> str:
    """Return the envelope with these summaries, which stands for the messages that are out of the window."""
    shapes = [
        {"handle": node_handle(one.number), "messages": message_handle(one.first, one.last), "summary": one.text}
        for one in nodes
    ]
    note = NOTE + HOW_TO_OPEN if can_open else NOTE
    return envelope("summary", note=note, hidden_messages=sum(node.count for node in nodes), nodes=shapes)


def _carry_out(window: Window, situation: Situation, next_plan: Plan, summarise: Summarise | None) -> Window:
    """Return the window after a plan, with the summary that it needs; `summarise` None: code writes it."""
    if isinstance(next_plan, Stub):
        return replace(window, stubs=dict(next_plan.stubs))
    summaries, shown = window.summaries, list(window.shown)
    if isinstance(next_plan, Merge) or next_plan.atoms:
        new = _write_summary(len(summaries), situation, next_plan, summarise)
        summaries = (*summaries, new)
        replaced = [node.seq for node in (next_plan.nodes if isinstance(next_plan, Merge) else next_plan.absorbed)]
        place = shown.index(replaced[0]) if replaced else len(shown)
        shown = [number for number in shown if number not in replaced]
        shown.insert(place, new.number)
    if isinstance(next_plan, Merge):
        return replace(window, summaries=summaries, shown=tuple(shown))
    pinned = tuple(row.seq for row in next_plan.pinned)
    gone = {row.seq for row in (*situation.pinned, *next_plan.messages)} - set(pinned)
    stubs = {place: chars for place, chars in window.stubs.items() if place not in gone}
    first = next_plan.from_seq
    return replace(window, first=first, pinned=pinned, stubs=stubs, summaries=summaries, shown=tuple(shown))


def _write_summary(
    number: int, situation: Situation, removal: Evict | Merge, summarise: Summarise | None
) -> ChatSummary:
    """Write the summary with this number of what a plan takes out of view, cut to the plan's size."""
    counter, limit = situation.counter, removal.summary_tokens
    nodes = removal.nodes if isinstance(removal, Merge) else removal.absorbed
    count = sum(node.message_count for node in nodes)
    if isinstance(removal, Merge):
        source = "\n\n".join(node.text for node in nodes)
        span, level, children = (nodes[0].from_message_seq, nodes[-1].upto_message_seq), removal.level, removal.children
    else:
        rows = removal.messages
        older = "".join(f"{node.text}\n\n" for node in nodes)
        source = older + transcript(rows, max_tokens=situation.certificate.budget_tokens, counter=counter)
        span, level, children = (nodes[0].from_message_seq if nodes else rows[0].seq, rows[-1].seq), 0, ()
        count += len(rows)
    text = removal.text
    if text is None:
        text = extract_summary(removal, counter) if summarise is None else summarise(source, limit)
    text = clip(text, limit, counter)
    return ChatSummary(number, *span, count, text, counter.count(text), level, children)
