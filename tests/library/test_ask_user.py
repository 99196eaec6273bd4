"""A question to the user ends the run, and the next message answers it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure, Question
from perdure.core.messages import ToolCall, ToolResult, parts_from_json, parts_to_json
from perdure.testing import ScriptedModel, calls, says
from tests.support.library import MODEL

COLOURS = Question("Which colour?", ("red", "dark blue"))


def open_library(path: Path, *script: object) -> tuple[Perdure, ScriptedModel]:
    model = ScriptedModel(*script)  # type: ignore[arg-type]
    return Perdure(path / "agents.db", models={MODEL: model}), model


def test_the_question_is_the_reply_and_the_next_message_the_answer(tmp_path: Path) -> None:
    """The run ends without asking the model again; afterwards the model sees its call, the question, the answer."""
    perdure, model = open_library(tmp_path, calls("ask_user", question="Which colour?", options=["red", "dark  blue"]))
    with perdure:
        agent = perdure.create_agent(model=MODEL)
        agent.tools.attach("ask_user")
        asked = agent.send("Paint the door")
        agent.send("the second")
        history = [(message.role, message.text) for message in agent.messages()]

    assert (asked.stop_reason, asked.step_count) == ("end_turn", 1)
    assert asked.text == "Which colour?\n\n1. red\n2. dark blue"
    assert asked.questions == (COLOURS,)
    assert [message.role for message in model.requests[1].messages[-4:]] == ["assistant", "tool", "assistant", "user"]
    assert [message.text for message in model.requests[1].messages[-2:]] == [asked.text, "the second"]
    assert history[-3:] == [("assistant", asked.text), ("user", "the second"), ("assistant", "OK.")]


def test_several_calls_of_an_answer_all_have_their_results_before_the_run_ends(tmp_path: Path) -> None:
    """Two questions are asked in one reply, and what else was called is done."""
    more = (
        ToolCall("2", "memory_insert", '{"label": "human", "new_string": "Has a door"}'),
        ToolCall("3", "ask_user", '{"question": "And when?"}'),
    )
    perdure, model = open_library(
        tmp_path, calls("ask_user", *more, question="Which colour?", options=["red", "dark blue"])
    )
    with perdure:
        agent = perdure.create_agent(model=MODEL)
        agent.tools.attach("ask_user")
        asked = agent.send("Paint the door")
        memory = agent.blocks.get("human").value

    assert asked.text == "Which colour?\n\n1. red\n2. dark blue\n\nAnd when?"
    assert asked.questions == (COLOURS, Question("And when?"))
    assert [message.role for message in asked.messages] == ["user", "assistant", "tool", "tool", "tool", "assistant"]
    assert "Has a door" in memory
    assert len(model.requests) == 1


@pytest.mark.parametrize("arguments", [{"question": " "}, {"question": "x", "options": ["a"] * 21}, {}])
def test_what_is_no_question_is_not_asked(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """The model is told, and may ask better or go on."""
    perdure, model = open_library(tmp_path, calls("ask_user", **arguments), says("never mind"))
    with perdure:
        agent = perdure.create_agent(model=MODEL)
        agent.tools.attach("ask_user")
        reply = agent.send("Paint the door")

    assert reply.text == "never mind"
    assert reply.questions == ()
    assert "not usable" in model.requests[1].messages[-1].text


def test_a_question_is_kept_as_it_was_asked() -> None:
    """In the log's own form, which older results without one share."""
    with_question = ToolResult("1", "ask_user", "Asked.", question=COLOURS)

    assert parts_from_json(parts_to_json([with_question])) == (with_question,)
    assert "question" not in parts_to_json([ToolResult("1", "other", "done")])
