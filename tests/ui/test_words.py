"""What a page refuses is said in the words that the page shows, not in those of the library or the API."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest

from perdure.testing import calls, says
from tests.ui.browser import dashboard, text_of

ADD = '''def add(first: float) -> float:
    """Add one.

    Args:
        first: a number.
    """
    return first + 1
'''
REFUSED = (
    ("settings/values", {"whole:max_output_tokens": "-5"}, "Longest answer is -5: give a whole number"),
    ("settings/values", {"whole:limits.message_chars": "-5"}, "Longest message is -5: a whole number above 0"),
    ("tools/add/permissions", {"timeout_s": "soon"}, "Seconds is 'soon': write a number"),
    ("tools/add/permissions", {"timeout_s": "-1"}, "Seconds is -1: give a number"),
    ("tools/add/permissions", {"memory_mb": "9999999"}, "Memory in MB is 9,999,999"),
    ("tools/add/permissions", {"network": "a b"}, "give hosts such as api.example.org, *.example.com"),
    ("tools/add/try", {"argument-first": "one"}, "first is 'one': write a number"),
    ("tools/rules/add", {"type": "max_count_per_step", "count": "x"}, "How often is 'x': write a number"),
    ("tools/rules/add", {"type": "conditional"}, "write a line for each result, such as found = send_message"),
    ("tools/rules/add", {"type": "constrain_child_tools"}, "tick at least one tool"),
    pytest.param(
        "facts",
        {"text": "x", "since": "2020-05-01", "until": "2019-01-01"},
        "ends at 2019-01-01 00:00, before it begins",
        marks=pytest.mark.uses("facts"),
    ),
    ("tools/rules", {"rules": "[1,\n oops]"}, "rules: it is not JSON, from line 2 on"),
)


def _notice(answer: httpx.Response) -> str:
    """The notice of a page."""
    return text_of(next(iter(re.findall(r'<div id="notice".*?</div>', answer.text, re.DOTALL)), ""))


@pytest.mark.parametrize(("path", "fields", "said"), REFUSED)
async def test_a_wrong_value_is_named_as_its_form_names_it(path: str, fields: dict[str, str], said: str) -> None:
    async with dashboard() as (client, library):
        home = f"/agents/{(await library.create_agent('Ada')).id}"
        await client.post(f"{home}/tools/source", data={"source": ADD})
        answer = await client.post(f"{home}/{path}", data={"tool_name": "add", **fields})

    assert answer.status_code == 422 and said in _notice(answer)


@pytest.mark.uses("origins")
async def test_what_has_to_wait_for_an_answer_says_so() -> None:
    """Deleting a conversation for good and forgetting, while its agent is at work."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def look() -> str:
        """Look out of the window."""
        begun.set()
        await go.wait()
        return "Rain."

    async with dashboard(calls("look"), says("It rains."), tools=[look]) as (client, library):
        agent = await library.create_agent("Ada", human="Likes tea.")
        home = f"/agents/{agent.id}"
        await agent.tools.attach("look")
        line = await agent.new_conversation()
        await client.post(f"{home}/messages?conversation={line.id}", data={"text": "Weather?"})
        async with asyncio.timeout(10):
            await begun.wait()
        refused = [
            await client.post(f"{home}/conversations/erase", data={"conversation_id": line.id}),
            await client.post(f"{home}/forget", data={"text": "Likes tea."}),
        ]
        go.set()

    assert [answer.status_code for answer in refused] == [409, 409]
    for answer in refused:
        assert "wait until it has ended, or stop it" in _notice(answer) and "if_busy" not in answer.text
