"""The answer of a conversation's costs, as `CostLedger.to_dict` has it: tokens, and US dollars or null."""

from __future__ import annotations

from typing_extensions import TypedDict


class PartCostShape(TypedDict):
    """One part of a request, or of all."""

    name: str
    estimated_tokens: int
    tokens: int
    cached_tokens: int
    written_tokens: int
    missed_tokens: int
    price: float | None


class PrefixChangeShape(TypedDict):
    """One difference between a prefix and the one before it."""

    what: str
    name: str
    change: str
    by: str


class RewriteShape(TypedDict):
    """A new prefix, and why it was written."""

    prefix_seq: int
    reason: str
    changes: list[PrefixChangeShape]


class RequestCostShape(TypedDict):
    """What one model call cost."""

    step_id: str
    run_id: str
    created_at: str
    model: str
    status: str
    measured: bool
    input_tokens: int
    cached_tokens: int
    written_tokens: int
    plain_tokens: int
    missed_tokens: int
    miss_reason: str | None
    output_tokens: int
    input_price: float | None
    output_price: float | None
    price: float | None
    uncached_price: float | None
    rewrites: list[RewriteShape]
    parts: list[PartCostShape]


class SummaryCostShape(TypedDict):
    """What one summary cost."""

    handle: str
    created_at: str
    model: str | None
    made_by: str
    level: int
    message_count: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    price: float | None


class CostTotalsShape(TypedDict):
    """The sums of requests and summaries."""

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
    rewrites: dict[str, int]
    hit_rate: float


class CostsShape(TypedDict):
    """What a conversation costs."""

    conversation_id: str
    requests: list[RequestCostShape]
    summaries: list[SummaryCostShape]
    parts: list[PartCostShape]
    totals: CostTotalsShape
    left_out: int
