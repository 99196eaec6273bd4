"""For people: what fills a window, and the steps of a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.text import Text

from perdure.cli.views.view import WidthLayout, first_names, local_time, new_table, plural, short_id, visible
from perdure.context.request.explain import REASONS
from perdure.context.request.overview import ContextOverview
from perdure.core.nodes import message_handle
from perdure.library.runs.steps import StepInfo

BAR_CELLS = 60
NAMES_MAX = 3  # of summaries and stubs

# Each part has its own sign, so that the bar can be read without colours.
_SIGNS = {
    "tools": ("▒", "magenta"),
    "system prompt": ("█", "blue"),
    "memory blocks": ("▓", "cyan"),
    "files": ("▤", "bright_blue"),
    "summary": ("▚", "bright_magenta"),
    "messages": ("■", "green"),
    "newest turn": ("▞", "bright_green"),
    "status": ("●", "white"),
    "recalled": ("◆", "bright_cyan"),
    "kept for the answer": ("░", "yellow"),
    "free": ("·", "dim"),
}
OPTIONAL = ("summary", "newest turn", "recalled")  # not shown at 0 tokens


def context_view(overview: ContextOverview) -> RenderableType:
    """A bar of the whole window, the size of each part in tokens and percent, and remarks."""
    rows: list[tuple[str, int]] = [
        *((part.name, part.tokens) for part in overview.parts if part.tokens or part.name not in OPTIONAL),
        ("kept for the answer", overview.reserve_tokens),
        ("free", overview.free_tokens),
    ]
    total = max(1, overview.window_tokens, sum(tokens for _, tokens in rows))
    table = new_table("sign", "part", "tokens", "share", right=("tokens", "share"), head=False)
    for name, tokens in rows:
        sign, style = _SIGNS[name]
        table.add_row(Text(sign, style=style), name, f"{tokens:,}", f"{100 * tokens / total:.1f} %")
    used = 100 * overview.used_tokens / max(1, overview.window_tokens)
    head = f"{visible(overview.model)}: {overview.used_tokens:,} of {overview.window_tokens:,} tokens ({used:.1f} %)"
    remarks = (Text(text, style) for text, style in _remarks(overview))
    return Group(Text(head), WidthLayout(partial(_bar, rows)), table, *remarks)


def _bar(rows: Sequence[tuple[str, int]], width: int) -> Iterator[Text]:
    """A bar of parts (name, tokens), as wide as the terminal has room for."""
    counts = cells([tokens for _, tokens in rows], max(10, min(BAR_CELLS, width - 2)))
    signs = ((_SIGNS[name], count) for (name, _), count in zip(rows, counts, strict=True))
    yield Text.assemble(*((sign * count, style) for (sign, style), count in signs))


def _remarks(overview: ContextOverview) -> Iterator[tuple[str, str]]:
    """Remarks and their styles: how the numbers were measured, and what is unusual about the window."""
    estimated, used = overview.estimated_tokens, overview.used_tokens
    if overview.measured_tokens is not None:
        text = f"measured: the last request took {overview.measured_tokens:,} tokens; what came since is estimated"
    elif estimated != used:
        text = f"estimated: {estimated:,} tokens, corrected by what was measured before"
    else:
        text = "estimated: nothing of this was measured yet"
    yield text, "dim"
    if overview.nodes:
        summaries = f"{plural(len(overview.nodes), 'summary', 'summaries')} ({first_names(overview.nodes, NAMES_MAX)})"
        verb = "stands for" if len(overview.nodes) == 1 else "stand for"
        yield f"{summaries} {verb} {plural(overview.hidden_messages, 'earlier message')}", "dim"
    if overview.stubs:
        which = first_names([message_handle(seq) for seq in sorted(overview.stubs)], NAMES_MAX)
        yield f"{plural(len(overview.stubs), 'message')} shown only in part: {which}", "dim"
    if (results := overview.results).whole_tokens:
        shown = f"{results.whole_tokens:,} tokens returned, {results.shown_tokens:,} shown"
        yield f"tool results: {shown}: {100 * results.saved_share:.1f} % saved", "dim"
    if overview.pending_edits:
        yield f"{plural(overview.pending_edits, 'memory edit')} to be told with the next request", "dim"
    if overview.rewrite is not None and overview.rewrite != "first":
        reason = reason_text(overview.rewrite)
        yield f"the next request begins anew, without the provider's cache: {reason}", "yellow"
    if overview.over_tokens:
        text = f"{overview.over_tokens:,} tokens more than fit: the oldest messages leave the window before the next"
        yield text, "yellow"
    if not overview.sent:
        yield "(nothing was sent like this yet: the next message will be)", "dim"


def steps_view(steps: Sequence[StepInfo]) -> RenderableType:
    """The steps as a table, newest first: tokens, cache hits, cost, and why a prefix was written again."""
    numbers = ("tokens", "cache", "cost")
    table = new_table("step", "when", "model", *numbers, "new prefix", right=numbers, styles={"when": "dim"})
    for column in table.columns:
        column.no_wrap = column.header != "model"
    for step in steps:
        usage = step.usage
        measured = usage.input_tokens > 0
        tokens = f"{usage.input_tokens:,}" if measured else f"~{step.estimated_tokens:,}"
        hit = f"{100 * usage.cached_input_tokens / usage.input_tokens:.0f} %" if measured else "–"
        failed = "" if step.status == "success" else f"  {step.status}"
        table.add_row(
            short_id(step.id),
            local_time(step.created_at).partition("-")[2],
            visible(step.model),
            tokens,
            hit,
            cost(step.price),
            Text.assemble((visible(step.rewritten or "").replace("_", " "), "yellow"), (failed, "red")),
        )
    return table


def cells(amounts: Sequence[int], size: int) -> list[int]:
    """`size` cells divided in proportion to the amounts; each amount above 0 gets one or more, if there are enough."""
    total = sum(amounts)
    if total <= 0:
        return [0] * len(amounts)
    exact = [amount * size / total for amount in amounts]
    counts = [max(1, int(share)) if amount else 0 for amount, share in zip(amounts, exact, strict=True)]
    while (over := sum(counts) - size) > 0:
        most = max((i for i, count in enumerate(counts) if count > 1), key=lambda i: counts[i] - exact[i], default=None)
        if most is None:
            break
        counts[most] -= 1
    for _ in range(-over):
        least = max((i for i, amount in enumerate(amounts) if amount), key=lambda i: exact[i] - counts[i])
        counts[least] += 1
    return counts


def cost(dollars: float | None) -> str:
    """US dollars as people write them; `?` means unknown."""
    if dollars is None:
        return "?"
    if dollars == 0:
        return "$0"
    return "<$0.0001" if dollars < 0.0001 else f"${dollars:.4f}" if dollars < 1 else f"${dollars:,.2f}"


def reason_text(reason: str) -> str:
    """A reason code of a new prefix in words."""
    return REASONS.get(reason, visible(reason))
