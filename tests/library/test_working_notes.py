"""Working notes, newest steps and guards in the tail of requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput, Perdure, RequiresApproval, RunFailed, Settings
from perdure.core.blocks import WORKING_CHECKPOINT
from perdure.core.models import ModelRequest
from perdure.core.tools.engine_specs import DEFAULT_TOOLS
from perdure.testing import ScriptedModel, calls, says

MODEL = "test/scripted"
TOOLS = ["update_working_checkpoint", "memory_insert"]
NOTES = "Goal: 12 invoices. Done: 3."


def open_library(folder: Path, model: ScriptedModel, *tools: Callable[..., Any]) -> Perdure:
    settings = Settings(model=MODEL, embedding="none", facts="off")
    return Perdure(folder / "a.db", models={MODEL: model}, tools=tools, settings=settings)


def status(request: ModelRequest) -> dict[str, Any]:
    """The tail of a request."""
    shape: dict[str, Any] = json.loads(request.tail)
    return shape


def look(place: str = "") -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def fail(place: str = "") -> str:
    """Fail."""
    raise ValueError(f"no {place}")


# -- working notes -----------------------------------------------------------------------------------------------------


def test_notes_stand_in_each_request_until_they_are_replaced(tmp_path: Path) -> None:
    """In the tail only, after a restart too; a past request still has the notes of its time."""
    first = ScriptedModel(calls("update_working_checkpoint", key_info=NOTES, related_skill="billing"), says("Noted."))
    with open_library(tmp_path, first) as perdure:
        agent = perdure.create_agent("a", tools=TOOLS)
        agent.send("Begin.")
    second = ScriptedModel(says("3."), calls("update_working_checkpoint", key_info="Done: 4."), says("4."))
    with open_library(tmp_path, second) as perdure:
        agent = perdure.agent("a")
        agent.send("How many?")
        agent.send("And now?")
        past = agent.request(agent.steps()[-2].id)
    told = [status(request).get("working_checkpoint") for request in (*first.requests, *second.requests)]
    whole = f"{NOTES}\nRelated skill: billing"

    assert told == [None, whole, whole, whole, "Done: 4."]
    assert status(past)["working_checkpoint"] == whole
    for request in second.requests:
        assert NOTES not in request.system and all(message.kind == "message" for message in request.messages)


def test_people_see_and_edit_the_notes_as_a_block(tmp_path: Path) -> None:
    """With its versions; the next request has what they wrote, without a message about it."""
    model = ScriptedModel(calls("update_working_checkpoint", key_info=NOTES), says("Noted."), otherwise=says("Yes."))
    with open_library(tmp_path, model) as perdure:
        agent = perdure.create_agent("a", tools=TOOLS)
        agent.send("Begin.")
        shown = agent.blocks.get(WORKING_CHECKPOINT).value
        agent.blocks.update(WORKING_CHECKPOINT, "Goal: none.")
        agent.send("And now?")
        overview = agent.context()
        history = [version.value for version in agent.blocks.history(WORKING_CHECKPOINT)]
        agent.blocks.update(WORKING_CHECKPOINT, "")
        agent.send("And then?")

    assert shown == NOTES
    assert history[:2] == ["Goal: none.", NOTES]
    assert status(model.requests[2])["working_checkpoint"] == "Goal: none."
    assert not any(message.kind == "memory_delta" for message in model.requests[-1].messages)
    assert "working_checkpoint" not in status(model.requests[-1])
    assert overview.certificate.fits


def test_each_conversation_has_notes_of_its_own(tmp_path: Path) -> None:
    """Another conversation is about another task; a fork goes on with the notes."""
    model = ScriptedModel(calls("update_working_checkpoint", key_info=NOTES), says("Noted."), otherwise=says("Yes."))
    with open_library(tmp_path, model) as perdure:
        agent = perdure.create_agent("a", tools=TOOLS)
        other = agent.new_conversation().id
        agent.send("Begin.")
        agent.send("Hello.", conversation=other)
        fork = agent.fork_conversation().id
        agent.send("Go on.", conversation=fork)

    assert "working_checkpoint" not in status(model.requests[2])
    assert status(model.requests[3])["working_checkpoint"] == NOTES


def test_long_notes_are_refused_and_cut_in_a_small_window(tmp_path: Path) -> None:
    """With a text that says the limit; a tenth of the room is the most that they take."""
    model = ScriptedModel(calls("update_working_checkpoint", key_info="x" * 2_001), otherwise=says("Yes."))
    with open_library(tmp_path, model) as perdure:
        agent = perdure.create_agent("a", tools=TOOLS)
        agent.send("Begin.")
        agent.tools.run("update_working_checkpoint", {"key_info": "many words " * 150})
        agent.send("Go on.")
        agent.update(settings={"context_window_tokens": 5_000})
        agent.send("And now?")
    whole, cut = (status(request)["working_checkpoint"] for request in model.requests[2:])

    assert "its limit is 2,000" in model.requests[1].messages[-1].results[0].text
    assert whole == ("many words " * 150).strip()
    assert whole.startswith(cut[:-1]) and cut.endswith("…") and 300 < len(cut) < 1_200


def test_notes_never_keep_a_request_from_being_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing else can leave a small window, the request goes without them."""
    model = ScriptedModel(otherwise=says("Yes."))
    sent: dict[bool, list[int]] = {False: [], True: []}
    told: list[bool] = []
    with open_library(tmp_path, model) as perdure:
        agents = {noted: perdure.create_agent(tools=TOOLS) for noted in (False, True)}
        agents[True].tools.run("update_working_checkpoint", {"key_info": "many words " * 90})
        for window in (*range(3_160, 3_480, 80), 6_000):
            for noted, agent in agents.items():
                agent.update(settings={"context_window_tokens": window, "auto_recall": False})
                try:
                    agent.send("Hello.")
                except RunFailed:
                    continue
                sent[noted].append(window)
                if noted:
                    told.append("working_checkpoint" in status(model.requests[-1]))

    assert sent[True] == sent[False] != [], sent
    assert len(sent[True]) < 5 and told == sorted(told) and not told[0] and told[-1]
    assert not caplog.records


def test_without_the_tool_the_block_is_as_any_other(tmp_path: Path) -> None:
    """Somebody's own block of that name stays in the memory section."""
    from perdure import NewBlock

    model = ScriptedModel(otherwise=says("Yes."))
    with open_library(tmp_path, model) as perdure:
        block = NewBlock(label=WORKING_CHECKPOINT, value=NOTES)
        agent = perdure.create_agent("a", tools=["memory_insert"], blocks=[block])
        agent.send("Begin.")
        agent.tools.attach("update_working_checkpoint")
        agent.send("And now?")

    assert NOTES in model.requests[0].system and "working_checkpoint" not in status(model.requests[0])
    assert NOTES not in model.requests[1].system and status(model.requests[1])["working_checkpoint"] == NOTES
    assert not any("update_working_checkpoint" in tools for tools in DEFAULT_TOOLS.values())


# -- guards ------------------------------------------------------------------------------------------------------------


def test_the_newest_steps_are_listed_where_somebody_wants_it(tmp_path: Path) -> None:
    """Also those of earlier runs; oldest first."""
    script = [calls("look", place=str(number)) for number in range(4)]
    model = ScriptedModel(*script[:2], says("ok"), *script[2:], says("ok"))
    with open_library(tmp_path, model, look) as perdure:
        agent = perdure.create_agent("a", tools=["look"], settings={"guards": {"recent_steps": 3}})
        agent.send("Go.")
        agent.send("Go on.")

    assert "recent_steps" not in status(model.requests[0])
    assert status(model.requests[-1])["recent_steps"] == [
        f"look({number}) -> nothing in {number}" for number in (1, 2, 3)
    ]


def notices(model: ScriptedModel) -> list[str]:
    """The notices of each request, joined."""
    return [" ".join(status(request).get("notices", [])) for request in model.requests]


def test_steps_without_progress_are_warned_of_then_stopped(tmp_path: Path) -> None:
    """A call that fails again and again after three times; other stalls after seven; at the end the user is asked."""
    guards = {"stalled_steps": 5, "ask_steps": 8}
    for tools, order in (
        (["look", "ask_user"], "has to be ask_user"),
        (["look"], "Answer the user, without another call"),
        (["look", "send_message"], "Call send_message"),
    ):
        model = ScriptedModel(*[calls("look", place="x")] * 10, says("I give up."))
        with open_library(tmp_path, model, look) as perdure:
            agent = perdure.create_agent(tools=tools, settings={"guards": guards})
            agent.send("Go.")
        told = notices(model)

        assert told[:6] == [""] * 6
        assert all("no progress: the last" in one for one in told[6:9]), told
        assert all(order in one and "steps in a row brought nothing new" in one for one in told[9:]), told


@pytest.mark.parametrize(
    ("tools", "last", "how"),
    [
        (["look", "ask_user"], calls("ask_user", question="Where is it?"), "Your next call has to be ask_user"),
        (["look"], says("I am stuck."), "Answer the user, without another call"),
        (["look", "send_message"], calls("send_message", message="I am stuck."), "Call send_message"),
    ],
)
def test_after_the_order_only_a_question_or_an_answer_is_run(
    tmp_path: Path, tools: list[str], last: Any, how: str
) -> None:
    """What looks for another way in place of it is refused by a typed reason, also if it would bring something new."""
    ran: list[str] = []

    def watch(place: str) -> str:
        """Look."""
        ran.append(place)
        return "nothing"

    script = [calls("look", place="x")] * 6
    model = ScriptedModel(*script, calls("watch", place="y"), last, says("Bye."))
    with open_library(tmp_path, model, look, watch) as perdure:
        agent = perdure.create_agent(tools=[*tools, "watch"], settings={"guards": {"stalled_steps": 3, "ask_steps": 5}})
        reply = agent.send("Go.")
        again = agent.send("It is at z.")
    results = [one for message in reply.messages for one in message.results if one.name == "watch"]

    assert ran == [] and len(results) == 1
    assert results[0].text.startswith("answer_demanded: watch was not run") and how in results[0].text
    assert bool(reply.questions) == ("ask_user" in tools)
    assert again.text == "Bye."


def test_nobody_is_asked_for_a_call_that_the_order_forbids(tmp_path: Path) -> None:
    """Neither a person to approve it, nor a client to run it."""

    def open_door() -> str:
        """Open it."""
        return "open"

    stalled = [calls("look", place="x")] * 6
    for forbidden in (calls("fail", place="y"), calls("open_door")):
        model = ScriptedModel(*stalled, forbidden, says("I am stuck."))
        with open_library(tmp_path, model, look, fail) as perdure:
            agent = perdure.create_agent(tools=["look", "fail"], settings={"guards": {"ask_steps": 5}})
            agent.rules.set([RequiresApproval("fail")])
            reply = agent.send("Go.", client_tools=[open_door])

        assert reply.text.endswith("I am stuck.") and not reply.pending
        assert "answer_demanded" in model.requests[-1].messages[-1].text


def test_an_order_that_is_not_followed_ends_in_words(tmp_path: Path) -> None:
    model = ScriptedModel(*[calls("look", place="x")] * 6, otherwise=calls("look", place="other"))
    with open_library(tmp_path, model, look) as perdure:
        agent = perdure.create_agent("a", tools=["look", "ask_user"], settings={"guards": {"ask_steps": 5}})
        reply = agent.send("Go.")

    assert reply.text == "I could not do that: my tool calls keep failing."
    assert len(model.requests) <= 12


def test_a_call_that_fails_in_the_same_way_ends_in_words(tmp_path: Path) -> None:
    """After three times the model is asked for words, and no call of it runs any more."""
    model = ScriptedModel(*[calls("fail", place="x")] * 4)
    with open_library(tmp_path, model, look, fail) as perdure:
        reply = perdure.create_agent("a", tools=["look", "fail"]).send("Go.")

    assert len(model.requests) == 4
    assert reply.text == "I could not do that: my tool calls keep failing."


def test_long_turns_ask_the_user_where_somebody_wants_it(tmp_path: Path) -> None:
    """Whatever their steps did; runs that go on with a client's results are one turn."""

    def read(place: str) -> str:
        """Read."""
        return f"page {place}"

    script = [calls("read", place=str(number)) for number in range(6)]
    model = ScriptedModel(*script, says("ok"))
    with open_library(tmp_path, model) as perdure:
        agent = perdure.create_agent("a", tools=["ask_user"], settings={"guards": {"turn_steps": 4}})
        agent.send("Go.", client_tools=[read])
    told = notices(model)

    assert told[:4] == [""] * 4 and all("steps since the user spoke" in one for one in told[4:])


@pytest.mark.parametrize("guards", [False, {"memory_pressure": 0, "stalled_steps": 0, "ask_steps": 0}])
def test_guards_can_be_turned_off(tmp_path: Path, guards: Any) -> None:
    """Then the tail has nothing but what it always has."""
    model = ScriptedModel(*[calls("look", place="x")] * 9, says("ok"))
    with open_library(tmp_path, model, look) as perdure:
        perdure.create_agent("a", tools=["look"], settings={"guards": guards}).send("Go.")

    assert set(notices(model)) == {""}


@pytest.mark.slow
def test_memory_pressure_is_told_once_per_eviction(tmp_path: Path) -> None:
    """Before the oldest messages leave the view; then not again before the next time."""
    model = ScriptedModel(otherwise=says("Noted. " * 20))
    with open_library(tmp_path, model) as perdure:
        settings = {"context_window_tokens": 4_000, "summaries": {"background": False}}
        agent = perdure.create_agent("a", tools=TOOLS, settings=settings)
        for number in range(30):
            agent.send(f"Note {number}: " + "the parcel is at the door. " * 12)
        steps = agent.steps(limit=50)[::-1]
        tails = [json.loads(agent.request(step.id).tail).get("notices", []) for step in steps]
        agent_evictions = sum(step.rewritten == "window" for step in steps)
    told = [one[0] for one in tails if one and one[0].startswith("memory pressure: 9")]
    oldest = [int(one.split(", from msg-")[1].split(" on,")[0]) for one in told]

    assert len(told) >= 3 and len(told) == sum(map(bool, tails))
    assert oldest == sorted(set(oldest))
    assert "update_working_checkpoint, memory_insert" in told[0]
    assert agent_evictions >= len(told) - 1


def test_an_agent_that_can_save_nothing_is_not_told(tmp_path: Path) -> None:
    """It could do nothing about it."""
    model = ScriptedModel(otherwise=says("Noted. " * 20))
    with open_library(tmp_path, model, look) as perdure:
        settings = {"context_window_tokens": 4_000, "summaries": {"background": False}}
        agent = perdure.create_agent("a", tools=["look"], settings=settings)
        for number in range(20):
            agent.send(f"Note {number}: " + "the parcel is at the door. " * 12)

    assert "memory pressure" not in "".join(notices(model))


@pytest.mark.parametrize(
    "guards",
    ["on", 3, {"warn": 1}, {"stalled_steps": -1}, {"recent_steps": 51}, {"memory_pressure": 2}, {"ask_steps": "9"}],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, guards: Any) -> None:
    """With the name of the field and what it can be."""
    with open_library(tmp_path, ScriptedModel()) as perdure, pytest.raises(InvalidInput, match="guards"):
        perdure.create_agent("a", settings={"guards": guards})


@pytest.mark.parametrize("alone", [pytest.param(True, marks=pytest.mark.uses("schedules")), False])
def test_guards_are_on_for_an_agent_that_works_alone(tmp_path: Path, alone: bool) -> None:
    """An event woke it, and nobody reads along: its steps are listed, and it is warned. In a chat neither is."""
    script = [calls("look", place="x")] * 9
    model = ScriptedModel(*script, says("I give up."))
    with open_library(tmp_path, model, look) as perdure:
        agent = perdure.create_agent(tools=["look"])
        if alone:
            run = agent.notify("login").run
            list(agent.follow(run.id))
        else:
            agent.send("Go.")
    told, steps = notices(model), [status(request).get("recent_steps", []) for request in model.requests]

    assert len(model.requests) == 10
    assert [bool(one) for one in told] == [alone and number > 7 for number in range(10)], told
    assert [len(one) for one in steps] == ([*range(10)] if alone else [0] * 10)


def test_a_chat_has_the_guards_that_somebody_wants(tmp_path: Path) -> None:
    """`true` turns on all, a field one; `false` turns off all."""
    told: dict[str, tuple[bool, bool]] = {}
    for name, guards in {"all": True, "one": {"recent_steps": 5}, "none": False}.items():
        model = ScriptedModel(*[calls("look", place="x")] * 9, says("I give up."))
        with open_library(tmp_path, model, look) as perdure:
            perdure.create_agent(tools=["look"], settings={"guards": guards}).send("Go.")
        last = status(model.requests[-1])
        told[name] = ("notices" in last, "recent_steps" in last)

    assert told == {"all": (True, True), "one": (False, True), "none": (False, False)}


def test_a_call_that_keeps_failing_is_not_run_again(tmp_path: Path) -> None:
    """Though other calls come between it, which bring nothing new; its arguments may come in another order."""
    ran: list[str] = []

    def pay(to: str, amount: int) -> str:
        """Pay."""
        ran.append(to)
        raise ValueError("no money")

    between = calls("look", place="x")
    again = [calls("pay", to="Ada", amount=1), between, calls("pay", amount=1, to="Ada"), between]
    model = ScriptedModel(between, *again, *again, calls("pay", to="Ben", amount=1), says("I can't."))
    with open_library(tmp_path, model, look, pay) as perdure:
        agent = perdure.create_agent(tools=["look", "pay"], settings={"guards": {"failed_repeats": 3}})
        reply = agent.send("Pay.")
    texts = [result.text for message in reply.messages for result in message.results if result.name == "pay"]

    assert ran == ["Ada", "Ada", "Ada", "Ben"]
    assert texts[3].startswith("call_repeated: this call of pay has failed 3 times")


def test_a_call_that_fails_is_run_again_after_progress(tmp_path: Path) -> None:
    """What was learned meanwhile may help: tests are run again after each change of the code."""
    ran: list[int] = []

    def run_tests() -> str:
        """Run the tests."""
        ran.append(1)
        raise ValueError("1 failed")

    script = [line for number in range(5) for line in (calls("look", place=str(number)), calls("run_tests"))]
    model = ScriptedModel(*script, says("I give up."))
    with open_library(tmp_path, model, look, run_tests) as perdure:
        agent = perdure.create_agent(tools=["look", "run_tests"], settings={"guards": True})
        agent.send("Go.")

    assert len(ran) == 5


def test_the_status_counts_rules_and_error_patterns(tmp_path: Path) -> None:
    """Lines of blocks that only people change, and of the one about failures; nothing where there are none."""
    model = ScriptedModel(otherwise=says("Yes."))
    with open_library(tmp_path, model) as perdure:
        agent = perdure.create_agent("a", tools=["memory_insert"])
        agent.send("Hello.")
        agent.blocks.create("policy", "Be kind.\n\nBe brief.")
        agent.send("Hello.")
        agent.blocks.change("policy", metadata={"protected": True})
        agent.blocks.create("error_patterns", "ship: ask for the address")
        agent.send("Hello.")
    first, second, third = map(status, model.requests)

    assert not {"rules", "error_patterns"} & (first.keys() | second.keys())
    assert (third["rules"], third["error_patterns"]) == (2, 1)
