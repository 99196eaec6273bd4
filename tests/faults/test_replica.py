"""A read replica of the PostgreSQL server: it answers what only reads, and refuses what writes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import StoreReadOnly
from perdure.settings import Settings
from perdure.testing import ScriptedModel
from tests.support.own_postgres import own_postgres
from tests.support.stores import SECRET_KEY

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.environ.get("PERDURE_FAULTS") != "full", reason="a copy of a server takes seconds"),
]

MODELS = {"test/m": ScriptedModel()}
SETTINGS = Settings(embedding="none", secret_key=SECRET_KEY)


async def test_a_replica_answers_reads_makes_backups_and_refuses_writes(tmp_path: Path) -> None:
    """What is said to the first server is found at the replica a moment later."""
    with own_postgres() as server:
        async with await AsyncPerdure.open(server.address, models=MODELS, settings=SETTINGS) as perdure:
            ada = await perdure.create_agent("Ada", model="test/m")
            await ada.send("I like walrus ivory")
            with server.replica() as (address, _):
                await ada.send("I also like Turin")
                async with await AsyncPerdure.open(address, models=MODELS, settings=SETTINGS) as replica:
                    there = await replica.agent(ada.id)
                    for _ in range(200):
                        if hits := await there.search("Turin"):
                            break
                        await asyncio.sleep(0.1)

                    assert hits[0].message.text == "I also like Turin"
                    with pytest.raises(StoreReadOnly):
                        await there.send("and this")
                    await replica.backup(tmp_path / "backup.db")

    async with await AsyncPerdure.open(tmp_path / "backup.db", models=MODELS, settings=SETTINGS) as backup:
        assert len(await (await backup.agent("Ada")).messages()) == 4


async def test_a_failover_to_the_replica_needs_no_restart() -> None:
    """With the addresses of both, a process that runs goes on with the one that takes writes."""
    with own_postgres() as server:
        async with await AsyncPerdure.open(server.address, models=MODELS, settings=SETTINGS) as perdure:
            ada = await perdure.create_agent("Ada", model="test/m")
            await ada.send("first")
        with server.replica() as (address, promote):
            host, other = (one.partition("host=")[2] for one in (server.address, address))
            both = server.address.replace(host, f"{host},{other}&target_session_attrs=read-write")
            async with await AsyncPerdure.open(both, models=MODELS, settings=SETTINGS) as perdure:
                ada = await perdure.agent("Ada")
                await ada.send("second")
                await asyncio.to_thread(server.stop, "fast")  # it sends all to the replica before it ends
                going_on = asyncio.create_task(ada.send("third"))
                await asyncio.to_thread(promote)
                await going_on

                said = [message.text for message in await ada.messages() if message.role == "user"]
                assert said == ["first", "second", "third"]
            server.start()
