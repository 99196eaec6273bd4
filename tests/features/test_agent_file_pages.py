"""An agent is exported and copied on the page of its settings, and imported at home."""

from __future__ import annotations

import json

import pytest

from perdure.server.config import ServerConfig
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
        taken = await client.post(f"/agents/{again.id}/settings/copy", data={"name": "Eva"})
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
        assert taken.status_code == 409 and len(await library.agents()) == 2
        assert wrong.status_code == 400 and gone.status_code == 404
        assert {one.name for one in await library.agents()} == {"Ada 2", "Eva"}


async def test_a_file_may_be_as_long_as_an_upload() -> None:
    """Longer than the body of other requests."""
    async with dashboard(config=ServerConfig(max_body_bytes=20_000)) as (client, library):
        agent = await library.create_agent("Ada")
        whole = (await client.get(f"/agents/{agent.id}/settings/export")).content
        padded = {"file": ("Ada.af", whole + b" " * 40_000)}
        imported = await client.post("/agents/import", files=padded)

    assert imported.status_code == 200, imported.text
