"""Providers of models that clients register, with their own keys."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.app import endpoint_of
from perdure.library.parts.providers import ProviderFields
from perdure.server.config import ServerConfig
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import says
from perdure.testing.http_model import HttpModel
from tests.server.routed import MODEL, Routed, routed
from tests.toolbox.names import PUBLIC
from tests.toolbox.web_site import page, serving

KEY = "sk-byok-1234567890abcdef"
UNKNOWN = "provider-123e4567-e89b-42d3-a456-426614174000"


@pytest.fixture
async def http() -> AsyncIterator[HttpModel]:
    """The server of a provider with two models."""
    async with HttpModel(otherwise=says("hello"), models=("gpt-4o", "text-embedding-3-small")) as http:
        yield http


@pytest.fixture
async def server() -> AsyncIterator[Routed]:
    async with routed() as server:
        yield server


def fields(http: HttpModel, **changes: Any) -> dict[str, Any]:
    return {"name": "mine", "provider_type": "openai", "api_key": KEY, "base_url": http.url, **changes}


async def test_the_models_of_a_provider_are_usable(server: Routed, http: HttpModel) -> None:
    """In the list, for agents, and with the key; which no answer holds, and no row of the store."""
    made = await server.http.post("/v1/providers/", json=fields(http))
    provider = made.json()
    models = {model["handle"]: model for model in await server.get("/v1/models/", provider_category="byok")}
    agent = await server.post("/v1/agents/", {"model": "mine/gpt-4o"})
    reply = await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hi"})

    assert (provider["name"], provider["provider_type"], provider["provider_category"]) == ("mine", "openai", "byok")
    assert provider["api_key"] is None and provider["last_synced"] is not None and KEY not in made.text
    assert list(models) == ["mine/gpt-4o"]
    model = models["mine/gpt-4o"]
    assert (model["provider_name"], model["provider_type"], model["context_window"]) == ("mine", "openai", 128_000)
    for shown in (agent["llm_config"], *await server.get("/v1/steps/", agent_id=agent["id"])):
        assert (shown["provider_name"], shown["provider_category"]) == ("mine", "byok")
        assert shown.get("context_window_limit", 128_000) == 128_000
    assert reply["messages"][-1]["content"] == "hello"
    assert http.headers[-1]["authorization"] == f"Bearer {KEY}" and http.requests[-1]["model"] == "gpt-4o"
    rows = await server.library.app.store.read(lambda tx: tx.providers.list())
    assert KEY.encode() not in rows[0].sealed and len(rows[0].sealed) > len(KEY)


async def test_providers_are_listed_changed_and_deleted(server: Routed, http: HttpModel) -> None:
    """A changed key counts at once; a deleted provider's models are gone."""
    first = await server.post("/v1/providers/", fields(http))
    second = await server.post("/v1/providers/", fields(http, name="other", provider_type="together"))
    listed = await server.get("/v1/providers/")
    named = await server.get("/v1/providers/", name="mine")
    await server.patch(f"/v1/providers/{first['id']}", {"api_key": "sk-another-key-123456"})
    agent = await server.post("/v1/agents/", {"model": "mine/gpt-4o"})
    await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hi"})

    assert [one["id"] for one in listed] == [second["id"], first["id"]] and named == [first]
    others = await server.post("/v1/agents/", {"model": "other/gpt-4o"})
    assert others["llm_config"]["model_endpoint_type"] == others["model_settings"]["provider_type"] == "together"
    assert http.headers[-1]["authorization"] == "Bearer sk-another-key-123456"
    assert (await server.refused("PATCH", f"/v1/providers/{first['id']}", {"name": "new"}))[0] == 422
    gone = await server.delete(f"/v1/providers/{first['id']}")
    assert gone == {"message": f"Provider id={first['id']} successfully deleted"}
    assert (await server.refused("GET", f"/v1/providers/{first['id']}"))[0] == 404
    handles = [model["handle"] for model in await server.get("/v1/models/")]
    assert "other/gpt-4o" in handles and "mine/gpt-4o" not in handles
    status, detail = await server.refused("POST", f"/v1/agents/{agent['id']}/messages", {"input": "hi"})
    assert (status, "mine/gpt-4o not found" in detail) == (404, True)


async def test_a_key_is_checked(server: Routed, http: HttpModel) -> None:
    """Before it is stored, and afterwards; what the provider says decides."""
    checked = await server.post("/v1/providers/check", fields(http))
    made = await server.post("/v1/providers/", fields(http))

    assert checked["message"].startswith("Valid api key for provider_type=openai")
    assert (await server.post(f"/v1/providers/{made['id']}/check", {}))["message"].startswith("Valid api key")
    refreshed = await server.patch(f"/v1/providers/{made['id']}/refresh")
    assert refreshed["last_synced"] >= made["last_synced"]


async def test_a_key_that_the_provider_refuses(server: Routed, http: HttpModel) -> None:
    """401 from each check; but the provider is stored, as it may be down for a moment."""
    async with serving({"/v1/models": page(b"no", status="401 Unauthorized")}) as site:
        refusing = fields(http, base_url=site.url("/v1"))
        made = await server.post("/v1/providers/", refusing)
        for method, path, body in (
            ("POST", "/v1/providers/check", refusing),
            ("POST", f"/v1/providers/{made['id']}/check", {}),
            ("PATCH", f"/v1/providers/{made['id']}/refresh", {}),
        ):
            answer = await server.http.request(method, path, json=body)

            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "llm_authentication"), path
            assert KEY not in answer.text
        assert made["last_synced"] is None


@pytest.mark.parametrize(
    ("changes", "status", "part"),
    [
        ({"name": "openai"}, 409, "exists already"),
        ({"name": "letta"}, 409, "exists already"),
        ({"name": "a/b"}, 422, "provider name"),
        ({"name": ""}, 422, "name"),
        ({"base_url": "ftp://x"}, 422, "base_url"),
        ({"base_url": "http://ann:word@example.com/v1"}, 422, "user name or password"),
        ({"base_url": "http://example.com:0/v1"}, 422, "base_url"),
        ({"base_url": "http://xn--/v1"}, 422, "base_url"),
        ({"base_url": "http://169.254.169.254/v1"}, 400, "metadata"),
        ({"provider_type": ""}, 422, "provider_type"),
        ({"provider_type": "unheard", "base_url": None}, 422, "needs one"),
        ({"api_key": "a\nb"}, 422, "api_key"),
        ({"provider_type": "azure"}, 501, "protocol"),
    ],
)
async def test_bad_providers_are_refused(
    server: Routed, http: HttpModel, changes: dict[str, Any], status: int, part: str
) -> None:
    """With the reason, and nothing stored."""
    refused = await server.refused("POST", "/v1/providers/", fields(http, **changes))

    assert (refused[0], part in refused[1], KEY in refused[1]) == (status, True, False), refused
    assert await server.get("/v1/providers/") == []


async def test_blanks_are_no_key_and_no_type(server: Routed, http: HttpModel) -> None:
    """Spaces around a key come from pasting; a type can't be changed to nothing."""
    made = await server.post("/v1/providers/", fields(http, api_key=f" {KEY} "))
    keyless = await server.post("/v1/providers/", fields(http, name="open", api_key="  "))
    for name in ("mine", "open"):
        agent = await server.post("/v1/agents/", {"model": f"{name}/gpt-4o"})
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hi"})

    assert made["last_synced"] and keyless["last_synced"]
    assert [one.get("authorization") for one in http.headers] == [f"Bearer {KEY}", None]
    assert (await server.refused("PATCH", f"/v1/providers/{made['id']}", {"provider_type": ""}))[0] == 422


async def test_a_name_is_taken_once(server: Routed, http: HttpModel) -> None:
    """409 for the second; 404 for a provider that is not there."""
    await server.post("/v1/providers/", fields(http))

    assert (await server.refused("POST", "/v1/providers/", fields(http)))[0] == 409
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/check"), ("PATCH", "/refresh")):
        assert (await server.refused(method, f"/v1/providers/{UNKNOWN}{path}", {}))[0] == 404


async def test_a_server_that_others_reach_asks_no_private_address(http: HttpModel) -> None:
    """A client could explore the network behind the server."""
    async with routed(config=ServerConfig(api_key="a long random text")) as server:
        for path in ("/v1/providers/", "/v1/providers/check"):
            status, detail = await server.refused("POST", path, fields(http))
            assert (status, "PERDURE_MCP_PRIVATE" in detail) == (400, True)

        assert await server.get("/v1/providers/") == []


async def test_providers_are_there_after_a_restart(tmp_path: Path, http: HttpModel) -> None:
    """Before any run goes on, with the key of the store's own key file."""
    settings = replace(Settings(), model="perdure/extractive")
    new = {"name": "mine", "provider_type": "openai", "api_key": KEY, "base_url": http.url}
    async with await AsyncPerdure.open(tmp_path / "p.db", settings=settings) as perdure:
        await perdure.providers.create(ProviderFields(**new), private=True)
    async with await AsyncPerdure.open(tmp_path / "p.db", settings=settings) as perdure:
        agent = await perdure.create_agent(model="mine/gpt-4o")
        reply = await agent.send("hi")

    assert reply.text == "hello" and http.headers[-1]["authorization"] == f"Bearer {KEY}"


class Rebinding:
    """A name server that moves `rebinds.example` to another address after its first answer."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self._look_up = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **options: Any) -> list[Any]:
        if host == "rebinds.example":
            host = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return self._look_up(host, port, *args, **options)


@pytest.mark.parametrize("inside", ["127.0.0.1", "::ffff:127.0.0.1"])
async def test_a_provider_that_moves_inside_is_not_asked(
    http: HttpModel, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    """Its name led to a public address when it was registered: neither its models are listed nor messages sent."""
    monkeypatch.setattr(socket, "getaddrinfo", Rebinding(PUBLIC, inside))
    new = fields(http, base_url=http.url.replace("127.0.0.1", "rebinds.example"))
    async with routed(config=ServerConfig(api_key="a long random text")) as server:
        made = await server.post("/v1/providers/", new)
        agent = await server.post("/v1/agents/", {"model": "mine/gpt-4o"})
        messages = f"/v1/agents/{agent['id']}/messages"
        answers = [
            await server.http.request(method, path, json=body)
            for method, path, body in (
                ("POST", f"/v1/providers/{made['id']}/check", {}),
                ("PATCH", f"/v1/providers/{made['id']}/refresh", {}),
                ("POST", messages, {"input": "hi"}),
                ("POST", messages, {"input": "hi", "streaming": True, "stream_tokens": True}),
                ("POST", f"/v1/agents/{agent['id']}/generate", {"prompt": "hi"}),
            )
        ]

    assert made["last_synced"] is None and http.connections == 0
    assert all("this machine" in answer.text for answer in answers), [answer.text for answer in answers]
    assert [answer.status_code < 500 for answer in answers] == [True] * 5


async def test_a_provider_that_was_registered_inside_stays_usable(
    http: HttpModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name, where clients may name such addresses; but it may not move to where clouds keep their metadata."""
    monkeypatch.setattr(socket, "getaddrinfo", Rebinding(*["127.0.0.1"] * 4, "169.254.169.254"))
    async with routed() as server:
        made = await server.post(
            "/v1/providers/", fields(http, base_url=http.url.replace("127.0.0.1", "rebinds.example"))
        )
        agent = await server.post("/v1/agents/", {"model": "mine/gpt-4o"})
        reply = await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hi"})
        moved = await server.http.patch(f"/v1/providers/{made['id']}/refresh")

    assert made["last_synced"] and reply["messages"][-1]["content"] == "hello"
    assert (moved.status_code, "169.254.169.254" in moved.text) == (400, True)


async def test_a_provider_that_points_elsewhere_is_not_followed(server: Routed, http: HttpModel) -> None:
    """A redirect would take key and conversation along, to an address that nobody checked."""
    moved = page(b"", status="307 Moved", Location=f"{http.url}/v1/models")
    async with serving({"/v1/models": moved, "/v1/chat/completions": moved}) as site:
        made = await server.post("/v1/providers/", fields(http, base_url=site.url("/v1")))
        agent = await server.post("/v1/agents/", {"model": "mine/gpt-4o"})
        answer = await server.http.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})

    assert made["last_synced"] is None and http.connections == 0
    assert (answer.status_code, "answered 307" in answer.text) == (400, True)


async def test_a_window_is_at_most_that_of_its_model(server: Routed, http: HttpModel) -> None:
    """Each step tells the window of its request: a conversation's own, the agent's, or less, if the model has less."""
    await server.post("/v1/providers/", fields(http))
    wide = {"model": "mine/gpt-4o", "context_window_limit": 500_000}
    agent = await server.post("/v1/agents/", wide)
    other = await server.post("/v1/agents/", {**wide, "model": MODEL})
    narrow = await server.post(f"/v1/conversations/?agent_id={agent['id']}", {"context_window_limit": 20_000})
    conversation = await server.post(f"/v1/conversations/?agent_id={agent['id']}", {"context_window_limit": 500_000})
    windows = []
    for path in (
        f"agents/{agent['id']}",
        f"agents/{other['id']}",
        f"conversations/{narrow['id']}",
        f"conversations/{conversation['id']}",
    ):
        await server.post(f"/v1/{path}/messages", {"input": "hi", "streaming": False})
        [step] = await server.get("/v1/steps/", limit=1)
        windows.append(step["context_window_limit"])
    patched = await server.patch(f"/v1/agents/{agent['id']}", {"context_window_limit": 600_000})

    assert windows == [128_000, 500_000, 20_000, 128_000]
    assert [one["llm_config"]["context_window"] for one in (agent, other, patched)] == [128_000, 500_000, 128_000]


async def test_a_registered_provider_shows_as_the_clients_own(server: Routed, http: HttpModel) -> None:
    """Its models, agents with them, and their steps are `byok`, of its type and with its prices; others are `base`."""
    types = {"one": "anthropic", "two": "zai", "three": "ollama"}
    for name, kind in types.items():
        await server.post("/v1/providers/", fields(http, name=name, provider_type=kind))
    handles = [*(f"{name}/gpt-4o" for name in types), MODEL]
    agents = [await server.post("/v1/agents/", {"model": handle}) for handle in handles]
    for agent in agents[1:]:
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hi"})
    steps = await server.get("/v1/steps/", order="asc")
    agent_of = server.library.agent_of
    prices = [(await agent_of(step["agent_id"]).explain(step["id"])).price for step in steps]
    models = await server.get("/v1/models/", provider_category="byok")

    configs = [agent["llm_config"] for agent in agents]
    assert [one["provider_category"] for one in (*configs, *models)] == [*["byok"] * 3, "base", "byok", "byok"]
    assert [one["model_endpoint_type"] for one in configs] == [*types.values(), "openai"]
    assert {one["handle"]: one["provider_type"] for one in models} == {"two/gpt-4o": "zai", "three/gpt-4o": "ollama"}
    assert [agent["model_settings"]["provider_type"] for agent in agents[:2]] == ["anthropic", "zai"]
    assert [step["provider_category"] for step in steps] == ["byok", "byok", "base"]
    assert [price is not None and price > 0 for price in prices[:2]] == [True, False] and prices[1] == 0


@pytest.mark.parametrize("part", ["v1?key=hidden-in-a-query", "hidden-in-a-query-4f7d2e91bc08a5d6/v1"])
async def test_the_key_in_an_address_is_shown_to_nobody(
    server: Routed, http: HttpModel, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """It often holds a key: no answer, log or row holds it. A client that sends the address back as it was shown
    changes nothing, nor does another key."""
    caplog.set_level(logging.DEBUG)
    address = f"{http.url}/{part}"
    made = await server.post("/v1/providers/", fields(http, base_url=address))
    changed = await server.patch(f"/v1/providers/{made['id']}", {"base_url": made["base_url"], "api_version": "2"})
    agent = await server.post("/v1/agents/", {"model": "mine/gpt-4o"})
    await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hi"})
    (step,) = await server.get("/v1/steps/", agent_id=agent["id"])
    paths = ["/v1/providers/", "/v1/models/", f"/v1/agents/{agent['id']}", f"/v1/steps/{step['id']}", "/connections"]
    shown = [(await server.http.get(path)).text for path in (*paths, f"/v1/steps/{step['id']}/trace")]
    (stored,) = await server.library.app.store.read(lambda tx: tx.providers.list())
    status, detail = await server.refused("POST", "/v1/providers/", fields(http, name="b", base_url=made["base_url"]))

    assert made["base_url"] == changed["base_url"] and made["base_url"].endswith("?***")
    logged = [one.getMessage() for one in caplog.records if one.name.startswith("perdure")]
    assert stored.base_url == made["base_url"] and "hidden-in-a-query" not in f"{stored} {logged}"
    assert b"hidden-in-a-query" not in stored.sealed
    assert not [text for text in shown if "hidden-in-a-query" in text]
    assert status == 422 and "write its query out" in detail


async def test_key_and_query_of_a_provider_change_apart(server: Routed, http: HttpModel) -> None:
    """A new key leaves the query, a new address the key; an address without a query has none."""
    first, second = (f"{http.url}/v1?key=query-number-{number}" for number in (1, 2))
    path = f"/v1/providers/{(await server.post('/v1/providers/', fields(http, base_url=first)))['id']}"
    cipher, found = server.library.app.ports.cipher, []
    for change in ({}, {"api_key": "sk-second"}, {"base_url": second}, {"base_url": http.url}, {"api_key": "sk-third"}):
        await server.patch(path, change)
        (stored,) = await server.library.app.store.read(lambda tx: tx.providers.list())
        endpoint = endpoint_of(stored, cipher)
        found.append((endpoint.api_key, endpoint.base_url.removeprefix(http.url)))

    assert found == [
        (KEY, "/v1?key=query-number-1"),
        ("sk-second", "/v1?key=query-number-1"),
        ("sk-second", "/v1?key=query-number-2"),
        ("sk-second", "/v1"),
        ("sk-third", "/v1"),
    ]


async def test_the_query_that_an_older_version_stored_is_encrypted(server: Routed, http: HttpModel) -> None:
    """When the providers are loaded; the models stay usable, and another secret key takes it over."""
    address = f"{http.url}/v1?key=hidden-in-a-query"
    await server.post("/v1/providers/", fields(http))
    app = server.library.app

    def write_plain(tx: Tx) -> None:
        (stored,) = tx.providers.list()
        tx.providers.put(replace(stored, base_url=address))

    await app.store.write(write_plain)
    await app.providers.load()
    (stored,) = await app.store.read(lambda tx: tx.providers.list())
    endpoint = endpoint_of(stored, app.ports.cipher)

    assert stored.base_url == f"{http.url}/v1?***"
    assert (endpoint.api_key, endpoint.base_url) == (KEY, address)
