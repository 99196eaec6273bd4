"""Two clicks at once: one of them makes the thing, and the other one is answered in a plain sentence."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.ui.browser import dashboard, text_of

SOURCE = '''def add(first: float) -> float:
    """Add.

    Args:
        first: a number.
    """
    return first
'''


async def _twice(client: httpx.AsyncClient, path: str, **sent: Any) -> list[httpx.Response]:
    """The answers to the same form, sent twice at once, in order of their status."""
    answers = await asyncio.gather(*(client.post(path, **sent) for _ in range(2)))
    return sorted(answers, key=lambda answer: answer.status_code)


@pytest.mark.uses("access", "files", "mcp")
@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/agents", {"name": "Eve"}),
        ("/data/folders", {"name": "Garden"}),
        ("/connections/mcp", {"name": "web", "url": "http://127.0.0.1:9/mcp"}),
        ("/connections/providers", {"name": "mine", "type": "openai", "base_url": "http://127.0.0.1:9", "key": "x"}),
        ("/agents/{id}/memory/blocks", {"label": "house", "value": "Old.", "limit": "500"}),
        ("/settings/access/users", {"name": "dora"}),
    ],
)
async def test_a_name_that_was_taken_meanwhile_is_a_sentence(path: str, form: dict[str, str]) -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        made, taken = await _twice(client, path.format(id=agent.id), data=form)

    assert made.is_success and taken.status_code == 409
    assert "exists already" in text_of(taken.text)


async def test_a_tool_that_is_made_twice_is_there_once() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        answers = await _twice(client, f"/agents/{agent.id}/tools/source", data={"source": SOURCE})
        names = [tool.spec.name for tool in await agent.tools.list()]

    assert [one.status_code for one in answers] == [200, 200] and names.count("add") == 1


@pytest.mark.uses("files")
async def test_files_that_are_dropped_at_once_all_arrive() -> None:
    """Their folder has a name that nobody chose, so nobody is asked for another one."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        sent = {"file": ("pears.txt", b"Pears", "text/plain")}
        answers = await _twice(client, f"/agents/{agent.id}/files/drop", files=sent)
        files = await agent.files.list()

    assert [one.status_code for one in answers] == [200, 200] and len(files) == 2


async def test_a_persona_that_was_written_meanwhile_is_a_choice() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        await agent.blocks.detach("persona")
        form = {"value": "Calm.", "version": ""}
        _, late = await _twice(client, f"/agents/{agent.id}/settings/blocks/persona", data=form)

    assert late.status_code == 409 and 'id="conflict"' in late.text
