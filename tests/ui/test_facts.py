"""A fact in the dashboard: where it comes from."""

from __future__ import annotations

from tests.ui.browser import dashboard, text_of
from tests.ui.test_pages import HOSTILE


async def test_why_shows_the_versions_and_sources_of_a_fact() -> None:
    """Its texts are shown as texts, whatever they hold."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        fact = (await agent.facts.add(f"Ada {HOSTILE}", subject=HOSTILE)).fact
        await agent.facts.update(fact.id, text="Ada lives in Milan.")
        page = (await client.get("/why", params={"of": fact.id})).text

    assert "a person corrected it" in text_of(page)
    assert "Ada lives in Milan." in text_of(page)
    assert "<script>alert(1)" not in page
