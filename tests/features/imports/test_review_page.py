"""Tools that wait for a review stand on the page of tools of the agents that get them, with their source."""

from __future__ import annotations

from perdure.core.ids import AgentId
from tests.features.imports.letta_server import full_world, id_of, serving
from tests.ui.browser import dashboard, text_of


async def test_a_tool_that_waits_is_shown_with_its_source_and_enabled() -> None:
    async with dashboard() as (client, library):
        with serving(full_world(rounds=1)) as url:
            await library.imports.run_server(url)
        where = f"/agents/{id_of('agent', 'Ann')}/tools"
        page = await client.get(where)
        other = await client.get(f"/agents/{id_of('agent', 'Bob 2')}/tools")
        enabled = await client.post(f"{where}/waiting/roll/enable")
        unknown = await client.post(f"{where}/waiting/roll/enable")
        names = [one.name for one in await library.agent_of(AgentId(id_of("agent", "Ann"))).tools.list()]

    assert "Wait for a review" in text_of(page.text) and "return str(sides)" in page.text
    assert "Wait for a review" not in text_of(other.text) and "Wait for a review" not in text_of(enabled.text)
    assert enabled.status_code == 200 and unknown.status_code == 404 and "roll" in names
