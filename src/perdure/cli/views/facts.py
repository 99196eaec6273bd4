"""For people: the facts of a model, and the cells of a bar."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from perdure.cli.chat.models import price
from perdure.cli.views.fold import visible
from perdure.cli.views.view import ModelRow


def model_view(row: ModelRow) -> RenderableType:
    """The handle and why the agent has it, then window, prices and abilities."""
    facts = row.facts
    lines: list[RenderableType] = [Text.assemble((visible(row.handle), "bold cyan"), f"  ({visible(row.reason)})")]
    if row.problem:
        lines.append(Text(f"  {visible(row.problem)}", style="yellow"))
    source = "" if facts.known else "  (in no catalog: a careful guess)"
    lines.append(Text(f"  window {facts.window_tokens:,} tokens, answer up to {facts.max_output_tokens:,}{source}"))
    if facts.input_price is None and facts.output_price is None:
        lines.append(Text("  price unknown", style="dim"))
    elif not facts.input_price and not facts.output_price:
        lines.append(Text("  no price by the token"))
    else:
        prices = (("input", facts.input_price), ("cached", facts.cached_price), ("output", facts.output_price))
        lines.append(Text(f"  a million tokens: {', '.join(f'{name} {price(value)}' for name, value in prices)}"))
    abilities = [
        name
        for name, has in (
            ("tools", facts.tools),
            ("several at once", facts.parallel_tools),
            ("can be made to call one", facts.forced_tool),
            ("reasoning", facts.reasoning),
        )
        if has
    ]
    lines.append(Text(f"  {', '.join(abilities)}" if abilities else "  no tools: it can't keep a memory"))
    return Group(*lines)


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
