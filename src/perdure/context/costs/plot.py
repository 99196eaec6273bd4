"""The plot of a cost ledger: columns for a terminal, and a picture as SVG.

Each column is one request, or several neighbours where there are too many. It shows the tokens that were read from the
provider's cache, written to it, and processed without it. Marks show where a prefix was written anew; a line, what all
of it cost up to there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from perdure.context.costs.ledger import REASONS, CostLedger, RequestCost
from perdure.context.request.explain import sum_known

KINDS = ("cached", "written", "plain")
"""What the tokens of a column are, from the bottom to the top."""

WORTH_TELLING = 1_024
"""Providers cache in pieces, the largest of which have so many tokens, so a smaller miss is none of theirs."""

NAMES = {"cached": "read from the cache", "written": "written to the cache", "plain": "without the cache"}


@dataclass(frozen=True, slots=True)
class Column:
    """One or several neighbouring requests.

    Args:
        first, last: their numbers, from 1.
        tokens: of each kind, as means.
        reasons: why prefixes were written anew for them.
        price: US dollars for all requests and summaries up to the last; None: unknown.
    """

    first: int
    last: int
    tokens: tuple[float, ...]
    reasons: tuple[str, ...]
    price: float | None

    @property
    def height(self) -> float:
        return sum(self.tokens)


def build_columns(ledger: CostLedger, most: int) -> list[Column]:
    """Return the columns of a ledger, oldest first, at most `most`. A first prefix of the conversation has no mark."""
    requests = ledger.requests
    count = min(len(requests), max(1, most))
    prices = _running_prices(ledger)
    columns: list[Column] = []
    for place in range(count):
        start, end = len(requests) * place // count, len(requests) * (place + 1) // count
        group = requests[start:end]
        sums = [sum(getattr(request, f"{kind}_tokens") for request in group) / len(group) for kind in KINDS]
        reasons = [rewrite.reason for request in group for rewrite in request.rewrites if rewrite.reason != "first"]
        columns.append(Column(start + 1, end, tuple(sums), tuple(dict.fromkeys(reasons)), prices[end - 1]))
    return columns


def _running_prices(ledger: CostLedger) -> list[float | None]:
    """Return for each request what it, those before it and the summaries until then cost; None: unknown."""
    summaries = sorted(ledger.summaries, key=lambda summary: summary.created_at)
    spent: list[float | None] = []
    for number, request in enumerate(ledger.requests):
        is_last = number == len(ledger.requests) - 1
        due = [one for one in summaries if is_last or one.created_at <= request.created_at]
        summaries = summaries[len(due) :]
        spent.append(sum_known([request.price if request.measured else 0.0, *(one.price for one in due)]))
    return list(accumulate(spent, lambda *prices: sum_known(prices)))


def axis_top(value: float) -> float:
    """Return a round number of at least `value` for the end of an axis."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10) if value <= step * power * (1 + 1e-9))


def short_number(value: float) -> str:
    """Return a number of tokens for an axis: `0`, `500`, `2.5k`, `120k`, `1.2M`."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return f"{value:.0f}"


# --- SVG ---

WIDTH, LEFT, RIGHT = 960, 64, 24
TOKENS_TOP, TOKENS_HEIGHT = 118, 220
PRICE_TOP, PRICE_HEIGHT = 408, 110
HEIGHT = 576
COLUMNS_MAX = 220
GRID_LINES = 4

_STYLE = """
svg { --back: #ffffff; --ink: #1d2733; --muted: #5c6b7a; --line: #dfe5ea; --cached: #2f9e75; --written: #d98e04;
  --plain: #c2452d; --price: #2767c4; --mark: #7a3fb0; }
@media (prefers-color-scheme: dark) { svg { --back: #14191f; --ink: #e8edf2; --muted: #9aa8b5; --line: #2d3742;
  --cached: #49c596; --written: #f0b43c; --plain: #f0755c; --price: #6fa5f2; --mark: #bd8cf0; } }
text { font: 12px system-ui, sans-serif; fill: var(--muted); }
.title { font-size: 17px; font-weight: 600; fill: var(--ink); }
.name { fill: var(--ink); font-weight: 600; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--line); } .axis { stroke: var(--muted); }
.cached { fill: var(--cached); } .written { fill: var(--written); } .plain { fill: var(--plain); }
.price { fill: none; stroke: var(--price); stroke-width: 2; stroke-linejoin: round; } .dot { fill: var(--price); }
.mark { fill: var(--mark); }
"""


def render_svg(ledger: CostLedger, *, title: str = "Cost of a conversation") -> str:
    """Return the plot as an SVG document, which follows the reader's light or dark colours."""
    columns = build_columns(ledger, COLUMNS_MAX)
    totals = ledger.totals
    price = "price unknown" if totals.price is None else f"{_dollars(totals.price)} with {totals.summaries} summaries"
    subtitle = (
        f"{totals.requests:,} requests, {totals.input_tokens:,} tokens sent,"
        f" {100 * totals.hit_rate:.0f} % read from the cache; {price}"
    )
    body = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="var(--back)"/>',
        _text(LEFT, 32, title, "title"),
        _text(LEFT, 52, subtitle),
        *_legend(),
        *(_tokens_panel(columns) if columns else [_text(WIDTH / 2, 200, "no request yet", "middle")]),
        *(_price_panel(columns) if columns else []),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' role="img">\n<title>{escape(title)}: {escape(subtitle)}</title>\n<style>{_STYLE}</style>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _legend() -> list[str]:
    """Draw what the colours mean."""
    shapes: list[str] = []
    x = float(LEFT)
    for kind in KINDS:
        shapes += [f'<rect x="{x:g}" y="66" width="12" height="12" rx="2" class="{kind}"/>']
        shapes += [_text(x + 18, 76, NAMES[kind])]
        x += 30 + 6.6 * len(NAMES[kind])
    shapes += [_triangle(x + 6, 67), _text(x + 18, 76, "new prefix")]
    return shapes


def _tokens_panel(columns: Sequence[Column]) -> list[str]:
    """Draw the stacked columns, and a mark above each one with a new prefix."""
    top = axis_top(max(column.height for column in columns))
    scale = TOKENS_HEIGHT / top
    bottom = TOKENS_TOP + TOKENS_HEIGHT
    step = (WIDTH - LEFT - RIGHT) / len(columns)
    gap = min(2.0, step * 0.2)
    shapes = [_text(LEFT, TOKENS_TOP - 8, "tokens of a request", "name"), *_grid(TOKENS_TOP, TOKENS_HEIGHT, top, "")]
    for place, column in enumerate(columns):
        x, y = LEFT + place * step, float(bottom)
        parts: list[str] = []
        for kind, tokens in zip(KINDS, column.tokens, strict=True):
            height = tokens * scale
            y -= height
            if height > 0:
                parts.append(
                    f'<rect x="{x + gap / 2:.1f}" y="{y:.1f}" width="{max(0.4, step - gap):.1f}"'
                    f' height="{height:.1f}" class="{kind}"/>'
                )
        if column.reasons:
            middle = x + step / 2
            parts.append(_triangle(middle, bottom + 8))
        shapes.append(f"<g><title>{escape(_column_text(column))}</title>{''.join(parts)}</g>")
    return shapes + _mark_labels(columns, step, bottom + 32)


def _mark_labels(columns: Sequence[Column], step: float, y: float) -> list[str]:
    """Draw the reasons of new prefixes, where there is room for them beside each other."""
    shapes: list[str] = []
    free_from = float(LEFT)
    for place, column in enumerate(columns):
        text = ", ".join(reason.replace("_", " ") for reason in column.reasons)
        middle, half = LEFT + (place + 0.5) * step, 3.4 * len(text)
        if text and middle - half >= free_from and middle + half <= WIDTH:
            shapes.append(_text(middle, y, text, "middle"))
            free_from = middle + half + 10
    return shapes


def _price_panel(columns: Sequence[Column]) -> list[str]:
    """Draw the line of what everything cost up to each column, and the axis of requests."""
    bottom = PRICE_TOP + PRICE_HEIGHT
    step = (WIDTH - LEFT - RIGHT) / len(columns)
    label = "cost so far, summaries included"
    prices = [column.price for column in columns]
    top = axis_top(max((price for price in prices if price is not None), default=0))
    shapes = [*_grid(PRICE_TOP, PRICE_HEIGHT, top, "$")]
    points = [
        (LEFT + (place + 0.5) * step, bottom - price / top * PRICE_HEIGHT)
        for place, price in enumerate(prices)
        if price is not None
    ]
    if len(points) < len(prices):
        label += " (the price of some is unknown)"
    shapes.append(_text(LEFT, PRICE_TOP - 8, label, "name"))
    if points:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        shapes += [f'<polyline points="{line}" class="price"/>']
        shapes += [f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="3.5" class="dot"/>']
    every = max(1, round(axis_top(columns[-1].last / 8)))
    for number in (1, *range(max(2, every), columns[-1].last + 1, every)):
        place = next(place for place, column in enumerate(columns) if column.last >= number)
        shapes.append(_text(LEFT + (place + 0.5) * step, bottom + 18, f"{number:,}", "middle"))
    shapes.append(_text(WIDTH - RIGHT, bottom + 38, "request", "end"))
    return shapes


def _grid(top: int, height: int, most: float, unit: str) -> list[str]:
    """Draw lines across a panel with their values at the left."""
    shapes: list[str] = []
    for line in range(GRID_LINES + 1):
        y = top + height * (1 - line / GRID_LINES)
        value = most * line / GRID_LINES
        label = _dollars(value) if unit == "$" else short_number(value)
        kind = "grid" if line else "axis"
        shapes.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:g}" y2="{y:g}" class="{kind}"/>')
        shapes.append(_text(LEFT - 8, y + 4, label, "end"))
    return shapes


def _column_text(column: Column) -> str:
    """Return what a pointer over a column shows."""
    which = f"request {column.first:,}" if column.first == column.last else f"requests {column.first:,}-{column.last:,}"
    sizes = [f"{tokens:,.0f} {NAMES[kind]}" for kind, tokens in zip(KINDS, column.tokens, strict=True)]
    why = [f"new prefix: {REASONS.get(reason, reason)}" for reason in column.reasons]
    return "\n".join((which, *sizes, *why))


def _dollars(value: float) -> str:
    """Return US dollars for an axis."""
    if not value:
        return "$0"
    return f"${value:,.2f}" if value >= 1 else f"${float(f'{value:.2g}'):.6f}".rstrip("0").rstrip(".")


def _triangle(x: float, y: float) -> str:
    """Draw the mark of a new prefix, its tip at the top."""
    return f'<path d="M{x:.1f} {y:.1f}l5 9h-10z" class="mark"/>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{escape(text)}</text>'


def describe(request: RequestCost) -> str:
    """Return in words what broke the prefix before a request, or why its cache was missed; empty: nothing did."""
    if request.rewrites:
        changes = [str(change) for rewrite in request.rewrites for change in rewrite.changes]
        reasons = dict.fromkeys(REASONS.get(rewrite.reason, rewrite.reason) for rewrite in request.rewrites)
        return ", ".join(reasons) + (f": {', '.join(changes)}" if changes else "")
    if request.miss_reason == "idle":
        return "the conversation rested, and the provider's cache had run out"
    if request.miss_reason == "model":
        return f"another model: {request.model}"
    if request.miss_reason == "provider" and request.cached_tokens and request.missed_tokens > WORTH_TELLING:
        return "the provider read only a part from its cache"
    return ""
