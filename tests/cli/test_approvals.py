"""Calls that wait for a person, in the chat and as commands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from perdure import Perdure, tool
from perdure.cli.views.text import argument_lines
from perdure.core.messages import ToolCall
from perdure.core.tools.rules import RequiresApproval
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says
from tests.support.programs import Chat, open_chat, perdure

BUILT_IN = "perdure/extractive"


@tool
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@asynccontextmanager
async def paying(*script: Any, **options: Any) -> AsyncIterator[Chat]:
    """A chat whose agent needs approval for `pay`."""
    async with open_chat(*script, tools=[pay], **options) as chat:
        await chat.agent.rules.set([RequiresApproval("pay")])
        yield chat


async def results(chat: Chat) -> list[str]:
    return [result.text for message in await chat.agent.messages() for result in message.results]


async def test_in_the_chat_a_call_is_asked_about_in_line() -> None:
    """Shown with its arguments; a reason may follow a no; what is resumed is shown with what it was run with."""
    async with paying(calls("pay", n=1), says("Pity."), calls("pay", n=2), says("Done.")) as chat:
        await chat.type_lines("pay one", "N", "far too dear", "pay two", "what?", "yes")

        output_before = chat.out.getvalue()
        assert await results(chat) == ["Error: request to call tool denied. User reason: far too dear", "paid 2"]
        assert "⚙ pay waits for you  call_1_0\n    n: 1\n" in output_before
        assert "⚙ pay(n=2) → paid 2\nDone.\n" in output_before
        assert "y lets it run, n refuses it" in output_before  # what was typed was neither
        assert "requires_approval" not in output_before
        assert "said nothing" not in output_before


async def test_arguments_can_be_edited_until_they_fit() -> None:
    """The line begins with the model's own; what can't be used is said, and stands there to be mended."""
    async with paying(calls("pay", n=1), says("Done.")) as chat:
        await chat.type_lines("pay", "e", '{"n": ', '["n"]', '{"n": "much"}', '{"n": true}', '{"n": 5}')

        assert [prefill for question, prefill in chat.source.questions if question == "arguments: "] == [
            '{"n": 1}',
            '{"n": ',
            '["n"]',
            '{"n": "much"}',
            '{"n": true}',
        ]
        errors = chat.err.getvalue()
        assert "not valid JSON" in errors
        assert "give a JSON object" in errors
        assert errors.count("can't be used") == 2
        (result,) = await results(chat)
        assert result.startswith("paid 5")
        assert "⚙ pay(n=5) → paid 5" in chat.out.getvalue()


async def test_several_calls_are_asked_about_one_by_one_and_answered_at_once() -> None:
    """The run goes on after the last; going away before it decides none."""
    both = calls("pay", ToolCall("second", "pay", '{"n": 2}'), n=1)
    async with paying(both, says("Done.")) as chat:
        await chat.type_lines("pay both", "y", None)
        open_calls = [call.call_id for call in await chat.agent.pending()]
        output = chat.out.getvalue()
        await chat.type_lines("/approvals", "y", "e", None, "n", "")

        assert open_calls == ["call_1_0", "second"]
        assert "nothing is decided: the calls wait\n/approvals asks again" in output
        assert "1 of 2" in output
        assert await results(chat) == ["Error: request to call tool denied.", "paid 1"]


async def test_what_an_earlier_chat_left_is_asked_first() -> None:
    """Also when something else is said meanwhile, which is not sent then."""
    async with paying(calls("pay", n=1), says("Done."), says("Hello.")) as chat:
        await chat.agent.send("pay")
        await chat.type_lines(None, "hello", "y", "hello")

        assert "not sent: decide first what waits" in chat.out.getvalue()
        texts = [one.text for one in await chat.agent.messages() if one.role == "user" and one.kind == "message"]
        assert texts == ["pay", "hello"]
        assert await results(chat) == ["paid 1"]


async def test_what_somebody_else_decided_meanwhile_is_shown_with_what_it_was_run_with() -> None:
    """Where another terminal was asked about the same calls, and said the same."""
    async with paying(calls("pay", n=1), says("Done.")) as chat:
        await chat.agent.send("pay")
        reads = chat.source.ask

        async def ask_late(question: str, *, prefill: str = "") -> str | None:
            (call,) = await chat.agent.pending()
            await chat.agent.approve(call.call_id)
            return await reads(question, prefill=prefill)

        chat.source.ask = ask_late  # type: ignore[method-assign]
        await chat.type_lines("y")

        assert await results(chat) == ["paid 1"]
        assert "⚙ pay(n=1) → paid 1\nDone.\n" in chat.out.getvalue()


async def test_a_program_is_told_what_waits_and_by_its_exit_code() -> None:
    """Nothing is asked of lines; a command among them decides."""
    script = (calls("pay", n=1), says("Done."), calls("pay", n=2), calls("pay", n=3), says("Done."))
    async with paying(*script, person=False, terminal=False) as chat:
        code = await chat.type_lines("pay")
        hints = chat.err.getvalue()
        refused = await chat.type_lines("y")
        assert code == 3
        assert "⚙ pay waits for you  call_1_0\n    n: 1\n" in hints
        assert """`perdure approval approve "Ada's helper"` lets them run""" in hints
        assert refused == 1  # it was a message, and calls wait
    async with paying(*script, person=False, terminal=False) as chat:
        assert await chat.type_lines("pay", "/approve", "pay", "/deny no") == 3
        assert await chat.type_lines("/approve", "/approvals") == 0
        assert await results(chat) == ["paid 1", "Error: request to call tool denied. User reason: no", "paid 3"]
        assert chat.out.getvalue() == "Done.\nDone.\nNo call waits for anybody in this conversation.\n"


def test_what_can_not_be_seen_is_written_out() -> None:
    """A person agrees to what they read: no character turns or hides what stands around it."""
    open_calls = list(
        argument_lines({"note": "to Ada\u202ebob\x1b[2K", "text": "one\n\u2066two", "n": {"deep": "\U000e0041"}})
    )

    assert open_calls == [
        'note: "to Ada\\u202ebob\\u001b[2K"',
        "text:",
        "  one",
        "  \\u2066two",
        'n: {"deep": "\\udb40\\udc41"}',
    ]
    assert list(argument_lines({})) == ["(no arguments)"]
    assert list(argument_lines({"text": "x\n" * 500}))[-1].startswith("… 302 more lines")


def test_commands_list_what_waits_and_decide_it(tmp_path: Path) -> None:
    """Of all agents, also for programs."""
    model = ScriptedModel(
        calls("core_memory_append", label="human", content="Likes tea."),
        calls("core_memory_append", label="human", content="Likes milk."),
    )
    with Perdure(
        tmp_path / "perdure.db", models={BUILT_IN: model}, settings=Settings(model=BUILT_IN, embedding="none")
    ) as store:
        for name in ("one", "two"):
            agent = store.create_agent(name, tools=("core_memory_append",))
            agent.require_approval("core_memory_append")
            agent.send("Remember what I like.")

    listing = perdure(tmp_path, "approval", "list")
    assert 'one: core_memory_append {"label": "human", "content": "Likes tea."} waits for you' in listing.stdout
    (first, second) = json.loads(perdure(tmp_path, "approval", "list", "--json").stdout)
    assert (first["agent"], second["awaits"]) == ("one", "approval")

    wrong = perdure(tmp_path, "approval", "approve", "one", first["call_id"], "--arguments", "5")
    assert wrong.returncode == 1
    assert "--arguments" in wrong.stderr
    approved = perdure(
        tmp_path, "approval", "approve", "one", "--arguments", '{"label": "human", "content": "Likes cocoa."}'
    )
    denied = perdure(tmp_path, "approval", "deny", "two", second["call_id"], "--reason", "no")
    assert '⚙ core_memory_append(label="human", content="Likes cocoa.")' in approved.stderr
    assert "User reason: no" in denied.stderr
    output = {call["call_id"] for call in json.loads(perdure(tmp_path, "approval", "list", "--json").stdout)}
    assert not output & {first["call_id"], second["call_id"]}
    # The built-in model may have asked for more, of which the exit code tells.
    assert (approved.returncode, denied.returncode) in {(0, 0), (3, 3)}, approved.stderr + denied.stderr
    assert bool(output) == (approved.returncode == 3)

    with Perdure(tmp_path / "perdure.db", settings=Settings(model=BUILT_IN, embedding="none")) as store:
        assert store.agent("one").blocks.get("human").value == "Likes cocoa."
        assert store.agent("two").blocks.get("human").value == ""


async def test_a_decision_that_is_said_again_shows_what_came_of_it() -> None:
    """As the library has it: the earlier reply, nothing new; another decision comes too late."""
    both = calls("pay", ToolCall("c2", "pay", '{"n": 2}'), call_id="c1", n=1)
    async with paying(both, says("Done."), person=False, terminal=False) as chat:
        await chat.agent.send("pay")
        codes = [await chat.type_lines(command) for command in ("/deny c2 no", "/approve c1")]
        output_before = await results(chat)
        length = len(chat.out.getvalue())
        codes += [await chat.type_lines(command) for command in ("/approve c1", "/approve")]
        errors = chat.err.getvalue()
        too_late = await chat.type_lines("/deny")

        assert (codes, too_late) == ([3, 0, 0, 1], 1)
        assert chat.out.getvalue()[length:].count("Done.") == 1
        assert "another answer comes too late" in errors
        assert await results(chat) == output_before == ["Error: request to call tool denied. User reason: no", "paid 1"]


def test_a_command_that_is_given_again_ends_as_it_did(tmp_path: Path) -> None:
    """In the conversation that it was about, though nothing waits there any more."""
    call = calls("core_memory_append", call_id="c2", label="human", content="Likes tea.")
    settings = Settings(model=BUILT_IN, embedding="none")
    model = ScriptedModel(call, says("As you like."))
    with Perdure(tmp_path / "perdure.db", models={BUILT_IN: model}, settings=settings) as store:
        agent = store.create_agent("ann", tools=("core_memory_append",))
        agent.require_approval("core_memory_append")
        line = agent.new_conversation().id
        agent.send("Remember what I like.", conversation=line)
        agent.deny("c2", conversation=line)

    again = perdure(tmp_path, "approval", "deny", "ann", "c2")
    too_late = perdure(tmp_path, "approval", "approve", "ann", "c2")
    unknown = perdure(tmp_path, "approval", "deny", "ann", "c3")

    assert (again.returncode, "As you like." in again.stdout) == (0, True), again.stderr
    assert (too_late.returncode, "call c2 was denied already" in too_late.stderr) == (1, True)
    assert (unknown.returncode, "waits for you: `perdure approval list`" in unknown.stderr) == (1, True)


def test_one_message_that_stops_for_approval_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    """With what waits in the reply for programs; said to people, with what helps; the next message is refused."""
    with Perdure(tmp_path / "perdure.db", settings=Settings(model=BUILT_IN, embedding="none")) as store:
        agent = store.create_agent("one", tools=("core_memory_append",))
        agent.require_approval("core_memory_append")

    first_run = perdure(tmp_path, "chat", "one", "-p", "My name is Ada.", "--json")
    refused = perdure(tmp_path, "chat", "one", "-p", "Hello?")

    reply = json.loads(first_run.stdout)
    assert (first_run.returncode, reply["stop_reason"]) == (3, "requires_approval")
    (open_calls,) = reply["pending"]
    assert (open_calls["name"], open_calls["awaits"]) == ("core_memory_append", "approval")
    assert open_calls["arguments"]["label"] == "human"
    assert refused.returncode == 1
    assert "`perdure approval approve one` lets them run" in refused.stderr


def test_calls_of_several_conversations_are_told_apart(tmp_path: Path) -> None:
    """Also when their ids are the same; what waits can be given up without asking the model."""
    call = calls("core_memory_append", call_id="call_0", label="human", content="Likes tea.")
    with Perdure(
        tmp_path / "perdure.db",
        models={BUILT_IN: ScriptedModel(call, call)},
        settings=Settings(model=BUILT_IN, embedding="none"),
    ) as store:
        agent = store.create_agent("one", tools=("core_memory_append",))
        agent.require_approval("core_memory_append")
        first, second = agent.find_conversation().id, agent.new_conversation().id
        for line in (first, second):
            agent.send("Remember what I like.", conversation=line)

    listing = perdure(tmp_path, "approval", "list").stdout
    assert f"(call_0) in {first}" in listing and f"(call_0) in {second}" in listing
    unclear = perdure(tmp_path, "approval", "deny", "one", "call_0")
    assert unclear.returncode == 1
    assert "--conversation" in unclear.stderr and second in unclear.stderr
    perdure(tmp_path, "approval", "deny", "one", "call_0", "--conversation", "default")
    cancelled = perdure(tmp_path, "agent", "cancel", "one", "--conversation", second)
    assert cancelled.stdout.endswith(": cancelled\n"), cancelled.stderr
    assert perdure(tmp_path, "agent", "cancel", "one", "--conversation", second).stdout == ""

    with Perdure(tmp_path / "perdure.db", settings=Settings(model=BUILT_IN, embedding="none")) as store:
        agent = store.agent("one")
        texts = [
            next(message.text for message in agent.messages(conversation=line) if message.results)
            for line in (first, second)
        ]
    assert texts == ["Error: request to call tool denied.", "not run: the request was cancelled"]
