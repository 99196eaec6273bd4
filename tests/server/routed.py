"""The server over a store in memory, and clients that call its routes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from letta_client import AsyncLetta

from perdure import AsyncPerdure, Model
from perdure.server.config import ServerConfig
from perdure.server.serving.app import Api, create_app
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel
from tests.server.documented import documented

BASE = "http://127.0.0.1:8283"
MODEL = "test/scripted"
JSON = {"content-type": "application/json"}
GPT = "openai/gpt-4o-mini"


@dataclass(frozen=True, slots=True)
class Routed:
    """`http` sends plain requests, `letta` is the official client; `library` looks behind the routes."""

    http: httpx.AsyncClient
    letta: AsyncLetta
    library: AsyncPerdure
    app: Api

    async def get(self, path: str, **params: Any) -> Any:
        """The body of a GET that succeeds."""
        return self._body(await self.http.get(path, params=params))

    async def post(self, path: str, body: Any) -> Any:
        return self._body(await self.http.post(path, json=body))

    async def post_raw(self, path: str, body: Any) -> Any:
        """The same for a body whose texts have no UTF-8."""
        return self._body(await self.http.post(path, content=json.dumps(body), headers=JSON))

    async def patch(self, path: str, body: Any = None) -> Any:
        return self._body(await self.http.patch(path, json=body))

    async def put(self, path: str, body: Any) -> Any:
        return self._body(await self.http.put(path, json=body))

    async def delete(self, path: str) -> Any:
        return self._body(await self.http.delete(path))

    async def refused(self, method: str, path: str, body: Any = None, **params: Any) -> tuple[int, str]:
        """(status, detail) of a request that fails."""
        answer = await self.http.request(method, path, json=body, params=params)
        assert answer.status_code >= 400, answer.text
        return answer.status_code, str(answer.json()["detail"])

    @staticmethod
    def _body(answer: httpx.Response) -> Any:
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return answer.json()


@contextlib.asynccontextmanager
async def routed(
    *script: Any,
    config: ServerConfig | None = None,
    store: InlineStore | None = None,
    model: Model | None = None,
    tools: Sequence[Callable[..., Any]] = (),
    **settings: Any,
) -> AsyncIterator[Routed]:
    """Everything open, with two models that answer by script; `model` replaces the first."""
    brought: dict[str, Model] = {MODEL: model or ScriptedModel(*script), GPT: ScriptedModel()}
    chosen = Settings(**{"model": MODEL, "secret_key": "for tests, this one", **settings})
    library = await AsyncPerdure.open(store=store or InlineStore(), models=brought, tools=tools, settings=chosen)
    async with library, connected(library, config) as server:
        yield server


@contextlib.asynccontextmanager
async def connected(library: AsyncPerdure, config: ServerConfig | None = None) -> AsyncIterator[Routed]:
    """A server over an open store, and clients of it."""
    key = (config and config.api_key) or "none"
    headers = {"authorization": f"Bearer {key}"}
    app = create_app(library, config or ServerConfig())
    transport, hooks = httpx.ASGITransport(app=app), {"response": [documented(app, has_key=key != "none")]}
    client = httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers, event_hooks=hooks)
    async with client as http:
        letta = AsyncLetta(base_url=BASE, api_key=key, http_client=http, max_retries=0)
        yield Routed(http, letta, library, app)


async def new_agent(server: Routed, name: str = "ann", **fields: Any) -> Any:
    """An agent as the wire shows it; without tools and blocks unless they are asked for."""
    return await server.post("/v1/agents/", {"name": name, "model": MODEL, "include_base_tools": False, **fields})


def keys(shape: Any) -> Any:
    """The names in a shape in their order, and those of the shapes in it; of a list those of its first item."""
    match shape:
        case dict():
            return {name: keys(value) for name, value in shape.items()}
        case [first, *_]:
            return [keys(first)]
        case _:
            return None
