"""An empty page says what to do next, with a link; and pages with a main action have it at the top."""

from __future__ import annotations

import re

import pytest

from tests.ui.browser import dashboard, tags_of

AGENT = (
    *("/memory", "/tools", "/files", "/context", "/facts", "/facts/profile", "/facts/timeline", "/facts/entities"),
    *("/facts/graph", "/sources", "/proposals"),
)
LEADS = ("<a ", "above", "below", "Upload")
"""What says where one goes on: a link, or a form on the page."""


def _empty_texts(html: str) -> list[str]:
    """The parts of a page that say that nothing is there."""
    return re.findall(r'<p class="empty muted">(.*?)</p>', html, re.DOTALL)


@pytest.mark.uses("facts", "files", "groups", "origins", "proposals")
async def test_each_empty_page_leads_on() -> None:
    """In a store without an agent, and of an agent without anything."""
    async with dashboard() as (client, library):
        found = {path: _empty_texts((await client.get(path)).text) for path in ("/runs", "/groups", "/approvals")}
        home = (await client.get("/")).text
        agent = await library.create_agent("Ada")
        for tool in await agent.tools.list():
            await agent.tools.detach(tool.id)
        found["/runs of an agent"] = _empty_texts((await client.get("/runs")).text)
        for path in AGENT:
            found[path] = _empty_texts((await client.get(f"/agents/{agent.id}{path}")).text)

    assert "Create an agent" in home and "New agent" in home
    assert {path for path, texts in found.items() if not texts} == set()
    texts = [(path, text) for path, some in found.items() for text in some]
    assert [(path, text) for path, text in texts if not any(word in text for word in LEADS)] == []
    assert f'href="/agents/{agent.id}"' in found["/runs of an agent"][0]


@pytest.mark.uses("files", "groups", "mcp")
@pytest.mark.parametrize(
    ("path", "form"), [("/data", "/data/folders"), ("/groups", "/groups"), ("/connections", "/connections/providers")]
)
async def test_the_main_action_stands_at_the_top(path: str, form: str) -> None:
    async with dashboard() as (client, library):
        await library.create_agent("Ada")
        tags = tags_of((await client.get(path)).text)

    head = next(place for place, (tag, _) in enumerate(tags) if tag == "h1")
    assert ("summary", {"class": "button primary"}) in tags[head : head + 4]
    assert next(values["hx-post"] for tag, values in tags[head:] if tag == "form") == form
