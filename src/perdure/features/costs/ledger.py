"""The ledger of a conversation: each request and summary with its tokens, cache use and price, and what broke a prefix.

Pure functions of what is stored. A provider reports sums for a request; they are divided over its parts in the order of
the request, as `explain` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from perdure.context.request.explain import Prices, SegmentUse, divide_use, sum_known
from perdure.context.window.budget import Segment, SegmentName
from perdure.context.window.leaves import COLD_AFTER
from perdure.core.ids import ConversationId, RunId, StepId
from perdure.core.nodes import MadeBy, SummaryNode, node_handle
from perdure.core.runs import PrefixChange, Step, StepStatus
from perdure.core.text.reprs import short_repr

MissReason = Literal["prefix", "idle", "model", "provider"]
"""Why tokens were not read from the cache that the request before had sent: the prefix is another one; the conversation
rested longer than providers keep a prefix; another model; or the provider did not find them, or has no cache."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewritten prefix: its number, the code of the reason, and the differences from the one before."""

    prefix_seq: int
    reason: str
    changes: tuple[PrefixChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCost:
    """What one model call cost.

    Args:
        measured: whether the provider reported tokens; else `parts` are estimates without a price.
        cached_tokens, written_tokens: read from the provider's cache, and written to it; `plain_tokens` are neither.
        missed_tokens: those in the place of tokens of the request before that were not read from the cache;
            `miss_reason`: why, None: there are none, or it is the first request.
        price: US dollars for input and output; None: unknown. `uncached_price`: of the input, if the provider had no
            cache.
        rewrites: the prefixes that are new since the request before, oldest first.
        parts: what the request consists of, in its order; their tokens sum to `input_tokens`.
    """

    __repr__ = short_repr("step_id", "input_tokens", "cached_tokens", "price", "rewrites")

    step_id: StepId
    run_id: RunId
    created_at: datetime
    model: str
    status: StepStatus
    measured: bool
    input_tokens: int
    cached_tokens: int
    written_tokens: int
    plain_tokens: int
    missed_tokens: int
    miss_reason: MissReason | None
    output_tokens: int
    input_price: float | None
    output_price: float | None
    price: float | None
    uncached_price: float | None
    rewrites: tuple[Rewrite, ...]
    parts: tuple[SegmentUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryCost:
    """What one summary cost: a call of its model, or nothing if code made it; `handle` is its short id."""

    __repr__ = short_repr("handle", "input_tokens", "price")

    handle: str
    created_at: datetime
    model: str | None
    made_by: MadeBy
    level: int
    message_count: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    price: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTotals:
    """The sums of a ledger.

    Args:
        price: of requests and summaries in US dollars; None: a price is unknown.
        uncached_price: the same without the provider's cache.
        rewrites: reason code -> how many new prefixes it made.
        hit_rate: the cache's share of the input, from 0 to 1.
    """

    requests: int
    summaries: int
    input_tokens: int
    cached_tokens: int
    written_tokens: int
    missed_tokens: int
    output_tokens: int
    summary_tokens: int
    request_price: float | None
    summary_price: float | None
    price: float | None
    uncached_price: float | None
    rewrites: Mapping[str, int]
    hit_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLedger:
    """The requests and summaries of a conversation, oldest first.

    Args:
        parts: the sums of each part over all requests.
        left_out: how many older requests are not listed; the summaries before the first one listed are not either.
    """

    __repr__ = short_repr("conversation_id", "totals")

    conversation_id: ConversationId
    requests: tuple[RequestCost, ...]
    summaries: tuple[SummaryCost, ...]
    parts: tuple[SegmentUse, ...]
    totals: CostTotals
    left_out: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger as JSON has it: tokens, and US dollars, where null means unknown."""

        return asdict(
            self, dict_factory=lambda pairs: {k: v.isoformat() if isinstance(v, datetime) else v for k, v in pairs}
        )


def build_ledger(
    conversation_id: ConversationId,
    requests: Sequence[RequestCost],
    summaries: Sequence[SummaryCost],
    *,
    left_out: int = 0,
) -> CostLedger:
    """Return the ledger of these requests and summaries, with their sums."""
    return CostLedger(
        conversation_id=conversation_id,
        requests=tuple(requests),
        summaries=tuple(summaries),
        parts=_part_sums(requests),
        totals=_totals(requests, summaries),
        left_out=left_out,
    )


_AMOUNTS = ("cached_tokens", "written_tokens", "missed_tokens")


def _sums(uses: Sequence[RequestCost | SegmentUse], *more: str) -> dict[str, int]:
    """Return the sums of `_AMOUNTS` and of these other fields."""
    return {name: sum(getattr(use, name) for use in uses) for name in (*more, *_AMOUNTS)}


def _totals(requests: Sequence[RequestCost], summaries: Sequence[SummaryCost]) -> CostTotals:
    measured = [request for request in requests if request.measured]
    request_price = sum_known([request.price for request in measured])
    summary_price = sum_known([summary.price for summary in summaries])
    uncached = sum_known([price for one in measured for price in (one.uncached_price, one.output_price)])
    codes = [rewrite.reason for request in requests for rewrite in request.rewrites]
    amounts = _sums(requests, "input_tokens", "output_tokens")
    return CostTotals(
        requests=len(requests),
        summaries=len(summaries),
        **amounts,
        summary_tokens=sum(summary.input_tokens + summary.output_tokens for summary in summaries),
        request_price=request_price if measured else None,
        summary_price=summary_price,
        price=sum_known([request_price, summary_price]) if measured else None,
        uncached_price=sum_known([uncached, summary_price]) if measured else None,
        rewrites={code: codes.count(code) for code in dict.fromkeys(codes)},
        hit_rate=amounts["cached_tokens"] / amounts["input_tokens"] if amounts["input_tokens"] else 0.0,
    )


def _part_sums(requests: Sequence[RequestCost]) -> tuple[SegmentUse, ...]:
    """Return the sums of each part over all requests, in the order of a request."""
    uses: dict[SegmentName, list[tuple[bool, SegmentUse]]] = {}
    for request in requests:
        for part in request.parts:
            uses.setdefault(part.name, []).append((request.measured, part))
    sums: list[SegmentUse] = []
    for name, parts in uses.items():
        prices = [part.price for measured, part in parts if measured]
        amounts = _sums([part for _, part in parts], "estimated_tokens", "tokens")
        sums.append(SegmentUse(name=name, price=sum_known(prices) if prices else None, **amounts))
    return tuple(sums)


def request_cost(
    step: Step,
    run_id: RunId,
    segments: Sequence[Segment],
    *,
    before: RequestCost | None,
    rewrites: Sequence[Rewrite],
    prices: Prices,
) -> RequestCost:
    """Return the cost of a step's model call. `segments`: the parts of its request in order, with estimated tokens;
    `before`: the conversation's former request, if any; `rewrites`: the prefixes that are new since then."""
    usage, recipe = step.usage, step.recipe
    certified = (recipe.tokens or sum(segment.tokens for segment in segments)) - recipe.overcount
    measured = usage.input_tokens > 0
    sent_before = 0 if before is None else sum(part.tokens for part in before.parts if part.name not in _TAIL)
    parts = divide_use(segments, usage, certified_tokens=certified, prices=prices, sent_before=sent_before)
    amounts = _sums(parts, "plain_tokens")
    plain = prices.input_price(plain=usage.input_tokens, cached=0, written=0)
    price = prices.price(usage)
    input_price = sum_known([part.price for part in parts]) if measured else None
    output_price = None if price is None or input_price is None else price - input_price
    return RequestCost(
        step_id=step.id,
        run_id=run_id,
        created_at=step.created_at,
        model=step.model,
        status=step.status,
        measured=measured,
        input_tokens=sum(part.tokens for part in parts),
        **amounts,
        miss_reason=_miss_reason(step, before, rewrites) if amounts["missed_tokens"] and before is not None else None,
        output_tokens=usage.output_tokens,
        input_price=input_price,
        output_price=output_price,
        price=sum_known([input_price, output_price]),
        uncached_price=plain if measured else None,
        rewrites=tuple(rewrites),
        parts=parts,
    )


_TAIL = ("status", "recalled")
"""The parts that are never sent twice."""


def _miss_reason(step: Step, before: RequestCost, rewrites: Sequence[Rewrite]) -> MissReason:
    """Return why tokens of the request before were not read from the cache."""
    if before.model != step.model:
        return "model"
    if rewrites:
        return "prefix"
    return "idle" if step.created_at - before.created_at > COLD_AFTER else "provider"


def summary_cost(node: SummaryNode, prices: Prices) -> SummaryCost:
    """Return what a summary cost."""
    usage = node.usage
    is_called = usage.input_tokens > 0 or usage.output_tokens > 0
    return SummaryCost(
        handle=node_handle(node.seq),
        created_at=node.created_at,
        model=node.model if is_called else None,
        made_by=node.made_by,
        level=node.level,
        message_count=node.message_count,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        price=prices.price(usage) if is_called else 0.0,
    )
