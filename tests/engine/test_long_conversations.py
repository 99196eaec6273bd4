"""Conversations much longer than their window, and what a provider's cache serves of their requests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.cache_cost import cache_cost
from benchmarks.long_conversation import long_conversation
from tests.support.real_tokens import real_tokens, tokens_of_request

TURNS = 60 if os.environ.get("PERDURE_FAULTS") == "full" else 24


@pytest.mark.slow
def test_facts_of_long_ago_are_found_through_handles(tmp_path: Path) -> None:
    """By their words, and by opening node after node down to the message; and no request was ever too large."""
    came = long_conversation(tmp_path, messages=400, weigh=tokens_of_request)

    assert came.found == came.facts > 7
    assert came.most_calls <= 4
    assert came.too_large == 0


@pytest.mark.slow
async def test_a_provider_s_cache_serves_nearly_all_of_what_is_sent() -> None:
    """Turns of 4 calls, captured at an HTTP model: each request begins with the one before it but where a rewrite
    with a reason is recorded, and costs a seventh of what it would without a cache."""
    came = await cache_cost(real_tokens, turns=TURNS)

    assert came.compactions > 2
    assert came.unexplained == 0
    assert came.largest <= 100_000
    assert came.hit_rate >= 0.965
    assert came.cost <= 0.14
