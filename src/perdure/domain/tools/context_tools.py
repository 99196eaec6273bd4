"""The tools that open what is out of view: `context_expand` and `context_grep`.

The engine offers them to every agent that has tools. They only read the agent's own log; each call reads a bounded
part of it, and its answer fits `max_tokens`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import tzinfo

from perdure.context.sections import expand
from perdure.core.errors import ToolError
from perdure.core.features import Point
from perdure.core.messages import Message
from perdure.core.nodes import SummaryNode, message_handle, node_handle, parse_handle
from perdure.core.specs import ToolOutcome
from perdure.core.text.zones import zone
from perdure.domain.conversations import handles
from perdure.domain.conversations.matches import clip_line, grep_lines, grep_log, grep_messages
from perdure.domain.conversations.patterns import Pattern, PatternSlow
from perdure.domain.tools.calls import MemoryCall
from perdure.storage.tx import Tx

DEFAULT_TOKENS = 1_000
LEAST_TOKENS, MOST_TOKENS = 100, 4_000

LOOK_UP: Point[..., str] = Point("look_up")
"""Show rows, a path or what meets conditions of what a tool returned."""


def context_expand(
    tx: Tx,
    call: MemoryCall,
    handle: str,
    rows: str | None = None,
    lines: str | None = None,
    grep: str | None = None,
    path: str | None = None,
    where: str | None = None,
    max_tokens: int = DEFAULT_TOKENS,
) -> ToolOutcome:
    """Show the content of a handle within `max_tokens`; `engine_tools.toml` has the arguments. Raises: ToolError."""
    budget, timezone = (
        answer_budget(expand.Budget(call.counter, call.result_tokens), max_tokens),
        zone(call.agent.timezone),
    )
    search = Pattern(grep) if grep else None
    span = expand.parse_rows(rows) if rows else None
    target = handles.resolve_handle(tx, call.run, handle)
    if path or where or (rows and isinstance(target, Message) and target.results):
        return ToolOutcome(text=_of_result(target, rows, path, where, search, budget))
    if isinstance(target, SummaryNode) and target.level > 0:
        if lines:
            raise ToolError(f"{node_handle(target.seq)} stands for other nodes: `lines` is for one message")
        return ToolOutcome(text=_children(tx, target, span, search, budget, timezone))
    inside = handles.rows_of(target) if span is None else handles.within(handles.rows_of(target), span)
    if inside.first < inside.last:
        if lines:
            raise ToolError('`lines` is for one message: give its own handle, such as handle="msg-17"')
        if search is not None:
            return ToolOutcome(text=grep_messages(tx, inside, search, budget, timezone))
        return ToolOutcome(text=_messages(tx, _title(target, inside, timezone), inside, budget, timezone))
    message = target if isinstance(target, Message) else handles.find_message(tx, inside.agent_id, inside.first)
    line_span = expand.parse_lines(lines) if lines else expand.LineSpan()
    if search is None:
        return ToolOutcome(text=expand.show_message(message, line_span, budget, zone=timezone))
    return ToolOutcome(text=grep_lines(message, line_span, search, budget, timezone))


def context_grep(
    tx: Tx, call: MemoryCall, pattern: str, handle: str | None = None, max_tokens: int = DEFAULT_TOKENS, **more: str
) -> ToolOutcome:
    """Show the lines that match `pattern`, newest message first, as many as fit `max_tokens`. Raises: ToolError.

    Args:
        handle: the node or messages to search; None: the whole conversation.
        more: `from`, the message and line to continue at, such as `msg-17:120`; Python reserves that name.
    """
    budget = answer_budget(expand.Budget(call.counter, call.result_tokens), max_tokens)
    search = Pattern(pattern)
    line = 1
    target = handles.resolve_handle(tx, call.run, handle) if handle else None
    rows = (
        handles.LogRows(call.agent.id, call.run.conversation_seq, 0, handles.LAST_ROW)
        if target is None
        else handles.rows_of(target)
    )
    newest = handles.last_row(tx, rows)
    if newest is None:
        return ToolOutcome(text=budget.cut("[No messages to search]"))
    rows = replace(rows, last=newest.seq)
    if begin := more.get("from"):
        seq, line = _position(begin)
        if seq < rows.first:
            raise ToolError(
                f"from={begin[:40]!r} is before all that is searched, {message_handle(rows.first, rows.last)}"
            )
        line = line if seq <= rows.last else 1
        rows = replace(rows, last=min(rows.last, seq))
    answer = grep_log(
        tx, rows, search, budget, first_line=line, whole=isinstance(target, Message), call_message_id=call.message_id
    )
    return ToolOutcome(text=answer)


def _of_result(
    target: SummaryNode | handles.LogRows | Message,
    rows: str | None,
    path: str | None,
    where: str | None,
    search: Pattern | None,
    budget: expand.Budget,
) -> str:
    """Show a part of a tool's result, which is a table or JSON: the rows, the path or the condition of the call's
    arguments, or the rows that `search` finds. Raises: ToolError: there is no such place, or no result."""
    results = target.results if isinstance(target, Message) else ()
    if len(results) != 1:
        raise ToolError("`path` and `where` are for the result of one tool: give its own handle, such as msg-17")

    matches = None if search is None else search.has
    asked = {"rows": rows, "path": path, "where": where, "matches": matches}
    try:
        answers = LOOK_UP(results[0].text, **asked, max_tokens=budget.tokens, count=budget.counter.count)
    except PatternSlow as error:
        raise ToolError("the pattern takes too long: use a simpler one") from error
    if not answers:
        raise ToolError("nothing here reads tables or JSON: open the result by `lines` or `grep`")
    return budget.cut(answers[0])


def answer_budget(most: expand.Budget, max_tokens: int) -> expand.Budget:
    """Return the tokens that an answer may have, at most `most`. Raises: ToolError: too few."""
    if max_tokens < LEAST_TOKENS:
        raise ToolError(f"max_tokens={max_tokens} is too small: give {LEAST_TOKENS} to {MOST_TOKENS:,}")
    return expand.Budget(most.counter, min(max_tokens, MOST_TOKENS, most.tokens))


def _position(text: str) -> tuple[int, int]:
    """Parse `msg-17:120` into the numbers of a message and a line. Raises: ToolError."""
    name, _, line = text.strip().strip("\"'`").partition(":")
    handle = parse_handle(name)
    if handle is None or handle.kind != "messages" or (line and not (line.isascii() and line.isdecimal())):
        raise ToolError(f"from={text[:40]!r} can't be used: write msg-17, or msg-17:120 for its line 120")
    return handle.last, max(1, int(line[:15])) if line else 1


def _title(target: SummaryNode | handles.LogRows | Message, inside: handles.LogRows, timezone: tzinfo) -> str:
    """A line about a node: its messages, their dates, and the range `inside` that is shown; empty for no node."""
    if not isinstance(target, SummaryNode):
        return ""
    dates = f"{target.since.astimezone(timezone):%Y-%m-%d} to {target.until.astimezone(timezone):%Y-%m-%d}"
    covers = message_handle(target.from_message_seq, target.upto_message_seq)
    part = message_handle(inside.first, inside.last)
    return f"{node_handle(target.seq)}: {covers}, {dates}" + (f"; of these {part}" if part != covers else "")


def _children(
    tx: Tx,
    node: SummaryNode,
    span: expand.RowSpan | None,
    search: Pattern | None,
    budget: expand.Budget,
    timezone: tzinfo,
) -> str:
    """List the nodes below `node`: those in `span`, or those whose summary `search` matches. Raises: ToolError."""
    nodes = tx.nodes.list_by_seqs(node.agent_id, node.conversation_seq, sorted(node.children))
    if span is not None and nodes:
        first, last = span.within(nodes[0].seq, nodes[-1].seq)
        if not (children := [child for child in nodes if first <= child.seq <= last]):
            rows = f"{nodes[0].seq}..{nodes[-1].seq}"
            raise ToolError(f'{node_handle(node.seq)} stands for nodes; their numbers are rows="{rows}"')
    else:
        children = list(nodes)
    title = _title(node, handles.rows_of(node), timezone)
    if search is None:
        return expand.list_nodes(
            title, children, budget, zone=timezone, about=lambda child: child.text.split("\n", 1)[0]
        )
    lines: dict[int, str] = {}
    try:
        for child in children:
            if (match := next(search.matches(child.text), None)) is not None:
                lines[child.seq] = clip_line(child.text.split("\n")[match.line - 1], match)
    except PatternSlow as error:
        raise ToolError("the pattern takes too long: use a simpler one") from error
    # Summaries omit much, so the hint names the call that searches the messages.
    hint = f'[Only summaries were searched; the messages: context_grep with handle="{node_handle(node.seq)}"]'
    if not lines:
        return budget.cut(f"No summary in {node_handle(node.seq)} matches.\n{hint}")
    matching = [child for child in children if child.seq in lines]
    return expand.list_nodes(hint, matching, budget, zone=timezone, about=lambda child: lines[child.seq])


def _messages(tx: Tx, title: str, rows: handles.LogRows, budget: expand.Budget, timezone: tzinfo) -> str:
    """List messages under the line `title`, as many as fit, and say how to go on."""
    messages: list[Message] = []
    chars = 0
    for message in handles.read_rows(tx, rows):
        messages.append(message)
        chars += min(len(expand.body_of(message)), budget.chars // expand.SHARES[0])
        if chars > budget.chars or len(messages) * 8 > budget.tokens:
            break  # the last one is not shown, or only in part
    if not messages:
        return budget.cut(f"There is no message in {message_handle(rows.first, rows.last)}: all were removed.")
    last = handles.last_row(tx, rows)
    assert last is not None
    if messages[0].seq == last.seq:
        return expand.show_message(messages[0], expand.LineSpan(), budget, zone=timezone)

    def render_rest(count: int) -> str:
        """Return the handles of the messages after the first `count`; empty: none are left."""
        if count and messages[count - 1].seq >= last.seq:
            return ""
        other_rows = rows if count == 0 else replace(rows, first=messages[count - 1].seq + 1)
        first = next(handles.read_rows(tx, other_rows, page=1)).seq
        # The middle by numbers, moved on to the next message, so that each part begins with one.
        middle = (first + last.seq) // 2 + 1
        second = next(handles.read_rows(tx, replace(rows, first=middle), page=1), None) if middle <= last.seq else None
        if count == 0 and second is not None:  # the whole would be the same call again
            return f"[In parts: {message_handle(first, second.seq - 1)}, {message_handle(second.seq, last.seq)}]"
        return expand.rest_hint(first, last.seq, second.seq if second else None, message_handle)

    return expand.list_messages(title, messages, render_rest, budget, zone=timezone)
