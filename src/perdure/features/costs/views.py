"""For people: one request, the difference of two, and what a conversation costs, as a plot and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perdure.cli.views.context import OPTIONAL, cells, cost, reason_text
from perdure.cli.views.view import WidthLayout, first_names, local_time, new_table, plural, short_id, visible
from perdure.context.request.explain import REASONS, Explanation, RequestDiff, SegmentUse
from perdure.core.nodes import message_handle
from perdure.features.costs import plot
from perdure.features.costs.ledger import CostLedger, RequestCost

PLOT_ROWS, PLOT_COLUMNS_MAX = 8, 100
AXIS_CHARS = 7
WIDE_COLUMNS = 30  # so few requests get columns with a gap between them
REQUESTS_SHOWN, SUMMARIES_SHOWN = 20, 10

# Each kind of tokens has its own sign, so that the plot can be read without colours.
_SIGNS = {"cached": ("░", "green"), "written": ("▒", "yellow"), "plain": ("█", "red")}
_MARK = ("▲", "magenta")
NAMES_MAX = 3  # of summaries and stubs


def explanation_view(explanation: Explanation) -> RenderableType:
    """What a request consisted of: its parts with their tokens and prices, and what is known of the cache."""
    lines: list[RenderableType] = [
        Text.assemble((explanation.step_id, "bold"), f"  {local_time(explanation.created_at)}"),
        Text(f"{visible(explanation.model)}, {explanation.status}"),
        Text(f"prefix {explanation.prefix_seq}: {reason_text(explanation.prefix_reason)}", style="dim"),
    ]
    view = plural(explanation.message_count, "message")
    if explanation.nodes:
        summaries = plural(len(explanation.nodes), "summary", "summaries")
        view += f", behind {summaries} of earlier ones: {first_names(explanation.nodes, NAMES_MAX)}"
    if explanation.stubs:
        which = first_names([message_handle(seq) for seq in sorted(explanation.stubs)], NAMES_MAX)
        view += f"; shown only in part: {which}"
    lines += [Text(f"in view: {view}", style="dim"), _segments(explanation)]
    if not explanation.measured:
        text = "estimated: the provider reported no tokens, so nothing is known of its cache and price"
        lines.append(Text(text, style="yellow"))
    elif explanation.doubtful:
        text = f"the provider counted {explanation.input_tokens:,} tokens, which can't be all of it: about"
        lines.append(Text(f"{text} {explanation.certified_tokens:,} were sent", style="yellow"))
    else:
        text = f"measured {explanation.input_tokens:,} tokens, sent on an estimate of {explanation.certified_tokens:,}"
        lines.append(Text(f"{text}; the parts are shares of what was measured", style="dim"))
    if explanation.measured:
        hit = "" if explanation.hit_rate is None else f"cache hit {100 * explanation.hit_rate:.1f} %; "
        answer = f"answer {explanation.usage.output_tokens:,} tokens, {cost(explanation.output_price)}"
        lines.append(Text(f"{hit}{answer}; together {cost(explanation.price)}"))
    if explanation.redacted:
        lines.append(Text("a text was erased since this was sent: it reads [redacted] here", style="dim"))
    elif explanation.digest:
        lines.append(Text(f"built again from the log, as it was sent: SHA-256 {explanation.digest[:16]}…", style="dim"))
    else:
        text = "built again from the log; not checked, because an older Perdure sent it and kept no digest"
        lines.append(Text(text, style="yellow"))
    return Group(*lines)


def _segments(request: Explanation) -> Table:
    """Each part of a request and their sum: tokens, what the provider's cache gave of them, and the price."""
    cache = ("cached", "written", "plain") if request.written_tokens else ("cached", "plain")
    columns = ("tokens", "share", *(*cache, "price") * request.measured)
    table = new_table("part", *columns, right=columns)
    segments = [use for use in request.segments if use.tokens or use.name not in OPTIONAL]
    rows: list[tuple[str, int, SegmentUse | Explanation, float | None]] = [
        *((use.name, use.tokens, use, use.price) for use in segments),
        ("all", request.input_tokens, request, request.input_price),
    ]
    for name, tokens, use, price in rows:
        texts = {
            "tokens": f"{tokens:,}",
            "share": f"{100 * tokens / max(1, request.input_tokens):.1f} %",
            "cached": f"{use.cached_tokens:,}",
            "written": f"{use.written_tokens:,}",
            "plain": f"{use.plain_tokens:,}",
            "price": cost(price),
        }
        table.add_row(name, *(texts[column] for column in columns), style="bold" if name == "all" else "")
    return table


def request_diff_view(diff: RequestDiff, *, names: tuple[str, str]) -> RenderableType:
    """How much two requests share from their start, and a diff of what follows; `names`: short ids of their steps."""
    if diff.first_line is None:
        return Text(f"{names[0]} and {names[1]} are the same request: {diff.total_bytes[0]:,} bytes.")
    share = 100 * diff.shared_bytes / max(1, diff.total_bytes[1])
    lines: list[RenderableType] = [
        Text(f"{names[0]} → {names[1]}: different from line {diff.first_line} on, {diff.place}"),
        Text(
            f"the same up to there: {diff.shared_bytes:,} of {diff.total_bytes[1]:,} bytes ({share:.1f} %),"
            f" {diff.shared_lines} of {diff.lines[1]} lines",
            style="dim",
        ),
    ]
    styles = {"+": "green", "-": "red", "@": "cyan"}
    lines += [Text(visible(line), style=styles.get(line[:1], "dim")) for line in diff.text]
    return Group(*lines)


def costs_view(ledger: CostLedger) -> RenderableType:
    """The plot of the requests, what each took, the summaries, and the sums."""
    if not ledger.requests:
        return Text("no request yet")
    parts: list[RenderableType] = [WidthLayout(partial(_plot, ledger)), "", _requests(ledger)]
    more = len(ledger.requests) - REQUESTS_SHOWN + ledger.left_out
    if more > 0:
        parts.append(Text(f"… and {plural(more, 'earlier request')}; --json has all", style="dim"))
    if ledger.summaries:
        parts += ["", _summaries(ledger)]
    return Group(*parts, "", _parts(ledger.parts), "", *_sums(ledger))


def _plot(ledger: CostLedger, width: int) -> Iterator[Text]:
    """The lines of a plot, as wide as `width` characters allow: a column of tokens for each request or several
    neighbours, oldest first, and marks below where a prefix is new."""
    room = max(10, min(PLOT_COLUMNS_MAX, width - AXIS_CHARS - 2))
    columns = plot.build_columns(ledger, room)
    wide = 3 if len(columns) * 3 <= room and len(columns) <= WIDE_COLUMNS else 1
    top = plot.axis_top(max(column.height for column in columns))
    stacks = [_stack(column, top) for column in columns]
    legend = [Text.assemble(_SIGNS[kind], f" {plot.NAMES[kind]}  ") for kind in plot.KINDS]
    yield Text.assemble("tokens of each request  ", *legend, _MARK, " new prefix")
    for row in range(PLOT_ROWS - 1, -1, -1):
        label = plot.short_number(top * (row + 1) / PLOT_ROWS) if row % 4 == 3 else ""
        line = Text(f"{label:>{AXIS_CHARS}} ┤" if label else f"{'':>{AXIS_CHARS}} │")
        for stack in stacks:
            kind = stack[row] if row < len(stack) else None
            sign, style = _SIGNS[kind] if kind else (" ", "")
            line.append(sign * max(1, wide - 1) + " " * (wide > 1), style=style)
        yield line
    yield Text(f"{'0':>{AXIS_CHARS}} ┴" + "─" * (len(columns) * wide))
    if any(column.reasons for column in columns):
        marks = "".join((_MARK[0] if column.reasons else " ").ljust(wide) for column in columns)
        yield Text(f"{'':>{AXIS_CHARS}}  {marks}".rstrip(), style=_MARK[1])
    last = f"{columns[-1].last:,}" if len(columns) > 1 else ""
    yield Text(f"{'':>{AXIS_CHARS}}  1{last:>{max(1, len(columns) * wide - 1 - (wide > 1))}}", style="dim")


def _stack(column: plot.Column, top: float) -> list[str]:
    """The kind of token of each character of a column, from the bottom; `top` tokens fill all rows of the plot."""
    height = max(int(column.height > 0), round(column.height / top * PLOT_ROWS))
    counts = cells([round(tokens) for tokens in column.tokens], height)
    return [kind for kind, count in zip(plot.KINDS, counts, strict=True) for _ in range(count)]


def _requests(ledger: CostLedger) -> Table:
    """The newest requests, newest first."""
    numbers = ("tokens", "cached", "written", "missed", "answer", "cost")
    table = new_table("step", "when", *numbers, "what broke the prefix", right=numbers, styles={"when": "dim"})
    for column in table.columns[:-1]:
        column.no_wrap = True
    for request in reversed(ledger.requests[-REQUESTS_SHOWN:]):
        sizes = _sizes(request) if request.measured else [f"~{request.input_tokens:,}", "–", "–", "–"]
        table.add_row(
            short_id(request.step_id),
            local_time(request.created_at).partition("-")[2],
            *sizes,
            f"{request.output_tokens:,}" if request.measured else "–",
            cost(request.price),
            Text(visible(plot.describe(request)), style="yellow"),
        )
    return table


def _sizes(use: RequestCost | SegmentUse) -> list[str]:
    """Tokens, and how many were cached, written and missed."""
    tokens = use.input_tokens if isinstance(use, RequestCost) else use.tokens
    return [f"{count:,}" for count in (tokens, use.cached_tokens, use.written_tokens, use.missed_tokens)]


def _summaries(ledger: CostLedger) -> Table:
    """The newest summaries, newest first."""
    numbers = ("messages", "read", "answer", "cost")
    table = new_table("summary", "when", *numbers, "model", right=numbers, styles={"when": "dim"})
    for summary in reversed(ledger.summaries[-SUMMARIES_SHOWN:]):
        table.add_row(
            summary.handle,
            local_time(summary.created_at).partition("-")[2],
            f"{summary.message_count:,}",
            f"{summary.input_tokens:,}",
            f"{summary.output_tokens:,}",
            cost(summary.price),
            visible(summary.model or "extracted by code"),
        )
    return table


def _parts(parts: Sequence[SegmentUse]) -> Table:
    """The tokens and prices of each part, such as the system prompt, over all requests."""
    numbers = ("tokens", "cached", "written", "missed", "price")
    table = new_table("part, in all requests", *numbers, right=numbers)
    for part in parts:
        if part.tokens:
            table.add_row(part.name, *_sizes(part), cost(part.price))
    return table


def _sums(ledger: CostLedger) -> Iterator[Text]:
    """Lines with the sums of a ledger, and with the reasons of new prefixes."""
    totals = ledger.totals
    yield Text(
        f"{plural(totals.requests, 'request')}: {totals.input_tokens:,} tokens sent, {100 * totals.hit_rate:.1f} % from"
        f" the cache, {totals.missed_tokens:,} missed; {totals.output_tokens:,} answered; {cost(totals.request_price)}"
    )
    if totals.summaries:
        named = plural(totals.summaries, "summary", "summaries")
        yield Text(f"{named}: {totals.summary_tokens:,} tokens; {cost(totals.summary_price)}")
    together = Text.assemble("together ", (cost(totals.price), "bold"))
    if totals.uncached_price and totals.price is not None:
        together.append(f"; without the cache {cost(totals.uncached_price)}")
    yield together
    if totals.rewrites:
        reasons = [f"{count} × {REASONS.get(code, visible(code))}" for code, count in totals.rewrites.items()]
        yield Text(f"new prefixes: {'; '.join(reasons)}", style="dim")
