"""Answers of more than one text, as they are streamed and sent again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from perdure import AsyncPerdure, Settings
from perdure.core.messages import Text
from perdure.testing import FakeClock, InlineStore, ScriptedModel, calls, says
from tests.features.openai_front.support import PATH, Program
from tests.server.routed import MODEL, connected


def look(place: str) -> str:
    """Look at a place.

    Args:
        place: where.
    """
    return "a blue drawer"


@pytest.mark.parametrize("joint", ["\n", "", "\n\n"])
async def test_words_before_a_tool_call_are_no_edited_answer(joint: str) -> None:
    """However the program joins them to the words behind it."""
    call = calls("look", place="kitchen")
    first = replace(call, parts=(Text("Let me look."), *call.parts))
    model, clock = ScriptedModel(first, says("It is blue."), says("A2"), says("A3")), FakeClock()
    settings = Settings(model=MODEL, secret_key="for tests, this one")
    library = await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, tools=(look,), settings=settings, clock=clock
    )
    async with library, connected(library) as server:
        chat = Program(server, await library.create_agent("ann", tools=("look",)), clock)
        answer = await server.http.post(PATH, json=chat.body("Where is the key?", stream=True))
        chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        streamed = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one["choices"])
        clock.advance(60)
        sent = f"Let me look.{joint}It is blue."
        await chat.ask("Where is the key?", sent, "Thanks.")
        window = chat.body("Where is the key?", sent, "Thanks.", "A2", "Bye.")
        del window["messages"][0]
        assert (await server.http.post(PATH, json=window)).status_code == 200

        assert streamed == "Let me look.\nIt is blue."
        assert len(await chat.conversations()) == 1
