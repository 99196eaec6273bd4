"""Explain a step's request: the tokens, cache use and price of each part; and the difference of two requests."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.context.sections.assemble import View, canonical
from perdure.context.window.budget import Segment, SegmentName, measure_overcount, segments
from perdure.core.ids import StepId
from perdure.core.models import ModelRequest
from perdure.core.nodes import node_handle
from perdure.core.ports import TokenCounter
from perdure.core.runs import Step, StepStatus, Usage
from perdure.core.text.line_diff import DIFF_STEPS, diff_steps
from perdure.core.text.tables import read_table

MILLION = 1_000_000

LINE_CHARS = 160
"""The most characters of a change in one line of a diff."""
AROUND_CHARS = 40
"""The most characters before and after a change."""

DIFF_LINES = 2_000
"""The most lines of a diff."""

REASONS: Mapping[str, str] = read_table(__file__, "reasons.toml")
"""Reason code of a new prefix -> words."""

_TAIL = '{"tail":'


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars for a million tokens; None: unknown."""

    input: float | None = None
    cached_input: float | None = None
    cache_write: float | None = None
    output: float | None = None

    def input_price(self, *, plain: int, cached: int, written: int) -> float | None:
        """Return the dollars for these tokens; None if the price of some is unknown."""
        return sum_known(
            [_price(plain, self.input), _price(cached, self.cached_input), _price(written, self.cache_write)]
        )

    def price(self, usage: Usage) -> float | None:
        """Return the dollars for a step; None if a price or the tokens are unknown."""
        if not usage.input_tokens and not usage.output_tokens:
            return None
        cached, written = _cache_tokens(usage)
        before = self.input_price(plain=usage.input_tokens - cached - written, cached=cached, written=written)
        return sum_known([before, _price(usage.output_tokens, self.output)])


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUse:
    """One part of a request, in the order of the request.

    Args:
        estimated_tokens: its upper estimate.
        tokens: its share of the provider's count for the whole request, or else of the corrected estimate.
        cached_tokens, written_tokens: how many of them were read from the provider's cache, and written to it.
        missed_tokens: how many of them the request before had sent, or others in their place, that were not read from
            the cache.
        price: US dollars; None: unknown.
    """

    name: SegmentName
    estimated_tokens: int
    tokens: int
    cached_tokens: int = 0
    written_tokens: int = 0
    missed_tokens: int = 0
    price: float | None = None

    @property
    def plain_tokens(self) -> int:
        """Tokens that were neither read from the cache nor written to it."""
        return self.tokens - self.cached_tokens - self.written_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The parts of one request, with their tokens and prices.

    Args:
        segments: their `tokens` sum to `input_tokens`.
        measured: whether the provider reported its token count; else all numbers are estimates, without a price.
        doubtful: the reported count is far from any estimate, so it can't be the whole request.
        estimated_tokens: the upper estimate of the whole; `certified_tokens` is the corrected one.
        prefix_seq, prefix_reason: the prefix, and why it was written.
        nodes: the handles of the summaries in view; `stubs`: row -> how many characters of it are shown.
        message_count: rows in view, including the engine's own.
        digest: of the canonical form, as recorded; empty for a step of an older store, which recorded none.
        price: US dollars for input and output; None: unknown.
        redacted: a text was erased from the store after the request was sent, and reads "[redacted]" in it.
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
    redacted: bool = False

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
        """The cache's share of the input, from 0 to 1; None without a measurement."""
        return self.cached_tokens / self.input_tokens if self.measured and self.input_tokens else None

    @property
    def price(self) -> float | None:
        return sum_known([self.input_price, self.output_price])


def explain(step: Step, view: View, *, prices: Prices | None = None, counter: TokenCounter) -> Explanation:
    """Explain a step's request, part by part.

    A provider reports sums. The tokens that it read from its cache are the beginning of the request, and those it wrote
    follow, so the sums are divided in that order.

    Args:
        view: the view of the step's recipe (`engine.run.request.load_view`).
        prices: of the step's model; None: unknown.
    """
    recipe, usage, prices = step.recipe, step.usage, prices or Prices()
    parts = segments(view, stubs=recipe.stubs, status=recipe.tail, run_seq=step.run_seq, counter=counter)
    estimated_tokens = recipe.tokens or sum(part.tokens for part in parts)
    certified_tokens = estimated_tokens - recipe.overcount
    measured = usage.input_tokens > 0
    uses = divide_use(parts, usage, certified_tokens=certified_tokens, prices=prices)
    used = usage.input_tokens
    return Explanation(
        step_id=step.id,
        model=step.model,
        status=step.status,
        created_at=step.created_at,
        segments=uses,
        measured=measured,
        doubtful=measured and measure_overcount(estimated_tokens, used, window_tokens=used) is None,
        estimated_tokens=estimated_tokens,
        certified_tokens=certified_tokens,
        usage=usage,
        prefix_seq=view.prefix.seq,
        prefix_reason=view.prefix.reason,
        nodes=tuple(map(node_handle, view.prefix.nodes)),
        stubs=dict(recipe.stubs),
        message_count=len(view.pinned) + len(view.rows),
        digest=recipe.digest,
        input_price=sum_known(use.price for use in uses),
        output_price=_price(usage.output_tokens, prices.output) if measured else None,
    )


def divide_use(
    parts: Sequence[Segment], usage: Usage, *, certified_tokens: int, prices: Prices, sent_before: int = 0
) -> tuple[SegmentUse, ...]:
    """Divide a request's tokens and cache use over its parts; `certified_tokens`, the corrected estimate, where the
    provider reported nothing. `sent_before`: the tokens of the request before it; those not read from the cache are
    missed."""
    measured = usage.input_tokens > 0
    tokens = share_out([part.tokens for part in parts], usage.input_tokens if measured else certified_tokens)
    cached, written = _cache_tokens(usage) if measured else (0, 0)
    repeated = sent_before if measured else 0
    uses: list[SegmentUse] = []
    start = 0
    for part, count in zip(parts, tokens, strict=True):
        end = start + count
        part_cached = _overlap(start, end, 0, cached)
        part_written = _overlap(start, end, cached, cached + written)
        plain = count - part_cached - part_written
        uses.append(
            SegmentUse(
                name=part.name,
                estimated_tokens=part.tokens,
                tokens=count,
                cached_tokens=part_cached,
                written_tokens=part_written,
                missed_tokens=_overlap(start, end, cached, repeated),
                price=prices.input_price(plain=plain, cached=part_cached, written=part_written) if measured else None,
            )
        )
        start = end
    return tuple(uses)


def _overlap(start: int, end: int, first: int, last: int) -> int:
    """Return how many numbers are in both ranges; ends are not included."""
    return max(0, min(end, last) - max(start, first))


def share_out(amounts: Sequence[int], total: int) -> list[int]:
    """Divide `total` in proportion to the amounts into whole numbers with that sum, by largest remainders."""
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
    """The difference of two requests, line by line of their canonical forms.

    Args:
        first_line: the number, from 1, of the first different line; None: they are the same.
        place: a few words about that line of the second request, or of the first if the second is shorter.
        shared_lines, shared_bytes: the length of the common beginning, which a provider's cache can serve.
        lines, total_bytes: of the first and of the second.
        text: the lines of a unified diff, long ones shortened around the change. Its last line says so if there are too
            many. Where a diff would take long, lines are compared one by one, and the text says so.
    """

    first_line: int | None
    place: str
    shared_lines: int
    shared_bytes: int
    lines: tuple[int, int]
    total_bytes: tuple[int, int]
    text: tuple[str, ...]


def diff(a: ModelRequest, b: ModelRequest) -> RequestDiff:
    """Return how request `b` differs from `a`. It may take half a second, too long for the event loop."""
    old, new = _canonical_lines(a), _canonical_lines(b)
    common = _common_length(old, new)
    same = common == len(old) == len(new)
    common_bytes, extra_bytes = sum(map(_size, old[:common])), 0
    if common < min(len(old), len(new)):
        extra_bytes = _common_length(_bytes(old[common]), _bytes(new[common]))
    place_lines = new if common < len(new) else old
    return RequestDiff(
        first_line=None if same else common + 1,
        place="" if same else _describe_position(place_lines, common),
        shared_lines=common,
        shared_bytes=common_bytes + extra_bytes,
        lines=(len(old), len(new)),
        total_bytes=(sum(map(_size, old)), sum(map(_size, new))),
        text=tuple(_limit_lines(_diff_lines(list(old), list(new), common, _DiffBudget()))),
    )


def _canonical_lines(request: ModelRequest) -> list[str]:
    """Return the lines of a request's canonical form, without their ends."""
    return canonical(request).decode("utf-8", "surrogatepass").split("\n")[:-1]


def _bytes(line: str) -> bytes:
    return line.encode("utf-8", "surrogatepass")


def _size(line: str) -> int:
    """Return a line's bytes in the canonical form, with its end."""
    return len(_bytes(line)) + 1


def _common_length(old: Sequence[object], new: Sequence[object]) -> int:
    """Return how many elements at their beginning two sequences have in common."""
    return next((i for i, (x, y) in enumerate(zip(old, new, strict=False)) if x != y), min(len(old), len(new)))


def _describe_position(lines: Sequence[str], index: int) -> str:
    """Return a short description of where a line of the canonical request stands."""
    line = lines[index]
    names = (
        ('{"tool":', "a tool"),
        ('{"system":', "the system text"),
        ('{"opening":', "the opening"),
        (_TAIL, "the status"),
    )
    for begin, name in names:
        if line.startswith(begin):
            return name
    first = next((i for i, other in enumerate(lines) if other.startswith('{"role":')), 0)
    role, kind = line.split('"', 8)[3:8:4] if line.startswith('{"role":"') else ("?", "?")
    return f"message {index - first + 1} ({role if kind == 'message' else kind})"


class _DiffBudget:
    """The comparisons that one diff may still make, counted as in `diff_steps`."""

    def __init__(self) -> None:
        self.left = 2 * DIFF_STEPS

    def opcodes(self, old: Sequence[str], new: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]] | None:
        """Return `difflib`'s opcodes; None: they could take too long."""
        needed = diff_steps(old, new)
        if needed > self.left:
            return None
        self.left -= needed
        return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _limit_lines(lines: Iterator[str]) -> Iterator[str]:
    """Yield the first lines, and a note if there are more."""
    yield from itertools.islice(lines, DIFF_LINES)
    if next(lines, None) is not None:
        yield f"… more than {DIFF_LINES:,} lines …"


def _diff_lines(old: list[str], new: list[str], common: int, steps: _DiffBudget) -> Iterator[str]:
    """Yield the changed lines with one unchanged line before and after, each shortened."""
    tails = tuple(lines.pop() if lines[-1].startswith(_TAIL) else "" for lines in (old, new))
    end = min(_common_length(old[common:][::-1], new[common:][::-1]), min(len(old), len(new)) - common)
    # Most lines are equal at both ends, so only the middle is compared.
    middle = (old[common : len(old) - end], new[common : len(new) - end])
    if any(middle):
        yield f"@@ line {common + 1} @@"
        if common:
            yield f"  {_short(old[common - 1])}"
        yield from _line_changes(*middle, steps)
        if end:
            yield f"  {_short(new[len(new) - end])}"
    if tails[0] != tails[1]:
        yield "@@ status @@"
        yield from _diff_line(tails[0], tails[1], steps)


def _line_changes(old: Sequence[str], new: Sequence[str], steps: _DiffBudget) -> Iterator[str]:
    """Yield the changes between two lists of lines, one line of the diff each."""
    opcodes = steps.opcodes(old, new)
    if opcodes is None:
        yield "… too many lines were moved or are repeated: they are compared one by one …"
        opcodes = [("replace", 0, len(old), 0, len(new))]
    for tag, i1, i2, j1, j2 in opcodes:
        old_lines, new_lines = old[i1:i2], new[j1:j2]
        if tag == "equal":
            yield from _shorten_equal(old_lines)
            continue
        pairs = min(len(old_lines), len(new_lines)) if tag == "replace" else 0
        for before, after in zip(old_lines[:pairs], new_lines[:pairs], strict=True):
            yield from _diff_line(before, after, steps)
        yield from (f"- {_short(line)}" for line in old_lines[pairs:])
        yield from (f"+ {_short(line)}" for line in new_lines[pairs:])


def _shorten_equal(lines: Sequence[str]) -> Iterator[str]:
    """Yield the first and last of the equal lines between two changes."""
    if len(lines) <= 3:
        yield from (f"  {_short(line)}" for line in lines)
        return
    yield f"  {_short(lines[0])}"
    yield f"  … {len(lines) - 2:,} equal lines …"
    yield f"  {_short(lines[-1])}"


def _diff_line(before: str, after: str, steps: _DiffBudget) -> Iterator[str]:
    """Yield a changed line before and after, shortened around each change.

    A system text is one line, with `\\n` for its own line ends: only its different lines are shown.
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
        old_text, new_text = _around(r"\n".join(old[i1:i2]), r"\n".join(new[j1:j2]))
        before_mark = "…" if i1 else ""
        after_mark = "…" if i2 < len(old) else ""
        if i1 < i2:
            yield f"- {before_mark}{old_text or '(an empty line)'}{after_mark}"
        if j1 < j2:
            yield f"+ {before_mark}{new_text or '(an empty line)'}{after_mark}"


def _around(old: str, new: str) -> tuple[str, str]:
    """Cut both texts to a little before the first difference and a little after the last."""
    if max(len(old), len(new)) <= LINE_CHARS:
        return old, new
    begin = _common_length(old, new)
    end = _common_length(old[begin:][::-1], new[begin:][::-1])
    cut = max(0, begin - AROUND_CHARS)
    return _cut(old, cut, begin, end), _cut(new, cut, begin, end)


def _cut(text: str, cut: int, begin: int, end: int) -> str:
    """Cut a text to the change between `begin` and the last `end` characters, from `cut` on; both ends shortened."""
    change, after = text[begin : len(text) - end], text[len(text) - end :]
    head, tail = "…" if cut else "", "…" if len(after) > AROUND_CHARS else ""
    return f"{head}{text[cut:begin]}{_short(change)}{after[:AROUND_CHARS]}{tail}"


def _short(line: str) -> str:
    """Return the line, without its middle if it is long."""
    if len(line) <= LINE_CHARS:
        return line
    half = LINE_CHARS // 2
    return f"{line[:half]} … {len(line) - 2 * half:,} characters … {line[-half:]}"


def _cache_tokens(usage: Usage) -> tuple[int, int]:
    """Return the tokens read from the cache and written to it, at most the input: some providers count them apart."""
    cached = min(usage.cached_input_tokens, usage.input_tokens)
    return cached, min(usage.cache_write_tokens, usage.input_tokens - cached)


def _price(tokens: int, dollars: float | None) -> float | None:
    """Return the dollars for these tokens; 0 for none, whatever the price."""
    if not tokens:
        return 0.0
    return None if dollars is None else tokens * dollars / MILLION


def sum_known(prices: Iterable[float | None]) -> float | None:
    """Return the sum of prices; None if one is unknown."""
    prices = list(prices)
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None
