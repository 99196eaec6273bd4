"""The signal that something changed: cheap while nothing does, and never late for what does."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from perdure.core.incoming.principals import LOCAL
from perdure.features.access import keys
from perdure.features.access.service import Access
from perdure.testing import says
from perdure.ui import live
from perdure.ui.pages import changes
from tests.ui.browser import dashboard, tags_of


async def test_open_pages_read_the_store_only_after_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks without a commit read the mark alone; a change of a block comes with the next look."""
    monkeypatch.setattr(changes, "EVERY_S", 0.0)
    async with dashboard(says("Hello.")) as (_, library):
        agent = await library.create_agent("Ada", human="Likes tea.")
        before = await live.load_state(library, agent.id)
        looks, loads, enough = 0, 0, asyncio.Event()
        mark, load = library.upkeep.mark, live.load_state

        async def count_mark() -> str:
            nonlocal looks
            looks += 1
            if looks == 20:
                enough.set()
            return await mark()

        async def count_load(*args: Any) -> live.State:
            nonlocal loads
            loads += 1
            return await load(*args)

        monkeypatch.setattr(library.upkeep, "mark", count_mark)
        monkeypatch.setattr(live, "load_state", count_load)
        until = asyncio.get_running_loop().time() + 60
        change = asyncio.create_task(changes._changed(library, agent.id, before, until=until))
        async with asyncio.timeout(10):
            await enough.wait()
            idle = loads
            await agent.blocks.update("human", "Likes coffee.")
            after = await change

    assert idle == 0
    assert after.memory != before.memory and after.runs == before.runs


async def test_the_stream_ends_when_its_key_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was opened before; the stream of a key that counts stays open."""
    for module, name in ((changes, "EVERY_S"), (changes, "CHECKED_S"), (keys, "KEY_KEPT_S")):
        monkeypatch.setattr(module, name, 0.01)
    async with dashboard() as (client, library):
        access, texts = Access(library.app.shared.store, library.app.ports.clock, library.app.ports.ids, LOCAL), {}
        for name in ("ann", "ben"):
            texts[name] = (await access.create_key(name, "read-only"))[1]
        streams = {
            name: asyncio.create_task(client.get("/events", headers={"authorization": f"Bearer {text}"}))
            for name, text in texts.items()
        }
        await asyncio.sleep(0.1)
        begun = not any(stream.done() for stream in streams.values())
        ann = next(key for key in await access.keys() if key.name == "ann")
        await access.revoke_key(ann.id)
        async with asyncio.timeout(5):
            ended = await streams["ann"]
        stays = not streams["ben"].done()
        streams["ben"].cancel()

    assert begun and stays
    assert (ended.status_code, ended.text) == (200, ": open\n\n")


async def test_a_page_hears_of_what_changed_before_its_stream_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its load and the opening of the stream, and while the stream was away; of nothing else, and nothing
    twice."""
    monkeypatch.setattr(changes, "STREAM_S", 0.0)
    async with dashboard(says("Hello.")) as (client, library):
        agent = await library.create_agent("Ada", human="Likes tea.")
        (feed,) = [tag for _, tag in tags_of((await client.get(f"/agents/{agent.id}")).text) if "data-live" in tag]

        async def hear(last: str | None = None) -> str:
            """What the stream says at once; `last`: the last event that an earlier one told the page of."""
            more = {"last-event-id": last} if last else {}
            where = {"agent": agent.id, "since": str(feed["data-since"])}
            return (await client.get("/events", params=where, headers=more)).text

        quiet = await hear()
        await agent.blocks.update("human", "Likes coffee.")
        first = await hear()
        told = re.search("id: (.*)", first)
        again = await hear(told and told[1])
        await agent.send("Hi")
        second = await hear(told and told[1])

    assert feed["data-live"] == f"/events?agent={agent.id}"
    assert quiet == again == ": open\n\n"
    assert '"run": null, "memory": true' in first and '"run": "run-' in second and '"memory": false' in second
