"""Companions are a feature: who asks for one where it is missing is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import AsyncPerdure, InvalidInput
from perdure.core.agents import AgentFilter
from perdure.library.agents.agents import SET_COMPANION


async def test_no_agent_is_made_without_the_companion_that_it_should_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is half done: the agent is not there either."""
    monkeypatch.setitem(vars(SET_COMPANION), "functions", ())
    async with await AsyncPerdure.open(tmp_path / "a.db") as library:
        with pytest.raises(InvalidInput, match="no companions: create the agent without one"):
            await library.create_agent("Ada", sleeptime=True)

        assert await library.all_agents.count(AgentFilter()) == 0
        assert (await library.create_agent("Ada")).name == "Ada"
