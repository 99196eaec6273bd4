"""Images in messages and in what tools return: by their bytes, or by an address behind the web guard."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from letta_client.types.agents import Message
from pydantic import TypeAdapter

from perdure.core.messages import Image, images_of
from perdure.testing import ScriptedModel, calls, says
from tests.server.routed import MODEL, Routed, routed
from tests.toolbox.web_site import Site, page, serving

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
LARGE = base64.b64encode(PNG * 20).decode()
DATA = base64.b64encode(PNG).decode()
BYTES = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA, "detail": "low"}}
MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message])
LOOK = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}


def link(url: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "url", "url": url}}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A web site with an image, a page, and a large image."""
    pages = {
        "/a.png": page(PNG, kind="image/png"),
        "/page": page(b"<p>hello", kind="image/png"),
        "/large": page(PNG + b"0" * 2_000, kind="image/png"),
    }
    async with serving(pages) as site:
        yield site


@pytest.fixture
async def server(site: Site) -> AsyncIterator[Routed]:
    """A server that may fetch from this site only."""
    script = calls("look", call_id="c1"), says("A dot.")
    async with routed(*script, web_allowed_hosts=f"127.0.0.1:{site.port}", image_limit_bytes=1_000) as server:
        yield server


def requests_of(server: Routed) -> list[Any]:
    model = server.library.app.models.find(MODEL)
    assert isinstance(model, ScriptedModel)
    return model.requests


async def messages_of_agent(server: Routed) -> str:
    """The path of a new agent's messages."""
    made = await server.post("/v1/agents/", {"model": MODEL})
    return f"/v1/agents/{made['id']}/messages"


async def test_a_message_with_images(server: Routed, site: Site) -> None:
    """The model gets both; the address is fetched once; history shows them as they were sent."""
    path = await messages_of_agent(server)
    content = [{"type": "text", "text": "What is this?"}, BYTES, link(site.url("/a.png"))]
    await server.post(path, {"messages": [{"role": "user", "content": content}], "client_tools": [LOOK]})
    [user] = await server.get(path, include_return_message_types="user_message")
    [told] = [message for message in requests_of(server)[0].messages if message.role == "user"]

    assert images_of(told.parts) == (
        Image("image/png", DATA, detail="low"),
        Image("image/png", DATA, url=site.url("/a.png")),
    )
    assert len(site.requests) == 1
    assert user["content"] == content
    MESSAGES.validate_python([user])
    assert (await server.get(f"/v1/messages/{user['id']}")) == [user]
    context = await server.get(path.removesuffix("messages") + "context")
    assert context["num_tokens_messages"] > 2 * 1_000


async def test_a_message_of_an_image_alone(server: Routed) -> None:
    """It is no empty message, and search does not find words in it."""
    path = await messages_of_agent(server)
    await server.post(path, {"input": [BYTES], "client_tools": [LOOK]})
    [user] = await server.get(path, include_return_message_types="user_message")

    assert user["content"] == [BYTES]
    found = await server.post("/v1/messages/search", {"query": "image png bytes", "search_mode": "fts"})
    assert found == []


async def test_a_tool_returns_an_image(server: Routed, site: Site) -> None:
    """The caller's result holds text and images; so does history, and what the model gets."""
    path = await messages_of_agent(server)
    await server.post(path, {"input": "look", "client_tools": [LOOK]})
    parts = [{"type": "text", "text": "here"}, BYTES, link(site.url("/a.png"))]
    result = {"type": "tool", "tool_call_id": "c1", "status": "success", "tool_return": parts}
    await server.post(path, {"messages": [{"type": "tool_return", "tool_returns": [result]}]})
    history = await server.get(path, order="asc")
    [returned] = [message for message in history if message["message_type"] == "tool_return_message"]
    MESSAGES.validate_python(history)

    assert (returned["tool_return"], returned["tool_returns"][0]["tool_return"]) == ("here", parts)
    [told] = [message for message in requests_of(server)[-1].messages if message.role == "tool"]
    assert [image.data for image in images_of(told.parts)] == [DATA, DATA]


@pytest.mark.parametrize(
    ("source", "status", "part"),
    [
        ({"type": "base64", "media_type": "image/bmp", "data": DATA}, 422, "media_type"),
        ({"type": "base64", "media_type": "image/png", "data": "?"}, 422, "source.data"),
        ({"type": "base64", "media_type": "image/png", "data": LARGE}, 422, "PERDURE_IMAGE_LIMIT_BYTES"),
        ({"type": "url", "url": "http://127.0.0.1:1/a.png"}, 400, "port 1 is not one of those"),
        ({"type": "url", "url": "http://127.0.0.1/a.png"}, 400, "this machine"),
        ({"type": "url", "url": "file:///etc/passwd"}, 400, "only http and https"),
        ({"type": "url", "url": "SITE/page"}, 422, "is not an image"),
        ({"type": "url", "url": "SITE/large"}, 422, "more than 1,000 bytes"),
        ({"type": "url", "url": "SITE/none"}, 422, "status 404"),
        ({"type": "song"}, 422, "source.type"),
        ("x", 422, "source"),
    ],
)
async def test_bad_images_are_refused(server: Routed, site: Site, source: Any, status: int, part: str) -> None:
    """Before anything is stored, with the reason."""
    if isinstance(source, dict) and "url" in source:
        source = source | {"url": source["url"].replace("SITE", site.url("").rstrip("/"))}
    path = await messages_of_agent(server)
    refused = await server.refused("POST", path, {"input": [{"type": "image", "source": source}]})

    assert (refused[0], part in refused[1]) == (status, True), refused
    assert await server.get(path, include_return_message_types="user_message") == []


async def test_too_many_images_are_refused(server: Routed) -> None:
    """With the setting that raises the limit."""
    path = await messages_of_agent(server)
    status, detail = await server.refused("POST", path, {"input": [BYTES] * 11})

    assert (status, "PERDURE_IMAGES_PER_REQUEST" in detail) == (422, True)
