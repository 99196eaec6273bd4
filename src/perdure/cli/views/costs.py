"""For people: what the requests and summaries of a conversation cost, as a plot and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from perdure.cli.views.context import cells, cost, short_id
from perdure.cli.views.fold import local_time, plural, visible
from perdure.cli.views.view import new_table
from perdure.context.costs.ledger import REASONS, CostLedger, RequestCost
from perdure.context.costs.plot import KINDS, NAMES, Column, axis_top, build_columns, describe, short_number
from perdure.context.request.explain import SegmentUse

PLOT_ROWS, PLOT_COLUMNS_MAX = 8, 100
AXIS_CHARS = 7
WIDE_COLUMNS = 30  # so few requests get columns with a gap between them
REQUESTS_SHOWN, SUMMARIES_SHOWN = 20, 10

# Each kind of tokens has its own sign, so that the plot can be read without colours.
_SIGNS = {"cached": ("░", "green"), "written": ("▒", "yellow"), "plain": ("█", "red")}
_MARK = ("▲", "magenta")


def costs_view(ledger: CostLedger) -> RenderableType:
    """The plot of the requests, what each took, the summaries, and the sums."""
    if not ledger.requests:
        return Text("no request yet")
    parts: list[RenderableType] = [_Plot(ledger), "", _requests(ledger)]
    more = len(ledger.requests) - REQUESTS_SHOWN + ledger.left_out
    if more > 0:
        parts.append(Text(f"… and {plural(more, 'earlier request')}; --json has all", style="dim"))
    if ledger.summaries:
        parts += ["", _summaries(ledger)]
    return Group(*parts, "", _parts(ledger.parts), "", *_sums(ledger))


@dataclass(frozen=True, slots=True)
class _Plot:
    """Columns of tokens, oldest first, as wide as the terminal has room for; marks below where a prefix is new."""

    ledger: CostLedger

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(10, min(PLOT_COLUMNS_MAX, options.max_width - AXIS_CHARS - 2))
        columns = build_columns(self.ledger, room)
        wide = 3 if len(columns) * 3 <= room and len(columns) <= WIDE_COLUMNS else 1
        top = axis_top(max(column.height for column in columns))
        stacks = [_stack(column, top) for column in columns]
        legend = [Text.assemble(_SIGNS[kind], f" {NAMES[kind]}  ") for kind in KINDS]
        yield Text.assemble("tokens of each request  ", *legend, _MARK, " new prefix")
        for row in range(PLOT_ROWS - 1, -1, -1):
            label = short_number(top * (row + 1) / PLOT_ROWS) if row % 4 == 3 else ""
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


def _stack(column: Column, top: float) -> list[str]:
    """The kind of each cell of a column, from the bottom."""
    height = max(int(column.height > 0), round(column.height / top * PLOT_ROWS))
    counts = cells([round(tokens) for tokens in column.tokens], height)
    return [kind for kind, count in zip(KINDS, counts, strict=True) for _ in range(count)]


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
            Text(visible(describe(request)), style="yellow"),
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
    """What each part of the requests took together."""
    numbers = ("tokens", "cached", "written", "missed", "price")
    table = new_table("part, in all requests", *numbers, right=numbers)
    for part in parts:
        if part.tokens:
            table.add_row(part.name, *_sizes(part), cost(part.price))
    return table


def _sums(ledger: CostLedger) -> Iterator[Text]:
    """The sums, and the reasons of new prefixes."""
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
