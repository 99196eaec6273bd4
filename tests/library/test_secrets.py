"""Secrets through the library: set and listed, resolved for tools, and nowhere in the clear."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput, NotFound, Perdure
from perdure.core.errors import SecretKeyMissing
from perdure.core.secrets import resolve_environment
from perdure.settings import Settings
from perdure.testing import InlineStore, calls, says
from tests.library.opened import open_async, open_sync

CANARY = "canary-5f1d7c0a"


def test_secrets_are_set_listed_and_deleted(tmp_path: Path) -> None:
    """The organisation's and each agent's own; a value is never read back."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent("ada")
        perdure.secrets.set("TOKEN", CANARY)
        agent.secrets.set("MINE", "1")
        agent.secrets.set("MINE", CANARY)
        assert [secret.name for secret in perdure.secrets.list()] == ["TOKEN"]
        (mine,) = agent.secrets.list()
        assert CANARY not in repr(mine)
        assert CANARY.encode() not in mine.sealed
        agent.secrets.delete("MINE")

        assert agent.secrets.list() == []
        with pytest.raises(NotFound):
            agent.secrets.delete("MINE")
        perdure.delete_agent(agent.id)
        with pytest.raises(NotFound):
            agent.secrets.set("MINE", "1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", CANARY),
        ("1A", CANARY),
        ("A=B", CANARY),
        ("SCHLÜSSEL", CANARY),
        ("A" * 129, CANARY),
        ("A\n", CANARY),
        ("A", CANARY * 3_000),
        ("A", f"{CANARY}\x00"),
        ("A", f"{CANARY}\ud800"),
        ("A", [CANARY]),
    ],
)
def test_what_no_environment_holds_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    """Without telling the value, and without making a key."""
    with open_sync(tmp_path / "agents.db") as perdure:
        with pytest.raises(InvalidInput) as caught:
            perdure.secrets.set(name, value)

        assert CANARY not in str(caught.value)
        assert perdure.secrets.list() == []
        assert not (tmp_path / "secret.key").exists()


async def test_a_tools_environment_is_resolved(tmp_path: Path) -> None:
    """`secret:NAME` is the organisation's secret; the agent's own go over the tool's environment."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        agent = await perdure.create_agent("ada")
        await perdure.secrets.set("TOKEN", CANARY)
        await agent.secrets.set("PLACE", "agent")
        environment = {"KEY": "secret:TOKEN", "PLACE": "tool", "PLAIN": "secrets: none"}
        store, cipher = perdure.app.store, perdure.app.cipher

        made = await store.read(resolve_environment, agent.id, environment, cipher=cipher)
        assert made == {"KEY": CANARY, "PLACE": "agent", "PLAIN": "secrets: none"}
        with pytest.raises(NotFound, match="there are TOKEN"):
            await store.read(resolve_environment, agent.id, {"KEY": "secret:OTHER"}, cipher=cipher)


def test_no_file_and_no_log_shows_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the database, nor its write-ahead log, nor what was logged; the key stands in its own file alone."""
    caplog.set_level(logging.DEBUG)
    script = (calls("core_memory_append", label="human", content="x"), says("done"))
    with open_sync(tmp_path / "agents.db", *script) as perdure:
        agent = perdure.create_agent("ada")
        perdure.secrets.set("TOKEN", CANARY)
        agent.secrets.set("MINE", CANARY)
        agent.send("Hello")
        key = (tmp_path / "secret.key").read_bytes().strip()
        names = {file.name for file in tmp_path.iterdir() if CANARY.encode() in file.read_bytes()}
        keyed = {file.name for file in tmp_path.iterdir() if key in file.read_bytes()}

    assert names == set()
    assert keyed == {"secret.key"}
    assert CANARY not in caplog.text


def test_a_setting_takes_the_place_of_the_key_file(tmp_path: Path) -> None:
    """It is not shown with the settings; a stand-in store needs it."""
    settings = Settings(secret_key=CANARY * 2)
    with Perdure(tmp_path / "agents.db", settings=settings) as perdure:
        perdure.secrets.set("TOKEN", "1")

    assert not (tmp_path / "secret.key").exists()
    assert CANARY not in repr(settings)
    with Perdure(store=InlineStore(), settings=settings) as perdure:
        assert perdure.secrets.set("TOKEN", "1").name == "TOKEN"
    with Perdure(store=InlineStore(), settings=Settings()) as perdure, pytest.raises(SecretKeyMissing):
        perdure.secrets.set("TOKEN", "1")
