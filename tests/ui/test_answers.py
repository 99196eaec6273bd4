"""How pages and their files reach a browser: compressed, once, and as a page where something is wrong."""

from __future__ import annotations

import gzip

import httpx
import pytest

from benchmarks.dashboard import paths_of
from perdure.server.config import ServerConfig
from perdure.testing import says
from perdure.ui.answers import assets
from tests.ui.browser import dashboard, tags_of, text_of

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
KEY = "a-key-of-the-server-itself"


async def raw(client: httpx.AsyncClient, path: str, **headers: str) -> httpx.Response:
    """The answer to a GET, its body as it was sent."""
    async with client.stream("GET", path, headers={"accept-encoding": "gzip, deflate, br", **headers}) as answer:
        body = b"".join([piece async for piece in answer.aiter_raw()])
    return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(body))


def sent(answer: httpx.Response) -> bytes:
    """The bytes that were sent."""
    return b"".join(answer.stream)  # type: ignore[arg-type]


async def test_files_are_compressed_and_kept_by_what_they_hold() -> None:
    """The address that a page has for a file may be kept for good; each other one is asked for again."""
    async with dashboard() as (client, _):
        page = await client.get("/")
        addresses = [
            str(tag.get("src") or tag.get("href")) for name, tag in tags_of(page.text) if name in ("script", "link")
        ]
        addresses = [one for one in addresses if one.startswith("/static/") and "?" in one]
        assert len(addresses) >= 4
        for address in addresses:
            asset = assets()[address.split("/")[-1].split("?")[0]]
            answer, plain = await raw(client, address), await raw(client, address, **{"accept-encoding": "gzip;q=0"})
            again = await raw(client, address, **{"if-none-match": f'"x", {answer.headers["etag"]}'})

            assert answer.headers["cache-control"] == "max-age=31536000, immutable"
            assert answer.headers["content-encoding"] == "gzip" and gzip.decompress(sent(answer)) == asset.body
            assert "content-encoding" not in plain.headers and sent(plain) == asset.body
            assert (again.status_code, sent(again)) == (304, b"")
        old = await raw(client, addresses[0].split("?")[0] + "?v=older")
        missing = await client.get("/static/../answers.py")

        assert old.headers["cache-control"] == "no-cache" and missing.status_code == 404


async def test_a_page_is_compressed_and_sent_once() -> None:
    """As long as it says the same; the JSON of a page, an answer of the API and a stream stay as they are."""
    async with dashboard(says("hello")) as (client, library):
        agent = await library.create_agent("Ada", human="Likes tea. " * 300)
        path = f"/agents/{agent.id}/memory"
        first = await raw(client, path)
        etag = first.headers["etag"]
        again = await raw(client, path, **{"if-none-match": etag})
        await agent.blocks.update("human", "Likes coffee.")
        changed = await raw(client, path, **{"if-none-match": etag})
        form = await client.post(f"{path}/blocks/human", data={"value": "x", "version": "9"})
        others = [await raw(client, one) for one in (f"{path}?format=json", f"/v1/agents/{agent.id}", "/v1/agents/")]

        assert first.headers["content-encoding"] == "gzip" and first.headers["cache-control"] == "private, no-cache"
        assert len(sent(first)) * 4 < len(gzip.decompress(sent(first)))
        assert (again.status_code, sent(again), again.headers["etag"]) == (304, b"", etag)
        assert changed.status_code == 200 and b"Likes coffee." in gzip.decompress(sent(changed))
        assert "etag" not in form.headers and form.headers["cache-control"] == "no-store"
        assert [("content-encoding" in one.headers, "etag" in one.headers) for one in others] == [(False, False)] * 3


async def test_the_page_of_keys_is_not_compressed() -> None:
    """It shows a new key, beside what administrators name things."""
    async with dashboard() as (client, _):
        assert "content-encoding" not in (await raw(client, "/settings/access")).headers
        assert "content-encoding" in (await raw(client, "/settings")).headers


@pytest.mark.parametrize("path", ["/nowhere", "/nowhere/", "/agents/x/y/z", "/static/none.css", "/agents/delete/all"])
async def test_an_unknown_path_is_a_page_in_a_browser(path: str) -> None:
    """With the dashboard around it; a program gets JSON."""
    async with dashboard() as (client, _):
        page = await client.get(path, headers=BROWSER)
        program = await client.get(path)

    assert page.status_code == program.status_code == 404
    assert page.headers["content-type"].startswith("text/html") and "There is no page at" in text_of(page.text)
    # What needs no session, such as a file, has no more than a link to the home page.
    link = "/" if path.startswith("/static/") else "/runs"
    assert any(tag.get("href") == link for _, tag in tags_of(page.text))
    assert program.headers["content-type"].startswith("application/json") and "detail" in program.json()


async def test_an_address_of_a_form_is_a_page_in_a_browser() -> None:
    async with dashboard() as (client, _):
        page = await client.get("/agents", headers=BROWSER)

    assert page.status_code in (404, 405) and "There is no page at /agents." in text_of(page.text)


async def test_half_a_character_is_shown_as_a_mark() -> None:
    """A program that cuts an emoji in two sends one; neither its page, nor those of all agents, ended for it."""
    half = "tea \ud83d here"
    async with dashboard(says(half)) as (client, library):
        agent = await library.create_agent("Ada", human=half, description=half, tags=[half], system=half)
        await agent.archive(half, tags=[half])
        run = await agent.send(half)
        paths = [*await paths_of(agent), f"/runs/{run.run_id}/export", "/search?q=tea"]
        pages = {path: await client.get(path) for path in (*paths, f"/agents/{agent.id}/memory?format=json")}

    assert {path: page.status_code for path, page in pages.items() if page.status_code != 200} == {}
    assert "tea \ufffd here" in pages[f"/agents/{agent.id}/memory"].text


async def test_a_refused_host_is_a_page_in_a_browser() -> None:
    """It says what to set, loads nothing, and shows nothing of the server; what the name holds is text."""
    async with dashboard() as (client, _):
        page = await client.get("/", headers={**BROWSER, "host": "box.lan:8283"})
        hostile = await client.get("/", headers={**BROWSER, "host": "<script>alert(1)</script>"})
        foreign = await client.get("/runs", headers={**BROWSER, "sec-fetch-site": "cross-site"})
        program = await client.get("/", headers={"host": "box.lan:8283"})

    assert page.status_code == 403 and "PERDURE_ALLOWED_HOSTS=box.lan" in text_of(page.text)
    assert not [tag for name, tag in tags_of(page.text) if name in ("script", "a", "form", "img")]
    assert "<script" not in hostile.text and hostile.status_code == 403
    assert foreign.status_code == 403 and "Sec-Fetch-Site" in text_of(foreign.text)
    assert program.json()["detail"].startswith("Host 'box.lan:8283' is not allowed here")


async def test_nobody_learns_of_pages_without_signing_in() -> None:
    """An unknown path says that one is not signed in, as it does for programs; a page leads to the form."""
    async with dashboard(config=ServerConfig(api_key=KEY)) as (client, _):
        unknown, known = await client.get("/nowhere", headers=BROWSER), await client.get("/runs", headers=BROWSER)

    assert unknown.status_code == 401 and "You are not signed in" in text_of(unknown.text)
    assert any(tag.get("href") == "/" for _, tag in tags_of(unknown.text))
    assert unknown.headers["content-security-policy"] and "etag" not in unknown.headers
    assert known.status_code in (303, 401)


async def test_a_defect_is_a_page_in_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its cause; the API keeps its shape."""
    async with dashboard() as (client, library):

        async def fail(*_: object, **__: object) -> None:
            raise RuntimeError("secret cause")

        monkeypatch.setattr(library.runs, "page_of_runs", fail)
        page = await client.get("/", headers=BROWSER)

    assert page.status_code == 500 and "Something went wrong" in text_of(page.text) and "secret" not in page.text
