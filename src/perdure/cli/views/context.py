"""For people: what fills a window, the steps of a conversation, one request explained, and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perdure.cli.views.facts import cells
from perdure.cli.views.fold import local_time, visible
from perdure.context.request.explain import Explanation, RequestDiff
from perdure.context.window.overview import ContextOverview
from perdure.core.nodes import message_handle
from perdure.library.services.steps import StepInfo

__all__ = ["context_view", "cost", "explanation_view", "request_diff_view", "short_id", "steps_view"]

BAR_CELLS = 60
NAMED = 3
"""Of summaries and stubs, so many are named."""

# Each part has a sign of its own, so that it can be told without colours.
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
_RARE = ("summary", "newest turn", "recalled")  # not told where they are not there

REASONS = {
    "first": "the conversation's first request",
    "import": "history was imported that the window has no room for",
    "settings": "the agent's settings changed",
    "window": "the window was full",
    "tools": "the caller brought other tools or skills along",
    "reset": "the conversation was reset",
    "marker": "the engine's messages had no marker yet",
    "cache_cold": "memory changed, and the provider's cache had run out",
}
"""Why a prefix was written, in words."""


def context_view(overview: ContextOverview, *, width: int) -> RenderableType:
    """A bar of the whole window, what each part of it takes, in tokens and percent, and what is to be known of it."""
    rows = [(part.name, part.tokens) for part in overview.parts if part.tokens or part.name not in _RARE]
    told: list[tuple[str, int]] = [
        *rows,
        ("kept for the answer", overview.reserve_tokens),
        ("free", overview.free_tokens),
    ]
    total = max(1, overview.window_tokens, sum(tokens for _, tokens in told))
    bar = Text()
    size = max(10, min(BAR_CELLS, width - 2))
    for (name, _), count in zip(told, cells([tokens for _, tokens in told], size), strict=True):
        sign, style = _SIGNS[name]
        bar.append(sign * count, style=style)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for justify in ("left", "left", "right", "right"):
        table.add_column(justify=justify)
    for name, tokens in told:
        sign, style = _SIGNS[name]
        table.add_row(Text(sign, style=style), name, f"{tokens:,}", f"{100 * tokens / total:.1f} %")
    used = 100 * overview.used_tokens / max(1, overview.window_tokens)
    head = f"{visible(overview.model)}: {overview.used_tokens:,} of {overview.window_tokens:,} tokens ({used:.1f} %)"
    return Group(Text(head), bar, table, *_remarks(overview))


def _remarks(overview: ContextOverview) -> Iterator[Text]:
    estimated, used = overview.estimated_tokens, overview.used_tokens
    if overview.measured_tokens is not None:
        told = f"measured: the last request took {overview.measured_tokens:,} tokens; what came since is estimated"
        yield Text(told, style="dim")
    elif estimated != used:
        yield Text(f"estimated: {estimated:,} tokens, corrected by what was measured before", style="dim")
    else:
        yield Text("estimated: nothing of this was measured yet", style="dim")
    if overview.nodes:
        one = len(overview.nodes) == 1
        which = _some(overview.nodes)
        stand = f"{_count(len(overview.nodes), 'summary', 'summaries')} ({which}) stand{'s' if one else ''} for"
        yield Text(f"{stand} {_count(overview.hidden_messages, 'earlier message')}", style="dim")
    if overview.stubs:
        which = _some([message_handle(seq) for seq in sorted(overview.stubs)])
        yield Text(f"{_count(len(overview.stubs), 'message')} shown only in part: {which}", style="dim")
    if overview.pending_edits:
        yield Text(f"{_count(overview.pending_edits, 'memory edit')} to be told with the next request", style="dim")
    if overview.rewrite is not None and overview.rewrite != "first":
        yield Text(f"the next request begins anew, without the provider's cache: {_why(overview.rewrite)}", "yellow")
    if overview.over_tokens:
        told = f"{overview.over_tokens:,} tokens more than fit: the oldest messages leave the window before the next"
        yield Text(told, style="yellow")
    if not overview.sent:
        yield Text("(nothing was sent like this yet: the next message will be)", style="dim")


def steps_view(steps: Sequence[StepInfo]) -> RenderableType:
    """The steps as a table, newest first: what each took, and where the provider's cache was lost."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("step", no_wrap=True)
    table.add_column("when", no_wrap=True)
    table.add_column("model", overflow="ellipsis")
    for name in ("tokens", "cache", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("new prefix", no_wrap=True)
    for step in steps:
        usage = step.usage
        measured = usage.input_tokens > 0
        tokens = f"{usage.input_tokens:,}" if measured else f"~{step.estimated_tokens:,}"
        hit = f"{100 * usage.cached_input_tokens / usage.input_tokens:.0f} %" if measured else "–"
        failed = "" if step.status == "success" else f"  {step.status}"
        table.add_row(
            Text(short_id(step.id)),
            Text(_time(step.created_at), style="dim"),
            Text(visible(step.model)),
            tokens,
            hit,
            cost(step.price),
            Text.assemble((visible(step.rewritten or "").replace("_", " "), "yellow"), (failed, "red")),
        )
    return table


def explanation_view(found: Explanation) -> RenderableType:
    """What a request was made of, and what each part took."""
    lines: list[RenderableType] = [
        Text.assemble((found.step_id, "bold"), f"  {local_time(found.created_at)}"),
        Text(f"{visible(found.model)}, {found.status}"),
        Text(f"prefix {found.prefix_seq}: {_why(found.prefix_reason)}", style="dim"),
    ]
    view = _count(found.message_count, "message")
    if found.nodes:
        view += f", behind {_count(len(found.nodes), 'summary', 'summaries')} of earlier ones: {_some(found.nodes)}"
    if found.stubs:
        view += f"; shown only in part: {_some([message_handle(seq) for seq in sorted(found.stubs)])}"
    lines += [Text(f"in view: {view}", style="dim"), _parts(found)]
    if not found.measured:
        told = "estimated: the provider told no tokens, so nothing is known of its cache and price"
        lines.append(Text(told, style="yellow"))
    elif found.doubtful:
        told = f"the provider counted {found.input_tokens:,} tokens, which can't be all of it: about"
        lines.append(Text(f"{told} {found.certified_tokens:,} were sent", style="yellow"))
    else:
        told = f"measured {found.input_tokens:,} tokens, sent on an estimate of {found.certified_tokens:,}"
        lines.append(Text(f"{told}; the parts are shares of what was measured", style="dim"))
    if found.measured:
        hit = "" if found.hit_rate is None else f"cache hit {100 * found.hit_rate:.1f} %; "
        answer = f"answer {found.usage.output_tokens:,} tokens, {cost(found.output_price)}"
        lines.append(Text(f"{hit}{answer}; together {cost(found.price)}"))
    if found.digest:
        lines.append(Text(f"built again from the log, as it was sent: SHA-256 {found.digest[:16]}…", style="dim"))
    else:
        told = "built again from the log; not checked, because an older Perdure sent it and kept no digest"
        lines.append(Text(told, style="yellow"))
    return Group(*lines)


def _parts(found: Explanation) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("part", no_wrap=True)
    columns = ["tokens", "share"]
    columns += (["cached", "written", "plain"] if found.written_tokens else ["cached", "plain"]) * found.measured
    columns += ["price"] * found.measured
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    total = max(1, found.input_tokens)
    rows = [
        (use.name, use.tokens, use.cached_tokens, use.written_tokens, use.plain_tokens, use.price)
        for use in found.segments
        if use.tokens or use.name not in _RARE
    ]
    sums = (found.input_tokens, found.cached_tokens, found.written_tokens, found.plain_tokens, found.input_price)
    for name, tokens, cached, written, plain, price in (*rows, ("all", *sums)):
        shown = {
            "tokens": f"{tokens:,}",
            "share": f"{100 * tokens / total:.1f} %",
            "cached": f"{cached:,}",
            "written": f"{written:,}",
            "plain": f"{plain:,}",
            "price": cost(price),
        }
        table.add_row(name, *(shown[column] for column in columns), style="bold" if name == "all" else "")
    return table


def request_diff_view(found: RequestDiff, *, names: tuple[str, str]) -> RenderableType:
    """How far both are the same, and a diff of the rest."""
    if found.first_line is None:
        return Text(f"{names[0]} and {names[1]} are the same request: {found.total_bytes[0]:,} bytes.")
    share = 100 * found.shared_bytes / max(1, found.total_bytes[1])
    lines: list[RenderableType] = [
        Text(f"{names[0]} → {names[1]}: different from line {found.first_line} on, {found.place}"),
        Text(
            f"the same up to there: {found.shared_bytes:,} of {found.total_bytes[1]:,} bytes ({share:.1f} %),"
            f" {found.shared_lines} of {found.lines[1]} lines",
            style="dim",
        ),
    ]
    styles = {"+": "green", "-": "red", "@": "cyan"}
    lines += [Text(visible(line), style=styles.get(line[:1], "dim")) for line in found.text]
    return Group(*lines)


def short_id(step_id: str) -> str:
    """The beginning of an id, enough to name it by."""
    return step_id[:13]


def cost(dollars: float | None) -> str:
    """US dollars, as people write them, also where it is little."""
    if dollars is None:
        return "?"
    if dollars == 0:
        return "$0"
    return "<$0.0001" if dollars < 0.0001 else f"${dollars:.4f}" if dollars < 1 else f"${dollars:,.2f}"


def _why(reason: str) -> str:
    return REASONS.get(reason, visible(reason))


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _time(at: datetime) -> str:
    return local_time(at).partition("-")[2]
