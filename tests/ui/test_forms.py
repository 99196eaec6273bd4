"""Forms in the chat: calls that wait, made from the tool's schema, and questions of the agent."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from perdure.core.errors import InvalidInput
from perdure.core.messages import ToolCall
from perdure.testing import calls, says
from perdure.ui.pages.chat_items import answer_text
from perdure.ui.pages.tool_forms import arguments_of, fields_of
from tests.ui.browser import dashboard, tags_of, text_of


def book(name: str, nights: int, room: Literal["single", "double"], guests: list[str] | None = None) -> str:
    """Book a room.

    Args:
        name: under which it is booked.
        nights: how many.
    """
    return f"{name}: {nights} nights, {room}, {guests}"


ASKED: dict[str, Any] = {"name": "Rør", "nights": 2, "room": "single", "guests": ["Łukasz"]}


async def test_a_call_is_approved_by_a_form_of_its_tools_schema() -> None:
    """In the language in which it was written; a field that was changed is, and the others stay."""
    script = calls("book", **ASKED), says("Booked.")
    async with dashboard(*script, tools=[book]) as (client, library):
        agent = await library.create_agent("Ada", tools=["book"])
        await agent.require_approval("book")
        await agent.send("Book a room")
        for path in (f"/agents/{agent.id}", "/approvals"):
            page = (await client.get(path)).text
            assert "u00f8" not in page and ">Rør</textarea>" in page
            assert "<option selected>single</option>" in page and "under which it is booked" in page
            assert "[&#34;Łukasz&#34;]</textarea>" in page
        (call,) = (await client.get(f"/agents/{agent.id}?format=json")).json()["pending"]
        fields = {field["name"]: field["value"] for field in call["fields"]}
        sent = {"call_id": call["call_id"], "approve": "yes", **fields, "argument-nights": "3"}
        wrong = await client.post(f"/agents/{agent.id}/answers", data={**sent, "argument-nights": "three"})
        assert wrong.status_code == 422 and "nights" in text_of(wrong.text)
        answer = await client.post(f"/agents/{agent.id}/answers", data=sent)
        assert "was approved" in text_of(answer.text)
        async for _ in agent.follow((await agent.runs(limit=1))[0].id):
            pass
        texts = [message.text for message in await agent.messages()]

    assert any(text.startswith("Rør: 3 nights, single, ['Łukasz']") for text in texts)


async def test_a_call_that_was_not_changed_runs_as_the_model_wrote_it() -> None:
    script = calls("book", **ASKED), says("Booked.")
    async with dashboard(*script, tools=[book]) as (client, library):
        agent = await library.create_agent("Ada", tools=["book"])
        await agent.require_approval("book")
        await agent.send("Book a room")
        (call,) = (await client.get("/approvals?format=json")).json()["pending"]
        fields = {field["name"]: field["value"] for field in call["fields"]}
        form = {name: call[name] for name in ("agent_id", "conversation_id", "call_id")}
        await client.post("/approvals", data={**form, **fields, "choice": "approve"})
        async for _ in agent.follow((await agent.runs(limit=1))[0].id):
            pass
        texts = [message.text for message in await agent.messages()]

    assert "Rør: 2 nights, single, ['Łukasz']" in texts


SCHEMA = {
    "properties": {
        "text": {"type": "string"},
        "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "kind": {"type": ["string", "null"], "enum": ["a", "b"]},
        "more": {"type": "object"},
    },
    "required": ["text"],
}


def test_a_field_is_as_its_schema_says() -> None:
    """Also where null is allowed."""
    assert [one["kind"] for one in fields_of(SCHEMA)] == ["text", "number", "choice", "json"]
    form = {"argument-text": "x", "argument-count": "3", "argument-kind": "b", "argument-more": '{"ä": 1}'}
    assert arguments_of(SCHEMA, form) == {"text": "x", "count": 3, "kind": "b", "more": {"ä": 1}}
    assert arguments_of(SCHEMA, {"argument-text": "", "argument-count": ""}) == {"text": ""}
    with pytest.raises(InvalidInput, match="more"):
        arguments_of(SCHEMA, {**form, "argument-more": "{"})


def test_a_schema_that_is_none_makes_fields_of_json() -> None:
    """As another program's may be; a list of fields in place of fields makes none."""
    odd: dict[str, Any] = {
        "true": True,
        "any": {"anyOf": [True]},
        "null": {"type": None, "enum": 3, "description": 5},
        "lists": {"type": [["string"]], "anyOf": {}},
    }
    fields = fields_of({"properties": odd, "required": None})
    assert [(one["kind"], one["description"]) for one in fields] == [("json", "")] * 4
    assert arguments_of({"properties": odd}, {"argument-true": "3"}) == {"true": 3}
    assert fields_of({"properties": ["a"]}) == fields_of({"properties": None}) == []


async def test_a_question_is_answered_by_a_button() -> None:
    """Its options are buttons; the answer is the next message, and the form is gone: that of another tab comes late."""
    script = calls("ask_user", question="Which pear?", options=["Williams", "Conférence"]), says("Good.")
    async with dashboard(*script) as (client, library):
        agent = await library.create_agent("Ada", tools=["ask_user"])
        await agent.send("Plant a pear")
        page = await client.get(f"/agents/{agent.id}")
        buttons = [values for tag, values in tags_of(page.text) if tag == "button" and values.get("name") == "option-0"]
        assert [one["value"] for one in buttons] == ["Williams", "Conférence"]
        (asked,) = [str(values["value"]) for tag, values in tags_of(page.text) if values.get("name") == "asked"]
        sent = {"question-0": "Which pear?", "option-0": "Conférence", "asked": asked}
        await client.post(f"/agents/{agent.id}/reply", data=sent)
        async for _ in agent.follow((await agent.runs(limit=1))[0].id):
            pass
        said = [message.text for message in await agent.messages() if message.role == "user"]
        assert 'id="questions"' not in (await client.get(f"/agents/{agent.id}")).text
        late = await client.post(f"/agents/{agent.id}/reply", data=sent | {"option-0": "Williams"})

    assert late.status_code == 409 and "answered in the meantime" in text_of(late.text)
    assert said == ["Plant a pear", "Conférence"]


async def test_several_questions_are_one_form() -> None:
    """Each with its options and a field for other words."""
    second = ToolCall("two", "ask_user", json.dumps({"question": "When?"}))
    first = calls("ask_user", second, question="Which pear?", options=["Williams", "Comice"])
    async with dashboard(first) as (client, library):
        agent = await library.create_agent("Ada", tools=["ask_user"])
        await agent.send("Plant a pear")
        page = await client.get(f"/agents/{agent.id}")

    names = [str(values.get("name")).split("-")[0] for tag, values in tags_of(page.text) if tag == "input"]
    counts = [names.count(name) for name in ("question", "option", "own")]
    assert counts == [2, 2, 2]  # both calls ran at once, so either question may come first


def test_answers_name_their_questions() -> None:
    form = {"question-0": "Which?", "option-0": "A", "question-1": "When?", "option-1": "now", "own-1": "in May"}
    assert answer_text(form) == "Which?\nA\n\nWhen?\nin May"
    with pytest.raises(InvalidInput):
        answer_text({"question-0": "Which?", "own-0": " "})
