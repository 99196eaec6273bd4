"""Answers to calls that wait, given again: the same changes nothing, another comes too late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure import Perdure, tool
from perdure.core.errors import AnswerInvalid
from perdure.core.messages import ToolCall, ToolDecision
from perdure.core.tools.answers import Answer, ToolReturn
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import RequiresApproval
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says

MODEL = "test/scripted"
APPROVED: dict[str, Any] = {"tool_rules": rules_to_settings([RequiresApproval("pay")])}
BASH = {"name": "Bash", "description": "Run."}

done: list[str] = []


@tool
async def pay(n: int = 0) -> str:
    """Pay."""
    done.append(f"pay{n}")
    return f"paid {n}"


@pytest.fixture(autouse=True)
def nothing_done() -> Iterator[None]:
    done.clear()
    yield


def open_library(*script: Any) -> tuple[Perdure, ScriptedModel]:
    model = ScriptedModel(*script)
    settings = Settings(model=MODEL, embedding="none")
    return Perdure(store=InlineStore(), models={MODEL: model}, tools=[pay], settings=settings), model


def test_the_same_answer_again_gives_the_same_reply() -> None:
    """A decision is applied once; another one for the same call comes too late."""
    perdure, _ = open_library(calls("pay"), says("done"), says("never"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        call_id = agent.send("go").pending[0].call_id
        first = agent.answer([ToolDecision(call_id, True)])
        again = agent.answer([ToolDecision(call_id, True)])

        assert first is not None
        assert again is not None
        assert again.run_id == first.run_id
        assert done == ["pay0"]
        with pytest.raises(AnswerInvalid, match="No tool call is currently awaiting approval"):
            agent.answer([ToolDecision(call_id, False)])


def test_what_is_said_along_with_an_answer_is_never_lost() -> None:
    """It is refused where it could not be kept: beside a part of the answers, and beside answers given before."""
    perdure, _ = open_library(calls("pay", ToolCall("b", "pay", "{}"), call_id="a"), says("done"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        agent.send("go")
        both = [ToolDecision("a", True), ToolDecision("b", True)]

        with pytest.raises(AnswerInvalid, match="other calls wait"):
            agent.answer(both[:1], text="a note")
        reply = agent.answer(both, text="a note")
        again = agent.answer(both, text="a note")
        with pytest.raises(AnswerInvalid, match="send it by itself"):
            agent.answer(both, text="something new")

        assert reply is not None and again is not None and reply.run_id == again.run_id


def test_a_decision_said_again_changes_nothing() -> None:
    """By itself or with the others, one by one or all at once; what is never given again is the reply before."""
    batch = calls("pay", ToolCall("b", "pay", '{"n": 2}'), ToolCall("c", "Bash", "{}"), call_id="a", n=1)
    perdure, _ = open_library(batch, says("ok"), says("never"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        agent.send("go", client_tools=[BASH])
        assert agent.answer([ToolDecision("a", True, None, '{"n": 5}')]) is None
        assert agent.answer([ToolDecision("a", True, None, '{ "n": 5 }'), ToolDecision("b", False, "no")]) is None
        assert agent.answer([ToolReturn("c", "x" * 400_000), ToolDecision("b", False)], text="quick") is not None
        first = agent.answer([ToolReturn("c", "x" * 400_000)], text="quick")

        assert first is not None and (first.text, done) == ("ok", ["pay5"])
        repeats: list[list[Answer]] = [
            [ToolDecision("a", True, None, '{"n": 5}')],
            [ToolDecision("b", False, "no"), ToolReturn("c", "x" * 400_000)],
        ]
        for same in repeats:
            again = agent.answer(same)
            assert again is not None and again.run_id == first.run_id
        for other, told in (
            (ToolDecision("a", True), 'call a was approved with the arguments {"n": 5} already'),
            (ToolDecision("b", True), "call b was denied with the reason 'no' already"),
            (ToolDecision("b", False, "too dear"), "call b was denied"),
            (ToolReturn("c", "y"), "call c was answered with 'xxx"),
        ):
            with pytest.raises(AnswerInvalid, match=told):
                agent.answer([other])
        assert done == ["pay5"]


def test_approving_again_is_the_same_reply() -> None:
    """As long as nothing was said since; another decision is told what was decided."""
    perdure, _ = open_library(calls("pay", ToolCall("b", "pay", "{}"), n=1), says("ok"), says("and now"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        with pytest.raises(AnswerInvalid, match="no call waits for approval"):
            agent.approve()
        agent.send("go")
        first, again = agent.approve(), agent.approve()

        assert first is not None and again is not None and first.run_id == again.run_id
        with pytest.raises(AnswerInvalid, match=r"No tool call is currently awaiting approval .* was approved already"):
            agent.deny()
        agent.send("more")
        with pytest.raises(AnswerInvalid, match="no call waits for approval"):
            agent.approve()
        assert sorted(done) == ["pay0", "pay1"]


def test_a_caller_may_run_what_waits_for_approval() -> None:
    """Its result takes the place of the server's; the same answer again changes nothing."""
    perdure, model = open_library(calls("pay", call_id="a"), says("ok"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        agent.send("go")
        reply, again = agent.answer([ToolReturn("a", "paid 5")]), agent.answer([ToolReturn("a", "paid 5")])

        assert reply is not None and again is not None
        assert (reply.text, again.run_id, done) == ("ok", reply.run_id, [])
        assert [result.text for message in model.requests[1].messages for result in message.results] == ["paid 5"]
        assert [hit.message.role for hit in agent.search("paid")] == ["tool"]
