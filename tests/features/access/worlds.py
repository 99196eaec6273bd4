"""A server over two organisations, and every operation of its OpenAPI document: for tests of who may do what."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from perdure import AsyncPerdure, Settings
from perdure.core.ids import PREFIXES, OrgId
from perdure.core.incoming.principals import LOCAL, SCOPES, Principal
from perdure.features.access.gate import StoreGate
from perdure.features.access.service import Access
from perdure.server.config import ServerConfig
from perdure.server.serving.app import Api, build_document, create_app
from perdure.server.serving.guards import OPEN_PATHS
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, says
from perdure.ui.pages.routes import build_routes
from tests.support.servers import BASE, MODEL

KEY = "the server's own key, of some length"
UUID = "11111111-1111-4111-8111-{:012d}"

KINDS = {
    "agent_id": "agent", "block_id": "block", "archive_id": "archive", "passage_id": "passage", "memory_id": "passage",
    "folder_id": "folder", "file_id": "file", "message_id": "message", "run_id": "run", "job_id": "job",
    "batch_id": "job", "conversation_id": "conversation", "step_id": "step", "tool_id": "tool", "group_id": "group",
    "mcp_server_id": "mcp_server", "server_id": "mcp_server", "identity_id": "identity", "provider_id": "provider",
    "sandbox_config_id": "sandbox", "env_var_id": "variable", "fact_id": "fact", "entity_id": "entity",
    "scheduled_message_id": "schedule", "schedule_id": "schedule", "org_id": "org", "user_id": "user", "key_id": "key",
}  # fmt: skip


@functools.cache  # not when it is imported: each process of the tests would build the document
def operations() -> list[tuple[str, str]]:
    """(method, path) of every operation that asks for a key."""
    return [
        (method.upper(), path)
        for path, methods in sorted(build_document(True)["paths"].items())
        for method in methods
        if path not in OPEN_PATHS
    ]


def pages() -> list[tuple[str, str]]:
    """(method, path) of every page behind the sign-in."""
    return [
        (method, str(getattr(route, "path", "")))
        for route in build_routes()
        for method in sorted(getattr(route, "methods", None) or ())
        if not getattr(route, "path", "").startswith(("/static", "/sign-in"))
    ]


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

    app: Api
    http: httpx.AsyncClient
    library: AsyncPerdure
    clock: FakeClock
    gate: StoreGate
    keys: dict[str, str]

    def client(self, key: str) -> httpx.AsyncClient:
        """A client that sends this key."""
        transport, headers = httpx.ASGITransport(self.app), {"authorization": f"Bearer {key}"}
        return httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers)

    async def status(self, method: str, path: str, key: str | None, body: Any = None, **headers: str) -> int:
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        json = {} if body is None and method not in ("GET", "HEAD") else body
        return (await self.http.request(method, path, headers=headers, json=json)).status_code

    def access(self, org_id: OrgId = LOCAL.org_id) -> Access:
        ports = self.library.app.ports
        return Access(self.library.app.shared.store, ports.clock, ports.ids, Principal(org_id=org_id))


@contextlib.asynccontextmanager
async def open_world(config: ServerConfig | None = None) -> AsyncIterator[World]:
    """A world for a test; its server has the key `KEY`, unless `config` says otherwise."""
    clock, settings = FakeClock(), Settings(model=MODEL, secret_key="for tests, this one", sandbox="off")
    model = ScriptedModel(otherwise=says("Hello."))
    library = await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, settings=settings, clock=clock, ids=SequentialIds()
    )
    async with library:
        app = create_app(library, config or ServerConfig(api_key=KEY), pages=build_routes())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as http:
            world = World(app, http, library, clock, app.state.gate, {})
            for scope in SCOPES:
                world.keys[scope] = (await world.access().create_key(scope, scope))[1]
            yield world
        await app.state.gate.close()


def example_of(method: str, path: str) -> Any:
    """The body that the document shows for a route, where that is enough."""
    if path.endswith("/memory-sources/revert"):
        return {"source": "x"}
    operation = build_document(True)["paths"][path][method.lower()]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples = content.get("examples") or {"": {"value": content.get("example", {})}}
    return next(iter(examples.values()))["value"]
