"""What a new user does on the first day: names that exist, functions as tools."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from perdure import AlreadyExists, InvalidInput
from perdure.library.perdure import AgentOptions, AsyncPerdure
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.support.library import MODEL, open_async, open_sync


def weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: 18 degrees"


def test_create_agent_refuses_a_name_that_exists(tmp_path: Path) -> None:
    """The error says what to call instead, and there is still one agent."""
    with open_sync(tmp_path / "agents.db") as perdure:
        perdure.create_agent("helper")
        with pytest.raises(AlreadyExists, match=r"agent 'helper' exists already: .* use get_or_create_agent"):
            perdure.create_agent("helper")

        assert len(perdure.agents()) == 1


def test_an_agent_is_not_renamed_to_a_name_that_exists(tmp_path: Path) -> None:
    """Its own name, with other fields, is no change of it."""
    with open_sync(tmp_path / "agents.db") as perdure:
        perdure.create_agent("helper")
        planner = perdure.create_agent("planner")
        with pytest.raises(AlreadyExists, match=r"agent 'helper' exists already: choose another name$"):
            planner.update(name="helper")

        assert planner.update(name="planner", description="Plans.").update(name="guide").name == "guide"
        assert [agent.name for agent in perdure.agents()] == ["guide", "helper"]


def test_agents_without_a_name_get_a_number(tmp_path: Path) -> None:
    """No two of them have one name."""
    with open_sync(tmp_path / "agents.db") as perdure:
        assert [perdure.create_agent().name for _ in range(3)] == ["agent", "agent 2", "agent 3"]


def test_get_or_create_agent_creates_once(tmp_path: Path) -> None:
    """The second call returns the same agent, unchanged."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.get_or_create_agent("helper", human="Name: Ada")
        again = perdure.get_or_create_agent("helper", human="Name: Eve")

        assert again.id == agent.id
        assert again.blocks.get("human").value == "Name: Ada"


def test_get_or_create_agent_has_all_options_of_create_agent() -> None:
    """The two lists of options can't drift apart."""
    parameters = inspect.signature(AsyncPerdure.create_agent).parameters

    assert {name: str(parameters[name].annotation) for name in list(parameters)[2:]} == {
        name: getattr(value, "__forward_arg__", value) for name, value in AgentOptions.__annotations__.items()
    }


@pytest.mark.parametrize("at_open", [True, False])
def test_create_agent_takes_functions(tmp_path: Path, at_open: bool) -> None:
    """A function is a tool of the agent, whether or not the store was opened with it, beside tools by name."""
    tools = [weather] if at_open else []
    with open_sync(tmp_path / "agents.db", calls("weather", city="Turin"), says("Mild."), tools=tools) as perdure:
        agent = perdure.create_agent("helper", tools=[weather, "memory_insert"])

        assert [tool.spec.name for tool in agent.tools.list()] == ["memory_insert", "weather"]
        assert agent.send("And now?").messages[2].text == "Turin: 18 degrees"


def test_a_function_of_one_agent_is_no_default_of_the_next(tmp_path: Path) -> None:
    """Only functions that the store was opened with are given to every new agent."""
    with open_sync(tmp_path / "agents.db") as perdure:
        perdure.create_agent("one", tools=[weather])

        assert "weather" not in [tool.spec.name for tool in perdure.create_agent("two").tools.list()]


def test_get_or_create_agent_loads_functions_for_an_agent_that_is_there(tmp_path: Path) -> None:
    """The same program, run again, can run its function."""
    with open_sync(tmp_path / "agents.db") as perdure:
        perdure.get_or_create_agent("helper", tools=[weather])

    with open_sync(tmp_path / "agents.db", calls("weather", city="Turin"), says("Mild.")) as perdure:
        agent = perdure.get_or_create_agent("helper", tools=[weather])

        assert agent.send("And now?").messages[2].text == "Turin: 18 degrees"


async def test_a_function_can_be_attached(tmp_path: Path) -> None:
    """It is added to the tools that the agent has."""
    async with await open_async(tmp_path / "agents.db", calls("weather", city="Turin"), says("Mild.")) as perdure:
        agent = await perdure.create_agent("helper")
        await agent.tools.attach(weather)

        assert {"weather", "memory_insert"} <= {tool.spec.name for tool in await agent.tools.list()}
        assert (await agent.send("And now?")).messages[2].text == "Turin: 18 degrees"


@pytest.mark.uses("extractive")
async def test_a_tool_that_is_neither_name_nor_function_is_refused() -> None:
    """The error shows what was given."""
    models = {MODEL: ScriptedModel()}
    async with await AsyncPerdure.open(store=InlineStore(), models=models) as perdure:
        with pytest.raises(InvalidInput, match="a tool is 7: give the name of a tool, or a Python function"):
            await perdure.create_agent("helper", tools=[7])  # type: ignore[list-item]
