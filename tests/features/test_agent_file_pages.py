"""An agent is exported and copied on the page of its settings, and imported at home."""

from __future__ import annotations

import json

import pytest

from tests.ui.browser import dashboard, text_of

pytestmark = pytest.mark.uses("agent_files")


async def test_an_agent_is_exported_imported_and_copied() -> None:
    """With or without its messages; a file that is none changes nothing."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada 2", human="Likes tea.")
        await agent.send("I like coffee")
        here = f"/agents/{agent.id}/settings"
        whole = await client.get(f"{here}/export")
        short = await client.get(f"{here}/export?messages=no")
        await client.post(f"{here}/discard")
        await client.post(f"/agents/{agent.id}/delete")
        file = {"file": ("Ada-2.af", whole.content)}
        imported = await client.post("/agents/import", files=file, data={"messages": "yes"})
        again = await library.agent("Ada 2")
        copied = await client.post(f"/agents/{again.id}/settings/copy", data={"name": "Eva"})
        eva = await library.agent("Eva")
        wrong = await client.post("/agents/import", files={"file": ("x.af", b"no")})
        gone = await client.get(f"/agents/{agent.id}/settings/export")

        assert 'filename="Ada-2.af"' in whole.headers["content-disposition"]
        assert len(json.loads(whole.text)["agents"][0]["messages"]) > len(
            json.loads(short.text)["agents"][0]["messages"]
        )
        assert "Imported 1 agent" in text_of(imported.text) and f"/agents/{again.id}" in imported.text
        assert (await again.messages())[0].text == "I like coffee"
        assert (await eva.blocks.get("human")).value == "Likes tea." and await eva.messages() == []
        assert copied.status_code in (200, 204)
        assert wrong.status_code == 400 and gone.status_code == 404
        assert {one.name for one in await library.agents()} == {"Ada 2", "Eva"}
