"""`perdure context`: what fills the window, the request of one step, the difference of two, or the costs as a plot and
tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from perdure.cli.run import LastAgent, command, flag, for_work, option

if for_work(__name__):
    import asyncio

    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

    from perdure.cli.chat.agent_choice import chat_command, context_command, last_conversation
    from perdure.cli.views.context import cells, context_view, cost, explanation_view, request_diff_view, steps_view
    from perdure.cli.views.json import context_shape, explanation_shape, step_shape
    from perdure.cli.views.view import View, local_time, new_table, plural, short_id, visible
    from perdure.context.costs import plot
    from perdure.context.costs.ledger import REASONS, CostLedger, RequestCost
    from perdure.context.request.assemble import canonical
    from perdure.context.request.explain import SegmentUse
    from perdure.context.request.explain import diff as compare
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.ids import ConversationId, StepId
    from perdure.library.agent import AsyncAgent
    from perdure.library.perdure import AsyncPerdure
PLOT_ROWS, PLOT_COLUMNS_MAX = 8, 100
AXIS_CHARS = 7
WIDE_COLUMNS = 30  # so few requests get columns with a gap between them
REQUESTS_SHOWN, SUMMARIES_SHOWN = 20, 10

# Each kind of tokens has its own sign, so that the plot can be read without colours.
_SIGNS = {"cached": ("░", "green"), "written": ("▒", "yellow"), "plain": ("█", "red")}
_MARK = ("▲", "magenta")
STEPS_MAX = 10
COSTS_MAX = 10_000
PAGE = 1_000
_LAST = re.compile(r"last(?:-(\d{1,9}))?", re.ASCII)


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
        columns = plot.build_columns(self.ledger, room)
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
    """The kind of each cell of a column, from the bottom."""
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


@command(
    "context",
    refuses=(
        (
            lambda given: given["cost"] and (given["diff"] or given["step"] or given["raw"]),
            "it is about the whole conversation: leave --step, --diff and --raw out",
            "--cost",
        ),
        (lambda given: given["svg"] and not given["cost"], "it is the plot of --cost: add --cost", "--svg"),
        (
            lambda given: given["diff"] and (given["step"] or given["raw"]),
            "it names its two steps itself: leave --step and --raw out",
            "--diff",
        ),
        (lambda given: given["raw"] and given["as_json"], "it prints JSON lines already: leave --json out", "--raw"),
    ),
)
async def context(
    view: View,
    perdure: AsyncPerdure,
    agent: LastAgent,
    step: Annotated[str | None, option("Explain one request: an id, its beginning, last, last-1, ...", "STEP")] = None,
    diff: Annotated[tuple[str, str] | None, option("Compare the requests of two steps.", "STEP STEP")] = None,
    raw: Annotated[bool, flag("--raw", "Print the request of --step, or the last, in its canonical form.")] = False,
    cost: Annotated[bool, flag("--cost", "Show what the conversation's requests and summaries cost.")] = False,
    svg: Annotated[Path | None, option("Write the plot of --cost to a file, too.", "FILE")] = None,
) -> None:
    """Show what fills the context window, what a model was sent, and what it cost.

    Requests are built again from the log, byte for byte.
    """
    conversation = await last_conversation(agent) or (await agent.conversations(limit=1))[0].id
    if cost:
        await _show_cost(agent, conversation, svg, view)
    elif diff is not None:
        old, new = [await find_step(perdure, agent, conversation, name) for name in diff]
        found = compare(await agent.request(old), await agent.request(new))
        shape, names = {"steps": [old, new], **asdict(found)}, (short_id(old), short_id(new))
        view.show({"diff": shape}, request_diff_view(found, names=names))
        view.hint(f"`{context_command(agent)} --step {names[1]}` tells what the provider's cache gave of it")
    elif raw:
        request = canonical(await agent.request(await find_step(perdure, agent, conversation, step or "last")))
        sys.stdout.flush()
        sys.stdout.buffer.write(request)  # byte for byte: no text stream takes lone surrogates
        sys.stdout.buffer.flush()
        view.hint("that is the canonical form: `| sha256sum` gives the digest that the step recorded")
    elif step is not None:
        explanation = await agent.explain(await find_step(perdure, agent, conversation, step))
        view.show({"step": explanation_shape(explanation)}, explanation_view(explanation))
        command = f"{context_command(agent)} --step {short_id(explanation.step_id)}"
        view.hint(f"`{command} --raw` prints the request itself, a JSON line each")
    else:
        await _show_window(agent, conversation, view)


async def find_step(perdure: AsyncPerdure, agent: AsyncAgent, conversation: ConversationId, name: str) -> StepId:
    """The step of this name: an id or the beginning of one, or `last`, `last-1`, ... of the conversation.

    Raises: NotFound; InvalidInput: several ids begin with the name.
    """
    if last := _LAST.fullmatch(name):
        return await _step_from_end(agent, conversation, int(last[1] or 0), name)
    try:
        return StepId(await perdure.origins.find_id(name, "step"))
    except NotFound as error:
        hint = f"`{context_command(agent)}` lists the newest of agent {agent.name!r}; last, last-1, ... name them"
        raise NotFound("step", name, hint=hint) from error


async def _step_from_end(agent: AsyncAgent, conversation: ConversationId, back: int, name: str) -> StepId:
    """The step that comes `back` steps before the last one of the conversation. Raises: NotFound."""
    before: StepId | None = None
    while page := await agent.steps(conversation=conversation, limit=min(PAGE, back + 1), before=before):
        if back < len(page):
            return page[back].id
        back -= len(page)
        before = page[-1].id
    raise NotFound("step", name, hint=f"the conversation has fewer: `{context_command(agent)}` lists the newest")


async def _show_window(agent: AsyncAgent, conversation: ConversationId, view: View) -> None:
    """Show what fills the window, and the newest steps."""
    steps = await agent.steps(conversation=conversation, limit=STEPS_MAX)
    overview = await agent.context(conversation=conversation)
    shape = {"context": context_shape(overview), "steps": [step_shape(step) for step in steps]}
    view.show(shape, context_view(overview), *(["", steps_view(steps)] if steps else []))
    if missing := await agent.rules.missing():
        view.hint(f"its tool rules name tools that it has not got, and are asleep until it has: {', '.join(missing)}")
    command = context_command(agent)
    view.hint(
        f"`{command} --step last` explains the newest request, `--diff last-1 last` what is new in it"
        if steps
        else f"nothing was asked of the model yet: `{chat_command(agent)}` begins"
    )


async def _show_cost(agent: AsyncAgent, conversation: ConversationId, svg: Path | None, view: View) -> None:
    """Show what the requests and summaries of a conversation cost, and write the plot to a file."""
    ledger = await agent.costs(conversation=conversation, limit=COSTS_MAX)
    if svg is not None:
        title = f"What a conversation of {agent.name} costs"
        try:
            await asyncio.to_thread(svg.write_text, plot.render_svg(ledger, title=title), encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"the plot can't be written to {str(svg)!r}: {error.strerror or error}") from error
    view.show({"costs": ledger.to_dict()}, costs_view(ledger))
    if svg is not None:
        view.hint(f"the plot is in {svg}")
    elif ledger.requests:
        view.hint(f"`{context_command(agent)} --cost --svg FILE` writes the plot to a file")
    else:
        view.hint(f"nothing was asked of the model yet: `{chat_command(agent)}` begins")
