"""What ranking costs in whole searches: all that a search does beside the database and the vectors, in CPU.

    python -m benchmarks.ranking_cost locomo.json[.gz] [--words] [--limit 10]

Each conversation of a LoCoMo file becomes the history of an agent, each of its questions a search. Counted are the
names, times and hints in the query, the neighbours that join the candidates, the counting of words, the columns of the
pool, the order, and the thinning of near-duplicates; at once after the query was embedded and the texts were read, so
with caches as cold as they are then. Printed in milliseconds, median and mean of all queries. The data (CC BY-NC 4.0)
is no part of this repository.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import perdure.search.messages as search
from benchmarks.adapters import make_lexical_retriever, make_retriever
from benchmarks.ranking_weights import conversations

__all__ = ["main", "ranking_cost"]

PARTS = ("without_names", "spans", "hints_of", "_with_neighbours", "clause_counts", "_pool", "rank", "merge_duplicates")
WITHIN = {"clause_counts": "_pool"}  # whose time stands in that of another


def ranking_cost(path: Path, *, words: bool, limit: int) -> Mapping[str, list[float]]:
    """Part -> milliseconds of each query, "in all" among them."""
    spent: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    told: dict[str, list[float]] = {name: [] for name in (*PARTS, "in all")}
    plain = {name: getattr(search, name) for name in PARTS}
    for name, function in plain.items():
        setattr(search, name, _timed(name, function, spent))
    try:
        for turns, questions in conversations(path):
            retriever = make_lexical_retriever() if words else make_retriever()
            retriever.index(turns)
            for query in (question.text for question in questions):
                spent.update(dict.fromkeys(PARTS, 0.0))
                retriever.search(query, limit)
                for name, taken in spent.items():
                    told[name].append(taken)
                told["in all"].append(sum(taken for name, taken in spent.items() if name not in WITHIN))
            retriever.close()
    finally:
        for name, function in plain.items():
            setattr(search, name, function)
    return told


def _timed(name: str, function: Callable[..., Any], spent: dict[str, float]) -> Callable[..., Any]:
    clock = time.thread_time_ns

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = clock()
        found = function(*args, **kwargs)
        spent[name] += (clock() - start) / 1e6
        return found

    return timed


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--words", action="store_true", help="without vectors; with them MiniLM's weights are needed")
    parser.add_argument("--limit", type=int, default=10, help="how many hits are asked for")
    arguments = parser.parse_args()
    told = ranking_cost(arguments.data, words=arguments.words, limit=arguments.limit)
    print(f"{'ms a query':<18} median   mean")
    for name, taken in told.items():
        within = f"  (within {WITHIN[name]})" if name in WITHIN else ""
        print(f"{name:<18} {statistics.median(taken):6.3f} {statistics.mean(taken):6.3f}{within}")


if __name__ == "__main__":
    main()
