"""The plot of a cost ledger: columns for a terminal, and a picture as SVG.

Each column is one request, or several neighbours where there are too many. It shows the tokens that were read from the
provider's cache, written to it, and processed without it. Marks show where a prefix was written anew; a line, what all
of it cost up to there.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate

from perdure.context.request.explain import REASONS, sum_known
from perdure.features.costs.ledger import CostLedger, RequestCost

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
        """The tokens of all kinds together."""
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
    """Return what each request, those before it and the summaries until then cost, in US dollars; None: unknown."""
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

LEFT, RIGHT = 64, 936
"""Where the columns begin and end in `plot.svg`."""
COLUMNS_MAX = 220


def render_svg(ledger: CostLedger, *, title: str = "Cost of a conversation") -> str:
    """Return the plot as an SVG document, which follows the reader's light or dark colours."""
    from jinja2 import Template  # for those who want the picture

    columns, totals = build_columns(ledger, COLUMNS_MAX), ledger.totals
    price = "price unknown" if totals.price is None else f"{_dollars(totals.price)} with {totals.summaries} summaries"
    subtitle = (
        f"{totals.requests:,} requests, {totals.input_tokens:,} tokens sent,"
        f" {100 * totals.hit_rate:.0f} % read from the cache; {price}"
    )
    step = (RIGHT - LEFT) / max(1, len(columns))
    middles = [LEFT + (place + 0.5) * step for place in range(len(columns))]
    most_price = axis_top(max((one.price for one in columns if one.price is not None), default=0))
    priced = [(x, one.price) for x, one in zip(middles, columns, strict=True) if one.price is not None]
    text = files(__package__).joinpath("plot.svg").read_text(encoding="utf-8")
    picture: str = Template(text, autoescape=True, trim_blocks=True, lstrip_blocks=True).render(
        title=title,
        subtitle=subtitle,
        names=NAMES,
        columns=columns,
        step=step,
        gap=min(2.0, step * 0.2),
        most_tokens=axis_top(max((column.height for column in columns), default=0)),
        most_price=most_price,
        labels=_mark_labels(columns, middles),
        points=[(x, 518 - price / most_price * 110) for x, price in priced],
        numbers=_axis_numbers(columns, middles),
        short_number=short_number,
        dollars=_dollars,
        reasons=REASONS,
    )
    return picture


def _mark_labels(columns: Sequence[Column], middles: Sequence[float]) -> list[tuple[float, str]]:
    """Return the reasons of new prefixes, each with the middle of its column; one that would overlap is left out."""
    labels: list[tuple[float, str]] = []
    free_from = float(LEFT)
    for column, middle in zip(columns, middles, strict=True):
        text = ", ".join(reason.replace("_", " ") for reason in column.reasons)
        half = 3.4 * len(text)
        if text and middle - half >= free_from and middle + half <= RIGHT:
            labels.append((middle, text))
            free_from = middle + half + 10
    return labels


def _axis_numbers(columns: Sequence[Column], middles: Sequence[float]) -> list[tuple[float, str]]:
    """Return about eight numbers of requests for the axis, each with the middle of its column."""
    last = columns[-1].last if columns else 0
    interval = max(1, round(axis_top(last / 8)))
    ends = [column.last for column in columns]
    numbers = (1, *range(max(2, interval), last + 1, interval)) if columns else ()
    return [(middles[bisect_left(ends, number)], f"{number:,}") for number in numbers]


def _dollars(value: float) -> str:
    """Return US dollars for an axis."""
    if not value:
        return "$0"
    return f"${value:,.2f}" if value >= 1 else f"${float(f'{value:.2g}'):.6f}".rstrip("0").rstrip(".")


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
