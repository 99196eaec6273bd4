"""A request that was made, explained: what each part of it took, what the provider's cache gave, what it cost; and how
two requests differ."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.context.request.assemble import View, canonical
from perdure.context.window.budget import SegmentName, overcount_measured
from perdure.context.window.segments import segments
from perdure.core.ids import StepId
from perdure.core.models import ModelRequest
from perdure.core.nodes import node_handle
from perdure.core.ports import TokenCounter
from perdure.core.runs import Step, StepStatus, Usage
from perdure.core.text.line_diff import DIFF_STEPS, diff_steps

__all__ = ["Explanation", "Prices", "RequestDiff", "SegmentUse", "diff", "explain", "share_out"]

MILLION = 1_000_000

LINE_CHARS = 160
"""A line of a diff shows at most so many characters of a change, and so many of what stands around it:"""
AROUND_CHARS = 40

DIFF_LINES = 2_000
"""A diff shows at most so many lines."""

_TAIL = '{"tail":'


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars for a million tokens; None where nobody knows."""

    input: float | None = None
    cached_input: float | None = None
    cache_write: float | None = None
    output: float | None = None

    def input_price(self, *, plain: int, cached: int, written: int) -> float | None:
        """Dollars for so many tokens of a request; None if the price of some of them is unknown."""
        return _sum(_price(plain, self.input), _price(cached, self.cached_input), _price(written, self.cache_write))

    def price(self, usage: Usage) -> float | None:
        """Dollars for a whole step. None also for one whose tokens were never told."""
        if not usage.input_tokens and not usage.output_tokens:
            return None
        cached, written = _cache(usage)
        plain = usage.input_tokens - cached - written
        before = self.input_price(plain=plain, cached=cached, written=written)
        return _sum(before, _price(usage.output_tokens, self.output))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUse:
    """One part of a request, in the order of the request.

    Args:
        estimated_tokens: our upper estimate of it.
        tokens: its share of what the provider measured of the whole; without a measurement, of the corrected estimate.
        cached_tokens, written_tokens: how many of them were read from the provider's cache, and written to it.
        price: US dollars; None where it is unknown.
    """

    name: SegmentName
    estimated_tokens: int
    tokens: int
    cached_tokens: int = 0
    written_tokens: int = 0
    price: float | None = None

    @property
    def plain_tokens(self) -> int:
        """Neither read from the cache nor written to it."""
        return self.tokens - self.cached_tokens - self.written_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How one request was made and what it took.

    Args:
        segments: their `tokens` sum to `input_tokens`.
        measured: the provider told how many tokens it read; else all numbers are estimates, and there is no price.
        doubtful: what it told can't be all of the request: it is far from any estimate.
        estimated_tokens: the upper estimate of the whole; `certified_tokens` is the corrected one that it was sent on.
        prefix_seq, prefix_reason: the prefix it began with, and why that was written.
        nodes: the handles of the summaries in view; `stubs`: row -> how many characters of it are shown.
        message_count: rows in view, the engine's own included.
        digest: of the canonical form, as recorded; empty for a step of an older store, which recorded none.
        price: US dollars for input and output; None where it is unknown.
    """

    step_id: StepId
    model: str
    status: StepStatus
    created_at: datetime
    segments: tuple[SegmentUse, ...]
    measured: bool
    doubtful: bool
    estimated_tokens: int
    certified_tokens: int
    usage: Usage
    prefix_seq: int
    prefix_reason: str
    nodes: tuple[str, ...]
    stubs: Mapping[int, int]
    message_count: int
    digest: str
    input_price: float | None
    output_price: float | None

    @property
    def input_tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)

    @property
    def cached_tokens(self) -> int:
        return sum(segment.cached_tokens for segment in self.segments)

    @property
    def written_tokens(self) -> int:
        return sum(segment.written_tokens for segment in self.segments)

    @property
    def plain_tokens(self) -> int:
        return sum(segment.plain_tokens for segment in self.segments)

    @property
    def hit_rate(self) -> float | None:
        """The cache's share of the input, from 0 to 1; None where nothing was measured."""
        return self.cached_tokens / self.input_tokens if self.measured and self.input_tokens else None

    @property
    def price(self) -> float | None:
        return _sum(self.input_price, self.output_price)


def explain(step: Step, view: View, *, prices: Prices | None = None, counter: TokenCounter) -> Explanation:
    """What the step's request took, part by part.

    What the provider read from its cache is the beginning of the request, and what it wrote to it follows: so a
    provider's sums are told of parts that it does not know of.

    Args:
        view: as the step's recipe makes it (`engine.run.request.load_view`).
        prices: of the step's model; None: not known.
    """
    recipe, usage, prices = step.recipe, step.usage, prices or Prices()
    parts = segments(view, stubs=recipe.stubs, status=recipe.tail, run_seq=step.run_seq, counter=counter)
    estimates = [part.tokens for part in parts]
    estimated = recipe.tokens or sum(estimates)
    certified = estimated - recipe.overcount
    measured = usage.input_tokens > 0
    tokens = share_out(estimates, usage.input_tokens if measured else certified)
    cached_left, written_left = _cache(usage) if measured else (0, 0)
    uses: list[SegmentUse] = []
    for part, count in zip(parts, tokens, strict=True):
        cached = min(count, cached_left)
        written = min(count - cached, written_left)
        cached_left, written_left = cached_left - cached, written_left - written
        plain = count - cached - written
        uses.append(
            SegmentUse(
                name=part.name,
                estimated_tokens=part.tokens,
                tokens=count,
                cached_tokens=cached,
                written_tokens=written,
                price=prices.input_price(plain=plain, cached=cached, written=written) if measured else None,
            )
        )
    used = usage.input_tokens
    return Explanation(
        step_id=step.id,
        model=step.model,
        status=step.status,
        created_at=step.created_at,
        segments=tuple(uses),
        measured=measured,
        doubtful=measured and overcount_measured(estimated, used, window_tokens=used) is None,
        estimated_tokens=estimated,
        certified_tokens=certified,
        usage=usage,
        prefix_seq=view.prefix.seq,
        prefix_reason=view.prefix.reason,
        nodes=tuple(map(node_handle, view.prefix.nodes)),
        stubs=dict(recipe.stubs),
        message_count=len(view.pinned) + len(view.rows),
        digest=recipe.digest,
        input_price=_sum(*(use.price for use in uses)),
        output_price=_price(usage.output_tokens, prices.output) if measured else None,
    )


def share_out(amounts: Sequence[int], total: int) -> list[int]:
    """`total` shared out by the amounts, in whole numbers that sum to it; the largest remainders are rounded up.

    All zeros if the amounts are: there is nobody to give it to.
    """
    whole = sum(amounts)
    if whole <= 0:
        return [0] * len(amounts)
    shares = [amount * total // whole for amount in amounts]
    by_remainder = sorted(range(len(amounts)), key=lambda i: (-(amounts[i] * total % whole), i))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDiff:
    """How a second request differs from a first one, line by line of their canonical forms.

    Args:
        first_line: the number, from 1, of the first line at which they differ; None: they are the same.
        place: what stands there in the second, in a few words; of the first, where the second has no such line.
        shared_lines, shared_bytes: how much of the beginning is the same, which is what a provider's cache can give.
        lines, total_bytes: of the first and of the second.
        text: the lines of a unified diff, long ones shortened around what changed. Its last line says so if there are
            too many. Where finding the lines that stay could take long, lines are compared one by one, as it says too.
    """

    first_line: int | None
    place: str
    shared_lines: int
    shared_bytes: int
    lines: tuple[int, int]
    total_bytes: tuple[int, int]
    text: tuple[str, ...]


def diff(a: ModelRequest, b: ModelRequest) -> RequestDiff:
    """How `b` differs from `a`. It may take half a second: not for the event loop."""
    old, new = _canonical_lines(a), _canonical_lines(b)
    shared = _shared(old, new)
    same = shared == len(old) == len(new)
    whole, differing = sum(map(_size, old[:shared])), 0
    if shared < min(len(old), len(new)):
        differing = _shared(_bytes(old[shared]), _bytes(new[shared]))
    at = new if shared < len(new) else old
    return RequestDiff(
        first_line=None if same else shared + 1,
        place="" if same else _place(at, shared),
        shared_lines=shared,
        shared_bytes=whole + differing,
        lines=(len(old), len(new)),
        total_bytes=(sum(map(_size, old)), sum(map(_size, new))),
        text=tuple(_first_of(_unified(list(old), list(new), shared, _Steps()))),
    )


def _canonical_lines(request: ModelRequest) -> list[str]:
    return canonical(request).decode("utf-8", "surrogatepass").split("\n")[:-1]


def _bytes(line: str) -> bytes:
    return line.encode("utf-8", "surrogatepass")


def _size(line: str) -> int:
    """Its bytes in the canonical form, with the line's end."""
    return len(_bytes(line)) + 1


def _shared(old: Sequence[object], new: Sequence[object]) -> int:
    """How many items both begin with."""
    return next((i for i, (x, y) in enumerate(zip(old, new, strict=False)) if x != y), min(len(old), len(new)))


def _place(lines: Sequence[str], index: int) -> str:
    """What a canonical line is, in a few words."""
    line = lines[index]
    for begin, name in (('{"tool":', "a tool"), ('{"system":', "the system text"), (_TAIL, "the status")):
        if line.startswith(begin):
            return name
    first = next((i for i, other in enumerate(lines) if other.startswith('{"system":')), -1) + 1
    role, kind = line.split('"', 8)[3:8:4] if line.startswith('{"role":"') else ("?", "?")
    return f"message {index - first + 1} ({role if kind == 'message' else kind})"


class _Steps:
    """What all comparisons of one diff may still take together."""

    def __init__(self) -> None:
        self.left = 2 * DIFF_STEPS

    def opcodes(self, old: Sequence[str], new: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]] | None:
        """What became of which lines, as `difflib` says it; None: finding that out could take too long."""
        needed = diff_steps(old, new)
        if needed > self.left:
            return None
        self.left -= needed
        return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _first_of(lines: Iterator[str]) -> Iterator[str]:
    yield from itertools.islice(lines, DIFF_LINES)
    if next(lines, None) is not None:
        yield f"… more than {DIFF_LINES:,} lines …"


def _unified(old: list[str], new: list[str], shared: int, steps: _Steps) -> Iterator[str]:
    """The differing lines with one equal line around them, each shortened; the status is last."""
    tails = tuple(lines.pop() if lines[-1].startswith(_TAIL) else "" for lines in (old, new))
    end = min(_shared(old[shared:][::-1], new[shared:][::-1]), min(len(old), len(new)) - shared)
    # Equal lines at both ends are nearly all of them: no need to look for partners among those.
    middle = (old[shared : len(old) - end], new[shared : len(new) - end])
    if any(middle):
        yield f"@@ line {shared + 1} @@"
        if shared:
            yield f"  {_short(old[shared - 1])}"
        yield from _line_changes(*middle, steps)
        if end:
            yield f"  {_short(new[len(new) - end])}"
    if tails[0] != tails[1]:
        yield "@@ status @@"
        yield from _changed(tails[0], tails[1], steps)


def _line_changes(old: Sequence[str], new: Sequence[str], steps: _Steps) -> Iterator[str]:
    opcodes = steps.opcodes(old, new)
    if opcodes is None:
        yield "… too many lines were moved or are repeated: they are compared one by one …"
        opcodes = [("replace", 0, len(old), 0, len(new))]
    for tag, i1, i2, j1, j2 in opcodes:
        gone, come = old[i1:i2], new[j1:j2]
        if tag == "equal":
            yield from _few(gone)
            continue
        pairs = min(len(gone), len(come)) if tag == "replace" else 0
        for before, after in zip(gone[:pairs], come[:pairs], strict=True):
            yield from _changed(before, after, steps)
        yield from (f"- {_short(line)}" for line in gone[pairs:])
        yield from (f"+ {_short(line)}" for line in come[pairs:])


def _few(lines: Sequence[str]) -> Iterator[str]:
    """Equal lines between two changes: the first and the last of them."""
    if len(lines) <= 3:
        yield from (f"  {_short(line)}" for line in lines)
        return
    yield f"  {_short(lines[0])}"
    yield f"  … {len(lines) - 2:,} equal lines …"
    yield f"  {_short(lines[-1])}"


def _changed(before: str, after: str, steps: _Steps) -> Iterator[str]:
    """A line that became another: both shortened around each change, so that one in the middle of a long text shows.

    A system text is one line, with `\\n` for its own lines' ends: only those of them that differ are told.
    """
    if before == after:
        return
    if not (before and after) or max(len(before), len(after)) <= LINE_CHARS:
        yield from (f"{mark} {_short(line)}" for mark, line in (("-", before), ("+", after)) if line)
        return
    old, new = before.split("\\n"), after.split("\\n")
    for tag, i1, i2, j1, j2 in steps.opcodes(old, new) or [("replace", 0, len(old), 0, len(new))]:
        if tag == "equal":
            continue
        gone, come = _around(r"\n".join(old[i1:i2]), r"\n".join(new[j1:j2]))
        more = "…" if i1 else ""
        rest = "…" if i2 < len(old) else ""
        if i1 < i2:
            yield f"- {more}{gone or '(an empty line)'}{rest}"
        if j1 < j2:
            yield f"+ {more}{come or '(an empty line)'}{rest}"


def _around(old: str, new: str) -> tuple[str, str]:
    """Both texts from a little before their first difference to a little after their last, at most so long."""
    if max(len(old), len(new)) <= LINE_CHARS:
        return old, new
    begin = _shared(old, new)
    end = _shared(old[begin:][::-1], new[begin:][::-1])
    cut = max(0, begin - AROUND_CHARS)
    return _cut(old, cut, begin, end), _cut(new, cut, begin, end)


def _cut(text: str, cut: int, begin: int, end: int) -> str:
    change, after = text[begin : len(text) - end], text[len(text) - end :]
    head, tail = "…" if cut else "", "…" if len(after) > AROUND_CHARS else ""
    return f"{head}{text[cut:begin]}{_short(change)}{after[:AROUND_CHARS]}{tail}"


def _short(line: str) -> str:
    """The line with its middle left out, if it is long."""
    if len(line) <= LINE_CHARS:
        return line
    kept = LINE_CHARS // 2
    return f"{line[:kept]} … {len(line) - 2 * kept:,} characters … {line[-kept:]}"


def _cache(usage: Usage) -> tuple[int, int]:
    """Tokens read from the cache and written to it, no more than there were: some providers count them besides."""
    cached = min(usage.cached_input_tokens, usage.input_tokens)
    return cached, min(usage.cache_write_tokens, usage.input_tokens - cached)


def _price(tokens: int, dollars: float | None) -> float | None:
    """Dollars for so many tokens; nothing costs nothing, whatever the price."""
    if not tokens:
        return 0.0
    return None if dollars is None else tokens * dollars / MILLION


def _sum(*prices: float | None) -> float | None:
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None
