"""A person approves a call of the tool that they were asked about, and of no other that has its name by then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, Perdure, hook, tool
from perdure.app import start
from perdure.core.messages import ToolCall, ToolDecision
from perdure.core.tools.answers import ToolReturn
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.library.test_custom_tools import MODEL, NOTE, SETTINGS, Boxed, open_library, results

WARY: dict[str, Any] = {"requires_approval": True}
LOUDER = NOTE.replace("return text", "return text.upper()")
CHANGES: dict[str, dict[str, Any]] = {
    "source": {"source": LOUDER},
    "schema": {"source": NOTE.replace("text: str,", "words: str,").replace("return text", "return words")},
    "requirements": {"requirements": ["httpx==0.28.1"]},
    "environment": {"environment": {"URL": "https://example.org"}},
}
SAME: dict[str, dict[str, Any]] = {
    "tags": {"tags": ["x"]},
    "the same source": {"source": NOTE},
    "how much is shown": {"return_limit_chars": 2_000},
    "that it needs approval": {"requires_approval": False},
}
CHANGED = (
    "not run: note was changed after approval of this call was asked for; call it again if you still need it, and"
    " approval will be asked for anew"
)


@pytest.mark.parametrize("what", CHANGES)
async def test_a_tool_that_was_changed_while_its_call_waited_is_not_run(what: str) -> None:
    """The model reads so, asks again, and what is approved then is run."""
    box, again = Boxed(), {"words" if what == "schema" else "text": "b"}
    async with open_library(box, calls("note", text="a"), calls("note", **again), says("done")) as (perdure, _):
        await perdure.tools.create(NOTE, **WARY)
        agent = await perdure.create_agent("ann", model=MODEL, tools=["note"])
        await agent.send("note it")
        await perdure.tools.update("note", **CHANGES[what])
        reply = await agent.approve()

        assert reply is not None
        assert [(one.text, one.status) for one in results(reply)] == [(CHANGED, "error")]
        assert (reply.stop_reason, box.jobs) == ("requires_approval", [])
        await agent.approve()
        assert [job.arguments["text" if what != "schema" else "words"] for job in box.jobs] == ["b"]


@pytest.mark.parametrize("what", SAME)
async def test_what_says_nothing_of_what_a_tool_does_may_change_meanwhile(what: str) -> None:
    box = Boxed()
    async with open_library(box, calls("note", text="a"), says("done")) as (perdure, _):
        await perdure.tools.create(NOTE, **WARY)
        agent = await perdure.create_agent("ann", model=MODEL, tools=["note"])
        await agent.send("note it")
        await perdure.tools.update("note", **SAME[what])
        await agent.approve()

        assert len(box.jobs) == 1


async def test_a_changed_tool_is_not_run_with_arguments_that_a_person_changed_either() -> None:
    """Nor is it said that it was."""
    box = Boxed()
    async with open_library(box, calls("note", text="a"), says("done")) as (perdure, _):
        await perdure.tools.create(NOTE, **WARY)
        agent = await perdure.create_agent("ann", model=MODEL, tools=["note"])
        await agent.send("note it")
        await perdure.tools.update("note", source=LOUDER)
        reply = await agent.approve(arguments={"text": "b"})

        assert [one.text for one in results(reply)] == [CHANGED]
        assert box.jobs == []


async def test_a_tool_that_is_changed_while_a_hook_thinks_about_its_call_is_not_run() -> None:
    """What is decided last is decided about what there is then."""
    box = Boxed()

    @hook("before_tool")
    async def change(payload: Any) -> None:
        await perdure.tools.update("note", source=LOUDER)

    model = ScriptedModel(calls("note", text="a"), says("done"))
    app = await start(SETTINGS, models={MODEL: model}, store=InlineStore(), sandbox=box, hooks=[change])
    async with AsyncPerdure(app) as perdure:
        await perdure.tools.create(NOTE, **WARY)
        agent = await perdure.create_agent("ann", model=MODEL, tools=["note"])
        await agent.send("note it")
        reply = await agent.approve()

        assert [one.text for one in results(reply)] == [CHANGED]
        assert box.jobs == []


async def test_a_tool_that_was_deleted_meanwhile_is_missed_and_one_like_it_is_run() -> None:
    box = Boxed()
    async with open_library(box, calls("note", text="a"), says("one"), calls("note", text="b"), says("two")) as (
        perdure,
        _,
    ):
        await perdure.tools.create(NOTE, **WARY)
        agent = await perdure.create_agent("ann", model=MODEL, tools=["note"])
        await agent.send("note it")
        await perdure.tools.delete("note")
        reply = await agent.approve()
        await perdure.tools.create(NOTE, **WARY)
        await agent.tools.attach("note")
        await agent.send("note that")
        await perdure.tools.delete("note")
        await perdure.tools.create(NOTE, **WARY)
        await agent.tools.attach("note")
        await agent.approve()

        assert [one.text for one in results(reply)] == ["there is no tool 'note'; your tools are: none"]
        assert [job.arguments["text"] for job in box.jobs] == ["b"]


CHOSEN = Settings(model=MODEL, embedding="none")

done: list[str] = []


@tool
def pay(n: int = 0) -> str:
    """Pay."""
    done.append(f"pay{n}")
    return f"paid {n}"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda agent: agent.tools.detach("pay"), "there is no tool 'pay'"),
        (lambda agent: agent.require_approval("pay"), "pay now needs somebody's approval"),
    ],
    ids=["detached", "guarded"],
)
async def test_what_is_changed_while_a_call_is_run_holds_for_those_behind_it(
    change: Callable[[AsyncAgent], Awaitable[Any]], told: str
) -> None:
    """Also for those of the same answer."""
    done.clear()

    async def look() -> str:
        """Look."""
        await change(agent)
        return "looked"

    model = ScriptedModel(calls("look", ToolCall("", "pay", "{}")), says("done"))
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, settings=CHOSEN, tools=[pay, look]
    ) as perdure:
        agent = await perdure.create_agent("ann", tools=["pay", "look"])
        reply = await agent.send("look and pay")

        assert [one.text.partition(";")[0].partition(":")[0] for one in results(reply)] == ["looked", told]
        assert done == []


def test_a_tool_of_the_caller_does_not_take_the_place_of_one_that_was_approved() -> None:
    """The call that was approved is the server's; those that come after it are the caller's, as it asked."""
    done.clear()
    model = ScriptedModel(calls("pay", call_id="c1", n=1), calls("pay", call_id="c2", n=2), says("ok"))
    with Perdure(store=InlineStore(), models={MODEL: model}, tools=[pay], settings=CHOSEN) as perdure:
        agent = perdure.create_agent(tools=("pay",))
        agent.require_approval("pay")
        agent.send("go")
        reply = agent.answer([ToolDecision("c1", True)], client_tools=[{"name": "pay", "description": "Mine."}])

        assert reply is not None
        assert ([one.text for one in results(reply)], done) == (["paid 1"], ["pay1"])
        assert [(call.call_id, call.awaits) for call in reply.pending] == [("c2", "client")]
        last = agent.answer([ToolReturn("c2", "paid by me")])
        assert last is not None
        assert (last.text, done) == ("ok", ["pay1"])


def test_an_approved_call_whose_tool_is_gone_is_not_the_caller_s() -> None:
    model = ScriptedModel(calls("pay", ToolCall("c2", "pay", '{"n": 2}'), call_id="c1", n=1), says("ok"))
    with Perdure(store=InlineStore(), models={MODEL: model}, tools=[pay], settings=CHOSEN) as perdure:
        agent = perdure.create_agent(tools=("pay",))
        agent.require_approval("pay")
        agent.send("go")
        agent.tools.detach("pay")
        reply = agent.answer(
            [ToolDecision("c1", True), ToolDecision("c2", True)], client_tools=[{"name": "pay", "description": "Mine."}]
        )

        assert reply is not None
        assert [one.text for one in results(reply)] == ["there is no tool 'pay'; your tools are: none"] * 2


async def test_a_waiver_is_of_one_tool_and_not_of_the_next_of_its_name() -> None:
    """It stays with the tool: changed, or taken away and given back."""
    box = Boxed()
    asked = [part for text in "abc" for part in (calls("note", text=text), says("done"))]
    async with open_library(box, *asked) as (perdure, _):
        await perdure.tools.create(NOTE, **WARY)
        agent = await perdure.create_agent("ann", model=MODEL, tools=["note"])
        await agent.require_approval("note", False)
        first = await agent.send("go")
        await agent.tools.detach("note")
        await agent.tools.attach("note")
        again = await agent.send("go")
        await perdure.tools.delete("note")
        await perdure.tools.create(NOTE, **WARY)
        await agent.tools.attach("note")
        other = await agent.send("go")

        assert [one.stop_reason for one in (first, again, other)] == ["end_turn", "end_turn", "requires_approval"]
        await agent.require_approval("note", False)
        (kept,) = await agent.tools.list()
        assert (await perdure.agent("ann")).info.settings["approval_waived"][-1] == kept.id


async def test_the_approval_that_an_agent_requires_is_one_of_its_rules() -> None:
    """Also where the tool itself requires it: a list of the rules is how a program learns what it has set."""
    async with open_library(Boxed()) as (perdure, _):
        await perdure.tools.create(NOTE, **WARY)
        agent = await perdure.create_agent("ann", model=MODEL, tools=["note"])
        for required, kinds in ((False, []), (True, ["requires_approval"]), (True, ["requires_approval"])):
            await agent.require_approval("note", required)

            rules = (await perdure.agent("ann")).info.settings.get("tool_rules", ())
            assert [rule["type"] for rule in rules] == kinds


async def test_a_waiver_that_an_older_store_kept_by_name_is_none() -> None:
    """Of which tool it was is not known any more: a person is asked, and may waive it anew."""
    async with open_library(Boxed(), calls("note", text="a"), says("done")) as (perdure, _):
        await perdure.tools.create(NOTE, **WARY)
        older = {"approval_waived": ["note"]}
        agent = await perdure.create_agent("ann", model=MODEL, tools=["note"], settings=older)

        assert (await agent.send("go")).stop_reason == "requires_approval"
