"""Two organisations on one server: agents of the same name, work in the background, administration, and removal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure import AsyncPerdure, Settings
from perdure.core.ids import Uuids
from perdure.core.incoming.principals import LOCAL, Principal, UseLimits
from perdure.features.access.directory import Organisations
from perdure.features.access.keys import KeyRing
from perdure.features.access.organisations import OpenOrganisations, OrganisationGone
from perdure.features.access.service import LAST_WRITES_S, Access, remove_organisation
from perdure.features.schedules.worker import ScheduleWorker
from perdure.library.parts.providers import ProviderFields
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.server.wire.models import handles_of
from perdure.testing import FakeClock, InlineStore, ScriptedModel, says
from tests.providers.fake_provider import fake_provider
from tests.server.routed import routed
from tests.support.servers import BASE, MODEL
from tests.support.two_apps import two_apps

KEY = "the server's own key, of some length"
MESSAGE = {"messages": [{"role": "user", "content": "Hello"}]}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_two_organisations_share_a_server_and_nothing_else() -> None:
    """Each has an agent `ann`, talks to it, and sees its own; one is removed, and the other stays as it was."""
    settings = Settings(model=MODEL, secret_key="for tests, this one", sandbox="off")
    models = {MODEL: ScriptedModel(otherwise=says("Hello."))}
    store, clock = InlineStore(), FakeClock()
    async with await AsyncPerdure.open(store=store, models=models, settings=settings, clock=clock) as library:
        app = create_app(library, ServerConfig(api_key=KEY))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as http:
            made = (await http.post("/v1/organizations/", json={"name": "Acme"}, headers=bearer(KEY))).json()
            ports = library.app.ports
            acme = Principal(org_id=made["id"])
            user = await Access(store, ports.clock, ports.ids, acme).create_user("zoe")
            _, key = await Access(store, ports.clock, ports.ids, acme).create_key("k", "admin", user_id=user.id)
            ids = {}
            for one in (KEY, key):
                agent = (await http.post("/v1/agents/", json={"name": "ann"}, headers=bearer(one))).json()
                ids[one] = agent["id"]
                answer = await http.post(f"/v1/agents/{agent['id']}/messages", json=MESSAGE, headers=bearer(one))
                assert answer.status_code == 200, answer.text
            for one in (KEY, key):
                listed = (await http.get("/v1/agents/", headers=bearer(one))).json()
                assert [agent["id"] for agent in listed] == [ids[one]]
            assert (await http.get(f"/v1/agents/{ids[KEY]}", headers=bearer(key))).status_code == 404
            assert (await http.post("/v1/organizations/", json={"name": "B"}, headers=bearer(key))).status_code == 403

            block = (await http.get(f"/v1/agents/{ids[key]}/core-memory/blocks", headers=bearer(key))).json()
            block = (await http.post("/v1/blocks/", json={"label": "x", "value": "y"}, headers=bearer(key))).json()
            view = store.for_organisation(made["id"])
            versions = await view.read(lambda tx: tx.blocks.versions(block["id"], limit=10))
            assert [one.author.id for one in versions] == [user.id]
            audit = (await http.get("/v1/audit", headers=bearer(key))).json()
            assert [(one["action"], one["user_id"]) for one in audit[:2]] == [
                ("POST /v1/blocks/", user.id),
                ("POST /v1/agents/", user.id),
            ]

            assert (await http.delete(f"/v1/organizations/{made['id']}", headers=bearer(KEY))).status_code == 200
            clock.advance(LAST_WRITES_S)
            await app.state.gate.organisations.look()
            left = await store.read(rows_with, made["id"])
            assert left == []
            assert (await http.get(f"/v1/agents/{ids[KEY]}", headers=bearer(KEY))).status_code == 200
        await app.state.gate.close()


def rows_with(tx: object, org_id: str) -> list[str]:
    """The tables in which the organisation is named, but for the audit log of the default one."""
    db = tx._db  # type: ignore[attr-defined]
    tables = [name for (name,) in db.rows("SELECT name FROM sqlite_master WHERE sql LIKE '%org_id%'", {})]
    tables = [name for name in tables if any(row[1] == "org_id" for row in db.rows(f"PRAGMA table_info({name})", {}))]
    return [name for name in tables if db.rows(f"SELECT 1 FROM {name} WHERE org_id LIKE '{org_id}%'", {})]


async def test_schedules_count_for_no_key() -> None:
    """Neither for the one that made them nor for the one whose request opened the organisation; they outlive both."""
    settings = Settings(model=MODEL, secret_key="for tests, this one", sandbox="off")
    store, clock, models = InlineStore(), FakeClock(), {MODEL: ScriptedModel(otherwise=says("Hello."))}
    async with await AsyncPerdure.open(store=store, models=models, settings=settings, clock=clock) as library:
        app = create_app(library, ServerConfig(api_key=KEY))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as http:
            made = (await http.post("/v1/organizations/", json={"name": "Acme"}, headers=bearer(KEY))).json()
            access = Access(store, clock, library.app.ports.ids, Principal(org_id=made["id"]))
            key, text = await access.create_key("k", "admin", limits=UseLimits(tokens_per_day=1_000))
            shape = (await http.post("/v1/agents/", json={"name": "ann"}, headers=bearer(text))).json()
        await access.revoke_key(key.id)
        async with app.state.gate.organisations.use(made["id"]) as acme:
            agent = await acme.agent(shape["id"])
            await agent.schedules.create("Hello.", every="1h")
            clock.advance(3_601)
            async with asyncio.timeout(10):
                while not (runs := await agent.runs()):
                    acme.app.service(ScheduleWorker).wake()
                    await asyncio.sleep(0.01)
        await app.state.gate.close()

    assert [run.options.key_id for run in runs] == [None]


async def test_work_of_an_organisation_that_nobody_asks_for_is_done() -> None:
    """A run that was accepted before the process ended goes on in the next one, without a request."""
    settings = Settings(model=MODEL, secret_key="for tests, this one", sandbox="off")
    store, clock = InlineStore(), FakeClock()
    first = Access(store, clock, Uuids(), LOCAL)
    org = await first.create_organisation("Acme")
    models = {MODEL: ScriptedModel(otherwise=says("Hello."))}
    async with await AsyncPerdure.open(store=store, models=models, settings=settings) as library:
        before = OpenOrganisations(library)
        async with before.use(org.id) as theirs:
            agent = await theirs.create_agent("ann")
        await before.close()
        view = store.for_organisation(org.id)
        from tests.contracts.base import Contract

        await view.write(lambda tx: Contract().add_run(tx, agent.id, waiting_input=None))
        organisations = OpenOrganisations(library)
        await organisations.look()
        assert list(organisations._open) == [org.id]
        await organisations.close()


async def test_what_another_process_writes_for_a_deleted_organisation_goes_too(tmp_path: Path) -> None:
    """It still knows the key for a moment, and has a request under way for longer; then nobody opens the organisation
    again."""
    clock = FakeClock()
    async with two_apps(str(tmp_path / "perdure.db"), ScriptedModel(), clock=clock) as (command, server):
        store, organisations = command.app.store, OpenOrganisations(server)
        ring = KeyRing(server.app.store, clock)
        root = Access(store, clock, Uuids(), LOCAL)
        org = await root.create_organisation("Acme")
        acme = Access(store, clock, Uuids(), Principal(org_id=org.id))
        _, key = await acme.create_key("k", "admin")
        assert await ring.principal_of(key.encode()) is not None
        async with organisations.use(org.id) as slow_request:
            await root.delete_organisation(org.id)
            assert await remove_organisation(store, org.id, None, clock=clock) == LAST_WRITES_S
            assert len(await root.organisations()) == 2
            assert await ring.principal_of(key.encode()) is not None
            async with organisations.use(org.id) as library:
                await library.blocks.create("x", "of a known key")
            clock.advance(LAST_WRITES_S)
            assert await remove_organisation(store, org.id, None, clock=clock) == 0
            assert await store.read(rows_with, org.id) == []

            await slow_request.blocks.create("x", "late")
            await organisations.look()
            assert await store.read(rows_with, org.id) == []
            await slow_request.blocks.create("x", "later")
            await acme.note("POST /v1/blocks/")
        await organisations.look()

        assert await store.read(rows_with, org.id) == []
        with pytest.raises(OrganisationGone):
            async with organisations.use(org.id):
                pass
        await organisations.close()


async def test_an_organisation_has_the_models_of_the_servers_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are listed later; but none of another organisation's provider of the same name."""
    listed: dict[str, Any] = {"data": [{"id": "gpt-4o"}, {"id": "gpt-4.1"}]}
    store, settings = InlineStore(), Settings(secret_key="for tests, this one", embedding="none")
    async with fake_provider({"/v1/models": lambda _: listed}) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567")
        async with await AsyncPerdure.open(store=store, settings=settings) as library:
            await library.app.models.refresh()
            org = await Access(store, FakeClock(), Uuids(), LOCAL).create_organisation("Acme")
            organisations = OpenOrganisations(library)
            fields = ProviderFields(name="mine", provider_type="openai", api_key="sk-1", base_url=f"{provider.url}/v1")
            await library.providers.create(fields, private=True)
            async with organisations.use(org.id) as theirs:
                found = handles_of(theirs.app)
                own = [handle for handle in handles_of(library.app) if not handle.startswith("mine/")]
                assert found == own and {"openai/gpt-4o", "openai/gpt-4.1"} < set(found)
                listed["data"].append({"id": "gpt-5"})
                await library.app.models.refresh()
                assert "openai/gpt-5" in handles_of(theirs.app)
                listed["data"].append({"id": "gpt-6"})
                await theirs.providers.create(fields, private=True)

                assert "mine/gpt-6" in handles_of(theirs.app) and "mine/gpt-6" not in handles_of(library.app)
            await organisations.close()


async def test_organisations_go_on_behind_one_that_was_removed() -> None:
    """Also in the loops of the server itself, which ended at it without a word."""
    async with routed() as server:
        store = server.library._app.ports.store
        made = [(await server.post("/v1/organizations/", {"name": f"o{number}"}))["id"] for number in range(3)]
        await store.write(lambda tx: tx.of(Organisations).delete(made[1]))

        left = await server.get("/v1/organizations/", after=made[1])
        status, _ = await server.refused("GET", "/v1/organizations/", after="org-10000000-0000-4000-8000-000000000000")

        assert ([one["id"] for one in left], status) == ([made[2]], 404)
