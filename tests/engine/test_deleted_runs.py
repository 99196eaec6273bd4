"""Runs whose agent is deleted while they go on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from perdure import NotFound
from perdure.engine.run import loop
from perdure.testing import calls
from tests.support.library import open_async


@pytest.mark.parametrize("phase", ["call_model", "call_tools", "record_request"])
async def test_a_run_that_is_deleted_ends_without_a_defect(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who waits for it is told, in whatever phase it is, and the log has no error."""
    async with await open_async(tmp_path / "a.db", calls("memory_insert", label="human", new_string="x")) as perdure:
        agent = await perdure.create_agent("ann", human="likes tea")
        go_on = getattr(loop, phase)

        async def delete_first(*arguments: Any) -> Any:
            monkeypatch.setattr(loop, phase, go_on)
            await perdure.delete_agent(agent.id)
            return await go_on(*arguments)

        monkeypatch.setattr(loop, phase, delete_first)
        with pytest.raises(NotFound):
            await agent.send("hello")

    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []
