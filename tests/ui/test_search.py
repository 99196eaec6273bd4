"""Search everything, and what each page says about its JSON twin."""

from __future__ import annotations

import html

from perdure.server.config import ServerConfig
from perdure.testing import says
from tests.ui.browser import dashboard, tags_of, text_of


async def test_search_finds_agents_blocks_passages_and_messages() -> None:
    async with dashboard(says("The walnut is old.")) as (client, library):
        agent = await library.create_agent("Walnut", human="Owns a walnut tree.")
        await agent.archive("The walnut tree stands by the gate.", tags=["garden"])
        await agent.send("How old is the walnut?")
        other = await library.archives.create("loose")
        await other.insert("A walnut without an agent.")
        found = (await client.get("/search?q=walnut&format=json")).json()
        page = await client.get("/search?q=walnut")
        links = [str(values["href"]) for tag, values in tags_of(page.text) if tag == "a"]
        links = [link for link in links if link.startswith("/agents/")]
        statuses = {(await client.get(link)).status_code for link in links}
        (message,) = [one for one in found["messages"] if one["role"] == "user"]
        where = f"/agents/{agent.id}?conversation={message['conversation_id']}&before={message['before']}&format=json"
        shown = (await client.get(where)).json()["items"]
        none = await client.get("/search?q=zeppelin")

    assert [one["name"] for one in found["agents"]] == ["Walnut"]
    assert [(one["label"], one["agent"]) for one in found["blocks"]] == [("human", "Walnut")]
    assert {one["agent_id"] for one in found["passages"]} == {agent.id, None}
    assert statuses == {200} and len(links) >= 5
    assert shown[-1]["text"] == "How old is the walnut?"
    assert "Nothing was found for “zeppelin”" in text_of(none.text)


async def test_each_page_says_how_a_program_reads_it() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        page = html.unescape((await client.get(f"/agents/{agent.id}/memory?tag=a'b")).text)
        headers = {"hx-current-url": f"http://127.0.0.1:8283/agents/{agent.id}/memory?block=human"}
        after = await client.post(f"/agents/{agent.id}/memory/passages", data={"text": "x"}, headers=headers)

    assert f"curl 'http://127.0.0.1:8283/agents/{agent.id}/memory?tag=a%27b&format=json'" in page
    assert f"httpx.get('http://127.0.0.1:8283/agents/{agent.id}/memory?tag=a%27b&format=json').json()" in page
    assert f"/agents/{agent.id}/memory?block=human&format=json" in html.unescape(after.text)


async def test_where_a_key_is_set_the_snippets_send_it() -> None:
    key = "k" * 40
    async with dashboard(config=ServerConfig(api_key=key)) as (client, _):
        page = await client.get("/settings", headers={"authorization": f"Bearer {key}"})
        twin = await client.get("/settings?format=json", headers={"authorization": f"Bearer {key}"})

    assert "Authorization: Bearer $PERDURE_API_KEY" in html.unescape(page.text)
    assert key not in page.text
    assert twin.json()["key_needed"]
