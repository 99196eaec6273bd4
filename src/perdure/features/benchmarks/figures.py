"""The figures of a run, with intervals of 95 %, as one JSON document."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from random import Random
from statistics import fmean, median
from typing import Any

from perdure.features.benchmarks.judging import JudgedAnswer, f1_of, is_exact
from perdure.features.benchmarks.opening import OF_ENVIRONMENT
from perdure.features.benchmarks.retrieval import recall_of
from perdure.features.benchmarks.running import Benchmark, SystemQuestion
from perdure.features.benchmarks.sets import DATA_SETS
from perdure.features.benchmarks.sets.locomo import EVENTS
from perdure.features.benchmarks.sets.reading import hash_of
from perdure.features.benchmarks.sets.values import ABSTENTION
from perdure.features.benchmarks.systems import texts
from perdure.settings import Settings

APART = (ABSTENTION, EVENTS)
"""Kinds of questions that the figure of all does not contain."""
RESAMPLES, FEW = 1_000, 20
_Z = 1.96


def wilson(right: float, count: int) -> tuple[float, float]:
    """Return the interval of a share by Wilson's score."""
    if not count:
        return 0.0, 1.0
    share, square = right / count, _Z * _Z
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _Z / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval of a mean by samples of the values with replacement, which are always the same."""
    chance = Random(len(values))
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[round(RESAMPLES * 0.025)], means[round(RESAMPLES * 0.975) - 1]


def share_of(scores: Sequence[Sequence[float]]) -> Mapping[str, Any]:
    """Return the mean of the scores of questions, each with one score for a seed, and its interval: Wilson's where each
    question is right or wrong, or there are few; else by bootstrap over questions, as seeds are no new questions."""
    means = [fmean(score) for score in scores]
    plain = len(means) < FEW or all(mean in (0, 1) for mean in means)
    low, high = wilson(sum(means), len(means)) if plain else bootstrap(means)
    return {"questions": len(means), "score": fmean(means), "low": low, "high": high}


def build_result(benchmark: Benchmark) -> dict[str, Any]:
    """Return everything about a run as JSON: the questions, the systems, the wording of prompts, and the results."""
    setup, cases = benchmark.setup, benchmark.cases[1]
    data_set = DATA_SETS[setup.name]
    result: dict[str, Any] = {
        "benchmark": setup.name,
        "title": data_set.title,
        "about": data_set.about,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"perdure": version("perdure"), "python": platform.python_version()},
        "data": {
            "file": "texts made from words" if setup.data is None else setup.data.name,
            "sha256": hash_of(setup.data),
            "cases": len(cases),
            "turns": sum(len(case.turns) for case in cases),
            "questions": len(benchmark.questions),
        },
        "model": setup.model,
        "judge": setup.judge,
        "seeds": setup.seeds,
        "line": setup.line,
        "settings": dict(setup.settings),
        "environment": {name: getattr(Settings.from_environment(), name) for name in OF_ENVIRONMENT},
        "kinds": list(setup.kinds),
        "most": setup.most,
        "search_by": benchmark.search_by,
        "prompts": dict(texts()["prompts"]),
    }
    if not setup.model:
        return result | {"search": [_search_figures(benchmark, name) for name in ("perdure", "bm25")]}
    read = _fact_rows(benchmark)
    if setup.facts:
        result["facts"] = {"facts": sum(row["facts"] for row in read), **_sum_usage(read)}
    asked = list(benchmark.all_questions())
    systems = [_system_figures(benchmark, name, [one for one in asked if one.system == name]) for name in setup.systems]
    return result | {"systems": systems, "judging": _judge_figures(benchmark)}


def _system_figures(benchmark: Benchmark, name: str, asked: Sequence[SystemQuestion]) -> dict[str, Any]:
    """Return the figures of one system: scores by kind, tokens, price, latency, and the cells of a grid."""
    rows = ((one, row) for one in asked if (row := benchmark.rows.find(one.key)) is not None)
    claims = [(one, row, JudgedAnswer(one.question, row["answer"])) for one, row in rows]
    scored = [
        (one, row, 0.0 if "failure" in row else _points(benchmark, claim))
        for one, row, claim in claims
        if "failure" in row or benchmark.is_judged(claim)
    ]
    found = [row for _, row, _ in scored]
    took = _sum_usage([*found, *(_fact_rows(benchmark) if name == "perdure" else ())])
    right, price, tokens = sum(points for *_, points in scored), took["price"], took["tokens"]
    times = [row["latency_s"] for row in found if row["latency_s"] is not None]
    kinds = {
        one.question.kind: [each for each in scored if each[0].question.kind == one.question.kind] for one in asked
    }
    by_kind = dict(sorted(kinds.items(), key=lambda item: (item[0] in APART, item[0])))
    if len(by_kind.keys() - {*APART}) > 1:
        by_kind = {"all": [each for each in scored if each[0].question.kind not in APART], **by_kind}
    return {
        "name": name,
        "about": texts()["systems"][name],
        "kinds": {kind: _kind_figures(each) for kind, each in by_kind.items() if each},
        "answers": len(found),
        "missing": len(asked) - len(found),
        "failed": sum("failure" in row for row in found),
        **took,
        "tokens_per_answer": tokens / max(1, len(found)),
        "price_per_right": price / right if price is not None and right else None,
        "tokens_per_right": tokens / right if right else None,
        "latency_s": _times(times),
        "grid": [[*one.case.place, one.seed, points] for one, _, points in scored if one.case.place is not None],
    }


def _kind_figures(scored: Sequence[tuple[SystemQuestion, Mapping[str, Any], float]]) -> dict[str, Any]:
    """Return the figures of the questions of one kind, by the judge of the run and by words."""
    by_question: dict[str, list[tuple[float, float, float]]] = {}
    for one, row, points in scored:
        by_words = float(is_exact(one.question, row["answer"])), f1_of(one.question, row["answer"])
        by_question.setdefault(one.question.id, []).append((points, *by_words))
    judged, exact, f1 = [[[one[at] for one in each] for each in by_question.values()] for at in range(3)]
    seeds = sorted({one.seed for one, *_ in scored})
    return {
        **share_of(judged),
        "exact": fmean(map(fmean, exact)),
        "f1": fmean(map(fmean, f1)),
        "seeds": [fmean(points for one, _, points in scored if one.seed == seed) for seed in seeds],
    }


def _points(benchmark: Benchmark, claim: JudgedAnswer) -> float:
    """Return the points that the judge gives."""
    judge = benchmark.setup.judge
    if judge == "f1":
        return f1_of(claim.question, claim.answer)
    return float(is_exact(claim.question, claim.answer) if judge == "exact" else benchmark.verdict(claim) is True)


def _judge_figures(benchmark: Benchmark) -> dict[str, Any]:
    """Return how often the judge was right about answers known to be right or wrong, and what its requests cost."""
    claims = [one for one in benchmark.claims() if benchmark.is_judged(one)]
    points = [(one.is_right, _points(benchmark, one)) for one in claims if one.is_right is not None]
    wrong = [one for is_right, one in points if not is_right]
    refused = [1 - one for is_right, one in points if is_right]
    rows = [row for row in {one.key: benchmark.judge_row(one) for one in claims}.values() if row is not None]
    low, high = wilson(sum(wrong), len(wrong))
    return {
        "wrong_answers": len(wrong),
        "taken_for_right": sum(wrong),
        "error_rate": fmean(wrong) if wrong else None,
        "low": low,
        "high": high,
        "right_answers": len(refused),
        "refused_rate": fmean(refused) if refused else None,
        "unclear": sum(benchmark.verdict(claim) is None for claim in claims) if rows else 0,
        **_sum_usage(rows),
    }


def _fact_rows(benchmark: Benchmark) -> Sequence[Mapping[str, Any]]:
    """Return the rows of the histories from which facts were extracted."""
    ids = dict.fromkeys(case.id for cases in benchmark.cases.values() for case in cases)
    return [row for id_ in ids if (row := benchmark.rows.find(f"facts/{id_}")) is not None]


def _sum_usage(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return requests, tokens and price of all rows together; a price of None is not known."""
    prices = [row["price"] for row in rows]
    return {
        "requests": sum(row["steps"] for row in rows),
        "tokens": sum(row["usage"]["input_tokens"] + row["usage"]["output_tokens"] for row in rows),
        "price": None if any(price is None for price in prices) else sum(prices),
    }


def _search_figures(benchmark: Benchmark, name: str) -> dict[str, Any]:
    """Return what one search found."""
    rows = [(one.kind, row) for one in benchmark.questions if (row := benchmark.rows.find(f"search/{name}/{one.id}"))]
    times = [row["latency_s"] for _, row in rows]
    kinds = ["all", *sorted({kind for kind, _ in rows}, key=lambda kind: (kind in APART, kind))]
    groups = {kind: [row for of, row in rows if kind in ("all", of)] for kind in kinds}
    return {
        "name": name,
        "kinds": {kind: {"questions": len(each), **recall_of(each)} for kind, each in groups.items()},
        "latency_s": _times(times),
    }


def _times(times: Sequence[float]) -> Mapping[str, float] | None:
    """Return the median and the 95th percentile of these times; None: there are no times."""
    return {"median": median(times), "p95": sorted(times)[int(len(times) * 0.95)]} if times else None
