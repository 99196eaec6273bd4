"""One event loop in one thread: what becomes of tasks when the loop stops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from perdure.core.errors import StoreError
from perdure.library.parts.portal import Portal


@pytest.fixture
def portal() -> Iterator[Portal]:
    made = Portal()
    yield made
    made.close()


def test_what_still_waits_in_a_loop_that_a_tool_stopped_is_ended(
    portal: Portal, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def other() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("other")

    async def stop() -> None:
        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        asyncio.get_running_loop().stop()
        try:
            await task
        finally:
            ended.append("stopper")
            asyncio.get_running_loop().stop()

    with pytest.raises(StoreError, match="stopped by a tool"):
        portal.run(stop())
    portal.close()
    assert sorted(ended) == ["other", "stopper"]
    gc.collect()  # a task that still waits is complained of when it is destroyed
    assert not [record for record in caplog.records if record.name == "asyncio"]
