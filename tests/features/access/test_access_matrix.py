"""Every route of the OpenAPI document and every page, with each kind of key: who gets 401, 403 and 404."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from perdure import AsyncPerdure, Settings
from perdure.core.incoming.principals import LOCAL, SCOPES, UseLimits, includes
from perdure.features.access import keys, limits
from perdure.features.access.scopes import RULES, rule_of
from perdure.features.access.service import KEY_KEPT_S, Access
from perdure.features.access.values import AuditFilter
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.testing import InlineStore
from tests.features.access.worlds import KEY, World, filled, open_world, operations, pages

pytestmark = pytest.mark.uses("access")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world() as world:
        yield world


def test_every_route_and_page_has_a_scope() -> None:
    """And every rule is for one of them, or for what other parts of the server add."""
    known = [*operations(), *pages(), ("GET", "/metrics"), ("GET", "/openapi.json"), ("GET", "/docs")]
    rules = [rule_of(method, filled(path)) for method, path in known]

    assert [one for one, rule in zip(known, rules, strict=True) if rule is None] == []
    assert len(operations()) > 200 and len(pages()) > 70
    assert {rule.scope for rule in RULES} == {*SCOPES}


async def test_every_route_refuses_who_may_not(world: World) -> None:
    """Without a key, with a wrong, an expired or a revoked one: 401; with one of too small a scope: 403."""
    access = world.access()
    _, expired = await access.create_key("old", "admin", expires_at=world.clock.now() + timedelta(seconds=1))
    revoked_key, revoked = await access.create_key("revoked", "admin")
    await access.revoke_key(revoked_key.id)
    world.clock.advance(2)
    wrong = "perdure_" + "x" * 43
    found: dict[str, list[tuple[str, str]]] = {}
    tried: Counter[int] = Counter()
    for method, path in operations():
        for key in (None, wrong, "nonsense", expired, revoked):
            if (status := await world.status(method, filled(path), key)) != 401:
                found.setdefault(f"{status} for {key and key[:12]}", []).append((method, path))
            tried[401] += 1
        rule = rule_of(method, filled(path))
        assert rule is not None
        for scope in SCOPES:
            if includes(scope, rule.scope):
                continue
            tried[403] += 1
            if await world.status(method, filled(path), world.keys[scope]) != 403:
                found.setdefault(f"not 403 for {scope}", []).append((method, path))

    print(f"{len(operations())} operations, requests by the answer that is due: {dict(tried)}")
    assert found == {}


async def test_every_page_refuses_who_may_not(world: World) -> None:
    """A browser is sent to where it can sign in; a form gets 401; too small a scope is 403 for both."""
    found = []
    for method, path in pages():
        rule, form = rule_of(method, filled(path)), {"hx-request": "true"}
        assert rule is not None
        if await world.status(method, filled(path), None) not in (303, 401):
            found.append(("open", method, path))
        found += [
            (scope, method, path)
            for scope in SCOPES
            if not includes(scope, rule.scope)
            and await world.status(method, filled(path), world.keys[scope], **form) != 403
        ]

    assert found == []


async def test_enough_scope_passes_the_gate(world: World) -> None:
    """Each scope gets through to some of its routes, and sees what is there."""
    agent = await world.library.create_agent("ann")
    block = await agent.blocks.get("human")

    assert await world.status("GET", "/v1/agents/", world.keys["read-only"]) == 200
    assert await world.status("POST", "/v1/passages/search", world.keys["read-only"], {"query": "tea"}) == 200
    message = {"messages": [{"role": "user", "content": "Hello"}]}
    assert await world.status("POST", f"/v1/agents/{agent.id}/messages", world.keys["user"], message) == 200
    assert await world.status("PATCH", f"/v1/blocks/{block.id}", world.keys["builder"], {"value": "x"}) == 200
    assert await world.status("POST", "/v1/users/", world.keys["admin"], {"name": "ann"}) == 200
    assert await world.status("GET", "/v1/audit", KEY) == 200


async def test_a_revoked_key_is_refused_within_seconds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a process that has just used it; and a request costs no query meanwhile."""
    key, text = await world.access().create_key("ann", "read-only")
    assert await world.status("GET", "/v1/tags/", text) == 200
    await world.access().revoke_key(key.id)
    assert await world.status("GET", "/v1/tags/", text) == 200  # it is still known
    now = world.gate.ring._known
    for name, (at, known) in list(now.items()):
        now[name] = (at - KEY_KEPT_S, known)

    assert await world.status("GET", "/v1/tags/", text) == 401


async def test_a_server_for_others_is_usable_with_a_key_in_the_store() -> None:
    """Without any that counts nothing is answered."""
    others = ServerConfig(host="0.0.0.0", port=0)
    async with await AsyncPerdure.open(store=InlineStore(), settings=Settings(model="perdure/extractive")) as perdure:
        gate = create_app(perdure, others).state.gate
        assert (await gate.is_usable(), await gate.needs_key_now()) == (False, True)
        await Access.of(perdure.app, LOCAL).create_key("ann", "user")
        assert (await gate.is_usable(), await gate.needs_key_now()) == (True, True)


async def test_a_server_stays_closed_when_its_last_key_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens again when the last key is deleted."""
    monkeypatch.setattr(keys, "KEY_KEPT_S", 0.0)
    async with open_world(ServerConfig()) as world:
        for key_id in [key.id for key in await world.access().keys()]:
            await world.access().delete_key(key_id)
        assert await world.status("GET", "/v1/agents/", None) == 200
        expired, text = await world.access().create_key("k", "admin", expires_at=world.clock.now() + timedelta(days=1))
        assert await world.status("GET", "/v1/agents/", None) == 401
        assert await world.status("GET", "/v1/agents/", text) == 200
        world.clock.advance(2 * 86_400)
        assert await world.status("GET", "/v1/agents/", None) == 401
        assert await world.status("POST", "/v1/keys/", None, {"name": "k", "scope": "admin"}) == 401
        revoked, _ = await world.access().create_key("k", "admin")
        await world.access().revoke_key(revoked.id)
        assert await world.status("GET", "/v1/agents/", None) == 401
        assert await world.access().delete_key(revoked.id)
        assert not await world.access().delete_key(expired.id)
        assert await world.status("GET", "/v1/agents/", None) == 200


async def test_keys_count_from_the_first_request_on() -> None:
    """Where every request has a key, requests are noted, and clients may not name private addresses."""
    async with open_world(ServerConfig()) as world:
        assert await world.status("POST", "/v1/blocks/", world.keys["builder"], {"label": "x", "value": "y"}) == 200
        server = {"server_name": "x", "config": {"mcp_server_type": "sse", "server_url": "http://127.0.0.1:1/x"}}
        assert await world.status("POST", "/v1/mcp-servers/", world.keys["builder"], server) == 403
        (entry,) = await world.access().audit(AuditFilter(), limit=1)
        assert entry.action == "POST /v1/blocks/"


async def test_the_last_key_of_a_deleted_organisation_keeps_a_line() -> None:
    """Else a server on loopback would be open; the line is in the default organisation, where it can be deleted."""
    async with open_world(ServerConfig()) as world:
        acme = await world.access().create_organisation("Acme")
        for name in ("one", "two"):
            await world.access(acme.id).create_key(name, "admin")
        for key in await world.access().keys():
            await world.access().delete_key(key.id)
        await world.access().delete_organisation(acme.id)
        world.clock.advance(60)
        await world.gate.organisations.look()
        (key,) = await world.access().keys()
        assert (key.name, key.user_id, key.revoked_at is None) == ("of a deleted organisation", None, False)
        assert await world.status("GET", "/v1/agents/", None) == 401


async def test_a_refusal_in_a_browser_is_a_page_whatever_the_address(world: World) -> None:
    """Of any letters, and of an action whose page has a wrong one."""
    for path in ("/settings?x=%ff", "/settings?q=caf%C3%A9"):
        assert await world.status("GET", path, world.keys["read-only"]) == 403
    form = {"hx-request": "true", "hx-current-url": "http://[bad", "content-type": "application/x-www-form-urlencoded"}
    assert await world.status("POST", "/settings/access/users", world.keys["read-only"], **form) == 403


async def test_a_key_of_a_user_changes_what_blocks_say_only(world: World) -> None:
    """What they are is the builder's: label, limit, who may write."""
    agent = await world.library.create_agent("ann")
    path = f"/v1/agents/{agent.id}/core-memory/blocks/human"
    assert await world.status("PATCH", path, world.keys["user"], {"value": "Ada"}) == 200
    for change in ({"read_only": True}, {"label": "x"}, {"value": "Bob", "limit": 10}):
        assert await world.status("PATCH", path, world.keys["user"], change) == 403
    assert await world.status("PATCH", path, world.keys["builder"], {"read_only": True}) == 200
    block = await agent.blocks.get("human")
    assert (block.value, block.read_only) == ("Ada", True)
    page = f"/agents/{agent.id}"
    for action in (
        "memory/blocks",
        "memory/block-settings/human",
        "memory/block-settings/human/notes",
        "memory/block-detach/human/notes",
        "memory/companion/on",
        "facts/capture",
        "facts/pause",
    ):
        form = {"hx-request": "true", "content-type": "application/x-www-form-urlencoded"}
        assert await world.status("POST", f"{page}/{action}", world.keys["user"], **form) == 403, action


@pytest.mark.uses("origins")
async def test_what_a_key_writes_carries_its_user(world: World) -> None:
    """Over the API and on the dashboard; a program's key stands for itself."""
    dora = await world.access().create_user("dora")
    _, text = await world.access().create_key("laptop", "builder", user_id=dora.id)
    program, program_text = await world.access().create_key("program", "builder")
    async with world.client(text) as client:
        blocks = [{"label": "human", "value": "Quince"}]
        agent = (await client.post("/v1/agents/", json={"name": "ann", "memory_blocks": blocks})).json()
        path = f"/v1/agents/{agent['id']}"
        assert agent["created_by_id"] == dora.id

        async def author_of(text: str) -> str:
            why = (await client.get("/v1/why", params={"agent_id": agent["id"], "of": text})).json()
            return str(why["writes"][0]["author_id"])

        assert await author_of("Quince") == dora.id
        await client.patch(f"{path}/core-memory/blocks/human", json={"value": "Medlar"})
        assert await author_of("Medlar") == dora.id
        await client.post(f"{path}/archival-memory", json={"text": "The pear is old."})
        assert await author_of("The pear is old.") == dora.id
        form = {"value": "Damson", "version": "1"}
        answer = await client.post(
            f"/agents/{agent['id']}/memory/blocks/human", data=form, headers={"hx-request": "true"}
        )
        assert answer.status_code == 200, answer.text
        assert await author_of("Damson") == dora.id
        async with world.client(program_text) as other:
            await other.patch(f"{path}/core-memory/blocks/human", json={"value": "Sloe"})
        assert await author_of("Sloe") == program.id


async def test_the_audit_log_names_what_was_made_and_changed(world: World) -> None:
    """Also what a key of the scope `user` changes of a history and its conversations."""
    async with world.client(world.keys["builder"]) as client:
        agent = (await client.post("/v1/agents/", json={"name": "ann"})).json()["id"]
        path = f"/v1/agents/{agent}"
        said = (await client.post(f"{path}/messages", json={"input": "Hello"})).json()
        listed = (await client.get(f"{path}/messages")).json()
        message = next(one["id"] for one in listed if one["message_type"] == "user_message")
        change = {"message_type": "user_message", "content": "Hi"}
        assert (await client.patch(f"{path}/messages/{message}", json=change)).status_code == 200, said
        made = (await client.post("/v1/conversations/", params={"agent_id": agent}, json={})).json()["id"]
        assert (await client.delete(f"/v1/conversations/{made}")).status_code == 200
        block = (await client.post("/v1/blocks/", json={"label": "x", "value": "y"})).json()["id"]
        assert (await client.post("/v1/blocks/", json={"label": ""})).status_code == 422

    entries = await world.access().audit(AuditFilter(), limit=4)
    assert [(one.action, one.object_id) for one in entries] == [
        ("POST /v1/blocks/", block),
        ("DELETE /v1/conversations/*", made),
        ("PATCH /v1/agents/*/messages/*", message),
        ("POST /v1/agents/", agent),
    ]


async def test_the_audit_log_notes_a_success_of_any_status(world: World) -> None:
    """An answer without a body has no id, so that of the address counts; what failed is not noted."""
    async with world.client(world.keys["builder"]) as client:
        archive = (await client.post("/v1/archives/", json={"name": "notes"})).json()["id"]
        passage = (await client.post(f"/v1/archives/{archive}/passages", json={"text": "t"})).json()["id"]
        paths = (f"/v1/archives/{archive}/passages/{passage}", f"/v1/archives/{archive}", f"/v1/archives/{archive}")
        statuses = [(await client.delete(path)).status_code for path in paths]

    assert statuses == [204, 204, 404]
    entries = await world.access().audit(AuditFilter(), limit=2)
    assert [(one.action, one.object_id) for one in entries] == [
        ("DELETE /v1/archives/*", archive),
        ("DELETE /v1/archives/*/passages/*", passage),
    ]


async def test_the_minute_of_a_limit_slides(world: World) -> None:
    """Requests at the end of a minute count in the next one, less with each second of it."""
    _, text = await world.access().create_key("even", "read-only", limits=UseLimits(requests_per_minute=4))
    world.clock.advance(119 - world.clock.now().timestamp() % 60)

    async def ask(count: int) -> list[int]:
        return [await world.status("GET", "/v1/tags/", text) for _ in range(count)]

    assert await ask(5) == [200, 200, 200, 200, 429]
    world.clock.advance(2)
    assert await ask(2) == [200, 429]
    world.clock.advance(30)
    assert await ask(3) == [200, 200, 429]
    world.clock.advance(28)
    assert await ask(2) == [200, 429]


@pytest.mark.parametrize("exchanged_s", [0.0, 60.0])
async def test_tokens_beyond_a_keys_limit_end_its_day(
    world: World, monkeypatch: pytest.MonkeyPatch, exchanged_s: float
) -> None:
    """What its runs used is counted by the store, for all processes; the next day there is room again. Runs are refused
    also before processes have exchanged their counts."""
    monkeypatch.setattr(limits, "EXCHANGED_S", exchanged_s)
    agent = await world.library.create_agent("ann")
    _, text = await world.access().create_key("dear", "user", limits=UseLimits(tokens_per_day=1))
    message = {"messages": [{"role": "user", "content": "Hello"}]}

    assert await world.status("POST", f"/v1/agents/{agent.id}/messages", text, message) == 200
    assert await world.status("POST", f"/v1/agents/{agent.id}/messages", text, message) == 429
    world.clock.advance(86_400)
    assert await world.status("POST", f"/v1/agents/{agent.id}/messages", text, message) == 200


async def test_requests_beyond_a_keys_limit_wait(world: World) -> None:
    """429 with how long; the next minute there is room again."""
    acme = world.access()
    _, text = await acme.create_key("slow", "read-only", limits=UseLimits(requests_per_minute=3))
    answers = [await world.http.get("/v1/tags/", headers={"authorization": f"Bearer {text}"}) for _ in range(5)]

    assert [one.status_code for one in answers] == [200, 200, 200, 429, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    world.clock.advance(121)
    assert await world.status("GET", "/v1/tags/", text) == 200
