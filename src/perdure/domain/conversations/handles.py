"""Resolve handles (`node-3`, `msg-17`, `msg-17..40`) to rows of the agent's own log, read in bounded pages.

A single message may be of any of the agent's conversations, because searches cover all of them. Nodes and ranges are
of the run's conversation; a range without messages there covers all conversations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from perdure.context.sections.expand import RowSpan, body_of
from perdure.core.errors import ToolError
from perdure.core.ids import AgentId
from perdure.core.messages import Message
from perdure.core.nodes import SummaryNode, message_handle, node_handle, parse_handle
from perdure.core.runs import Run
from perdure.storage.tx import Tx

NODES_LISTED = 100
PAGE_CHARS = 500_000
FIRST_PAGE, LEAST_PAGE, LARGEST_PAGE = 8, 2, 256
LAST_ROW = 10**15  # above every number


@dataclass(frozen=True, slots=True)
class LogRows:
    """The messages `first` to `last` of one conversation of an agent, or of all; engine messages are excluded."""

    agent_id: AgentId
    conversation_seq: int | None
    first: int
    last: int


def resolve_handle(tx: Tx, run: Run, text: str) -> SummaryNode | LogRows | Message:
    """Resolve a handle for the agent and the conversation of this run. Raises: ToolError."""
    agent_id, conversation = run.key.agent_id, run.conversation_seq
    handle = parse_handle(text)
    if handle is None:
        raise ToolError(f"{text[:60]!r} is not a handle: write node-3, msg-17 or msg-17..40")
    if handle.kind == "node":
        first_seq = tx.conversations.get_by_seq(agent_id, conversation).first_seq
        nodes = tx.nodes.list_by_seqs(agent_id, conversation, [handle.first])
        if nodes and nodes[0].from_message_seq >= first_seq:  # else a reset removed it from view
            rows = rows_of(nodes[0])
            # The summary of a fork covers messages of the conversation that it was made from.
            return nodes[0] if first_row(tx, rows) is not None else replace(rows, conversation_seq=None)
        nodes_text = _known_nodes(tx, agent_id, conversation, first_seq)
        raise ToolError(f"{node_handle(handle.first)} does not exist: {nodes_text}")
    if handle.first == handle.last:
        return find_message(tx, agent_id, handle.first)
    for scope in (conversation, None):
        rows = LogRows(agent_id, scope, handle.first, handle.last)
        if first_row(tx, rows) is not None:
            return rows
    raise ToolError(
        f"there is no message in {message_handle(handle.first, handle.last)}: {_known_messages(tx, agent_id)}"
    )


def find_message(tx: Tx, agent_id: AgentId, seq: int) -> Message:
    """Return a message by its number. Raises: ToolError: there is none, it was removed, or it is the engine's own."""
    handle = message_handle(seq)
    if messages := tx.messages.list_by_seqs(agent_id, [seq]):
        if messages[0].kind == "message":
            return messages[0]
        raise ToolError(f"{handle} is not a message but a note of the system: take a number beside it")
    newest = tx.messages.list(agent_id, newest_first=True, limit=1, kinds=None)
    if newest and seq <= newest[0].seq:  # numbers have no gaps
        raise ToolError(f"{handle} was removed and can't be shown")
    raise ToolError(f"{handle} does not exist: {_known_messages(tx, agent_id)}")


def _known_nodes(tx: Tx, agent_id: AgentId, conversation_seq: int, first_seq: int) -> str:
    """Say which nodes the conversation has, for an error text."""
    nodes = tx.nodes.list(agent_id, conversation_seq, limit=NODES_LISTED, from_message_seq=first_seq)
    if not nodes:
        return "this conversation has no nodes; messages are opened as msg-17 or msg-17..40"
    more = " and more" if len(nodes) == NODES_LISTED else ""
    return f"this conversation has {node_handle(nodes[0].seq)} to {node_handle(nodes[-1].seq)}{more}"


def _known_messages(tx: Tx, agent_id: AgentId) -> str:
    """Say which messages the agent has, for an error text."""
    every = LogRows(agent_id, None, 0, LAST_ROW)
    first, last = first_row(tx, every), last_row(tx, every)
    if first is None or last is None:
        return "there are no messages yet"
    return f"there are {message_handle(first.seq, last.seq)}"


def rows_of(target: SummaryNode | LogRows | Message) -> LogRows:
    """Return the messages that a resolved handle covers."""
    match target:
        case SummaryNode():
            return LogRows(target.agent_id, target.conversation_seq, target.from_message_seq, target.upto_message_seq)
        case Message():
            return LogRows(target.agent_id, target.conversation_seq, target.seq, target.seq)
        case _:
            return target


def within(rows: LogRows, span: RowSpan) -> LogRows:
    """Return those of `rows` whose numbers lie in `span`. Raises: ToolError: none do."""
    first, last = span.within(rows.first, rows.last)
    if first > last:
        raise ToolError(f"these rows are not in {message_handle(rows.first, rows.last)}: rows are message numbers")
    return replace(rows, first=first, last=last)


def first_row(tx: Tx, rows: LogRows) -> Message | None:
    """Return the first of the rows; None: there is none."""
    return next(read_rows(tx, rows, page=1), None)


def last_row(tx: Tx, rows: LogRows) -> Message | None:
    """Return the last of the rows; None: there is none."""
    return next(read_rows(tx, rows, page=1, newest_first=True), None)


def read_rows(tx: Tx, rows: LogRows, *, newest_first: bool = False, page: int = FIRST_PAGE) -> Iterator[Message]:
    """Yield the messages in order, read page by page, so that a caller that stops early reads little more.

    The answers to calls that wait are left out: their results have rows of their own.
    """
    after, before = rows.first - 1, rows.last + 1
    while True:
        messages = tx.messages.list(
            rows.agent_id,
            conversation_seq=rows.conversation_seq,
            after_seq=after,
            before_seq=before,
            limit=page,
            newest_first=newest_first,
        )
        shown = [message for message in messages if message.kind == "message"]
        yield from shown
        if len(messages) < page:
            return
        if newest_first:
            before = messages[-1].seq
        else:
            after = messages[-1].seq
        average = sum(len(body_of(message)) for message in shown) // len(messages) + 1
        page = max(LEAST_PAGE, min(LARGEST_PAGE, PAGE_CHARS // average))
