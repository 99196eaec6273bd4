"""A store file that an older version wrote opens with all its content, and goes on."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.storage.migrations import MIGRATIONS
from perdure.testing import ScriptedModel, says
from tests.storage.older_store import open_store, read_store

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    """A copy of the older file."""
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress((FIXTURES / "store.db.gz").read_bytes()))
    return path


@pytest.mark.uses("files")
async def test_an_older_file_is_read_with_all_its_content(store_file: Path) -> None:
    """Agents, versions of blocks, messages, past requests, passages, files and tools are what they were."""
    expected = json.loads((FIXTURES / "store.json").read_text(encoding="utf-8"))

    perdure = await open_store(store_file, ScriptedModel())
    found = await read_store(perdure)
    await perdure.close()

    assert json.loads(json.dumps(found)) == expected


async def test_an_older_file_is_searched_and_goes_on(store_file: Path) -> None:
    """What was said before is found, and the next message is answered with it in view."""
    model = ScriptedModel(says("Welcome back."))
    perdure = await open_store(store_file, model)
    ada = await perdure.agent("ada")

    found = await ada.search("herrings on day 11")
    reply = await ada.send("Back again.")
    await perdure.close()

    assert any("Day 11" in hit.message.text for hit in found)
    assert reply.text == "Welcome back."
    assert any("two walruses" in message.text for message in model.requests[0].messages)


async def test_an_upgrade_keeps_the_whole_history(store_file: Path) -> None:
    """The tables become those of this version; after the next message all messages are as they were, and two more."""
    expected = json.loads((FIXTURES / "store.json").read_text(encoding="utf-8"))["agents"]["ada"]["messages"]
    before = _migrations(store_file)

    perdure = await open_store(store_file, ScriptedModel(says("Welcome back.")))
    ada = await perdure.agent("ada")
    await ada.send("Back again.")
    conversations = await ada.conversations()
    messages = [m for c in conversations for m in await ada.messages(conversation=c.id, limit=500)]
    await perdure.close()

    texts = {m.id: m.text for m in messages}
    assert {one[0]: texts.get(one[0]) for one in expected} == {one[0]: one[4] for one in expected}
    assert sorted(text for id_, text in texts.items() if id_ not in {one[0] for one in expected}) == [
        "Back again.",
        "Welcome back.",
    ]
    assert max(before) < max(MIGRATIONS, key=lambda one: one.number).number
    assert _migrations(store_file) == before | {one.number for one in MIGRATIONS}  # of a feature that is gone, too


def _migrations(path: Path) -> set[int]:
    """The numbers of the migrations that a file has had."""
    with closing(sqlite3.connect(path)) as connection:
        return {number for (number,) in connection.execute("SELECT number FROM schema_migrations")}
