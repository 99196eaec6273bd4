"""Threads of users' functions at the end of the process."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure.core.tools.threads import run_in_own_thread, wait_for_functions


async def start(end: threading.Event, steps: list[str]) -> None:
    """Start a function that ends with the event, and give it up."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        end.wait(20)
        steps.append("done")

    task = asyncio.create_task(run_in_own_thread(work))
    await begun.wait()
    task.cancel()


@pytest.mark.parametrize(("grace_s", "ends_after_s"), [(20.0, 0.05), (0.05, None)])
def test_the_end_waits_for_functions_a_limited_time(
    monkeypatch: pytest.MonkeyPatch, grace_s: float, ends_after_s: float | None
) -> None:
    """One that is about to end does its work; one that never ends does not keep the process."""
    monkeypatch.setattr("perdure.core.tools.threads.GRACE_S", grace_s)
    end, steps = threading.Event(), list[str]()
    asyncio.run(start(end, steps))
    if ends_after_s is not None:
        threading.Timer(ends_after_s, end.set).start()
    wait_for_functions()

    assert steps == ([] if ends_after_s is None else ["done"])
    end.set()
