"""The page of settings: groups that hold every setting, meanings, units, and a search."""

from __future__ import annotations

from dataclasses import fields

from perdure.settings import Settings
from perdure.ui.pages.settings import GROUPS, group_of
from tests.ui.browser import dashboard, text_of


def test_every_setting_is_in_a_group() -> None:
    """A new one that fits none is added to `settings.toml`."""
    assert [field.name for field in fields(Settings) if group_of(field.name) not in GROUPS] == []


async def test_settings_have_meanings_and_units_and_those_changed_come_first() -> None:
    async with dashboard(lease_s=20.0) as (client, _):
        twin = (await client.get("/settings?format=json")).json()
        page = text_of((await client.get("/settings")).text)

    rows = {row["variable"]: row for group in twin["groups"] for row in group["rows"]}
    assert [row["variable"] for row in rows.values() if not row["meaning"]] == []
    assert "PERDURE_LEASE_S" in {row["variable"] for row in twin["changed"]}
    assert (rows["PERDURE_LEASE_S"]["value"], rows["PERDURE_LEASE_S"]["default"]) == ("20 s", "15 s")
    assert rows["PERDURE_FILE_LIMIT_BYTES"]["default"] == "50,000,000 bytes"
    assert rows["PERDURE_MODEL"]["meaning"].endswith("what the environment offers")
    assert rows["PERDURE_SANDBOX"]["meaning"].endswith("`off`: never")
    assert rows["PERDURE_SECRET_KEY"]["value"] == "set" and "for tests, this one" not in page


async def test_settings_are_searched_by_name_and_meaning() -> None:
    async with dashboard() as (client, _):
        by_name = (await client.get("/settings?q=searxng_url&format=json")).json()["groups"]
        by_meaning = (await client.get("/settings?q=time+zone&format=json")).json()["groups"]
        none = await client.get("/settings?q=nothing+at+all")

    assert [row["variable"] for group in by_name for row in group["rows"]] == ["PERDURE_SEARXNG_URL"]
    assert "PERDURE_TIMEZONE" in [row["variable"] for group in by_meaning for row in group["rows"]]
    assert "No setting is about" in text_of(none.text)


async def test_what_an_ordinary_machine_lacks_is_no_alarm() -> None:
    """Only where tools are refused, or run unprotected, something missing is red."""
    async with dashboard() as (client, _):
        twin = (await client.get("/settings?format=json")).json()["sandbox"]
        page = (await client.get("/settings")).text

    lacking = [measure for measure in twin["measures"] if not measure["works"]]
    assert page.count('class="status failed">Missing') == (0 if twin["enough"] else len(lacking))
