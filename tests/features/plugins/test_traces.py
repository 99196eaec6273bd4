"""A plug-in that is denied, disabled or removed leaves nothing that works, also where it could not be reached."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import InvalidInput, NotFound
from perdure.features.mcp import toolbox
from perdure.features.plugins.installed import change_records
from perdure.library.agent import AsyncAgent
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says
from tests.features.mcp.servers import warm_command
from tests.features.plugins.files import define, write
from tests.support.library import open_async
from tests.support.office import results


async def open_store(path: Path, *script: Any, name: str = "a.db", policy: str = "") -> AsyncPerdure:
    """A store in a folder, whose data folder others there have too."""
    model = ScriptedModel(*script)
    return await open_async(path / name, model=model, home=str(path / "home"), policy=policy)


async def install(store: AsyncPerdure, path: Path) -> AsyncAgent:
    """Install a plug-in with a helper and a server; return an agent that has its tool, and has called its helper."""
    source = path / "tidy"
    define(source, "agents", "rev", "You tidy.")
    write(source / ".mcp.json", json.dumps({"mem": {"command": warm_command()}}))
    contents = await store.plugins.look(str(source))
    await store.plugins.install(str(source), expected=contents.digest)
    await store.mcp.refresh("tidy-mem")
    agent = await store.create_agent("ann", tools=["run_helper", "tidy-mem__pid"])
    await agent.send("Go")
    return agent


CALLS = (calls("run_helper", name="tidy:rev", prompt="Go"), says("Tidy."), says("Good."))
USES = (calls("tidy-mem__pid"), says("."))


async def refused(store: AsyncPerdure, agent: AsyncAgent, why: str) -> None:
    """Check that the server is used no more, for this reason."""
    with pytest.raises(InvalidInput, match=why):
        await store.mcp.refresh("tidy-mem")
    (result,) = results((await agent.send("Use it")).messages)
    assert result.status == "error" and "is not used" in result.text
    assert all("tidy-mem__pid" not in one.tools for one in await agent.helpers.list())
    assert "not used: " in (await store.mcp.list())[0].failure


async def test_a_policy_ends_the_servers_of_a_plug_in(tmp_path: Path) -> None:
    """It is asked at each call; they are there again when it allows the plug-in."""
    policy = write(tmp_path / "policy" / "policy.toml", "")
    async with await open_store(tmp_path, *CALLS, *USES, *USES, *USES, policy=str(policy.parent)) as store:
        agent = await install(store, tmp_path)
        (before,) = results((await agent.send("Use it")).messages)
        policy.write_text('denied_plugins = ["Tid*"]')
        await refused(store, agent, "the policy forbids it")
        policy.write_text("denied_plugin = []")
        with pytest.raises(InvalidInput, match=r"policy.toml:1: 'denied_plugin'"):
            await store.mcp.refresh("tidy-mem")
        policy.write_text("denied_plugins = []")
        (after,) = results((await agent.send("Use it")).messages)

    assert (before.status, after.status) == ("success", "success")


async def test_a_server_in_another_store_is_used_no_more(tmp_path: Path) -> None:
    """Where the plug-in was removed while this store was closed; removing it here too leaves no trace."""
    async with await open_store(tmp_path, *CALLS) as store:
        await install(store, tmp_path)
    async with await open_store(tmp_path, name="b.db") as other:
        await other.plugins.disable("tidy")
    async with await open_store(tmp_path, *USES) as store:
        await refused(store, await store.agent("ann"), "it is disabled")
        await store.plugins.enable("tidy")
        names = [one.name for one in await store.mcp.list()]
    async with await open_store(tmp_path, name="b.db") as other:
        await other.plugins.remove("tidy")
        with pytest.raises(NotFound):
            await other.plugins.remove("tidy")
    async with await open_store(tmp_path, *USES) as store:
        agent = await store.agent("ann")
        with pytest.raises(InvalidInput, match="`perdure plugin remove tidy` removes what it left"):
            await store.mcp.refresh("tidy-mem")
        agents = len(await store.agents())
        await store.plugins.remove("tidy")
        left = await store.agents()
        tools = [tool.name for tool in await agent.tools.list()]

        assert names == ["tidy-mem"] and await store.mcp.list() == [] and tools == ["run_helper"]
        assert agents == 2 and [one.name for one in left] == ["ann"]
        with pytest.raises(NotFound, match="none is installed"):
            await store.plugins.remove("tidy")


async def test_a_plug_in_that_lost_its_files_leaves_nothing(tmp_path: Path) -> None:
    """Its helper's agent goes with it, and what that one knows."""
    async with await open_store(tmp_path, *CALLS) as store:
        await install(store, tmp_path)
        shutil.rmtree(tmp_path / "home" / "plugins" / "tidy")
        await store.plugins.remove("tidy")
        left = [one.name for one in await store.agents()]
        servers = await store.mcp.list()

    assert left == ["ann"] and servers == [] and not (tmp_path / "home" / "plugins").exists()


async def test_its_program_ends_when_another_process_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another call."""
    monkeypatch.setattr(toolbox, "WATCH_S", 0.05)
    async with await open_store(tmp_path, *CALLS) as store:
        await install(store, tmp_path)
        assert (await store.mcp.get("tidy-mem")).open
        change_records(Settings(home=str(tmp_path / "home")), lambda _: {})
        async with asyncio.timeout(20):
            while True:
                if not (await store.mcp.get("tidy-mem")).open:
                    return
                await asyncio.sleep(0.02)
