"""Calls that wait for a person, or for the program that sent the message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, Perdure, Reply, tool
from perdure.core.errors import AnswerInvalid, ApprovalPending, InvalidInput, NotFound
from perdure.core.messages import ToolCall, ToolDecision
from perdure.core.models import ModelRequest
from perdure.core.tools.answers import ToolReturn
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import ChildTools, ExitLoop, MaxCount, RequiresApproval, RunFirst
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says

MODEL = "test/scripted"
SETTINGS = Settings(model=MODEL, embedding="none")

done: list[str] = []


@tool
async def pay(n: int = 0) -> str:
    """Pay."""
    done.append(f"pay{n}")
    return f"paid {n}"


@tool
async def look(n: int = 0) -> str:
    """Look."""
    done.append(f"look{n}")
    return "seen"


APPROVED: dict[str, Any] = {"tool_rules": rules_to_settings([RequiresApproval("pay")])}


@pytest.fixture(autouse=True)
def nothing_done() -> Iterator[None]:
    done.clear()
    yield


def open_library(*script: Any) -> tuple[Perdure, ScriptedModel]:
    model = ScriptedModel(*script)
    return Perdure(store=InlineStore(), models={MODEL: model}, tools=[pay, look], settings=SETTINGS), model


def texts(request: ModelRequest) -> list[str]:
    return [result.text for message in request.messages for result in message.results]


def test_a_call_that_needs_approval_stops_the_run_and_approved_it_is_run_once() -> None:
    """Its free neighbour waits with it; the decision itself is never shown to the model."""
    perdure, model = open_library(calls("pay", ToolCall("", "look", "{}"), n=1), says("done"))
    with perdure:
        agent = perdure.create_agent(tools=("pay", "look"), settings=APPROVED)
        reply = agent.send("go")

        assert (reply.stop_reason, [call.name for call in reply.pending], done) == ("requires_approval", ["pay"], [])
        (pending,) = agent.pending()
        assert (pending.name, pending.arguments, pending.run_id) == ("pay", {"n": 1}, reply.run_id)

        following = agent.approve()

        assert following is not None
        assert (following.text, following.stop_reason, done) == ("done", "end_turn", ["pay1", "look0"])
        assert agent.pending() == ()
        assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool", "tool"]
        for step in agent.steps():
            agent.request(step.id)  # is rebuilt to its digest


def test_while_a_call_waits_nothing_else_is_said() -> None:
    perdure, _ = open_library(calls("pay"), says("done"), says("again"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        reply = agent.send("go")
        for if_busy in ("wait", "reject"):
            with pytest.raises(
                ApprovalPending, match=r"waiting for approval on a tool call.* It waits for pay"
            ) as refused:
                agent.send("hello?", if_busy=if_busy)
        with pytest.raises(ApprovalPending, match=r"Cannot import messages: .* It waits for pay"):
            agent.import_messages([("user", None, "long ago", "2020-01-01T00:00:00Z")])

        assert refused.value.run_id == reply.run_id
        assert agent.send("elsewhere", conversation=agent.new_conversation().id).text == "done"
        assert agent.context().message_count == 1


def test_a_denied_call_is_told_with_its_reason() -> None:
    perdure, model = open_library(calls("pay"), says("pity"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        agent.send("go")
        following = agent.deny(reason="too dear")

    assert following is not None
    assert following.text == "pity"
    assert texts(model.requests[1]) == ["Error: request to call tool denied. User reason: too dear"]
    assert done == []


def test_several_calls_may_be_decided_one_by_one() -> None:
    """The run goes on with the last of them; what was decided before stays decided."""
    perdure, model = open_library(
        calls("pay", ToolCall("b", "pay", '{"n": 2}'), ToolCall("c", "pay", '{"n": 3}')), says("ok")
    )
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        agent.send("go")

        assert agent.approve("c") is None
        assert agent.deny("b") is None
        assert [call.call_id for call in agent.pending()] == ["call_1_0"]
        assert agent.approve("c") is None
        assert agent.deny("b") is None
        with pytest.raises(AnswerInvalid, match=r"Expected '\['call_1_0'\]': call c was approved already"):
            agent.deny("c")
        with pytest.raises(AnswerInvalid, match=r"Expected '\['call_1_0'\]', but received '\['d'\]'"):
            agent.approve("d")
        assert done == []
        following = agent.approve("call_1_0")

    assert following is not None
    assert sorted(done) == ["pay0", "pay3"]
    assert sorted(texts(model.requests[1])) == ["Error: request to call tool denied.", "paid 0", "paid 3"]


def test_arguments_may_be_changed_and_the_model_is_told() -> None:
    """What the model asked stays in the log; what is run is what the person wrote, if it fits the tool."""
    perdure, model = open_library(calls("pay", n=900), says("ok"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        agent.send("go")
        with pytest.raises(AnswerInvalid, match=r"changed arguments of call .* can't be used"):
            agent.approve(arguments={"n": "many"})
        assert len(agent.pending()) == 1
        agent.approve(arguments={"n": 9})

    assert done == ["pay9"]
    assert texts(model.requests[1]) == ['paid 9\n\n[NOTE: run with arguments that a person changed: {"n": 9}]']
    assert model.requests[1].messages[1].calls[0].arguments == '{"n": 900}'


@pytest.mark.parametrize(("arguments", "error"), [('{"n": ', "not"), ('{"n": "many"}', "'n'"), ('{"m": 1}', "'m'")])
def test_nobody_is_asked_about_a_call_that_can_not_be_run(arguments: str, error: str) -> None:
    perdure, model = open_library(calls("look", ToolCall("b", "pay", arguments)), says("ok"))
    with perdure:
        agent = perdure.create_agent(tools=("pay", "look"), settings=APPROVED)

        assert agent.send("go").stop_reason == "end_turn"
    assert error in texts(model.requests[1])[1]
    assert done == ["look0"]


def test_what_is_said_along_with_an_answer_comes_behind_the_results() -> None:
    perdure, model = open_library(calls("pay"), says("both"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        call_id = agent.send("go").pending[0].call_id
        following = agent.answer([ToolDecision(call_id, True)], text="and hurry")

    assert following is not None
    assert following.text == "both"
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool", "user"]


def test_a_run_that_goes_on_may_stop_again() -> None:
    """Rules count over the whole request: the third call is one too many, and nobody is asked about it."""
    settings = {"tool_rules": rules_to_settings([RequiresApproval("pay"), MaxCount("pay", 2), RunFirst("pay")])}
    perdure, model = open_library(calls("pay"), calls("pay", n=1), calls("pay", n=2), says("ok"))
    with perdure:
        agent = perdure.create_agent(tools=("pay", "look"), settings=settings)
        agent.send("go")
        second = agent.approve()
        assert second is not None
        assert (second.stop_reason, done) == ("requires_approval", ["pay0"])
        third = agent.approve()

    assert third is not None
    assert (third.stop_reason, third.text, done) == ("end_turn", "ok", ["pay0", "pay1"])
    assert "Cannot call pay" in texts(model.requests[3])[2]


def test_calls_behind_one_that_waits_are_not_run_before_it_where_order_matters() -> None:
    settings = {"tool_rules": rules_to_settings([RequiresApproval("pay"), RunFirst("pay"), ExitLoop("look")])}
    perdure, _ = open_library(calls("pay", ToolCall("b", "look", "{}")))
    with perdure:
        agent = perdure.create_agent(tools=("pay", "look"), settings=settings)
        agent.send("go")
        assert done == []
        following = agent.approve()

    assert following is not None
    assert (following.stop_reason, done) == ("tool_rule", ["pay0", "look0"])


def test_a_cancelled_request_gives_its_calls_up() -> None:
    perdure, model = open_library(calls("pay"), says("never mind"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        run_id = agent.send("go", idempotency_key="k").run_id
        cancelled = agent.cancel(run_id)

        assert (cancelled.status, cancelled.stop_reason) == ("cancelled", "cancelled")
        assert agent.run(run_id) == cancelled == agent.cancel(run_id)
        assert agent.pending() == ()
        again = agent.send("go", idempotency_key="k")
        assert (again.run_id, again.stop_reason, again.pending) == (run_id, "cancelled", ())
        assert agent.send("hello").text == "never mind"
    assert texts(model.requests[1]) == ["not run: the request was cancelled"]


def test_a_tool_may_ask_for_approval_by_itself_and_an_agent_waive_it() -> None:
    perdure, _ = open_library(calls("pay"), says("one"), calls("pay", n=1), says("two"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",))
        agent.require_approval("pay")
        assert [rule.type for rule in agent.rules.list()] == ["requires_approval"]
        assert agent.send("go").stop_reason == "requires_approval"
        agent.approve()
        agent.require_approval("pay", False)

        assert agent.rules.list() == ()
        assert agent.send("go").text == "two"
        with pytest.raises(NotFound, match="has no such tool"):
            agent.require_approval("fly")


def test_messages_that_waited_come_after_the_run_that_goes_on(tmp_path: Path) -> None:
    """And are not begun while the call waits."""

    async def go() -> None:
        begun, hold = asyncio.Event(), asyncio.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            begun.set()
            await hold.wait()
            return "waited"

        model = ScriptedModel(calls("wait"), calls("pay"), says("paid"), says("second"))
        async with await AsyncPerdure.open(
            tmp_path / "store.db", models={MODEL: model}, tools=[pay, wait], settings=SETTINGS
        ) as perdure:
            agent = await perdure.create_agent(tools=("pay", "wait"), settings=APPROVED)
            first = asyncio.create_task(agent.send("first"))
            async with asyncio.timeout(20):
                await begun.wait()
            second = asyncio.create_task(agent.send("second"))
            await asyncio.sleep(0.05)
            hold.set()
            assert (await first).stop_reason == "requires_approval"
            await asyncio.sleep(0.2)
            assert not second.done()
            following = await agent.approve()
            assert following is not None
            assert following.text == "paid"
            assert (await asyncio.wait_for(second, 20)).text == "second"
            said = [message.text for message in await agent.messages() if message.text]
            assert said == ["first", "waited", "paid 0", "paid", "second", "second"]

    asyncio.run(go())


BASH = {
    "name": "Bash",
    "description": "Run.",
    "parameters": {"type": "object", "properties": {"c": {"type": "string"}}},
}


def test_a_tool_of_the_caller_stops_the_run_which_goes_on_with_what_it_brings_back() -> None:
    """The next model call is offered the same tools, so the prompt stays as it was."""
    perdure, model = open_library(calls("Bash", c="ls"), says("I see"), says("bye"))
    with perdure:
        agent = perdure.create_agent(tools=("look",))
        reply = agent.send("go", client_tools=[BASH])
        (call,) = agent.pending()
        assert (reply.stop_reason, call.name, call.awaits_client) == ("requires_approval", "Bash", True)
        with pytest.raises(AnswerInvalid, match="run by the caller"):
            agent.approve(call.call_id)
        following = agent.answer([ToolReturn(call.call_id, "file.txt", stdout=("x",))])
        assert following is not None
        agent.send("thanks")

    assert texts(model.requests[1]) == ["file.txt"]
    assert [shape["name"] for shape in model.requests[0].tools][:2] == ["look", "Bash"]
    assert model.requests[1].tools == model.requests[0].tools
    assert "Bash" not in [shape["name"] for shape in model.requests[2].tools]


def test_what_the_caller_says_went_wrong_is_an_error_in_the_log() -> None:
    """What it brings back is kept with its status, what it printed, and for the model to see."""
    perdure, model = open_library(calls("Bash", c="ls"), says("I see"))
    with perdure:
        agent = perdure.create_agent(tools=("look",))
        agent.send("go", client_tools=[BASH])
        (call,) = agent.pending()
        agent.answer([ToolReturn(call.call_id, "no such file", "error", ("out",), ("err",))])
        (result,) = [result for message in agent.messages() for result in message.results]

    assert (result.text, result.status, result.stdout, result.stderr) == ("no such file", "error", ("out",), ("err",))
    assert [one.status for message in model.requests[1].messages for one in message.results] == ["error"]


def test_functions_of_the_caller_are_run_by_the_library() -> None:
    """In place of the agent's own tool of the name, as often as the model asks."""

    def look(n: int) -> str:
        """Look here."""
        if n == 2:
            raise ValueError("too far")
        return f"looked {n}"

    perdure, model = open_library(calls("look", n=1), calls("look", n=2), calls("look", n="x"), says("ok"))
    with perdure:
        agent = perdure.create_agent(tools=("look", "pay"))
        reply = agent.send("go", client_tools=[look])

    assert (reply.text, done) == ("ok", [])
    results = texts(model.requests[-1])
    assert (results[0], results[1]) == ("looked 1", "Error executing function look: ValueError: too far")
    assert "'n'" in results[2]


def test_what_the_caller_brings_back_is_cut_at_a_fifth_of_the_window() -> None:
    perdure, _ = open_library(calls("Bash"), says("ok"))
    with perdure:
        agent = perdure.create_agent(tools=(), settings={"context_window_tokens": 8_000})
        (call,) = agent.send("go", client_tools=[BASH]).pending
        agent.answer([ToolReturn(call.call_id, "x" * 20_000)])
        (result,) = [message.text for message in agent.messages() if message.role == "tool"]

    assert result.count("x") == 6_400
    assert "\n[NOTE: the result was cut here: it has 20,000 characters, 6,400 were kept]\n" in result


@pytest.mark.parametrize(
    ("tools", "why"),
    [([BASH, BASH], "more than once"), ([{"name": ""}], "name"), ([BASH | {"parameters": 5}], "JSON schema")],
)
def test_tools_that_are_none_are_refused(tools: list[Any], why: str) -> None:
    perdure, _ = open_library()
    with perdure:
        agent = perdure.create_agent(tools=())
        with pytest.raises(InvalidInput, match=why):
            agent.send("go", client_tools=tools)
        assert agent.message_count() == 0


def test_ids_of_calls_that_a_model_counts_anew_are_never_taken_for_ones_answered_before() -> None:
    """A late retry of the first answer must not approve the second call."""
    one = calls("pay", call_id="call_0", n=1)
    two = calls("pay", call_id="call_0", n=2)
    perdure, _ = open_library(one, says("a"), two, says("b"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        agent.send("go")
        first: Reply | None = agent.answer([ToolDecision("call_0", True)])
        agent.send("go on")
        late = agent.answer([ToolDecision("call_0", True)])

        assert first is not None
        assert late is not None
        assert late.run_id == first.run_id
        assert done == ["pay1"]
        assert [call.call_id for call in agent.pending()] == ["call_0-2"]


def test_an_approval_that_comes_after_its_call_was_cancelled_approves_no_other() -> None:
    """A model that counts its calls anew gives the next one the same id; it is kept under another."""
    first, second = calls("pay", call_id="call_0", n=1), calls("pay", call_id="call_0", n=9)
    perdure, _ = open_library(first, second, says("done"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        stopped = agent.send("go")
        late = stopped.pending[0].call_id
        agent.cancel(stopped.run_id)
        agent.send("and now?")

        with pytest.raises(AnswerInvalid):
            agent.answer([ToolDecision(late, True)])

        assert done == []


NO_ANSWERS: dict[str, Any] = {
    "ToolDecision.approve is 'no'": ToolDecision("call", "no"),  # type: ignore[arg-type]
    "ToolDecision.arguments is {'n': 1}": ToolDecision("call", True, None, {"n": 1}),  # type: ignore[arg-type]
    "ToolReturn.text is 5": ToolReturn("call", 5),  # type: ignore[arg-type]
    "ToolReturn.stdout is 'abc'": ToolReturn("call", "x", "success", "abc"),  # type: ignore[arg-type]
    "ToolReturn.status is 'odd'": ToolReturn("call", "x", "odd"),  # type: ignore[arg-type]
    "an answer is 'yes'": "yes",
}


@pytest.mark.parametrize("why", NO_ANSWERS)
def test_an_answer_with_a_field_of_another_type_is_none(why: str) -> None:
    """What is not False is no yes."""
    perdure, _ = open_library(calls("pay", n=1), says("done"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        agent.send("go")

        with pytest.raises(InvalidInput, match=why):
            agent.answer([NO_ANSWERS[why]])

        assert (done, len(agent.pending())) == ([], 1)


def test_arguments_that_a_person_changed_stand_before_a_rule_s() -> None:
    """The person has seen what the rule put there."""
    perdure, _ = open_library(calls("pay", n=1), says("done"))
    with perdure:
        rules = rules_to_settings([RequiresApproval("pay"), RunFirst("pay", {"n": 2})])
        agent = perdure.create_agent(tools=("pay",), settings={"tool_rules": rules})
        agent.send("go")
        agent.approve(arguments={"n": 5})

        assert done == ["pay5"]


def test_the_limit_of_model_calls_holds_over_approvals() -> None:
    """What was approved is run all the same; an answer may bring a limit of its own."""
    perdure, model = open_library(*(calls("pay", n=n) for n in range(1, 9)))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        agent.send("go", max_steps=2)
        agent.approve()
        last = agent.approve()

        assert last is not None
        assert (last.stop_reason, done, len(model.requests)) == ("max_steps", ["pay1", "pay2"], 2)
        (call,) = agent.send("go", max_steps=1).pending
        following = agent.answer([ToolDecision(call.call_id, True)], max_steps=1)
        assert following is not None
        assert (following.stop_reason, len(model.requests)) == ("requires_approval", 4)


def test_of_a_deleted_agent_nothing_waits() -> None:
    perdure, _ = open_library()
    with perdure:
        agent = perdure.create_agent()
        perdure.delete_agent(agent.id)
        for ask in (agent.pending, agent.approve, agent.deny):
            with pytest.raises(NotFound, match=f"agent '{agent.id}' not found"):
                ask()


@tool
async def transfer(to: str, amount: int) -> str:
    """Send money."""
    done.append(f"{amount} to {to}")
    return "sent"


def test_changed_arguments_are_read_as_they_will_be_when_the_call_is_run() -> None:
    """A name that is given twice is refused to the person, who can write it anew, not to the model afterwards."""
    perdure, _ = open_library(calls("pay", call_id="a", n=1), says("done"))
    with perdure:
        agent = perdure.create_agent(tools=("pay",), settings=APPROVED)
        agent.send("go")
        with pytest.raises(AnswerInvalid, match="'n' is given twice"):
            agent.answer([ToolDecision("a", True, None, '{"n": 2, "n": 3}')])
        agent.answer([ToolDecision("a", True, None, '{"n": 3}')])
    assert done == ["pay3"]


@pytest.mark.parametrize("given", [{"to": "me"}, {"to": "me", "amount": 1}])
def test_what_a_rule_fills_in_is_never_run_without_the_person_having_seen_it(given: dict[str, Any]) -> None:
    """The rule comes into force when the call before turns out to be none, which was not foreseen."""
    rules = rules_to_settings(
        [RequiresApproval("transfer"), ChildTools("look", ("pay", "transfer"), {"transfer": {"amount": 500}})]
    )
    unforeseen = calls("pay", ToolCall("", "transfer", json.dumps(given)), n="?")
    model = ScriptedModel(calls("look"), unforeseen, *([] if "amount" in given else [calls("transfer", **given)]))
    perdure = Perdure(store=InlineStore(), models={MODEL: model}, tools=[pay, look, transfer], settings=SETTINGS)
    with perdure:
        agent = perdure.create_agent(tools=("pay", "look", "transfer"), settings={"tool_rules": rules})
        agent.send("go")
        (shown,) = agent.pending()
        assert done == ["look0"]
        agent.approve()
    assert done == ["look0", f"{shown.arguments['amount']} to me"]


def test_what_a_waiting_call_would_change_is_shown_and_not_kept() -> None:
    """With its diff; a call of a tool that edits no block changes none."""
    model = ScriptedModel(calls("memory_insert", label="human", new_string="likes tea"), says("Noted."))
    with Perdure(store=InlineStore(), models={MODEL: model}, tools=[pay], settings=SETTINGS) as perdure:
        agent = perdure.create_agent("Ada")
        agent.require_approval("memory_insert")
        agent.send("I like tea.")
        (call,) = agent.pending()
        versions = len(agent.blocks.history("human"))
        (edit,) = agent.pending_edits(call)

        assert (edit.block.label, "+likes tea" in edit.diff) == ("human", True)
        assert agent.pending_edits(replace(call, call=replace(call.call, name="pay"))) == ()
        assert ("likes tea" in agent.blocks.get("human").value, len(agent.blocks.history("human"))) == (False, versions)
        agent.approve()
        assert "likes tea" in agent.blocks.get("human").value
