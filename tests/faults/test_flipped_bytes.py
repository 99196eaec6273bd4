"""A store of which one byte is another, or whose log was cut: an error of ours that names what looks and what helps,
from the library, the server and the command line; never anything else."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import httpx
import pytest

from perdure.cli.commands.upkeep import verify
from perdure.cli.session.needs import CommandSetup
from perdure.cli.session.work import run_work
from perdure.core.errors import NotFound, StoreDamaged
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.testing import ScriptedModel
from perdure.testing.clock import START
from tests.storage.older_store import open_store
from tests.support.filled_store import filled_store
from tests.support.servers import BASE

pytestmark = pytest.mark.faults

FULL = os.environ.get("PERDURE_FAULTS") == "full"
PAGE_BYTES, HEAD_BYTES, PAGE_HEAD_BYTES = 4_096, 100, 12
FLIPS = 300 if FULL else 4
"""Of each kind: in the file's header, in the headers of pages, anywhere."""
KEY = "the server's own key, of some length"
SIGNED = {"authorization": f"Bearer {KEY}"}
READS = ("/v1/agents/", "/v1/blocks/", "/v1/tools/", "/v1/archives/", "/v1/runs/")


def places(size: int, chance: random.Random) -> list[int]:
    pages = size // PAGE_BYTES
    heads = range(HEAD_BYTES) if FULL else (0, 18, 47, 56)
    inner = [chance.randrange(pages) * PAGE_BYTES + chance.randrange(PAGE_HEAD_BYTES) for _ in range(FLIPS)]
    return [*heads, *inner, *(chance.randrange(size) for _ in range(FLIPS))]


def check(error: StoreDamaged | str) -> None:
    assert "`perdure store verify" in str(error), error
    assert "`perdure restore FILE`" in str(error), error


async def read(path: Path) -> str:
    """Read by the library: "damaged" or "read"."""
    try:
        perdure = await open_store(path, ScriptedModel())
    except StoreDamaged as error:
        check(error)
        return "damaged"
    except NotFound:
        return "read"
    try:
        for agent in await perdure.agents():
            await agent.messages(limit=1_000)
            await agent.search("walrus harbour boat")
            await agent.runs()
        await perdure.blocks.list()
        return "read"
    except StoreDamaged as error:
        check(error)
        return "damaged"
    except NotFound:  # a letter of an id has changed: it is told as another one
        return "read"
    finally:
        await perdure.close()


async def ask(path: Path) -> str:
    """Read over HTTP; a defect would be a status of 500."""
    try:
        perdure = await open_store(path, ScriptedModel())
    except StoreDamaged as error:
        check(error)
        return "damaged"
    except NotFound:
        return "read"
    try:
        transport = httpx.ASGITransport(create_app(perdure, ServerConfig(api_key=KEY)))
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=SIGNED) as client:
            answers = [await client.get(route) for route in READS]
            agents = answers[0].json() if answers[0].status_code == 200 else []
            answers += [await client.get(f"/v1/agents/{agent['id']}/messages") for agent in agents]
    finally:
        await perdure.close()
    for answer in answers:
        assert answer.status_code in (200, 503), answer.text
        if answer.status_code == 503:
            check(answer.json()["detail"])
    return "damaged" if any(httpx.codes.is_error(answer.status_code) for answer in answers) else "read"


@pytest.mark.slow
def test_a_flipped_byte_is_told_or_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every read succeeds or says that the store is damaged; then `verify` finds it too."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    whole = filled_store().read_bytes()
    path = tmp_path / "perdure.db"
    found: Counter[tuple[str, str, int]] = Counter()
    for place in places(len(whole), random.Random(5)):
        for file in tmp_path.glob("perdure.db*"):
            file.unlink()
        spoilt = bytearray(whole)
        spoilt[place] ^= 0xFF
        path.write_bytes(spoilt)
        by_library = asyncio.run(read(path))
        by_server = asyncio.run(ask(path))
        code = asyncio.run(run_work(verify, CommandSetup(), repair=False, accept_loss=False))
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err + printed.out
        if code:
            assert "perdure restore FILE" in printed.err + printed.out or "--repair" in printed.err, printed
        assert code == 1 or "damaged" not in (by_library, by_server), f"verify finds nothing: byte {place}"
        found[by_library, by_server, code] += 1
    with capsys.disabled():
        print(json.dumps([[*key, count] for key, count in found.most_common()]))

    assert found["damaged", "damaged", 1] > 0


@pytest.mark.parametrize("cut", [0, 1, 31, 32, 33, 500, 4_096, 10_000])
def test_a_log_that_was_cut_is_told_or_holds_nothing(tmp_path: Path, cut: int) -> None:
    """SQLite takes a log up to where it ends; whether that lost something is told by the mark beside the store."""
    live, path = tmp_path / "live.db", tmp_path / "left" / "perdure.db"
    path.parent.mkdir()

    async def talk() -> None:
        perdure = await open_store(live, ScriptedModel())
        agent = await perdure.create_agent("ada")
        await agent.import_messages([("user", None, "walrus", START)])
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{live}{suffix}", f"{path}{suffix}")
        await perdure.close()

    asyncio.run(talk())
    log = path.with_name("perdure.db-wal")
    os.truncate(log, min(cut, log.stat().st_size))

    assert asyncio.run(read(path)) in ("read", "damaged")
