"""What tool rules make of a run, told by what its model was asked and answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from perdure import ModelReply, Perdure, Reply, RunFailed, tool
from perdure.core.messages import ToolCall
from perdure.core.models import ModelRequest
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import (
    ChildTools,
    Conditional,
    ExitLoop,
    MaxCount,
    ParentTool,
    RequiredBeforeExit,
    RunFirst,
    ToolRule,
)
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says

MODEL = "test/scripted"

done: list[str] = []


@pytest.fixture(autouse=True)
def clear_calls() -> None:
    done.clear()


def _tool(name: str, *, returns: str = "fine") -> Callable[..., Any]:
    @tool(name=name, parallel=True)
    async def act(n: int = 0) -> str:
        """Do it."""
        done.append(f"{name}{n}")
        return returns

    return act


def serve(rules: list[ToolRule], *script: Any, **settings: Any) -> tuple[Reply, ScriptedModel]:
    """The reply to one message of an agent with the tools a, b and c and these rules."""
    model = ScriptedModel(*script)
    with Perdure(
        store=InlineStore(),
        models={MODEL: model},
        tools=[_tool("a"), _tool("b", returns="true"), _tool("c")],
        settings=Settings(model=MODEL, embedding="none"),
    ) as perdure:
        agent = perdure.create_agent(
            tools=("a", "b", "c"), settings={"tool_rules": rules_to_settings(rules), **settings}
        )
        return agent.send("go"), model


def results(reply: Reply) -> list[str]:
    return [result.text for message in reply.messages for result in message.results]


def heartbeats(request: ModelRequest) -> list[str]:
    return [json.loads(one.text)["reason"] for one in request.messages if one.kind == "heartbeat"]


def test_the_model_is_told_the_rules_and_asked_for_what_has_to_come() -> None:
    """A subset is offered by name; the tools of the request, and so its beginning, stay the same."""
    _, model = serve([RunFirst("a"), RunFirst("b"), ChildTools("a", ("c",))], calls("a"), calls("c"), says("done"))

    assert [request.options.tool_choice for request in model.requests] == [("a", "b"), ("c",), "auto"]
    assert {request.options.parallel_tool_calls for request in model.requests} == {False}
    assert "<tool_rule>\nRight after `a` you must call `c`.\n</tool_rule>" in model.requests[0].system
    assert model.requests[0].tools == model.requests[2].tools
    assert done == ["a0", "c0"]


def test_an_agent_without_rules_is_told_nothing_of_them() -> None:
    _, model = serve([], says("done"))

    assert "tool_rule" not in model.requests[0].system
    assert model.requests[0].options.tool_choice == "auto"


def test_a_call_that_breaks_a_rule_is_not_run_and_says_why() -> None:
    reply, _ = serve([RunFirst("a")], calls("b"), calls("a"), says("done"))

    assert results(reply)[0] == (
        "[ToolConstraintError] Cannot call b, valid tools include: ['a']."
        "\n** Hint: Possible rules that were violated:"
        "\n\t- <tool_rule>`a` may be called first; until then no tool without such a rule may.</tool_rule>"
    )
    assert done == ["a0"]


def test_calls_of_one_answer_are_judged_one_after_the_other() -> None:
    """The third is one too many, though all could run at the same time."""
    three = calls("a", ToolCall("", "a", '{"n": 1}'), ToolCall("", "a", '{"n": 2}'))
    reply, _ = serve([MaxCount("a", 2)], three, says("done"))

    assert done == ["a0", "a1"]
    assert results(reply)[2].startswith("[ToolConstraintError] Cannot call a")


def test_of_two_limits_of_a_tool_the_lower_one_holds() -> None:
    """Both are kept, so that a client reads back what it wrote."""
    reply, _ = serve([MaxCount("a", 3), MaxCount("a", 1)], calls("a"), calls("a"), says("done"))

    assert done == ["a0"]
    assert results(reply)[1].startswith("[ToolConstraintError] Cannot call a")


def test_the_limit_of_calls_is_of_one_request() -> None:
    """Two calls are two, and the next message may have two again."""
    model = ScriptedModel(calls("a"), calls("a"), says("one"), calls("a"), says("two"))
    with Perdure(
        store=InlineStore(), models={MODEL: model}, tools=[_tool("a")], settings=Settings(model=MODEL, embedding="none")
    ) as perdure:
        agent = perdure.create_agent(tools=("a",), settings={"tool_rules": rules_to_settings([MaxCount("a", 2)])})
        agent.send("go")
        agent.send("again")

    assert done == ["a0", "a0", "a0"]


def test_arguments_of_a_rule_take_the_place_of_the_models() -> None:
    """In what is run, and in what the log shows as called."""
    rules: list[ToolRule] = [RunFirst("a", {"n": 99}), ChildTools("a", ("b",), {"b": {"n": 7}})]
    reply, _ = serve(rules, calls("a", n=1), calls("b", n=1), calls("b", n=1), says("done"))

    assert done == ["a99", "b7", "b1"]
    assert [call.arguments for message in reply.messages for call in message.calls][:2] == ['{"n": 99}', '{"n": 7}']


def test_an_exit_tool_ends_the_run_and_nothing_comes_behind_it() -> None:
    reply, model = serve([ExitLoop("a")], calls("a", ToolCall("", "b", "{}")))

    assert reply.stop_reason == "tool_rule"
    assert done == ["a0"]
    assert len(model.requests) == 1


def test_an_exit_tool_whose_arguments_are_no_good_ends_nothing() -> None:
    bad = ModelReply(parts=(ToolCall("1", "a", '{"n": '),))
    reply, model = serve([ExitLoop("a")], bad, calls("a"))

    assert reply.stop_reason == "tool_rule"
    assert len(model.requests) == 2


def test_a_run_may_not_end_before_what_is_required() -> None:
    """Neither by an answer in words nor by an exit tool; the model is told what is missing."""
    rules: list[ToolRule] = [RequiredBeforeExit("a"), ExitLoop("b")]
    reply, model = serve(rules, says("done"), calls("b"), calls("a"), calls("b"))

    assert reply.stop_reason == "tool_rule"
    assert done == ["b0", "a0", "b0"]
    told = "ToolRuleViolated: call a at least once before you are done."
    assert heartbeats(model.requests[1]) == [told]
    assert heartbeats(model.requests[2]) == [told, told]


def test_only_a_call_that_has_the_arguments_and_succeeds_is_what_is_required() -> None:
    """Neither one with other arguments nor one that fails counts; both rules of a tool hold."""
    rules: list[ToolRule] = [RequiredBeforeExit("a", {"n": 7}), RequiredBeforeExit("a", {"n": 8})]
    bad = ModelReply(parts=(ToolCall("c1", "a", '{"n": 7, "m": 1}'),))
    script = [calls("a", n=1), says("done"), bad, says("done"), calls("a", n=7), says("done"), calls("a", n=8)]
    reply, model = serve(rules, *script, says("done"))
    demand = "ToolRuleViolated: call a with {} at least once before you are done."

    assert (reply.stop_reason, done) == ("end_turn", ["a1", "a7", "a8"])
    assert heartbeats(model.requests[-1])[0] == demand.format('{"n": 7} or a with {"n": 8}')
    assert heartbeats(model.requests[-1])[-1] == demand.format('{"n": 8}')
    assert 'call `a` at least once with the arguments {"n": 7} before' in model.requests[0].system


def test_a_model_that_never_does_what_is_required_is_stopped() -> None:
    with pytest.raises(RunFailed, match=r"was told 3 times .* call a at least once") as failed:
        serve([RequiredBeforeExit("a")])

    assert failed.value.stop_reason == "no_tool_call"
    assert isinstance(failed.value.reply, Reply)
    assert failed.value.reply.step_count == 4


def test_a_model_that_can_not_be_forced_is_asked_again() -> None:
    reply, model = serve([ChildTools("a", ("b",))], calls("a"), says("no"), calls("b"), says("done"))

    assert reply.stop_reason == "end_turn"
    assert heartbeats(model.requests[2]) == ["ToolRuleViolated: your next step has to be a call of b."]
    assert done == ["a0", "b0"]


def test_what_a_tool_returned_decides_what_comes_next() -> None:
    """As text, whether the tool returned a word or a boolean."""
    rules: list[ToolRule] = [Conditional("b", {"True": "c", "other": "a"})]
    reply, model = serve(rules, calls("b", n=1), calls("a"), calls("c"), says("done"))

    assert model.requests[1].options.tool_choice == ("c",)
    assert done == ["b1", "c0"]
    assert "Cannot call a" in results(reply)[1]


def test_a_result_that_no_rule_foresees_ends_the_run() -> None:
    with pytest.raises(RunFailed, match="b returned 'true', for which no tool comes next"):
        serve([Conditional("b", {"x": "c"}, require_output_mapping=True)], calls("b"))


def test_a_child_is_open_right_after_its_parent_only() -> None:
    rules: list[ToolRule] = [ParentTool("a", ("b",))]
    reply, model = serve(rules, calls("b"), calls("a"), calls("b"), calls("b"), says("done"))

    assert done == ["a0", "b0"]
    assert [text.startswith("[Tool") for text in results(reply)] == [True, False, False, True]
    assert model.requests[2].options.tool_choice == ("b",)


def test_an_answer_in_words_is_taken_after_a_parent() -> None:
    reply, _ = serve([ParentTool("a", ("b",))], calls("a"), says("done"))

    assert reply.stop_reason == "end_turn"


def test_rules_for_tools_that_the_agent_has_not_got_are_asleep() -> None:
    """But the children of a parent that is not there stay closed: it was to come before them."""
    rules: list[ToolRule] = [RunFirst("x"), RequiredBeforeExit("x"), ChildTools("a", ("x",)), ParentTool("x", ("c",))]
    reply, _ = serve(rules, calls("a"), calls("b"), calls("c"), says("done"))

    assert done == ["a0", "b0"]
    assert reply.stop_reason == "end_turn"


def test_a_request_with_a_rule_is_built_again_as_it_was_sent() -> None:
    """What the rules asked of the model stands in the recipe."""
    model = ScriptedModel(calls("a"), says("done"))
    with Perdure(
        store=InlineStore(), models={MODEL: model}, tools=[_tool("a")], settings=Settings(model=MODEL, embedding="none")
    ) as perdure:
        agent = perdure.create_agent(tools=("a",), settings={"tool_rules": rules_to_settings([RunFirst("a")])})
        agent.send("go")
        first = agent.steps()[-1]
        rebuilt = agent.request(first.id)

    assert rebuilt.options == model.requests[0].options
    assert (rebuilt.options.tool_choice, rebuilt.options.parallel_tool_calls) == (("a",), False)


def test_the_tools_that_rules_name_and_the_agent_has_not_got_can_be_told() -> None:
    """Those of the engine are there."""
    with Perdure(
        store=InlineStore(),
        models={MODEL: ScriptedModel()},
        tools=[_tool("a"), _tool("b")],
        settings=Settings(model=MODEL),
    ) as perdure:
        agent = perdure.create_agent(tools=("a",))
        assert agent.rules.missing() == []
        agent.rules.set([ChildTools("a", ("b", "c")), MaxCount("context_expand", 2), RequiredBeforeExit("a")])
        assert agent.rules.missing() == ["b", "c"]
        agent.tools.attach("b")
        assert agent.rules.missing() == ["c"]
