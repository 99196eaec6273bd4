"""Whose facts are is found in whichever form a name is given."""

from __future__ import annotations

import pytest

from perdure import AsyncPerdure
from perdure.adapters.mem0 import AsyncMemory
from perdure.adapters.zep import AsyncSessions
from tests.library.test_forms_of_names import APART, NAME
from tests.library.test_forms_of_names import perdure as perdure

FORMS = pytest.mark.parametrize(("name", "other"), [(NAME, APART), (APART, NAME)])


@FORMS
async def test_facts_are_found_by_every_form_of_whose_they_are(perdure: AsyncPerdure, name: str, other: str) -> None:
    """Through mem0's interface, with its metadata, and through Zep's."""
    memory, sessions = AsyncMemory(perdure), AsyncSessions(perdure)
    await memory.add("I like tea.", user_id=name, metadata={"place": name})
    await sessions.add_session(session_id=name, user_id=name)
    await sessions.add(name, messages=[{"role_type": "user", "content": f"I like tea from {name}."}])
    filters = {"user_id": other, "place": other}

    assert len((await memory.get_all(filters=filters))["results"]) == 1
    assert len((await memory.search("tea", filters=filters))["results"]) == 1
    assert (await sessions.add_session(session_id=other, user_id=other)).user_id == NAME
    kept = await sessions.get(other)
    assert [one.content for one in kept.messages] == [f"I like tea from {name}."]
    await memory.delete_all(user_id=other)
    assert (await memory.get_all(filters={"user_id": name}))["results"] == []
