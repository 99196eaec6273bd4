"""The heartbeat loop of the older agent types, told by what its model was asked and answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure import AsyncPerdure, Perdure, Reply, RunFailed, tool
from perdure.context.prompts import base_prompt
from perdure.core.loops import loop_of
from perdure.core.models import ModelRequest
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import ContinueLoop, RequiredBeforeExit, RequiresApproval
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says

MODEL = "test/scripted"

done: list[Any] = []


@pytest.fixture(autouse=True)
def clear_calls() -> None:
    done.clear()


@tool
async def look(place: str) -> str:
    """Look at a place."""
    done.append(place)
    if place == "nowhere":
        raise ValueError("no such place")
    return f"{place} is green"


def ask(name: str, heartbeat: bool, **arguments: Any) -> Any:
    """A call as such an agent's model makes it."""
    return calls(name, thinking=f"I call {name}.", **arguments, request_heartbeat=heartbeat)


def speak(text: str, heartbeat: bool = False) -> Any:
    return ask("send_message", heartbeat, message=text)


def serve(*script: Any, agent_type: str = "memgpt_v2_agent", rules: Any = (), **settings: Any) -> Any:
    """(The reply to one message, the model) of an agent with the tools `look` and `send_message`."""
    model = ScriptedModel(*script)
    settings |= {"tool_rules": rules_to_settings(rules)} if rules else {}
    with Perdure(
        store=InlineStore(), models={MODEL: model}, tools=[look], settings=Settings(model=MODEL, embedding="none")
    ) as perdure:
        agent = perdure.create_agent(agent_type=agent_type, tools=("look", "send_message"), settings=settings)
        return agent.send("go"), model


def heartbeats(request: ModelRequest) -> list[str]:
    return [json.loads(one.text)["reason"] for one in request.messages if one.kind == "heartbeat"]


def parameters(request: ModelRequest, name: str) -> Any:
    return next(shape["parameters"] for shape in request.tools if shape["name"] == name)


def test_each_tool_asks_for_thoughts_and_a_heartbeat_and_one_has_to_be_called() -> None:
    """Thoughts first; both are required; the tool itself gets neither, and the log keeps what the model sent."""
    reply, model = serve(ask("look", True, place="garden"), speak("It is green."))

    schema = parameters(model.requests[0], "look")
    assert list(schema["properties"]) == ["thinking", "place", "request_heartbeat"]
    assert schema["required"] == ["thinking", "place", "request_heartbeat"]
    assert schema["properties"]["request_heartbeat"]["type"] == "boolean"
    assert {request.options.tool_choice for request in model.requests} == {"required"}
    assert {request.options.parallel_tool_calls for request in model.requests} == {False}
    assert model.requests[0].system.startswith(base_prompt("memgpt_v2_agent"))
    assert done == ["garden"]
    (look_call, say_call) = [call for message in reply.messages for call in message.calls]
    assert json.loads(look_call.arguments) == {"thinking": "I call look.", "place": "garden", "request_heartbeat": True}
    assert (look_call.thoughts, json.loads(say_call.own_arguments)) == ("I call look.", {"message": "It is green."})


def test_a_run_goes_on_only_with_a_heartbeat() -> None:
    """The model is told so by the engine."""
    reply, model = serve(ask("look", True, place="garden"), speak("It is green."))
    assert (reply.stop_reason, len(model.requests)) == ("end_turn", 2)
    assert heartbeats(model.requests[1]) == ["You requested a heartbeat, so you have control again."]

    reply, model = serve(ask("look", False, place="garden"))
    assert (reply.stop_reason, len(model.requests)) == ("end_turn", 1)


def test_a_failed_call_gives_control_back() -> None:
    _, model = serve(ask("look", False, place="nowhere"), speak("There is no such place."))

    assert heartbeats(model.requests[1]) == ["The tool call failed, so you have control again."]


def test_a_rule_keeps_a_run_going() -> None:
    """One that continues after a tool, and one that requires another tool before the end."""
    _, model = serve(ask("look", False, place="a"), speak("Done."), rules=[ContinueLoop("look")])
    assert heartbeats(model.requests[1]) == ["Your tool rules ask for another step, so you have control again."]

    _, model = serve(speak("Done."), ask("look", False, place="a"), rules=[RequiredBeforeExit("look")])
    assert heartbeats(model.requests[1]) == ["ToolRuleViolated: call look at least once before you are done."]


def test_an_answer_without_a_call_is_not_accepted() -> None:
    """The model is reminded; one that never calls a tool ends the run."""
    reply, model = serve(says("Hello."), speak("Hello."))
    assert (reply.stop_reason, len(model.requests)) == ("end_turn", 2)
    assert heartbeats(model.requests[1]) == ["NoToolCall: call a tool: what stands outside a call reaches nobody."]

    with pytest.raises(RunFailed) as failure:
        serve(ask("look", True, place="a"), *[says("Hello.")] * 4)
    assert isinstance(failure.value.reply, Reply)
    assert failure.value.reply.stop_reason == "no_tool_call"
    assert "can be made to call a tool" in str(failure.value)


def test_a_model_that_reasons_by_itself_is_not_asked_for_thoughts() -> None:
    _, model = serve(calls("send_message", message="Hi.", request_heartbeat=False), reasoning_effort="high")

    assert list(parameters(model.requests[0], "send_message")["properties"]) == ["message", "request_heartbeat"]


def test_an_argument_of_the_tool_stays_the_tools() -> None:
    """A tool may have an argument of the same name."""

    @tool
    async def ponder(thinking: str) -> str:
        """Ponder."""
        done.append(thinking)
        return thinking

    model = ScriptedModel(calls("ponder", thinking="Hm.", request_heartbeat=False))
    with Perdure(
        store=InlineStore(), models={MODEL: model}, tools=[ponder], settings=Settings(model=MODEL, embedding="none")
    ) as perdure:
        perdure.create_agent(agent_type="memgpt_agent", tools=("ponder",)).send("go")

    assert done == ["Hm."]
    assert list(parameters(model.requests[0], "ponder")["properties"]) == ["thinking", "request_heartbeat"]


def test_a_call_that_waits_for_approval_is_shown_and_run_with_the_tools_own_arguments() -> None:
    """Its heartbeat counts once it was approved."""
    model = ScriptedModel(ask("look", True, place="garden"), speak("It is green."))
    with Perdure(
        store=InlineStore(), models={MODEL: model}, tools=[look], settings=Settings(model=MODEL, embedding="none")
    ) as perdure:
        settings = {"tool_rules": rules_to_settings([RequiresApproval("look")])}
        agent = perdure.create_agent(agent_type="memgpt_agent", tools=("look", "send_message"), settings=settings)
        first = agent.send("go")
        (pending,) = agent.pending()
        assert (first.stop_reason, pending.arguments) == ("requires_approval", {"place": "garden"})
        reply = agent.approve(pending.call_id)

    assert reply is not None
    assert (reply.stop_reason, done, len(model.requests)) == ("end_turn", ["garden"], 2)


def test_only_the_older_types_have_this_loop() -> None:
    assert not loop_of("letta_v1_agent", {}).heartbeats
    assert loop_of("memgpt_agent", {}).prompt == "heartbeats"
    assert "send_message" in base_prompt("memgpt_agent")
    assert "send_message" not in base_prompt()


async def test_what_is_said_by_send_message_is_the_agents_text() -> None:
    """In the reply, and where the history is searched; its thoughts are not."""
    script = ask("look", True, place="garden"), speak("The garden is green.")
    model = ScriptedModel(*script)
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, tools=[look], settings=Settings(model=MODEL, embedding="none")
    ) as perdure:
        agent = await perdure.create_agent(agent_type="memgpt_agent", tools=("look", "send_message"))
        reply = await agent.send("How is it?")
        found = await agent.search("green", roles=["assistant"])

    assert reply.text == "The garden is green."
    assert [hit.message.text for hit in found] == ["The garden is green."]
