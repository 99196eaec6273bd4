"""Every route of the OpenAPI document and every page, with each kind of key: who gets 401, 403 and 404."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest

from perdure import AsyncPerdure, Settings
from perdure.core.access.values import LOCAL, SCOPES, Limits, Principal, includes
from perdure.core.ids import PREFIXES, OrgId
from perdure.library.services.access.access import Access
from perdure.server.access import limits
from perdure.server.access.gate import Gate
from perdure.server.access.keys import KEPT_S
from perdure.server.access.scopes import RULES, rule_of
from perdure.server.app import build_document, create_app
from perdure.server.config import ServerConfig
from perdure.server.guards import OPEN_PATHS
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, says
from perdure.ui.routes import build_routes
from tests.support.servers import BASE, MODEL

KEY = "the server's own key, of some length"
OPERATIONS = [
    (method.upper(), path)
    for path, methods in sorted(build_document(True)["paths"].items())
    for method in methods
    if path not in OPEN_PATHS
]
PAGES = [
    (method, str(getattr(route, "path", "")))
    for route in build_routes()
    for method in sorted(getattr(route, "methods", None) or ())
    if not getattr(route, "path", "").startswith(("/static", "/sign-in"))
]
UUID = "11111111-1111-4111-8111-{:012d}"

KINDS = {
    "agent_id": "agent", "block_id": "block", "archive_id": "archive", "passage_id": "passage", "memory_id": "passage",
    "folder_id": "folder", "file_id": "file", "message_id": "message", "run_id": "run", "job_id": "job",
    "batch_id": "job", "conversation_id": "conversation", "step_id": "step", "tool_id": "tool", "group_id": "group",
    "mcp_server_id": "mcp_server", "server_id": "mcp_server", "identity_id": "identity", "provider_id": "provider",
    "sandbox_config_id": "sandbox", "env_var_id": "variable", "fact_id": "fact", "entity_id": "entity",
    "scheduled_message_id": "schedule", "schedule_id": "schedule", "org_id": "org", "user_id": "user", "key_id": "key",
}  # fmt: skip


def filled(path: str) -> str:
    """The path with an id of the right kind, or a word, for each parameter."""

    def value(match: re.Match[str]) -> str:
        name, _, form = match[1].partition(":")
        if name in KINDS:
            return f"{PREFIXES[KINDS[name]]}-{UUID.format(1)}"
        return "1" if form == "int" or name == "number" else "name"

    return re.sub(r"\{([^}]+)\}", value, path)


@dataclass
class World:
    """One server over two organisations, with a key of each scope of the default one."""

    http: httpx.AsyncClient
    library: AsyncPerdure
    clock: FakeClock
    gate: Gate
    keys: dict[str, str]

    async def status(self, method: str, path: str, key: str | None, body: Any = None, **headers: str) -> int:
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        json = {} if body is None and method not in ("GET", "HEAD") else body
        return (await self.http.request(method, path, headers=headers, json=json)).status_code

    def access(self, org_id: OrgId = LOCAL.org_id) -> Access:
        ports = self.library.app.ports
        return Access(self.library.app.shared.store, ports.clock, ports.ids, Principal(org_id=org_id))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock, settings = FakeClock(), Settings(model=MODEL, secret_key="for tests, this one", sandbox="off")
    model = ScriptedModel(otherwise=says("Hello."))
    library = await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, settings=settings, clock=clock, ids=SequentialIds()
    )
    async with library:
        app = create_app(library, ServerConfig(api_key=KEY), pages=build_routes())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as http:
            world = World(http, library, clock, app.state.gate, {})
            for scope in SCOPES:
                world.keys[scope] = (await world.access().create_key(scope, scope))[1]
            yield world
        await app.state.gate.close()


def test_every_route_and_page_has_a_scope() -> None:
    """And every rule is for one of them, or for what other parts of the server add."""
    known = [*OPERATIONS, *PAGES, ("GET", "/metrics"), ("GET", "/openapi.json"), ("GET", "/docs")]
    rules = [rule_of(method, filled(path)) for method, path in known]

    assert [one for one, rule in zip(known, rules, strict=True) if rule is None] == []
    assert len(OPERATIONS) > 200 and len(PAGES) > 70
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
    for method, path in OPERATIONS:
        for key in (None, wrong, "nonsense", expired, revoked):
            if (status := await world.status(method, filled(path), key)) != 401:
                found.setdefault(f"{status} for {key and key[:12]}", []).append((method, path))
        rule = rule_of(method, filled(path))
        assert rule is not None
        for scope in SCOPES:
            if not includes(scope, rule.scope) and await world.status(method, filled(path), world.keys[scope]) != 403:
                found.setdefault(f"not 403 for {scope}", []).append((method, path))

    assert found == {}


async def test_every_page_refuses_who_may_not(world: World) -> None:
    """A browser is sent to where it can sign in; a form gets 401; too small a scope is 403 for both."""
    found = []
    for method, path in PAGES:
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


async def test_no_route_reaches_another_organisation(world: World) -> None:
    """Against its objects, each route that names one answers as if it were not there, and nothing of it changes."""
    agent = await world.library.create_agent("ann", human="tea")
    await agent.send("Hello")
    await agent.archive("a fact of ann")
    ids = await own_ids(world, agent.id)
    acme = await world.access().create_organisation("Acme")
    _, key = await world.access(acme.id).create_key("root", "admin")
    before = await world.library.app.store.read(lambda tx: tx.agents.get(agent.id))
    found = []
    for method, path in OPERATIONS:
        names = re.findall(r"\{(\w+)\}", path)
        if not names or names[0] not in ids:
            continue
        url = re.sub(r"\{(\w+)\}", lambda match: ids.get(match[1]) or filled(match[0]), path)
        url += "?query=tea" if path.endswith("/search") else "?source=x" if path.endswith("/writes") else ""
        status = await world.status(method, url, key, None if method == "GET" else example_of(method, path))
        if status not in (404, 405):
            found.append((status, method, path))

    assert found == []
    assert await world.library.app.store.read(lambda tx: tx.agents.get(agent.id)) == before


async def own_ids(world: World, agent_id: str) -> dict[str, str]:
    """Parameter of a path -> the id of something that the default organisation has."""

    async def one(path: str) -> str:
        answer = await world.http.get(path, headers={"authorization": f"Bearer {KEY}"})
        shape = answer.json()
        return str((shape[0] if isinstance(shape, list) else shape)["id"])

    user, (key, _) = await world.access().create_user("ann"), await world.access().create_key("more", "user")
    paths = {
        "block_id": "/v1/blocks/",
        "archive_id": "/v1/archives/",
        "run_id": "/v1/runs/",
        "step_id": "/v1/steps/",
        "tool_id": "/v1/tools/",
        "message_id": f"/v1/agents/{agent_id}/messages",
        "passage_id": f"/v1/agents/{agent_id}/archival-memory",
    }
    ids = {name: await one(path) for name, path in paths.items()}
    ids |= {"agent_id": agent_id, "user_id": user.id, "key_id": key.id, "org_id": LOCAL.org_id}
    return ids | {"memory_id": ids["passage_id"], "job_id": ids["run_id"].replace("run", "job")}


def example_of(method: str, path: str) -> Any:
    """The body that the document shows for a route, where that is enough."""
    if path.endswith("/memory-sources/revert"):
        return {"source": "x"}
    operation = build_document(True)["paths"][path][method.lower()]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples = content.get("examples") or {"": {"value": content.get("example", {})}}
    return next(iter(examples.values()))["value"]


async def test_a_revoked_key_is_refused_within_seconds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a process that has just used it; and a request costs no query meanwhile."""
    key, text = await world.access().create_key("ann", "read-only")
    assert await world.status("GET", "/v1/tags/", text) == 200
    await world.access().revoke_key(key.id)
    assert await world.status("GET", "/v1/tags/", text) == 200  # it is still known
    now = world.gate.ring._known
    for name, (at, known) in list(now.items()):
        now[name] = (at - KEPT_S, known)

    assert await world.status("GET", "/v1/tags/", text) == 401


async def test_tokens_beyond_a_keys_limit_end_its_day(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its runs used is counted by the store, for all processes; the next day there is room again."""
    monkeypatch.setattr(limits, "EXCHANGED_S", 0.0)
    agent = await world.library.create_agent("ann")
    _, text = await world.access().create_key("dear", "user", limits=Limits(tokens_per_day=1))
    message = {"messages": [{"role": "user", "content": "Hello"}]}

    assert await world.status("POST", f"/v1/agents/{agent.id}/messages", text, message) == 200
    assert await world.status("POST", f"/v1/agents/{agent.id}/messages", text, message) == 429
    world.clock.advance(86_400)
    assert await world.status("POST", f"/v1/agents/{agent.id}/messages", text, message) == 200


async def test_requests_beyond_a_keys_limit_wait(world: World) -> None:
    """429 with how long; the next minute there is room again."""
    acme = world.access()
    _, text = await acme.create_key("slow", "read-only", limits=Limits(requests_per_minute=3))
    answers = [await world.http.get("/v1/tags/", headers={"authorization": f"Bearer {text}"}) for _ in range(5)]

    assert [one.status_code for one in answers] == [200, 200, 200, 429, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    world.clock.advance(121)
    assert await world.status("GET", "/v1/tags/", text) == 200
