"""The tools page: tools made and changed from source, permissions and rules in words."""

from __future__ import annotations

import json

import pytest

from perdure.core.errors import InvalidInput
from perdure.ui.pages.tool_forms import arguments_of, fields_of
from tests.ui.browser import dashboard, text_of, undo

SOURCE = '''def add(first: float, second: float) -> float:
    """Add two numbers.

    Args:
        first: a number.
        second: another.
    """
    return first + second
'''


async def test_a_tool_is_made_and_changed_from_source() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/tools"
        made = await client.post(f"{where}/source", data={"source": SOURCE})
        wrong = await client.post(f"{where}/add/source", data={"source": "def add(:"})
        kept = await library.tools.state("add")
        await client.post(f"{where}/add/source", data={"source": SOURCE.replace("Add two", "Join two")})
        twin = (await client.get(f"{where}?format=json")).json()

    (tool,) = [one for one in twin["tools"] if one["name"] == "add"]
    assert made.status_code == 200 and "Undo" in text_of(made.text)
    assert wrong.status_code == 400 and "Save for all its agents" in text_of(wrong.text)
    assert kept.code is not None and kept.code.source == SOURCE
    assert tool["description"].startswith("Join two numbers.")
    assert "It has no network." in tool["permissions"]


async def test_rules_are_shown_in_words_and_changed() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/tools"
        rules = [{"type": "max_count_per_step", "tool_name": "memory_insert", "max_count_limit": 2}]
        page = await client.post(f"{where}/rules", data={"rules": json.dumps(rules)})
        wrong = await client.post(f"{where}/rules", data={"rules": '[{"type": "no_such"}]'})
        text = await client.post(f"{where}/rules", data={"rules": "{"})
        await client.post(f"{where}/memory_insert/approval", data={"required": "yes"})
        twin = (await client.get(f"{where}?format=json")).json()

    assert "memory_insert may be called 2 times for one request." in text_of(page.text)
    assert wrong.status_code == 422 and text.status_code == 422
    (tool,) = [one for one in twin["tools"] if one["name"] == "memory_insert"]
    assert tool["needs_approval"] and tool["permissions"][0] == "A person approves each call."


async def test_rules_are_added_and_removed_with_a_form() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/tools"
        for form in (
            {"type": "max_count_per_step", "tool_name": "memory_insert", "count": "1"},
            {"type": "constrain_child_tools", "tool_name": "memory_insert", "children": ["memory_replace"]},
        ):
            page = await client.post(f"{where}/rules/add", data=form)
        wrong = await client.post(f"{where}/rules/add", data={"type": "no_such", "tool_name": "memory_insert"})
        shown = text_of(page.text)
        await client.post(f"{where}/rules/0/remove")
        left = (await client.get(f"{where}?format=json")).json()["rules"]

    assert "memory_insert may be called 1 time for one request." in shown
    assert "After memory_insert comes memory_replace." in shown
    assert wrong.status_code == 422
    assert [rule["type"] for rule in left] == ["constrain_child_tools"]


async def test_permissions_change_with_a_form_and_change_back() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/tools"
        await client.post(f"{where}/source", data={"source": SOURCE})
        form = {"network": "example.org, api.example.org:443", "timeout_s": "7.5", "memory_mb": "256"}
        page = await client.post(f"{where}/add/permissions", data=form)
        wrong = await client.post(f"{where}/add/permissions", data={"memory_mb": "much"})
        changed = await library.tools.state("add")
        await undo(client, page)
        again = await library.tools.state("add")

    assert changed.code is not None and again.code is not None
    assert changed.code.network == ("example.org", "api.example.org:443") and changed.code.memory_mb == 256
    assert changed.tool.spec.timeout_s == 7.5 and wrong.status_code == 422
    assert again.code.network == () and again.code.memory_mb is None and again.tool.spec.timeout_s is None


async def test_a_form_made_of_the_schema_fills_the_arguments() -> None:
    """Texts stay texts, numbers and lists are JSON, and what is left empty is left out."""
    parameters = {
        "properties": {
            "text": {"type": "string"},
            "many": {"type": "integer"},
            "loud": {"type": "boolean"},
            "tags": {"type": "array"},
            "size": {"enum": ["small", "large"]},
        },
        "required": ["text"],
    }
    kinds = [(field["label"], field["kind"]) for field in fields_of(parameters)]
    form = {
        "argument-text": "3",
        "argument-many": "3",
        "argument-loud": "true",
        "argument-tags": "",
        "argument-size": "large",
    }

    assert kinds == [("text", "text"), ("many", "number"), ("loud", "choice"), ("tags", "json"), ("size", "choice")]
    assert arguments_of(parameters, form) == {"text": "3", "many": 3, "loud": True, "size": "large"}
    with pytest.raises(InvalidInput, match="many"):
        arguments_of(parameters, {"argument-many": "three"})
