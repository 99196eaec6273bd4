"""The dashboard without a browser: a client of its application, and what a page's HTML holds."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

import httpx

from perdure import AsyncPerdure
from perdure.engine.context_engines import EngineFactory
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel
from perdure.ui.pages.routes import build_routes, refused_page

MODEL = "test/scripted"
BASE = "http://127.0.0.1:8283"
FORM = {"hx-request": "true"}
"""What the dashboard's own forms send."""


@contextlib.asynccontextmanager
async def dashboard(
    *script: Any,
    config: ServerConfig | None = None,
    tools: Sequence[Callable[..., Any]] = (),
    model: str = MODEL,
    default: str | None = None,
    context_engines: Mapping[str, EngineFactory] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[httpx.AsyncClient, AsyncPerdure]]:
    """A client of the dashboard, which sends what its forms send, and the store behind it. `default`: the setting, in
    place of the `model` that answers by script."""
    setting = model if default is None else default
    library = await AsyncPerdure.open(
        store=InlineStore(),
        models={model: ScriptedModel(*script)},
        tools=tools,
        context_engines=context_engines,
        settings=Settings(**{"model": setting, "secret_key": "for tests, this one", **settings}),
    )
    app = create_app(library, config or ServerConfig(), pages=build_routes(), refused_page=refused_page)
    transport = httpx.ASGITransport(app=app)
    async with library, httpx.AsyncClient(transport=transport, base_url=BASE, headers=FORM) as client:
        yield client, library


class _Texts(HTMLParser):
    """Collects tags with their attributes, and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def tags_of(html: str) -> list[tuple[str, dict[str, str | None]]]:
    """The tags of a page, each with its attributes."""
    parser = _Texts()
    parser.feed(html)
    return parser.tags


def text_of(html: str) -> str:
    """What a page shows."""
    parser = _Texts()
    parser.feed(html)
    return " ".join(" ".join(parser.texts).split())


async def undo(client: httpx.AsyncClient, page: httpx.Response) -> None:
    """Send the form of the notice's undo."""
    tags = tags_of(page.text)
    start = next(place for place, (_, values) in enumerate(tags) if str(values.get("class", "")).startswith("notice"))
    form = next(values for tag, values in tags[start:] if tag == "form")
    fields: dict[str, str | None] = {}
    for tag, values in tags[start + 1 :]:
        if tag == "button":
            break
        if tag == "input":
            fields[str(values["name"])] = values["value"]
    answer = await client.post(str(form["hx-post"]), data=fields)
    assert answer.status_code == 200, answer.text


def claim_in(store: InlineStore) -> Callable[[str, str], Awaitable[bool]]:
    """What notes the first use of something in a period, in this store."""

    async def claim(name: str, period: str) -> bool:
        return await store.write(lambda tx: tx.used.claim(name, period))

    return claim
