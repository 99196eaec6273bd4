"""The ledger of a conversation: each request and summary with its tokens, cache use and price, and what broke a prefix.

Pure functions of what is stored. A provider reports sums for a request; they are divided over its parts in the order of
the request, as `explain` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from perdure.context.request.explain import Prices, SegmentUse, divide_use
from perdure.context.window.budget import Segment
from perdure.context.window.economics import COLD_AFTER
from perdure.core.ids import ConversationId, RunId, StepId
from perdure.core.nodes import MadeBy, SummaryNode, node_handle
from perdure.core.runs import PrefixChange, Step, StepStatus
from perdure.core.text.reprs import short_repr

REASONS: Mapping[str, str] = {
    "first": "the conversation's first request",
    "import": "history was imported that the window has no room for",
    "settings": "the agent changed",
    "window": "the window was full",
    "summary": "a message behind a summary was changed, so the summary was written again",
    "engine": "the agent's context engine made the view smaller",
    "pays": "prepared summaries save more than a new prefix costs",
    "manual": "a client asked for compaction",
    "tools": "the caller brought other tools or skills along",
    "reset": "the conversation was reset",
    "autoclear": "each request begins with an empty view",
    "marker": "the engine's messages had no marker yet",
    "cache_cold": "the provider's cache had run out",
    "fork": "a fork begins with the summaries of its origin",
    "recompile": "a client asked for a new system prompt",
}
"""Reason code of a new prefix -> words."""

MissReason = Literal["prefix", "idle", "model", "provider"]
"""Why tokens were not read from the cache that the request before had sent: the prefix is another one; the conversation
rested longer than providers keep a prefix; another model; or the provider did not find them, or has no cache."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A new prefix: its number, the reason code, and what is different from the one before."""

    prefix_seq: int
    reason: str
    changes: tuple[PrefixChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCost:
    """What one model call cost.

    Args:
        parts: of the request, in its order; their tokens sum to `input_tokens`.
        measured: whether the provider reported tokens; else `parts` are estimates without a price.
        rewrites: the prefixes that are new since the request before, oldest first.
        miss_reason: why some tokens were missed; None: none were.
        input_price, output_price: US dollars; None: unknown.
        uncached_price: of the input, if the provider had no cache.
    """

    __repr__ = short_repr("step_id", "input_tokens", "cached_tokens", "price", "rewrites")

    step_id: StepId
    run_id: RunId
    created_at: datetime
    model: str
    status: StepStatus
    parts: tuple[SegmentUse, ...]
    measured: bool
    output_tokens: int
    rewrites: tuple[Rewrite, ...]
    miss_reason: MissReason | None
    input_price: float | None
    output_price: float | None
    uncached_price: float | None

    @property
    def input_tokens(self) -> int:
        return sum(part.tokens for part in self.parts)

    @property
    def cached_tokens(self) -> int:
        """Tokens read from the provider's cache."""
        return sum(part.cached_tokens for part in self.parts)

    @property
    def written_tokens(self) -> int:
        """Tokens written to the provider's cache."""
        return sum(part.written_tokens for part in self.parts)

    @property
    def missed_tokens(self) -> int:
        """Tokens that the request before had sent, or others in their place, that were not read from the cache."""
        return sum(part.missed_tokens for part in self.parts)

    @property
    def plain_tokens(self) -> int:
        """Tokens that were neither read from the cache nor written to it."""
        return self.input_tokens - self.cached_tokens - self.written_tokens

    @property
    def price(self) -> float | None:
        """US dollars for input and output; None: unknown."""
        return _sum([self.input_price, self.output_price])


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryCost:
    """What one summary cost: a call of its model, or nothing if code made it."""

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

    @property
    def hit_rate(self) -> float:
        """The cache's share of the input, from 0 to 1."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLedger:
    """The requests and summaries of a conversation, oldest first.

    Args:
        left_out: how many older requests are not listed; the summaries before the first one listed are not either.
    """

    __repr__ = short_repr("conversation_id", "totals")

    conversation_id: ConversationId
    requests: tuple[RequestCost, ...]
    summaries: tuple[SummaryCost, ...]
    left_out: int = 0

    @property
    def totals(self) -> CostTotals:
        """The sums of what is listed."""
        requests, summaries = self.requests, self.summaries
        measured = [request for request in requests if request.measured]
        request_price = _sum([request.price for request in measured])
        summary_price = _sum([summary.price for summary in summaries])
        uncached = _sum([price for one in measured for price in (one.uncached_price, one.output_price)])
        codes = [rewrite.reason for request in requests for rewrite in request.rewrites]
        return CostTotals(
            requests=len(requests),
            summaries=len(summaries),
            input_tokens=sum(request.input_tokens for request in requests),
            cached_tokens=sum(request.cached_tokens for request in requests),
            written_tokens=sum(request.written_tokens for request in requests),
            missed_tokens=sum(request.missed_tokens for request in requests),
            output_tokens=sum(request.output_tokens for request in requests),
            summary_tokens=sum(summary.input_tokens + summary.output_tokens for summary in summaries),
            request_price=request_price if measured else None,
            summary_price=summary_price,
            price=_sum([request_price, summary_price]) if measured else None,
            uncached_price=_sum([uncached, summary_price]) if measured else None,
            rewrites={code: codes.count(code) for code in dict.fromkeys(codes)},
        )

    @property
    def parts(self) -> tuple[SegmentUse, ...]:
        """The sums of each part over all requests, in the order of a request."""
        names = list(dict.fromkeys(part.name for request in self.requests for part in request.parts))
        sums: list[SegmentUse] = []
        for name in names:
            uses = [(request, part) for request in self.requests for part in request.parts if part.name == name]
            prices = [part.price for request, part in uses if request.measured]
            sums.append(
                SegmentUse(
                    name=name,
                    estimated_tokens=sum(part.estimated_tokens for _, part in uses),
                    tokens=sum(part.tokens for _, part in uses),
                    cached_tokens=sum(part.cached_tokens for _, part in uses),
                    written_tokens=sum(part.written_tokens for _, part in uses),
                    missed_tokens=sum(part.missed_tokens for _, part in uses),
                    price=_sum(prices) if prices else None,
                )
            )
        return tuple(sums)

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger as JSON has it: tokens, and US dollars, where null means unknown."""
        totals = self.totals
        return {
            "conversation_id": self.conversation_id,
            "requests": [_request_shape(request) for request in self.requests],
            "summaries": [
                asdict(summary) | {"created_at": summary.created_at.isoformat()} for summary in self.summaries
            ],
            "parts": [asdict(part) for part in self.parts],
            "totals": asdict(totals) | {"hit_rate": totals.hit_rate},
            "left_out": self.left_out,
        }


def _request_shape(request: RequestCost) -> dict[str, Any]:
    return {
        "step_id": request.step_id,
        "run_id": request.run_id,
        "created_at": request.created_at.isoformat(),
        "model": request.model,
        "status": request.status,
        "measured": request.measured,
        "input_tokens": request.input_tokens,
        "cached_tokens": request.cached_tokens,
        "written_tokens": request.written_tokens,
        "plain_tokens": request.plain_tokens,
        "missed_tokens": request.missed_tokens,
        "miss_reason": request.miss_reason,
        "output_tokens": request.output_tokens,
        "input_price": request.input_price,
        "output_price": request.output_price,
        "price": request.price,
        "uncached_price": request.uncached_price,
        "rewrites": [asdict(rewrite) for rewrite in request.rewrites],
        "parts": [asdict(part) for part in request.parts],
    }


def request_cost(
    step: Step,
    run_id: RunId,
    segments: Sequence[Segment],
    *,
    before: RequestCost | None,
    rewrites: Sequence[Rewrite],
    prices: Prices,
) -> RequestCost:
    """Return what a step cost.

    Args:
        segments: of its request, with their estimates.
        before: the request before it in the conversation; None: it is the first.
        rewrites: the prefixes that are new since then.
    """
    usage, recipe = step.usage, step.recipe
    certified = (recipe.tokens or sum(segment.tokens for segment in segments)) - recipe.overcount
    measured = usage.input_tokens > 0
    sent_before = 0 if before is None else sum(part.tokens for part in before.parts if part.name not in _TAIL)
    parts = divide_use(segments, usage, certified_tokens=certified, prices=prices, sent_before=sent_before)
    missed = sum(part.missed_tokens for part in parts)
    plain = prices.input_price(plain=usage.input_tokens, cached=0, written=0)
    output = prices.price(usage)
    input_price = _sum([part.price for part in parts]) if measured else None
    return RequestCost(
        step_id=step.id,
        run_id=run_id,
        created_at=step.created_at,
        model=step.model,
        status=step.status,
        parts=parts,
        measured=measured,
        output_tokens=usage.output_tokens,
        rewrites=tuple(rewrites),
        miss_reason=_miss_reason(step, before, rewrites) if missed and before is not None else None,
        input_price=input_price,
        output_price=None if output is None or input_price is None else output - input_price,
        uncached_price=plain if measured else None,
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


def _sum(prices: Sequence[float | None]) -> float | None:
    """Return the sum of prices; None if one is unknown."""
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None
