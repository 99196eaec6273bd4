"""The tools page: tools made and changed from source, permissions and rules in words."""

from __future__ import annotations

import json

from tests.ui.browser import dashboard, text_of

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
        kept = await library.services.tools.get("add")
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
