"""Web pages of other origins: what a browser sends for them without a preflight reaches nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure import InvalidInput
from perdure.server.config import ServerConfig
from perdure.server.serving.guards import OPEN_PATHS
from tests.server.routed import Routed, routed
from tests.support.servers import letta, served

HEALTH = "/v1/health/"
OWN = "http://127.0.0.1:8283"
UUID = "00000000-0000-4000-8000-000000000000"
SAFE_TYPES = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "text/json")
"""Types of bodies that forms and plain `fetch` send to anybody; the empty one is that of a Blob without a type."""

FILE = {"file": ("a.txt", b"Ada wrote notes", "text/plain")}


def operations(server: Routed) -> list[tuple[str, str]]:
    """(method, path) of everything the server says it has, with ids that are none of ours filled in."""
    app: Any = server.http._transport.app  # type: ignore[attr-defined]
    found: list[tuple[str, str]] = []
    for path, verbs in app.openapi()["paths"].items():
        filled = re.sub(r"\{(\w+?)(?:_id)?\}", lambda match: f"{match[1]}-{UUID}", path)
        found += [(verb.upper(), filled) for verb in verbs]
    assert len(found) > 100
    return found


@pytest.mark.slow
async def test_a_page_of_another_origin_is_refused_on_every_route() -> None:
    """By its Origin, and where a browser sends none, by Sec-Fetch-Site; the server's own pages and a typed address are
    answered."""
    foreign: tuple[Mapping[str, str], ...] = (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost:8283"},  # the names of loopback may lead to different programs
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": OWN, "sec-fetch-site": "cross-site"},
    )
    async with routed() as server:
        for method, path in operations(server):
            for headers in foreign:
                assert (await server.http.request(method, path, headers=headers)).status_code == 403, (path, headers)
        for own in ({"sec-fetch-site": "same-origin", "origin": OWN}, {"sec-fetch-site": "none"}, {}):
            assert (await server.http.get(HEALTH, headers=own)).status_code == 200, own


@pytest.mark.slow
async def test_a_body_that_a_form_can_send_is_refused_on_every_route() -> None:
    """A page may send these types to anybody without asking; the same text as JSON is read."""
    async with routed() as server:
        before = await server.get("/v1/agents/count")
        for method, path in operations(server):
            for kind in SAFE_TYPES:
                headers = {"content-type": kind} if kind else {}
                sent = server.http.build_request(method, path, content=b'{"name":"x"}', headers=headers)
                sent.headers.pop("authorization", None)
                answer = await server.http.send(sent)
                # What is sent with a probe is not read.
                expected = 200 if path in OPEN_PATHS else 415
                assert answer.status_code == expected, (method, path, kind, answer.text)
        assert await server.get("/v1/agents/count") == before
        for kind in ("application/json; charset=utf-8", "Application/JSON", "application/merge-patch+json"):
            made = await server.http.post(
                "/v1/blocks/", content=b'{"label":"a","value":"b"}', headers={"content-type": kind}
            )
            assert made.status_code == 200, kind


@pytest.mark.uses("files")
async def test_an_upload_needs_a_header_that_a_form_cannot_send() -> None:
    """That of the official clients, a key, or one for everybody else."""
    async with routed() as server:
        folder = await server.post("/v1/folders/", {"name": "notes"})
        path = f"/v1/folders/{folder['id']}/upload"
        for headers, status in (
            ({}, 415),
            ({"authorization": "Basic YTpi"}, 415),  # a page's form may be sent to an address with a password
            ({"authorization": "Bearer none"}, 200),
            ({"x-stainless-lang": "js"}, 200),
            ({"x-requested-with": "curl"}, 200),
        ):
            sent = httpx.Request("POST", OWN + path, files=FILE, headers=headers)
            assert (await server.http.send(sent)).status_code == status, headers


@pytest.mark.uses("files")
async def test_what_clients_send_is_answered(tmp_path: Path) -> None:
    """The official client's bodies, its requests without one, and its upload; and a POST with no body and no type."""
    async with served(tmp_path) as (address, perdure):
        agent = await perdure.create_agent()
        async with letta(address, api_key="none") as client:
            folder = await client.folders.create(name="notes")
            await client.folders.files.upload(folder.id, file=("a.txt", b"Ada wrote notes"))
            await client.agents.messages.reset(agent.id)
        async with httpx.AsyncClient(base_url=address) as plain:
            for content in (None, b""):
                assert (await plain.post("/v1/tools/add-base-tools", content=content)).status_code == 200


async def test_an_origin_is_allowed_by_setting() -> None:
    """A name with a port for that port, a name alone for all; a proxy's own pages, whose Host is the page's, always."""
    config = ServerConfig(allowed_hosts=("localhost:3000", "pages.example.org"))
    async with routed(config=config) as server:
        for origin, host, status in (
            ("http://localhost:3000", "127.0.0.1:8283", 200),
            ("http://localhost:3001", "127.0.0.1:8283", 403),
            ("https://pages.example.org:444", "127.0.0.1:8283", 200),
            ("https://pages.example.org", "pages.example.org", 200),
            ("http://localhost:9000", "localhost:9000", 200),  # a tunnel, or a container's port
            ("http://127.0.0.1", "127.0.0.1:80", 200),
            ("https://127.0.0.1", "127.0.0.1:80", 403),
            ("http://localhost.evil.example", "127.0.0.1:8283", 403),
            ("file://", "127.0.0.1:8283", 403),
            ("", "127.0.0.1:8283", 403),
        ):
            answer = await server.http.get(HEALTH, headers={"origin": origin, "host": host})
            assert answer.status_code == status, (origin, host)
    named = ("file://", "app://main", "vscode-webview://*")
    async with routed(config=ServerConfig(allowed_hosts=named)) as server:
        for origin, status in (
            ("file://", 200),
            ("app://main", 200),
            ("app://other", 403),
            ("vscode-webview://0a1b2c", 200),
            ("vscode-webview-x://0a1b2c", 403),
            ("null", 403),
            ("http://main", 403),
        ):
            answer = await server.http.get(HEALTH, headers={"origin": origin, "sec-fetch-site": "cross-site"})
            assert answer.status_code == status, origin
        for host in ("main", "app", "null"):
            assert (await server.http.get(HEALTH, headers={"host": host})).status_code == 403
    with pytest.raises(InvalidInput, match="'null' and there is no API key"):
        ServerConfig(allowed_hosts=("null",))
    async with routed(config=ServerConfig(allowed_hosts=("null",), api_key="a long random text")) as server:
        assert (await server.http.get(HEALTH, headers={"origin": "null"})).status_code == 200
    for name in ("https://*", "app*://main", "app://ma*"):
        with pytest.raises(InvalidInput, match="can never match"):
            ServerConfig(allowed_hosts=(name,))


async def test_a_preflight_is_answered_without_leave() -> None:
    """No page of another origin may read an answer."""
    async with routed(config=ServerConfig(allowed_hosts=("localhost:3000",))) as server:
        preflight = await server.http.options("/v1/agents/", headers={"origin": "http://localhost:3000"})
        assert not [name for name in preflight.headers if name.startswith("access-control-")]
