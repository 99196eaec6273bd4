"""MCP servers on the pages of connections and of an agent's tools: tested, added, compared, given and taken away."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.mcp.servers import COMMAND, Running, child_arguments, running
from tests.ui.browser import dashboard, text_of, undo


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server over HTTP for all of these tests."""
    with running("--http", "/mcp", tmp_path_factory.mktemp("web") / "state.json") as server:
        yield server


async def test_a_server_is_tested_added_and_approved(web: Running) -> None:
    """A test registers nothing; a server that does not answer is registered, and the page says so."""
    async with dashboard() as (client, library):
        where, form = "/connections/mcp", {"name": "web", "url": web.url}
        tested = await client.post(where, data={"url": web.url, "choice": "test"})
        none = await library.mcp.list()
        added = await client.post(where, data=form)
        (server,) = await library.mcp.list()
        web.state.write_text(json.dumps({"described": "Other now.", "more": "extra"}), encoding="utf-8")
        read = await client.post(f"{where}/{server.id}/refresh")
        waiting = text_of((await client.get("/connections")).text)
        one = await client.post(f"{where}/{server.id}/approve", data={"tool": "extra"})
        approved = await client.post(f"{where}/{server.id}/approve")
        web.state.unlink()
        gone = await client.post(where, data={"name": "gone", "url": "http://127.0.0.1:9/mcp"})

        assert "It answers, and has" in text_of(tested.text) and "add" in text_of(tested.text) and none == []
        assert "web was registered, and agents may have its" in text_of(added.text)
        assert "1 wait for approval, 1 have changed" in text_of(read.text)
        assert "waits" in waiting and "changed since it was approved" in waiting and "Approve all" in waiting
        assert "extra was approved." in text_of(one.text)
        assert "tools are approved" in text_of(approved.text)
        assert "did not answer" in text_of(gone.text)


async def test_an_agent_gets_and_loses_the_tools_of_a_server(web: Running) -> None:
    """One by one, which can be undone, or all at once; those that wait for approval are not there to give."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        server = await library.mcp.add("web", url=web.url)
        here = f"/agents/{agent.id}/tools"
        before = {tool.spec.name for tool in await agent.tools.list()}

        async def own() -> set[str]:
            """The names of the server's tools that the agent has."""
            return {tool.spec.name for tool in await agent.tools.list()} - before

        shown = text_of((await client.get(here)).text)
        on = await client.post(f"{here}/mcp/{server.id}", data={"tool": "add", "on": "yes"})
        given = await own()
        await undo(client, on)
        taken = await own()
        await client.post(f"{here}/mcp/{server.id}", data={"on": "yes"})
        every = await own()
        off = await client.post(f"{here}/mcp/{server.id}", data={"on": "no"})
        none = await own()
        await undo(client, off)
        back = await own()
        await client.post(f"{here}/mcp/{server.id}", data={"tool": "add", "on": "no"})
        rest = await client.post(f"{here}/mcp/{server.id}", data={"on": "no"})
        await undo(client, rest)
        but_one = await own()
        unknown = await client.post(f"{here}/mcp/{server.id}", data={"tool": "nothing", "on": "yes"})

        assert "Tools of MCP servers" in shown and "add" in shown
        assert "add is on for this agent." in text_of(on.text)
        assert given == {"web__add"} and taken == set() and len(every) > 1 and none == set()
        assert back == every and but_one == every - {"web__add"}
        assert unknown.status_code == 404


async def test_the_page_of_an_agents_tools_says_what_changed(tmp_path: Path) -> None:
    """A tool whose definition has changed waits, and is not given again before it is approved."""
    with running("--http", "/mcp", tmp_path / "state.json") as web:
        async with dashboard() as (client, library):
            agent = await library.create_agent("Ada")
            server = await library.mcp.add("web", url=web.url)
            web.state.write_text(json.dumps({"described": "Something else now."}), encoding="utf-8")
            await client.post(f"/connections/mcp/{server.id}/refresh")
            page = text_of((await client.get(f"/agents/{agent.id}/tools")).text)
            connections = text_of((await client.get("/connections")).text)
            sent = {"tool": "look", "on": "yes"}
            refused = await client.post(f"/agents/{agent.id}/tools/mcp/{server.id}", data=sent)
            own = {tool.spec.name for tool in await agent.tools.list()}

            assert "1 tool waiting for approval: look at what changed" in page
            assert "changed since it was approved" in connections
            assert '+ "description": "Something else now."' in connections.replace("+  ", "+ ")
            assert "web__look" not in own
            assert refused.status_code == 422 and "not given: look" in text_of(refused.text)


@pytest.mark.slow
async def test_a_program_is_added_where_the_settings_allow_it() -> None:
    """Else the page says with which command, and the form is refused."""
    form = {"name": "local", "command": shlex.join([COMMAND, *child_arguments()]), "environment": "COLOUR=red\n"}
    async with dashboard() as (client, library):
        page = text_of((await client.get("/connections")).text)
        refused = await client.post("/connections/mcp", data=form)
        assert "perdure mcp add NAME -- COMMAND" in page and "Add a program" not in page
        assert refused.status_code == 403 and await library.mcp.list() == []
    async with dashboard(mcp_stdio="on") as (client, library):
        assert "Add a program" in text_of((await client.get("/connections")).text)
        tested = await client.post("/connections/mcp", data={**form, "choice": "test"})
        wrong = [
            (await client.post("/connections/mcp", data={**form, **part})).status_code
            for part in ({"command": "a 'b"}, {"command": " "}, {"environment": "COLOUR"})
        ]
        added = await client.post("/connections/mcp", data=form)
        (server,) = await library.mcp.list()

        assert "It answers, and has" in text_of(tested.text) and wrong == [422] * 3
        assert "local was registered, and agents may have its" in text_of(added.text)
        assert (server.transport, server.failure) == ("stdio", "")
