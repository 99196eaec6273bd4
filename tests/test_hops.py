"""How many functions and files a message passes: it only goes down."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MOST = {
    "HTTP message until the model is called": (202, 66),
    "memory_insert until the next request": (288, 74),
    "archival_memory_search until the next request": (367, 87),
}
"""Functions and files. Whoever needs fewer lowers the number; nobody raises one."""


@pytest.mark.slow
def test_a_message_passes_no_more_functions_than_before() -> None:
    """A capability that an agent does not use adds none to its messages. In a process of its own: what other tests have
    imported, such as OpenTelemetry, is called too."""
    counts = _count_hops()
    for _ in range(5):  # what is due every few seconds, such as the mark of the newest commit, may fall into a path
        if _more_than_before(counts):
            again = _count_hops()
            counts = {name: min(counts[name], again[name]) for name in MOST}

    assert _more_than_before(counts) == {}


def _count_hops() -> dict[str, tuple[int, int]]:
    """Name of a path -> its functions and files."""
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.call_trace"], cwd=root, capture_output=True, text=True, check=True
    )
    lines = re.findall(r"(.+?) +(\d+) functions +(\d+) files", done.stdout)
    counts = {name: (int(functions), int(files)) for name, functions, files in lines}
    assert counts.keys() == MOST.keys()
    return counts


def _more_than_before(counts: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return {name: it for name, it in counts.items() if it[0] > MOST[name][0] or it[1] > MOST[name][1]}
