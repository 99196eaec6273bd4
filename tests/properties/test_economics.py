"""What conversations cost by the product's rule, summaries included, against two simpler ones; simulated."""

from __future__ import annotations

import functools
import os

import pytest

from tests.support.cost_simulation import Bill, Policy, random_trace, simulate, total

TRACES = 2_000 if os.environ.get("PERDURE_FAULTS") == "full" else 30
POLICIES: tuple[Policy, ...] = ("product", "when full", "at 75 %")


@functools.cache
def bills() -> dict[Policy, list[Bill]]:
    """The bill of each trace by each policy."""
    traces = [random_trace(seed) for seed in range(TRACES)]
    return {policy: [simulate(trace, policy) for trace in traces] for policy in POLICIES}


@pytest.mark.slow
def test_all_conversations_together_cost_at_most_what_the_better_simple_rule_costs() -> None:
    """Compacting only when the window is full, or always at three quarters of it."""
    product, when_full, always = (total(bills()[policy]) for policy in POLICIES)

    assert product <= min(when_full, always)


def test_no_conversation_costs_much_more_than_by_the_rule_that_suits_it_best() -> None:
    """At most a quarter more, and the price of writing one prefix to the cache."""
    dear: list[tuple[int, float]] = []
    for seed, (product, when_full, always) in enumerate(zip(*(bills()[policy] for policy in POLICIES), strict=True)):
        better = min(when_full.total, always.total)
        if product.total > 1.25 * better + product.prefix_write:
            dear.append((seed, product.total / better))

    assert dear == []


def test_summaries_are_ready_more_often_than_not() -> None:
    """Few runs wait for a summary, of those that do where nothing is prepared."""
    product, when_full, _ = (sum(bill.waits for bill in bills()[policy]) for policy in POLICIES)

    assert product < when_full / 3


def test_the_simulated_windows_fill() -> None:
    """Traces of all kinds: some never fill the window, others fill it often; the cache expires in some."""
    reasons = {reason for bill in bills()["product"] for reason in bill.rewrites}

    assert {"window", "cache_cold"} <= reasons
    assert any(not bill.rewrites for bill in bills()["when full"])
    assert any(bill.rewrites.get("window", 0) > 3 for bill in bills()["when full"])
