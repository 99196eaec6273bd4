"""Python functions as tools: what a model is told of them, how they run, what becomes of their failures."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest

from perdure import AsyncPerdure, InvalidInput, ModelReply, NotFound, Perdure, Settings, hook, tool
from perdure.core.errors import StoreError
from perdure.core.messages import ToolCall, ToolResult
from perdure.core.tools.engine_specs import CONTEXT_TOOL_SPECS
from perdure.testing import ScriptedModel, calls, says
from tests.support.library import MODEL, Tools, open_async, open_sync

FAILED = "Error executing function"


def results_of(tmp_path: Path, tools: Tools, *script: object) -> list[ToolResult]:
    """What the tool calls of the script came to, in the order they were stored."""
    with open_sync(tmp_path / "agents.db", *script, tools=tools) as perdure:
        reply = perdure.create_agent().send("go")
    assert reply.stop_reason == "end_turn"
    return [result for message in reply.messages for result in message.results]


def test_a_model_is_told_of_a_function_what_its_source_says(tmp_path: Path) -> None:
    """Name, description and parameters come from signature and docstring; agents get the tool without being asked."""

    def book(when: date, seats: int = 2, kind: Literal["train", "bus"] = "train", note: str | None = None) -> str:
        """Book a journey.

        Args:
            when: the day of travel
            seats: how many
        """
        return ""

    model = ScriptedModel()
    with Perdure(tmp_path / "agents.db", models={MODEL: model}, tools=[book]) as perdure:
        perdure.create_agent(model=MODEL).send("hello")
    (error_text,) = (error_text for error_text in model.requests[0].tools if error_text["name"] == "book")

    assert error_text["description"] == "Book a journey."
    properties = error_text["parameters"]["properties"]
    assert list(properties) == ["when", "seats", "kind", "note"]
    assert properties["when"]["description"] == "the day of travel"
    assert properties["seats"]["type"] == "integer"
    assert properties["kind"]["enum"] == ["train", "bus"]
    assert error_text["parameters"]["required"] == ["when"]


def test_plain_and_asynchronous_functions_get_their_own_types(tmp_path: Path) -> None:
    """Arguments arrive as the annotations say, and what is returned is what the model sees."""

    def weekday(day: date) -> str:
        """The weekday of a day."""
        return day.strftime("%A")

    async def double(number: int, times: int = 1) -> dict[str, int]:
        """A number doubled."""
        await asyncio.sleep(0)
        return {"result": number * 2**times}

    results = results_of(
        tmp_path, [weekday, double], calls("weekday", day="2026-11-20"), calls("double", number=4), says("done")
    )

    assert [(result.text, result.status) for result in results] == [("Friday", "success"), ('{"result": 8}', "success")]


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        ('{"number": "many"}', "number"),
        ('{"nmber": 1}', "nmber"),
        ("{}", "number"),
        ("not json", "not usable"),
        ("[1]", "not usable"),
    ],
)
def test_unusable_arguments_do_not_run_the_tool(tmp_path: Path, arguments: str, error_text: str) -> None:
    """The model is told what was wrong; the function is never called."""
    called = []

    def take(number: int) -> str:
        """Take a number."""
        called.append(number)
        return "taken"

    reply = ModelReply(parts=(ToolCall("c", "take", arguments),))
    (result,) = results_of(tmp_path, [take], reply, says("sorry"))

    assert result.status == "error"
    assert error_text in result.text
    assert called == []


def test_a_failing_function_is_a_result(tmp_path: Path) -> None:
    """The model sees the error and the run goes on; where it was raised is kept for the tool's author."""

    def fail() -> str:
        """Fail."""
        raise RuntimeError("no seats left")

    (result,) = results_of(tmp_path, [fail], calls("fail"), says("sorry"))

    assert (result.text, result.status) == (f"{FAILED} fail: RuntimeError: no seats left", "error")
    assert result.stderr[0] == result.text
    assert "in fail" in result.stderr[1]


def test_an_unknown_tool_is_a_result(tmp_path: Path) -> None:
    """A call of a tool that the agent has not got is answered with those it has."""
    (result,) = results_of(tmp_path, [], calls("fly"), says("sorry"))

    assert result.status == "error"
    assert "there is no tool 'fly'; your tools are: archival_memory_insert" in result.text


def test_a_tool_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """The model is told after how long, and the run goes on."""

    @tool(timeout_s=0.05)
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return "waited"

    (result,) = results_of(tmp_path, [wait], calls("wait"), says("sorry"))

    assert result.text == f"{FAILED} wait: tool 'wait' took more than 0.05 s and was stopped"
    assert result.status == "error"


async def test_functions_that_never_end_hold_up_nothing_else(tmp_path: Path) -> None:
    """A tool and a hook are given up; their threads keep neither other work waiting nor the process from its end."""
    end, threads = threading.Event(), list[threading.Thread]()

    def wait_for_ever() -> None:
        threads.append(threading.current_thread())
        end.wait(20)

    @tool(timeout_s=0.05)
    def stuck() -> str:
        """Wait."""
        wait_for_ever()
        return ""

    @hook("before_tool", timeout_s=0.05)
    def stuck_hook(payload: Any) -> None:
        wait_for_ever()

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    models = {MODEL: ScriptedModel(calls("stuck"))}
    async with await AsyncPerdure.open(
        tmp_path / "agents.db", models=models, tools=[stuck], hooks=[stuck_hook]
    ) as perdure:
        await (await perdure.create_agent(model=MODEL)).send("go")
        try:
            async with asyncio.timeout(5):
                await asyncio.to_thread(str)
        finally:
            end.set()

    assert [thread.daemon for thread in threads] == [True, True]


def test_parallel_tools_run_at_the_same_time(tmp_path: Path) -> None:
    """Calls of one answer whose tool allows it wait together; others wait for each other."""
    both_began = asyncio.Barrier(2)
    steps: list[str] = []

    @tool(parallel=True)
    async def together(number: int) -> int:
        """Wait for the other one."""
        async with asyncio.timeout(20):
            await both_began.wait()
        return number

    @tool
    async def alone(number: int) -> int:
        """Wait a little."""
        steps.append("begun")
        await asyncio.sleep(0.1)
        steps.append("ended")
        return number

    def both(name: str) -> tuple[ToolCall, ToolCall]:
        return ToolCall(f"{name}-1", name, '{"number": 1}'), ToolCall(f"{name}-2", name, '{"number": 2}')

    first, second = both("together")
    third, fourth = both("alone")
    reply = calls("together", second, third, fourth, call_id=first.call_id, number=1)
    results = results_of(tmp_path, [together, alone], reply, says("done"))

    assert sorted(result.call_id for result in results[:2]) == ["together-1", "together-2"]
    assert [result.call_id for result in results[2:]] == ["alone-1", "alone-2"]
    assert sorted(result.text for result in results[:2]) == ["1", "2"]
    assert steps == ["begun", "ended"] * 2


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("returned", "error_text"),
    [
        (float("nan"), "a value that JSON does not have"),
        ({"a": [float("inf")]}, "a value that JSON does not have"),
        (b"\x00\xff", "2 bytes"),
        ((number for number in range(3)), "a generator, which nobody runs"),
        (Odd(), "Odd: it has no message that can be shown"),
        ("cycle", "a value that JSON does not have (Circular reference"),
    ],
)
def test_a_result_that_no_model_could_read_is_an_error(tmp_path: Path, returned: Any, error_text: str) -> None:
    """In words that say what to return; the tool has run."""

    def odd() -> Any:
        """Odd."""
        if isinstance(returned, Exception):
            raise returned
        if returned == "cycle":
            cycle: list[Any] = []
            cycle.append(cycle)
            return cycle
        return returned

    (result,) = results_of(tmp_path, [odd], calls("odd"), says("done"))

    assert (result.status, error_text in result.text) == ("error", True), result.text


@pytest.mark.uses("compression")
def test_a_long_result_is_shown_in_part_and_opened_by_its_handle(tmp_path: Path) -> None:
    """The model sees its beginning and end, up to the tool's limit; the log has the whole, up to a bound of its own."""

    def shout() -> str:
        """Much."""
        return f"{'x' * 60_000}\nthe needle\n{'y' * sizes.pop(0)}"

    sizes = [60_000, 400_000]
    model = ScriptedModel(
        calls("shout"), calls("context_grep", pattern="needle", handle="msg-2"), says("done"), calls("shout")
    )
    with Perdure(tmp_path / "a.db", tools=[shout], models={"test/m": model}) as perdure:
        agent = perdure.create_agent(model="test/m")
        shown, found = (r for message in agent.send("Go.").messages for r in message.results)
        sent = model.requests[1].messages[-1].results[0]
        (huge,) = (r for message in agent.send("Again.").messages for r in message.results)

    assert (len(shown.text), shown.shown_chars) == (120_012, 50_000)
    assert len(sent.text) <= 50_000 and "\n1:1| xxx" in sent.text and sent.text.endswith("yyy")
    assert 'the original has 120,012 characters; context_expand("msg-2"' in sent.text
    assert "the needle" in found.text
    assert "\n[NOTE: the result was cut here: it has 460,012 characters, 400,000 were kept]\n" in huge.text
    assert huge.text.startswith("xxx") and huge.text.endswith("yyy")


def test_a_tool_that_is_not_loaded_is_not_run(tmp_path: Path) -> None:
    """After a restart without the function the agent still has its tool; calling it is an error result."""

    def ring() -> str:
        """Ring."""
        return "rang"

    with open_sync(tmp_path / "agents.db", tools=[ring]) as perdure:
        perdure.create_agent("helper")
    with open_sync(tmp_path / "agents.db", calls("ring"), says("sorry")) as perdure:
        reply = perdure.agent("helper").send("ring")
    with open_sync(tmp_path / "agents.db", calls("ring"), says("done"), tools=[ring]) as perdure:
        again = perdure.agent("helper").send("ring")

    assert "not loaded in this process" in reply.messages[2].text
    assert again.messages[2].text == "rang"


def test_an_agent_has_only_the_tools_it_was_given(tmp_path: Path) -> None:
    """Named tools and those that open what is out of view; without any of its own not even these."""

    def ring() -> str:
        """Ring."""
        return "rang"

    model = ScriptedModel()
    with Perdure(tmp_path / "agents.db", models={MODEL: model}, tools=[ring]) as perdure:
        perdure.create_agent("one", model=MODEL, tools=["ring"]).send("hello")
        perdure.create_agent("two", model=MODEL, tools=[]).send("hello")

    offered = [[error_text["name"] for error_text in request.tools] for request in model.requests]
    assert offered == [["ring", *CONTEXT_TOOL_SPECS], []]


def test_a_function_that_can_not_be_a_tool_is_refused(tmp_path: Path) -> None:
    """When the store is opened, with the reason; not when a model calls it."""

    @tool(name="two words")
    def ring() -> str:
        """Ring."""
        return "rang"

    with pytest.raises(InvalidInput, match="'two words' can't be used"):
        open_sync(tmp_path / "agents.db", tools=[ring])


async def test_a_run_can_be_cancelled_while_its_tool_runs(tmp_path: Path) -> None:
    """It ends at once; the call gets a result that says what is not known, and the next message is answered."""
    started = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return "waited"

    async with await open_async(tmp_path / "agents.db", calls("wait"), says("hello"), tools=[wait]) as perdure:
        agent = await perdure.create_agent()
        run_id = (await agent.submit("go")).run.id
        await started.wait()
        await agent.cancel(run_id)
        assert [sent async for sent in agent.follow(run_id)]

        assert (await agent.run(run_id)).stop_reason == "cancelled"
        assert "outcome unknown, the run was cancelled" in (await agent.messages())[-1].text
        assert (await agent.send("again")).text == "hello"


def test_call_ids_may_repeat_between_answers(tmp_path: Path) -> None:
    """Some models number their calls anew in each answer; each call still has its own result."""

    def ring() -> str:
        """Ring."""
        return "rang"

    with open_sync(
        tmp_path / "agents.db", calls("ring", call_id="1"), calls("ring", call_id="1"), says("done"), tools=[ring]
    ) as perdure:
        reply = perdure.create_agent().send("go")

    ids = [result.call_id for message in reply.messages for result in message.results]
    assert len(ids) == len(set(ids)) == 2


def test_tools_are_given_and_taken_away_by_name(tmp_path: Path) -> None:
    """The next request offers what the agent has then; a name that is not there is told with those that are."""

    def ring() -> str:
        """Ring the bell."""
        return "ding"

    model = ScriptedModel()
    path = tmp_path / "agents.db"
    with Perdure(path, models={MODEL: model}, tools=[ring], settings=Settings(model=MODEL)) as perdure:
        agent = perdure.create_agent(tools=["conversation_search"])
        agent.send("one")
        agent.tools.attach("ring")
        agent.tools.attach("ring")
        agent.tools.detach("conversation_search")
        agent.send("two")

        assert [tool.spec.name for tool in agent.tools.list()] == ["ring"]
        assert {"ring", "conversation_search", "memory_replace"} <= {tool.spec.name for tool in perdure.tools.list()}
        assert [[offered["name"] for offered in request.tools] for request in model.requests] == [
            ["conversation_search", *CONTEXT_TOOL_SPECS],
            ["ring", *CONTEXT_TOOL_SPECS],
        ]
        with pytest.raises(NotFound, match=r"'rang' not found: there are .*ring"):
            agent.tools.attach("rang")
        with pytest.raises(NotFound, match="'conversation_search' of this agent not found"):
            agent.tools.detach("conversation_search")


def leave() -> str:
    """Leave."""
    sys.exit("bye")


def interrupt() -> str:
    """Interrupt."""
    raise KeyboardInterrupt("stop")


def exhaust() -> str:
    """Take from nothing."""
    return str(next(iter(())))


async def leave_later() -> str:
    """Leave."""
    await asyncio.sleep(0)
    sys.exit("bye")


async def leave_aside() -> str:
    """Leave, in a task of the tool's own."""
    return str(await asyncio.ensure_future(leave_later()))


def fall_apart() -> str:
    """Fail in several ways."""
    raise ExceptionGroup("parts", [ValueError("one"), ExceptionGroup("inner", [KeyError("two")] * 7)])


async def give_up() -> str:
    """Give up, though nobody asked for it."""
    raise asyncio.CancelledError("enough")


@pytest.mark.parametrize(
    ("function", "error_text"),
    [
        (leave, "SystemExit: bye"),
        (interrupt, "KeyboardInterrupt: stop"),
        (exhaust, "StopIteration: "),
        (leave_later, "SystemExit: bye"),
        (leave_aside, "SystemExit: bye"),
        (
            fall_apart,
            "ExceptionGroup: parts (2 sub-exceptions): [ValueError: one; ExceptionGroup: inner (7 sub-exceptions): ["
            + "KeyError: 'two'; " * 5
            + "and 2 more]]",
        ),
        (give_up, "CancelledError: enough"),
    ],
)
def test_a_tool_can_not_end_the_program_that_called_it(
    tmp_path: Path, function: Callable[..., Any], error_text: str
) -> None:
    """What it raises to leave is an error for the model; the run goes on, and so does the store."""
    (result,) = results_of(tmp_path, [function], calls(function.__name__), says("sorry"))

    assert (result.text, result.status) == (f"{FAILED} {function.__name__}: {error_text}", "error")
    assert f"in {function.__name__}" in result.stderr[1]


def test_a_store_whose_loop_was_stopped_says_so(tmp_path: Path) -> None:
    """Nobody waits for a thread that has ended: the call under way fails and so do later ones, closing does not."""

    async def stop() -> str:
        """Stop the loop."""
        asyncio.get_running_loop().stop()
        await asyncio.sleep(60)
        return ""

    with open_sync(tmp_path / "agents.db", calls("stop"), tools=[stop]) as perdure:
        agent = perdure.create_agent()
        with pytest.raises(StoreError, match="was stopped by a tool"):
            agent.send("go")
        with pytest.raises(StoreError, match="open it again"):
            agent.messages()


@pytest.mark.parametrize("circle", [("ann",), ("ann", "bob")])
@pytest.mark.parametrize("way", ["send", "stream", "plain"])
async def test_a_tool_that_would_wait_for_its_own_run_fails_at_once(
    tmp_path: Path, circle: tuple[str, ...], way: str
) -> None:
    """It sends to the agent that calls it, itself or through another one."""
    agents: dict[str, Any] = {}

    async def pass_on(name: str) -> str:
        """Pass it on to the next agent.

        Args:
            name: whose tool this is.
        """
        following = agents[circle[(circle.index(name) + 1) % len(circle)]]
        if way == "stream":
            return str([one async for one in following.stream("go on")])
        reply = await following.send("go on")
        return "\n".join(result.text for message in reply.messages for result in message.results)

    def pass_on_plainly(name: str) -> str:
        """Pass it on, in a thread.

        Args:
            name: whose tool this is.
        """
        return asyncio.run_coroutine_threadsafe(pass_on(name), loop).result()

    loop, chosen = asyncio.get_running_loop(), pass_on_plainly if way == "plain" else pass_on
    script = [calls(chosen.__name__, name=name) for name in circle] + [says("well")] * len(circle)
    async with await open_async(tmp_path / "agents.db", *script, tools=(chosen,)) as perdure:
        for name in circle:
            agents[name] = await perdure.create_agent(name)
        async with asyncio.timeout(30):
            reply = await agents["ann"].send("go")

    assert "CircularWait: agent-" in next(result.text for message in reply.messages for result in message.results)
