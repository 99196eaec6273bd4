"""Secrets through the library: set and listed, resolved for tools, and nowhere in the clear."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput, NotFound, Perdure
from perdure.core.agents import Agent
from perdure.core.errors import SecretKeyMissing, SecretUnreadable
from perdure.core.ids import AgentId, OrgId
from perdure.core.secrets import ORGANISATION, Secret
from perdure.domain.secrets import open_secret, put_secret, resolve_environment
from perdure.settings import Settings
from perdure.storage.cipher import AesCipher
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, calls, says
from perdure.testing.clock import START, SequentialIds
from tests.support.library import open_async, open_sync

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
        store, cipher = perdure.app.store, perdure.app.ports.cipher

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


async def test_a_sealed_value_opens_in_its_own_place_only(tmp_path: Path) -> None:
    """A row copied over another one is refused, whatever differs: name, owner or organisation."""
    cipher, store, ids = AesCipher("a key of sixteen", file=None), InlineStore(tmp_path / "a.db"), SequentialIds()
    other_org = InlineStore(tmp_path / "b.db", org_id=OrgId("org-11111111-1111-4111-8111-111111111111"))

    def fill(tx: Tx) -> list[Secret]:
        agents = [AgentId(ids.new("agent")) for _ in range(2)]
        for agent_id in agents:
            tx.agents.add(Agent(id=agent_id, org_id=tx.org_id, name="a", model="m", created_at=START, updated_at=START))
        places = [(owner, name) for owner in (ORGANISATION, *agents) for name in ("TOKEN", "OTHER")]
        return [put_secret(tx, owner, name, CANARY, cipher=cipher, at=START) for owner, name in places]

    here, there = await store.write(fill), await other_org.write(fill)
    for target in here:
        for source in (*here, *there):
            copied = replace(target, sealed=source.sealed)
            if source is target:
                assert await store.read(open_secret, copied, cipher=cipher) == CANARY
            else:
                with pytest.raises(SecretUnreadable):
                    await store.read(open_secret, copied, cipher=cipher)
