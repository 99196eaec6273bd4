"""For people: a model and what is known of it, and the window of a conversation as a bar."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perdure.cli.fold import visible
from perdure.cli.models import price
from perdure.cli.view import ModelRow
from perdure.context.overview import ContextOverview

__all__ = ["cells", "context_view", "model_view"]

BAR_CELLS = 60

# Each part has a sign of its own, so that it can be told without colours.
_SIGNS = {
    "system prompt": ("█", "blue"),
    "memory blocks": ("▓", "cyan"),
    "tools": ("▒", "magenta"),
    "messages": ("■", "green"),
    "status": ("●", "white"),
    "kept for the answer": ("░", "yellow"),
    "free": ("·", "dim"),
}


def model_view(row: ModelRow) -> RenderableType:
    """The handle and why, then what is known of it."""
    facts = row.facts
    lines: list[RenderableType] = [Text.assemble((visible(row.handle), "bold cyan"), f"  ({visible(row.reason)})")]
    if row.problem:
        lines.append(Text(f"  {visible(row.problem)}", style="yellow"))
    guessed = "" if facts.known else "  (in no catalog: a careful guess)"
    lines.append(Text(f"  window {facts.window_tokens:,} tokens, answer up to {facts.max_output_tokens:,}{guessed}"))
    if facts.input_price is None and facts.output_price is None:
        lines.append(Text("  price unknown", style="dim"))
    elif not facts.input_price and not facts.output_price:
        lines.append(Text("  no price by the token"))
    else:
        named = (("input", facts.input_price), ("cached", facts.cached_price), ("output", facts.output_price))
        lines.append(Text(f"  a million tokens: {', '.join(f'{name} {price(value)}' for name, value in named)}"))
    can = [
        name
        for name, has in (
            ("tools", facts.tools),
            ("several at once", facts.parallel_tools),
            ("can be made to call one", facts.forced_tool),
            ("reasoning", facts.reasoning),
        )
        if has
    ]
    lines.append(Text(f"  {', '.join(can)}" if can else "  no tools: it can't keep a memory"))
    return Group(*lines)


def context_view(overview: ContextOverview, *, width: int) -> RenderableType:
    """A bar of the whole window, and what each part of it takes, in tokens and percent."""
    rows: list[tuple[str, int]] = [(part.name, part.tokens) for part in overview.parts]
    rows += [("kept for the answer", overview.reserve_tokens), ("free", overview.free_tokens)]
    total = max(1, overview.window_tokens, sum(tokens for _, tokens in rows))
    bar = Text()
    size = max(10, min(BAR_CELLS, width - 2))
    for (name, _), count in zip(rows, cells([tokens for _, tokens in rows], size), strict=True):
        sign, style = _SIGNS[name]
        bar.append(sign * count, style=style)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    for name, tokens in rows:
        sign, style = _SIGNS[name]
        table.add_row(Text(sign, style=style), name, f"{tokens:,}", f"{100 * tokens / total:.1f} %")
    used = 100 * overview.used_tokens / max(1, overview.window_tokens)
    head = f"{visible(overview.model)}: {overview.used_tokens:,} of {overview.window_tokens:,} tokens ({used:.1f} %)"
    lines: list[RenderableType] = [Text(head), bar, table]
    if overview.over_tokens:
        told = (
            f"{overview.over_tokens:,} tokens more than fit: the oldest messages leave the window before the next one"
        )
        lines.append(Text(told, style="yellow"))
    if not overview.sent:
        lines.append(Text("(nothing was sent like this yet: the next message will be)", style="dim"))
    return Group(*lines)


def cells(amounts: Sequence[int], size: int) -> list[int]:
    """`size` cells shared out by the amounts: at least one for each that is not 0, as far as there are so many."""
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
