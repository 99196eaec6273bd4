"""For people: what fills a window, the steps of a conversation, one request, and the difference of two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from perdure.cli.views.view import first_names, local_time, new_table, plural, short_id, visible
from perdure.context.costs.ledger import REASONS
from perdure.context.request.explain import Explanation, RequestDiff, SegmentUse
from perdure.context.window.overview import ContextOverview
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
_OPTIONAL = ("summary", "newest turn", "recalled")  # not shown at 0 tokens


def context_view(overview: ContextOverview) -> RenderableType:
    """A bar of the whole window, the size of each part in tokens and percent, and remarks."""
    rows: list[tuple[str, int]] = [
        *((part.name, part.tokens) for part in overview.parts if part.tokens or part.name not in _OPTIONAL),
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
    return Group(Text(head), _Bar(rows), table, *_remarks(overview))


@dataclass(frozen=True, slots=True)
class _Bar:
    """A bar of parts (name, tokens), as wide as the terminal has room for."""

    rows: Sequence[tuple[str, int]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        size = max(10, min(BAR_CELLS, options.max_width - 2))
        counts = cells([tokens for _, tokens in self.rows], size)
        signs = ((_SIGNS[name], count) for (name, _), count in zip(self.rows, counts, strict=True))
        yield Text.assemble(*((sign * count, style) for (sign, style), count in signs))


def _remarks(overview: ContextOverview) -> Iterator[Text]:
    """Remarks: how the numbers were measured, and what is unusual about the window."""
    estimated, used = overview.estimated_tokens, overview.used_tokens
    if overview.measured_tokens is not None:
        yield Text(
            f"measured: the last request took {overview.measured_tokens:,} tokens; what came since is estimated",
            style="dim",
        )
    elif estimated != used:
        yield Text(f"estimated: {estimated:,} tokens, corrected by what was measured before", style="dim")
    else:
        yield Text("estimated: nothing of this was measured yet", style="dim")
    if overview.nodes:
        summaries = f"{plural(len(overview.nodes), 'summary', 'summaries')} ({first_names(overview.nodes, NAMES_MAX)})"
        verb = "stands for" if len(overview.nodes) == 1 else "stand for"
        yield Text(f"{summaries} {verb} {plural(overview.hidden_messages, 'earlier message')}", style="dim")
    if overview.stubs:
        which = first_names([message_handle(seq) for seq in sorted(overview.stubs)], NAMES_MAX)
        yield Text(f"{plural(len(overview.stubs), 'message')} shown only in part: {which}", style="dim")
    if (results := overview.results).whole_tokens:
        yield Text(
            f"tool results: {results.whole_tokens:,} tokens returned, {results.shown_tokens:,} shown:"
            f" {100 * results.saved_share:.1f} % saved",
            style="dim",
        )
    if overview.pending_edits:
        yield Text(f"{plural(overview.pending_edits, 'memory edit')} to be told with the next request", style="dim")
    if overview.rewrite is not None and overview.rewrite != "first":
        yield Text(
            f"the next request begins anew, without the provider's cache: {_reason_text(overview.rewrite)}", "yellow"
        )
    if overview.over_tokens:
        text = f"{overview.over_tokens:,} tokens more than fit: the oldest messages leave the window before the next"
        yield Text(text, style="yellow")
    if not overview.sent:
        yield Text("(nothing was sent like this yet: the next message will be)", style="dim")


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


def explanation_view(explanation: Explanation) -> RenderableType:
    """The parts of a request with their tokens and prices."""
    lines: list[RenderableType] = [
        Text.assemble((explanation.step_id, "bold"), f"  {local_time(explanation.created_at)}"),
        Text(f"{visible(explanation.model)}, {explanation.status}"),
        Text(f"prefix {explanation.prefix_seq}: {_reason_text(explanation.prefix_reason)}", style="dim"),
    ]
    view = plural(explanation.message_count, "message")
    if explanation.nodes:
        summaries = plural(len(explanation.nodes), "summary", "summaries")
        view += f", behind {summaries} of earlier ones: {first_names(explanation.nodes, NAMES_MAX)}"
    if explanation.stubs:
        which = first_names([message_handle(seq) for seq in sorted(explanation.stubs)], NAMES_MAX)
        view += f"; shown only in part: {which}"
    lines += [Text(f"in view: {view}", style="dim"), _parts(explanation)]
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


def _parts(request: Explanation) -> Table:
    """Each part of a request and their sum: tokens, what the provider's cache gave of them, and the price."""
    cache = ("cached", "written", "plain") if request.written_tokens else ("cached", "plain")
    columns = ("tokens", "share", *(*cache, "price") * request.measured)
    table = new_table("part", *columns, right=columns)
    segments = [use for use in request.segments if use.tokens or use.name not in _OPTIONAL]
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
    """How much two requests share from the start, and a diff of the rest."""
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


def _reason_text(reason: str) -> str:
    """A reason code of a new prefix in words."""
    return REASONS.get(reason, visible(reason))
