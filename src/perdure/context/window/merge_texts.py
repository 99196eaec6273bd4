"""Summaries by code, of messages or of other summaries, where no model wrote one."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.window.extract import clip, extract, one_line, render_extract, render_most, sentences_of, spread
from perdure.context.window.plan import Evict, Merge
from perdure.core.nodes import SummaryNode, message_handle, node_handle
from perdure.core.ports import TokenCounter


def merge_texts(nodes: Sequence[SummaryNode], *, max_tokens: int, counter: TokenCounter) -> str:
    """Merge summaries into one text: the first lines of each after its handle, as many as fit, fairly shared.

    Without room for a line of each, lines are cut, then nodes from both ends and the middle remain.
    """
    share = max(24, max_tokens // max(1, len(nodes)) - 16)  # a handle with its range takes up to 16
    units = [[clip(unit, share, counter) for unit in _units(node.text)] for node in nodes]
    order = [
        (index, line)
        for line in range(max(map(len, units), default=0))
        for index in spread(len(nodes))
        if line < len(units[index])
    ][: max(0, max_tokens)]

    def render(count: int) -> str:
        lines: dict[int, list[str]] = {}
        for index, line in order[:count]:
            lines.setdefault(index, []).append(units[index][line])
        return "\n".join(
            f"{node_handle(nodes[index].seq)} "
            f"({message_handle(nodes[index].from_message_seq, nodes[index].upto_message_seq)}): "
            + "\n".join(lines[index])
            for index in sorted(lines)
        )

    return render_most(len(order), render, max_tokens, counter) or clip(render(1), max_tokens, counter).strip()


def _units(text: str) -> list[str]:
    """Return the lines of a summary, long ones split into sentences; one empty line for an empty summary."""
    lines = filter(None, map(one_line, text.splitlines()))
    return [unit for line in lines for unit in ([line] if len(line) <= 300 else sentences_of(line))] or [""]


def extract_summary(removal: Evict | Merge, counter: TokenCounter) -> str:
    """Return the text of a node that no model writes, within the plan's size."""
    limit = removal.summary_tokens
    if isinstance(removal, Merge):
        text = merge_texts(removal.nodes, max_tokens=limit, counter=counter)
    elif removal.absorbed:
        older = merge_texts(removal.absorbed, max_tokens=limit // 2, counter=counter)
        rest = max(1, limit - counter.count(f"{older}\n"))
        text = f"{older}\n{render_extract(extract(removal.messages), max_tokens=rest, counter=counter)}".strip()
    else:
        text = render_extract(extract(removal.messages), max_tokens=limit, counter=counter)
    return text or "(no words)"
