"""Who asks for what a missing feature would do is told so."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure import AsyncPerdure
from perdure.core.agents import AgentFilter
from perdure.core.errors import FeatureMissing
from perdure.domain.agents.units import NewAgent
from perdure.library.agents.agents import SET_BELONGINGS, SET_COMPANION, AgentAttachments
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel
from tests.support.library import MODEL


@pytest.fixture
async def library(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncPerdure]:
    """A store, in a program that lacks the features that agents' belongings are of."""
    for point in (SET_BELONGINGS, SET_COMPANION):
        monkeypatch.setitem(vars(point), "functions", ())
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: ScriptedModel()}, settings=settings
    ) as library:
        yield library


async def test_no_agent_is_made_without_the_companion_that_it_should_get(library: AsyncPerdure) -> None:
    """Nothing is half done: the agent is not there either."""
    with pytest.raises(FeatureMissing, match="lacks its feature `groups`; create it without one"):
        await library.create_agent("Ada", sleeptime=True)

    assert await library.all_agents.count(AgentFilter()) == 0
    assert (await library.create_agent("Ada")).name == "Ada"


async def test_no_agent_is_made_without_the_folders_that_it_should_get(library: AsyncPerdure) -> None:
    """No folders at all can be had everywhere."""
    new = NewAgent(name="Ada", model=MODEL)
    with pytest.raises(FeatureMissing, match="can't have folders: this program lacks its feature `files`"):
        await library.all_agents.add(new, belongings=AgentAttachments(of_features={"folders": ["source-1"]}))

    assert await library.all_agents.count(AgentFilter()) == 0
    assert (await library.all_agents.add(new, belongings=AgentAttachments(of_features={"folders": ()}))).name == "Ada"
