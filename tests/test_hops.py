"""How many functions and files a message passes: it only goes down."""

from __future__ import annotations

from pathlib import Path

from benchmarks.call_trace import trace_paths

MOST = {
    "HTTP message until the model is called": (208, 66),
    "memory_insert until the next request": (299, 75),
    "archival_memory_search until the next request": (372, 87),
}
"""Functions and files. Whoever needs fewer lowers the number; nobody raises one."""


async def test_a_message_passes_no_more_functions_than_before(tmp_path: Path) -> None:
    """A capability that an agent does not use adds none to its messages."""
    traces = {trace.name: (len(trace.functions), len(trace.files)) for trace in await trace_paths(tmp_path)}

    assert traces.keys() == MOST.keys()
    assert {name: it for name, it in traces.items() if it[0] > MOST[name][0] or it[1] > MOST[name][1]} == {}
