"""Rotation of the key that encrypts secrets: everything has the new key afterwards, and the old one opens nothing."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.app import start_organisation
from perdure.core.errors import Conflict, SecretUnreadable
from perdure.core.incoming.principals import LOCAL
from perdure.core.messages import Text
from perdure.core.runs import Callback
from perdure.domain.environment import AGENT_VARIABLE, load_inputs
from perdure.domain.secrets import open_callback, open_secret
from perdure.engine.records.run_request import NewMessage
from perdure.features.access.service import Access
from perdure.features.mcp.tables import Servers
from perdure.features.schedules.tables import Schedules
from perdure.features.schedules.units import NewSchedule
from perdure.library.parts.providers import ProviderFields
from perdure.library.tools.secrets import rotate_store
from perdure.settings import Settings
from perdure.storage.cipher import AesCipher, read_key_file
from perdure.testing import ScriptedModel, says

MODEL = "test/scripted"
SOURCE = 'def look() -> str:\n    """Look."""\n    return ""\n'
KEY, OTHER = "the first key, of some length", "the second key, of some length"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=str(tmp_path), model=MODEL, embedding="none", sandbox="off")


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[AsyncPerdure]:
    models = {MODEL: ScriptedModel(otherwise=says("Hello."))}
    async with await AsyncPerdure.open(settings=settings, models=models) as library:
        yield library


async def filled(library: AsyncPerdure) -> int:
    """Store one value of each kind that is encrypted, and a secret of another organisation; how many these are."""
    ports = library.app.ports
    agent = await library.create_agent("ann")
    await library.secrets.set("SHARED", "shared")
    await agent.secrets.set("OWN", "own")
    await library.tools.create(SOURCE, environment={"LITERAL": "literal", "SHARED": "secret:SHARED"})
    config = await library.sandbox.put({})
    await library.sandbox.add_variable(config.id, "VARIABLE", "variable", None)
    await library.mcp.add("files", check=False, command="/nonexistent", environment={"TOKEN": "token"})
    fields = ProviderFields(name="mine", provider_type="openai", api_key="key", base_url="http://127.0.0.1:9")
    await library.providers.create(fields, private=True)
    told = NewSchedule(messages=(), every_s=900_000, callback=Callback(url="https://a.example/?key=called"))
    await agent.schedules.add([NewMessage((Text("hi"),))], told)
    acme = await Access(library.app.shared.store, ports.clock, ports.ids, LOCAL).create_organisation("Acme")
    async with AsyncPerdure(await start_organisation(library.app, acme.id)) as theirs:
        await theirs.secrets.set("THEIRS", "theirs")
    return 8


async def values_of(library: AsyncPerdure) -> list[str]:
    """What the values of the default organisation decrypt to."""
    cipher = library.app.ports.cipher
    agent, (tool,) = await library.agent("ann"), [one for one in await library.tools.list() if one.spec.name == "look"]
    inputs = await library.app.store.read(load_inputs, tool.id, agent.id, cipher=cipher)

    def read(tx):  # type: ignore[no-untyped-def]
        (provider,), (server,) = tx.providers.list(), tx.of(Servers).list()
        secrets = [open_secret(tx, one, cipher=cipher) for one in tx.secrets.list("")]
        (schedule,) = tx.of(Schedules).page(agent.id)
        assert open_callback(schedule.callback, cipher).url == "https://a.example/?key=called"
        return [*secrets, cipher.decrypt(provider.sealed, bound_to=provider.binding).decode(), server.id]

    found = await library.app.store.read(read)
    server = await library.app.store.read(lambda tx: tx.of(Servers).list()[0])
    assert cipher.is_current(server.sealed)
    own = [value for name, value in inputs.environment.items() if name != AGENT_VARIABLE]
    return [*sorted(own), *found[:-1]]


async def test_a_running_server_follows_a_new_key_of_the_file(settings: Settings, tmp_path: Path) -> None:
    """Every kind of value is encrypted anew, of all organisations, and what runs already reads and writes on."""
    async with opened(settings) as library:
        count = await filled(library)
        before = read_key_file(tmp_path / "secret.key")
        rotated = await rotate_store(settings, forget_old=True)
        values = await values_of(library)
        await library.secrets.set("LATER", "later")
    (key,) = read_key_file(tmp_path / "secret.key")

    assert (rotated.count, rotated.unreadable) == (count, ())
    assert values == ["literal", "own", "shared", "variable", "shared", "key"]
    assert key not in before
    again = await rotate_store(replace(settings, secret_key=key))  # the same key by the setting
    assert again.count == 0


async def test_the_key_of_the_setting_is_changed_with_the_old_one_beside_it(settings: Settings) -> None:
    """Afterwards the new one is enough, and the old one opens nothing."""
    first = replace(settings, secret_key=KEY)
    async with opened(first) as library:
        count = await filled(library)
    rotated = await rotate_store(replace(settings, secret_key=OTHER, secret_key_old=KEY))
    async with opened(replace(settings, secret_key=OTHER)) as library:
        values = await values_of(library)
        sealed = await library.app.store.read(lambda tx: tx.secrets.list("")[0])

    assert (rotated.count, values[0]) == (count, "literal")
    with pytest.raises(SecretUnreadable, match="another key"):
        AesCipher(KEY, file=None).decrypt(sealed.sealed, bound_to="any")


async def test_what_no_key_decrypts_stays_and_is_named(settings: Settings, tmp_path: Path) -> None:
    """And the older keys of the file stay with it."""
    async with opened(replace(settings, secret_key=KEY)) as library:
        await library.secrets.set("LOST", "lost")
    async with opened(settings) as library:
        await library.secrets.set("KEPT", "kept")

    with pytest.raises(Conflict, match="older keys stay"):
        await rotate_store(settings, forget_old=True)
    assert len(read_key_file(tmp_path / "secret.key")) == 2
    found = await rotate_store(replace(settings, secret_key_old=KEY))
    assert (found.count, found.unreadable) == (2, ())
