"""The page of users and keys: who may use the store, with what limits, and who did what."""

from __future__ import annotations

import os
import re
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, Page

from perdure import AsyncPerdure
from perdure.core.incoming.principals import LOCAL, UseLimits
from perdure.features.access.service import Access
from perdure.features.access.values import AuditFilter
from perdure.server.config import ServerConfig
from perdure.server.routes.health import VERSION
from perdure.ui.pages.routes import page_modules
from tests.ui.browser import dashboard, text_of
from tests.ui.chromium import needs_chromium, open_page, serious_findings
from tests.ui.test_browser import open_dashboard

pytestmark = pytest.mark.uses("access")

PAGE = "/settings/access"
KEY = re.compile(r"perdure_[A-Za-z0-9_-]{43}")
OWN = "the key of the server, of some length"


def access_of(library: AsyncPerdure) -> Access:
    ports = library.app.ports
    return Access(library.app.shared.store, ports.clock, ports.ids, LOCAL)


async def sign_in(page: Page, address: str, key: str) -> None:
    await page.goto(f"{address}/sign-in")
    await page.fill("input[name=key]", key)
    await page.click("button")
    await page.wait_for_selector("nav")


async def test_users_and_keys_are_made_and_ended() -> None:
    """The text of a key is shown once, and never again; the audit log has who did what."""
    config = ServerConfig(api_key=OWN)
    async with dashboard(config=config) as (client, _):
        client.headers["authorization"] = f"Bearer {OWN}"
        assert "Ann was added" in text_of((await client.post(f"{PAGE}/users", data={"name": "Ann"})).text)
        page = (await client.get(f"{PAGE}?format=json")).json()
        form = {"name": "phone", "scope": "builder", "user": page["users"][0]["id"], "days": "30"}
        form |= {"tokens_per_day": "1000", "cost_per_run": "0.5", "requests_per_minute": ""}
        made = await client.post(f"{PAGE}/keys", data=form)
        (text,) = set(KEY.findall(made.text))
        answer = await client.get("/v1/tags/", headers={"authorization": f"Bearer {text}"})
        assert answer.status_code == 200

        page = (await client.get(f"{PAGE}?format=json")).json()
        (key,) = page["keys"]
        assert (key["name"], key["scope"], key["user"], key["state"]) == ("phone", "builder", "Ann", "counts")
        assert key["limits"] == {"Tokens a day": 1000, "US dollars a run": 0.5}
        shown = (await client.get(PAGE)).text
        assert text not in shown and key["start"] in shown
        assert "was revoked" in text_of((await client.post(f"{PAGE}/keys/{key['id']}/revoke")).text)
        assert "was deleted" in text_of((await client.post(f"{PAGE}/users/{page['users'][0]['id']}/delete")).text)
        actions = [entry["action"] for entry in (await client.get(f"{PAGE}?format=json")).json()["audit"]]
        assert actions == ["user.delete", "key.revoke", "key.create", "user.create"]
        for bad in (
            {"name": ""},
            {"name": "x", "scope": "god"},
            {"name": "x", "scope": "user", "cost_per_day": "much"},
        ):
            assert (await client.post(f"{PAGE}/keys", data=bad)).status_code == 422


async def test_an_administrator_sees_the_own_organisation_only() -> None:
    """Organisations are the default one's; what leads inside is the machine's administrator's."""
    async with dashboard(config=ServerConfig(api_key=OWN)) as (client, library):
        client.headers["authorization"] = f"Bearer {OWN}"
        made = await client.post(f"{PAGE}/organisations", data={"name": "Acme"})
        (text,) = set(KEY.findall(made.text))
        assert "Acme" in text_of((await client.get(PAGE)).text)

        client.headers["authorization"] = f"Bearer {text}"
        page = (await client.get(f"{PAGE}?format=json")).json()
        assert (page["organisation"], page["organisations"], page["rules_all"]) == ("Acme", [], False)
        assert [key["name"] for key in page["keys"]] == ["admin"]
        other = LOCAL.org_id
        assert (await client.post(f"{PAGE}/organisations", data={"name": "Mine"})).status_code == 422
        assert (await client.post(f"{PAGE}/organisations/{other}/delete")).status_code == 422
        inside = {"name": "inside", "url": "http://127.0.0.1:9/", "base_url": "http://127.0.0.1:9/v1", "type": "openai"}
        for kind in ("mcp", "providers"):
            answer = await client.post(f"/connections/{kind}", data=inside | {"key": "sk-1"})
            assert answer.status_code in (400, 403, 422), answer.text
        assert await library.mcp.list() == []


async def test_only_administrators_may_see_it() -> None:
    """With a smaller key: 403."""
    async with dashboard(config=ServerConfig(api_key=OWN)) as (client, library):
        ports = library.app.ports
        access = Access(library.app.shared.store, ports.clock, ports.ids, LOCAL)
        for scope in ("builder", "user", "read-only"):
            _, text = await access.create_key("ann", scope)
            client.headers["authorization"] = f"Bearer {text}"
            assert (await client.get(PAGE)).status_code == 403
            assert (await client.post(f"{PAGE}/keys", data={"name": "x", "scope": "admin"})).status_code == 403


async def test_a_page_that_a_key_may_not_open_is_a_page_that_says_so() -> None:
    """With the navigation, without its link; programs that ask for JSON get JSON."""
    async with dashboard(config=ServerConfig(api_key=OWN)) as (client, library):
        _, text = await access_of(library).create_key("ann", "user")
        client.headers["authorization"] = f"Bearer {text}"
        page = await client.get(PAGE)
        twin = await client.get(f"{PAGE}?format=json")
        home = await client.get("/")

    assert (page.status_code, page.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "this needs a key with the scope 'admin', and yours has 'user'" in text_of(page.text)
    assert (twin.status_code, list(twin.json())) == (403, ["detail"])
    for shown in (page.text, home.text):
        assert 'href="/runs"' in shown and 'href="/settings"' not in shown


@needs_chromium
async def test_an_action_that_a_key_may_not_do_leaves_its_page(chromium: Browser, tmp_path: Path) -> None:
    """Also where the form held no text."""
    async with open_dashboard(tmp_path / "a.db") as (address, library):
        agent = await library.create_agent("Ada")
        _, text = await access_of(library).create_key("ann", "user")
        async with open_page(chromium, address) as (page, _):
            await sign_in(page, address, text)
            await page.goto(f"{address}/agents/{agent.id}")
            await page.select_option("#model", "test/scripted")
            await page.wait_for_selector(".notice.error:has-text('this needs a key with the scope')")
            assert await page.is_visible("#composer")


@pytest.mark.uses("origins")
async def test_every_page_opens_for_who_is_signed_in() -> None:
    """With the cookie of a stored key; without it the browser is sent to the form."""
    async with dashboard(config=ServerConfig(api_key=OWN)) as (client, library):
        agent = await library.create_agent("ann")
        _, text = await access_of(library).create_key("admin", "admin")
        signed = await client.post("/sign-in", data={"key": text})
        cookie = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
        client.headers.pop("hx-request")
        client.cookies.clear()
        paths = [
            path for module in page_modules() for path in module.pages.paths if "{" not in path or "{agent_id}" in path
        ]
        assert {"/groups", "/why", "/settings", "/approvals"} <= {*paths}
        for path in paths:
            where = path.format(agent_id=agent.id) + "?of=human"
            assert (await client.get(where)).status_code == 303, path
            assert (await client.get(where, headers=cookie)).status_code in (200, 404, 422), path


async def test_nobody_but_the_servers_administrators_sees_the_server() -> None:
    """Neither its settings nor its store nor a backup of it; and no page shows a password."""
    url = "http://u:canary-pass@searx.test/"
    async with dashboard(config=ServerConfig(api_key=OWN), searxng_url=url) as (client, library):
        root = {"authorization": f"Bearer {OWN}"}
        assert (await client.post("/data/backup", headers=root)).status_code == 200
        acme = await access_of(library).create_organisation("Acme")
        _, tenant = await access_of(library).within(acme.id).create_key("admin", "admin")
        _, reader = await access_of(library).create_key("reader", "read-only")
        for text in (tenant, reader):
            headers = {"authorization": f"Bearer {text}"}
            assert (await client.get("/data/backup", headers=headers)).status_code == 403
            data = (await client.get("/data?format=json", headers=headers)).json()
            assert (data["store"], data["backup"]) == (None, None)
            assert "<h2>Backup" not in (await client.get("/data", headers=headers)).text
        page = await client.get("/settings?format=json", headers={"authorization": f"Bearer {tenant}"})
        assert page.json() == {"title": "Settings", "version": VERSION, "whole_server": False}
        assert (
            "PERDURE_SEARXNG_URL"
            not in (await client.get("/settings", headers={"authorization": f"Bearer {tenant}"})).text
        )
        shown = (await client.get("/settings", headers=root)).text
        assert "http://u:***@searx.test/" in shown and "canary-pass" not in shown
        audit = await access_of(library).audit(AuditFilter(), limit=50)
        assert (await client.get("/data/backup", headers=root)).status_code == 200
        later = await access_of(library).audit(AuditFilter(), limit=50)
        assert [one.action for one in later[: len(later) - len(audit)]] == ["GET /data/backup"]


@needs_chromium
async def test_a_key_is_made_and_revoked_in_the_browser(chromium: Browser, tmp_path: Path) -> None:
    """From the settings on; nobody is kept out."""
    async with open_dashboard(tmp_path / "a.db") as (address, library):
        ports = library.app.ports
        access = Access(library.app.shared.store, ports.clock, ports.ids, LOCAL)
        ann = await access.create_user("Ann")
        _, old = await access.create_key(
            "laptop", "user", user_id=ann.id, limits=UseLimits(tokens_per_day=100_000, requests_per_minute=60)
        )
        await access.create_organisation("Acme")
        _, text = await access.create_key("root", "admin")
        async with open_page(chromium, address) as (page, seen):
            await sign_in(page, address, text)
            await page.goto(f"{address}/settings")
            await page.click("text=Users, keys, organisations")
            await page.click("text=Create a key")
            await page.fill("form[hx-post$='/keys'] input[name=name]", "phone")
            await page.fill("input[name=cost_per_day]", "2.5")
            await page.click("form[hx-post$='/keys'] button")
            await page.wait_for_selector("#notice")
            assert KEY.search(await page.inner_text("#notice"))
            if folder := os.environ.get("PERDURE_SCREENSHOTS"):
                await page.screenshot(path=f"{folder}/access.png", full_page=True)
            assert await serious_findings(page) == []
            assert "US dollars a day: 2.5" in await page.inner_text("main")
            page.on("dialog", lambda dialog: dialog.accept())
            await page.click("tr:has-text('laptop') button")
            await page.wait_for_selector("tr:has-text('laptop') .tag")
            assert seen.problems == ["dialog: Revoke laptop?"]
        async with httpx.AsyncClient() as client:
            refused = await client.get(f"{address}/v1/tags/", headers={"authorization": f"Bearer {old}"})
            assert refused.status_code == 401
