"""An agent's settings page: a form of all settings that the kernel and features declare, and what its buttons do."""

from __future__ import annotations

import json

import pytest

from perdure.core.errors import InvalidInput
from perdure.core.features import feature_settings, find_features
from perdure.domain.agents import units
from perdure.domain.agents.fields import GROUPS, SettingField, setting_fields, with_fields
from tests.ui.browser import dashboard, tags_of, text_of, undo

ELSEWHERE = {"tool_rules"}
"""Settings that other pages of an agent change."""
SAMPLES = {"flag": "yes", "json": '{"some": 1}', "lines": "conv-*\nteam=red", "long": "In short.", "text": "some text"}
IDS = {
    "auto_capture.archive": "archive-123e4567-e89b-42d3-a456-426614174000",
    "memory_of.key": "key-123e4567-e89b-42d3-a456-426614174000",
    "project": "/srv/projects/one",
    "response_format": '{"type": "json_object"}',
    "context_engine": "sliding_window",
}


def test_every_setting_has_a_field() -> None:
    """But those that only features change, and those of other pages."""
    own = {name for feature in find_features() for name in feature.own_settings}
    declared = {*units._SETTINGS} - own - ELSEWHERE
    fields = setting_fields()

    assert {field.setting for field in fields.values()} >= declared
    assert {field.group for field in fields.values()} <= {*GROUPS}
    assert all(field.choices for path, field in fields.items() if field.kind == "choice" and path != "context_engine")
    assert all(field.title and field.default for field in fields.values())
    assert {*feature_settings()} <= {field.setting for field in fields.values()}


def test_a_feature_without_a_description_has_a_field_of_json() -> None:
    field = SettingField(path="new", group="more", title="New", kind="json")

    assert field.holds({"any": ["value"]}) and field.parse("") is None


@pytest.mark.slow
@pytest.mark.parametrize("path", setting_fields())
async def test_each_setting_can_be_set_and_taken_back(path: str) -> None:
    """With what its field says that it may be; and it is refused beyond its range."""
    field = setting_fields()[path]
    least, most = field.least, field.most
    text = IDS.get(path) or SAMPLES.get(field.kind) or (field.choices[-1] if field.choices else f"{most or least or 3}")
    async with dashboard(project_roots="/srv/projects") as (client, library):
        agent = await library.create_agent("Ada")
        address, name = f"/agents/{agent.id}/settings/values", f"{field.kind}:{path}"
        if path == "auto_capture.archive":
            text = (await library.archives.create("notes")).id
        form = {name: text, "flag:auto_capture": "yes"} if path.startswith("auto_capture") else {name: text}
        page = await client.post(address, data=form)
        assert page.status_code == 200, text_of(page.text)
        after = (await library.agent("Ada")).info.settings
        for beyond in (None if least is None else least - 1, None if most is None else most + 1):
            if beyond is not None:
                refused = await client.post(address, data={**form, name: f"{beyond:g}"})
                assert refused.status_code == 422, beyond
        await undo(client, page)

        assert field.setting in after
        assert field.setting not in (await library.agent("Ada")).info.settings


def test_an_object_keeps_what_the_form_does_not_have() -> None:
    """Off removes its fields, and what is off by default stays off without being turned on."""
    kept = with_fields({"guards": {"turn_steps": 3}, "other": 1}, {"guards.ask_steps": 5})

    assert kept == {"guards": {"turn_steps": 3, "ask_steps": 5}, "other": 1}
    assert with_fields({"auto_recall": {"floor": 0.5}}, {"auto_recall": False}) == {"auto_recall": False}
    assert with_fields({}, {"auto_capture": None, "auto_capture.commit_token_threshold": 100}) == {}
    assert with_fields({"facts": {"forgetting": True}}, {"facts.forgetting.min_age_days": 2}) == {
        "facts": {"forgetting": {"on": True, "min_age_days": 2}}
    }


async def test_the_page_shows_what_is_set() -> None:
    """A value that no field can hold is shown as JSON, and is stored again as it was."""
    settings = {"temperature": 0.3, "tool_output": {"run_code": "off"}, "facts": False}
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", settings=settings)
        address = f"/agents/{agent.id}/settings"
        page = await client.get(address)
        twin = (await client.get(f"{address}?format=json")).json()
        fields = {one["name"]: one["text"] for group in twin["groups"] for one in group["fields"]}
        saved = await client.post(f"{address}/values", data=fields)

        assert fields["number:temperature"] == "0.3" and fields["flag:facts"] == "no"
        assert '"run_code": "off"' in fields["json:tool_output"]
        assert "Temperature" in text_of(page.text) and 'value="0.3"' in page.text
        assert saved.status_code == 200, text_of(saved.text)
        assert (await library.agent("Ada")).info.settings == settings


async def test_a_wrong_value_says_which_field_and_keeps_the_rest() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", settings={"temperature": 0.3})
        address = f"/agents/{agent.id}/settings/values"
        answers = [
            await client.post(address, data={"whole:max_output_tokens": "many", "number:temperature": "1"}),
            await client.post(address, data={"number:temperature": "7"}),
            await client.post(address, data={"json:extra": "{"}),
        ]

        assert [answer.status_code for answer in answers] == [422, 422, 422]
        assert "Longest answer is 'many': write a whole number" in text_of(answers[0].text)
        assert (await library.agent("Ada")).info.settings == {"temperature": 0.3}


@pytest.mark.uses("plugins")
async def test_a_project_outside_the_servers_roots_is_refused() -> None:
    """As over the API: no other folder's definitions are read."""
    async with dashboard(project_roots="/srv/projects") as (client, library):
        agent = await library.create_agent("Ada")
        answer = await client.post(f"/agents/{agent.id}/settings/values", data={"text:project": "/etc"})

        assert answer.status_code == 422 and "PERDURE_PROJECT_ROOTS" in text_of(answer.text)


async def test_the_model_is_chosen_with_its_options() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        address = f"/agents/{agent.id}/settings/values"
        form = {"model": "perdure/extractive", "whole:max_output_tokens": "1,000"}
        page = await client.post(address, data=form)
        after = (await library.agent("Ada")).info
        await undo(client, page)
        back = (await library.agent("Ada")).info

        assert "Ada answers with perdure/extractive from now on. 1 setting changed." in text_of(page.text)
        assert (after.model, after.follows_default) == ("perdure/extractive", False)
        assert after.settings == {"max_output_tokens": 1_000}
        assert back.follows_default and back.settings == {}


async def test_name_and_instructions_change_and_come_back() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", persona="Calm.")
        await library.create_agent("Bob")
        here = f"/agents/{agent.id}/settings"
        about = {"name": "Eva", "description": "Gardens", "timezone": "Europe/Rome", "tags": "house, garden"}
        named = await client.post(f"{here}/about", data=about)
        taken = await client.post(f"{here}/about", data={**about, "name": "Bob"})
        version = (await agent.blocks.get("persona")).version
        told = await client.post(f"{here}/blocks/persona", data={"value": "Brief.", "version": version})
        prompted = await client.post(f"{here}/system", data={"system": "You garden."})
        eva = await library.agent("Eva")
        persona = (await eva.blocks.get("persona")).value
        late = await client.post(f"{here}/blocks/persona", data={"value": "Loud.", "version": version})
        await undo(client, told)
        await undo(client, prompted)
        await undo(client, named)
        ada = await library.agent("Ada")

        assert (eva.info.description, eva.info.timezone, eva.info.tags) == (
            "Gardens",
            "Europe/Rome",
            ("house", "garden"),
        )
        assert taken.status_code == 409 and "Bob" in text_of(taken.text)
        assert (persona, eva.info.system) == ("Brief.", "You garden.")
        assert late.status_code == 409 and "Keep mine" in text_of(late.text)
        assert ((await ada.blocks.get("persona")).value, ada.info.system, ada.info.tags) == ("Calm.", None, ())


async def test_the_tags_by_which_perdure_marks_an_agent_are_not_in_the_form() -> None:
    """They stay whatever is saved, and nobody types one."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", tags=["house", "perdure:global"])
        here = f"/agents/{agent.id}/settings"
        shown = (await client.get(f"{here}?format=json")).json()["own"]["tags"]
        page = await client.post(f"{here}/about", data={"name": "Ada", "tags": "garden"})
        after = (await library.agent("Ada")).info.tags
        wrong = await client.post(f"{here}/about", data={"name": "Ada", "tags": "perdure:discarded"})
        await undo(client, page)
        back = (await library.agent("Ada")).info.tags

    assert shown == ["house"] and wrong.status_code == 422
    assert {*after} == {"garden", "perdure:global"} and {*back} == {"house", "perdure:global"}


async def test_two_tabs_change_different_settings_and_lose_none() -> None:
    """What a form was not changed in stays as it is now; what both changed is refused, and no undo takes more back."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        here = f"/agents/{agent.id}/settings"
        twin = (await client.get(f"{here}?format=json")).json()
        about = {"name": "Ada", "description": "", "timezone": "UTC", "tags": "", "was": json.dumps(twin["was"])}
        named = await client.post(f"{here}/about", data={**about, "description": "Gardens"})
        await client.post(f"{here}/about", data={**about, "tags": "house"})
        info = (await library.agent("Ada")).info
        late = await client.post(f"{here}/about", data={**about, "description": "Cooks"})
        assert (info.description, info.tags) == ("Gardens", ("house",)) and late.status_code == 409
        await undo(client, named)
        assert (await library.agent("Ada")).info.description is None

        group = next(one for one in twin["groups"] if one["name"] == "model")
        form = {**group["was"], "was": json.dumps(group["was"])}
        first = await client.post(f"{here}/values", data={**form, "number:temperature": "0.5"})
        await client.post(f"{here}/values", data={**form, "whole:max_output_tokens": "900"})
        late = await client.post(f"{here}/values", data={**form, "number:temperature": "0.7"})
        assert late.status_code == 409 and "Temperature was changed while you were writing" in text_of(late.text)
        await undo(client, first)
        assert (await library.agent("Ada")).info.settings == {"max_output_tokens": 900}

        await client.post(f"{here}/system", data={"system": "You garden.", "was": about["was"]})
        late = await client.post(f"{here}/system", data={"system": "You cook.", "was": about["was"]})
        assert late.status_code == 409 and (await library.agent("Ada")).info.system == "You garden."

        await agent.blocks.detach("persona")
        assert 'name="version" value=""' in (await client.get(here)).text
        for text, status in (("Calm.", 200), ("Loud.", 409)):
            written = await client.post(f"{here}/blocks/persona", data={"value": text, "version": ""})
            assert written.status_code == status
        assert (await agent.blocks.get("persona")).value == "Calm."


async def test_a_deleted_agent_is_brought_back() -> None:
    """It leaves the lists, keeps all that is its own, and is gone only when it is deleted for good."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", tags=["house"])
        page = await client.post(f"/agents/{agent.id}/settings/discard")
        listed = [one["name"] for one in (await client.get("/?format=json")).json()["agents"]]
        deleted = await client.get("/?discarded=1")
        await undo(client, page)
        back = (await library.agent("Ada")).info
        await client.post(f"/agents/{agent.id}/settings/discard")
        gone = await client.post(f"/agents/{agent.id}/delete")

        assert "Ada was deleted." in text_of(page.text) and page.headers["hx-push-url"] == "/"
        assert listed == [] and "1 deleted agent" in text_of(page.text)
        assert "Bring back" in text_of(deleted.text)
        assert (back.hidden, back.tags) == (False, ("house",))
        assert gone.status_code == 200 and await library.agents() == []


def test_a_number_is_read_as_people_write_it() -> None:
    field = setting_fields()["max_output_tokens"]

    assert field.parse(" 12,000 ") == 12_000
    with pytest.raises(InvalidInput, match="Longest answer"):
        field.parse("1.5")


async def test_the_form_names_each_field() -> None:
    """A label for each, and the default where nothing is set."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        tags = tags_of((await client.get(f"/agents/{agent.id}/settings")).text)
        names = [values["name"] for tag, values in tags if tag in ("input", "select", "textarea") and "name" in values]

    assert len([name for name in names if name and ":" in name]) == len(setting_fields())
