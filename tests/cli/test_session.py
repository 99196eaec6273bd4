"""A chat in this process: what a person sees of a run, and what becomes of interruptions."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from pathlib import Path

import pytest

from perdure import AsyncPerdure, MessageAdded, tool
from perdure.cli.chat.slash import run_command
from perdure.cli.session.session import ChatSession
from perdure.cli.views.render import RunRenderer
from perdure.cli.views.terminal import Terminal
from perdure.cli.views.text import TextView
from perdure.core.events import Delta, Event, StepAbandoned, StoredEvent
from perdure.core.ids import AgentId, MessageId, StepId
from perdure.core.messages import Message, Text, ToolCall, ToolResult
from perdure.testing import ScriptedModel, calls, fails, says, thinks
from perdure.testing.clock import START
from tests.support.library import SlowSpeaker, open_async
from tests.support.programs import Chat, ListedLines, Screen, open_chat


@tool
def weather(place: str) -> str:
    """The weather.

    Args:
        place: where.
    """
    if place == "nowhere":
        raise ValueError("there is no weather there")
    return "sunny"


async def test_an_answer_is_printed_once() -> None:
    """The deltas were previews of the message that follows; it is not printed a second time."""
    async with open_chat(says("Hello Ada, how are you?")) as chat:
        await chat.type_lines("hi")

        assert chat.out.getvalue() == "Hello Ada, how are you?\n"


async def test_what_is_recalled_is_told_in_a_line_and_can_be_turned_off() -> None:
    """Names of what goes with the message; nothing once it is off."""
    async with open_chat(person=False, terminal=False) as chat:
        await chat.session.agent.archive("Walruses eat clams.")
        for line in ("/recall", "What do walruses eat?", "/recall off", "What do walruses eat?", "/recall on"):
            await chat.type_lines(line)

        notes = [line for line in chat.err.getvalue().splitlines() if "recalled" in line]
        assert notes == [f"◆ recalled 1: {chat.session.agent.name}'s archive"]
        assert [line for line in chat.out.getvalue().splitlines() if "recall is" in line] == [
            "Automatic recall is on: up to 400 tokens of memory go with each message.",
            "Automatic recall is off.",
            "Automatic recall is on: up to 400 tokens of memory go with each message.",
        ]


async def test_in_a_pipe_only_facts_are_written() -> None:
    """Without a terminal there are no previews: stdout holds what was said, stderr what was done."""
    script = [thinks("hm", calls("memory_insert", label="human", new_string="Name: Ada")), says("Noted.")]
    async with open_chat(*script, person=False, terminal=False) as chat:
        await chat.type_lines("I am Ada")

        assert chat.out.getvalue() == "Noted.\n"
        assert chat.err.getvalue().splitlines() == [
            "hm",
            '⚙ memory_insert(label="human", new_string="Name: Ada")',
            "  human  version 1",
            "    + Name: Ada",
        ]


async def test_text_keeps_its_tabs_and_spaces() -> None:
    """What the agent says is written as it is, indentation and trailing spaces included."""
    async with open_chat(says("all:\n\techo  x  \n\n  end"), person=False, terminal=False) as chat:
        await chat.type_lines("a makefile")

        assert chat.out.getvalue() == "all:\n\techo  x  \n\n  end\n"


async def test_an_escape_sequence_is_shown_not_done() -> None:
    """An agent can't colour the screen or rename the window."""
    async with open_chat(says("\x1b]0;owned\x07\x1b[31mred")) as chat:
        await chat.type_lines("hi")

        assert chat.out.getvalue() == "␛]0;owned␇␛[31mred\n"


async def test_tool_calls_are_folded_to_a_line() -> None:
    """A call and its result are one line; what went wrong is told to its end."""
    script = [calls("weather", place="Turin"), calls("weather", place="nowhere"), calls("no_tool"), says("done")]
    async with open_chat(*script, tools=[weather]) as chat:
        await chat.type_lines("how is the weather?")

        first, *rest, answer = chat.out.getvalue().splitlines()
        assert first == '⚙ weather("Turin") → sunny'
        errors = " ".join(rest)
        assert errors.startswith('⚙ weather("nowhere") → error: ')
        assert "there is no weather there ⚙ no_tool() → error: there is no tool 'no_tool'; your tools are" in errors
        assert answer == "done"


@pytest.mark.parametrize(
    ("count", "name", "lines_below"),
    [
        (
            10,
            "docs/a long name.pdf",
            [
                '⚙ semantic_search_files("text") → 10 places:',
                *(f"  docs/a long name.pdf:{n}1-{n}9 (page {n})" for n in range(1, 9)),
                "  … and 2 more",
            ],
        ),
        (1, "a" * 50, ['⚙ semantic_search_files("text") → 1 place:', f"  {'a' * 50}:11-19 (page 1)"]),
        (1, "plan.md", ['⚙ semantic_search_files("text") → plan.md:11-19 (page 1)']),
    ],
)
async def test_lines_that_were_read_are_listed_where_they_do_not_fit_beside_the_call(
    count: int, name: str, lines_below: list[str]
) -> None:
    """File, lines and page of each, up to eight."""
    out = Screen()
    renderer = RunRenderer(Terminal(out, out, interactive=True, coloured=False))
    hits = "\n\n".join(f"{name}: lines {n}1-{n}9, page {n}\ntext" for n in range(1, count + 1))
    call = ToolCall("call-1", "semantic_search_files", '{"query": "text"}')
    parts: list[ToolCall | ToolResult] = [call, ToolResult("call-1", "semantic_search_files", hits)]
    for seq, part in enumerate(parts):
        message = Message(
            id=MessageId(f"message-{seq}"),
            agent_id=AgentId("agent-1"),
            seq=seq,
            conversation_seq=0,
            role="assistant" if part is call else "tool",
            parts=(part,),
            created_at=START,
            occurred_at=START,
        )
        event = MessageAdded(seq, message)
        renderer.show_event(StoredEvent(agent_id=message.agent_id, run_seq=0, seq=seq, event=event, created_at=START))

    assert out.getvalue().splitlines() == lines_below


async def test_a_memory_edit_is_shown_as_a_diff_where_it_happens() -> None:
    """The call, then the changed lines under the block's label, then what the agent says; a refused edit says why."""
    script = [
        calls("memory_insert", label="human", new_string="Name: Ada\nLives in: Turin"),
        calls("memory_replace", label="human", old_string="Turin", new_string="Oslo"),
        calls("memory_replace", label="human", old_string="Rome", new_string="Oslo"),
        says("Done."),
    ]
    async with open_chat(*script) as chat:
        await chat.type_lines("I am Ada, in Turin. No, Oslo.")

        lines = chat.out.getvalue().splitlines()
        assert lines[1:4] == ["  human  version 1", "    + Name: Ada", "    + Lives in: Turin"]
        assert lines[4] == '⚙ memory_replace(label="human", old_string="Turin", new_string="Oslo")'
        assert lines[5:9] == ["  human  version 2", "      Name: Ada", "    - Lives in: Turin", "    + Lives in: Oslo"]
        assert lines[9].startswith('⚙ memory_replace(label="human", old_string="Rome", new_string="Oslo") → error:')
        assert lines[-1] == "Done."


async def test_a_failing_model_is_an_error_that_says_the_message_is_kept() -> None:
    """The chat goes on after it; a program learns of it by the exit code."""
    async with open_chat(fails("the provider is down"), says("back again"), person=False, terminal=False) as chat:
        code = await chat.type_lines("hi", "and now?")

        assert code == 1
        assert chat.out.getvalue() == "back again\n"
        assert chat.err.getvalue() == (
            "error: the run ended with llm_api_error: the provider is down. Your message is kept.\n"
        )


async def interrupted(chat: Chat, model: SlowSpeaker, *lines: str) -> int:
    """Type the lines, interrupt the run as soon as its model speaks, and let the model speak freely after that; the
    exit code."""
    taking = asyncio.create_task(chat.type_lines(*lines))
    await model.speaking.wait()
    os.kill(os.getpid(), signal.SIGINT)
    while "cancelled" not in chat.out.getvalue() + chat.err.getvalue():  # noqa: ASYNC110  # a screen tells nobody
        await asyncio.sleep(0.01)
    model.go.set()
    return await taking


async def test_ctrl_c_cancels_the_run_and_the_chat_goes_on() -> None:
    """The run ends as cancelled, what was said of its answer stays, and the next message is answered."""
    model = SlowSpeaker("one ", "two ")
    async with open_chat(model=model) as chat:
        code = await interrupted(chat, model, "count", "again")

        assert code == 0
        first, second, third = chat.out.getvalue().splitlines()
        assert first == "one "
        assert second == "cancelled"
        assert third == "one two "
        messages = await chat.agent.messages()
        assert [message.text for message in messages] == ["count", "one ", "again", "one two "]


async def test_sigint_ends_a_program_that_feeds_lines() -> None:
    """Without a person the run is cancelled after what was said, no later line is sent, and the code is a shell's."""
    model = SlowSpeaker("one ", "two ")
    async with open_chat(model=model, person=False, terminal=False) as chat:
        code = await interrupted(chat, model, "count", "again")

        assert code == 130
        assert chat.out.getvalue() == "one \n"
        assert chat.err.getvalue() == "cancelled\n"
        assert [message.text for message in await chat.agent.messages()] == ["count", "one "]


async def test_a_second_ctrl_c_does_not_wait_for_the_run() -> None:
    """Where a run can't be stopped at once, the person is let go."""
    model = SlowSpeaker("one ", "two ")
    async with open_chat(model=model) as chat:
        turn = asyncio.create_task(chat.type_lines("count"))
        await model.speaking.wait()
        chat.session.interrupt()
        chat.session.interrupt()
        await turn

        assert "not waited for any longer" in chat.out.getvalue()


async def test_a_preview_whose_step_was_abandoned_is_said_to_be_void() -> None:
    """After a crash the model is asked again: what was shown of its first answer is void, the second one is shown."""
    out = Screen()
    renderer = RunRenderer(Terminal(out, out, interactive=True))
    agent, step = AgentId("agent-1"), StepId("step-1")
    message = Message(
        id=MessageId("message-2"),
        agent_id=agent,
        seq=1,
        conversation_seq=0,
        role="assistant",
        parts=(Text("Hello Ada."),),
        created_at=START,
        occurred_at=START,
    )

    renderer.show_event(Delta(step, MessageId("message-1"), "text", "Hel"))
    events: list[Event] = [StepAbandoned(step), MessageAdded(1, message)]
    for seq, event in enumerate(events):
        renderer.show_event(StoredEvent(agent_id=agent, run_seq=0, seq=seq, event=event, created_at=START))

    partial, void, answer = out.getvalue().splitlines()
    assert partial == "Hel"
    assert "void" in void
    assert answer == "Hello Ada."


async def test_slash_commands_show_memory_and_search() -> None:
    """Blocks with their fill, versions with author and diff, an old value brought back, and search over everything."""
    script = [
        calls("memory_insert", label="human", new_string="Name: Ada"),
        calls("archival_memory_insert", content="Ada wrote about the engine"),
        says("Noted."),
    ]
    async with open_chat(*script, person=False, terminal=False) as chat:
        code = await chat.type_lines(
            "I am Ada", "/memory", "/memory human history", "/memory human restore 0", "/memory human", "/search Ada"
        )

        output = chat.out.getvalue()
        assert code == 0
        assert "human  9/5,000 characters  version 1" in output
        assert "human version 1" in output
        assert "by the agent in run-" in output
        assert "human has the value of version 0 again, as version 2." in output
        assert "    - Name: Ada" in output
        assert "human  0/5,000 characters  version 2" in output
        assert "user" in output.rpartition("version 2")[2]
        assert "archive  Ada wrote about the engine" in output.replace("    archive", "archive")


@pytest.mark.uses("origins")
async def test_a_text_is_remembered_forgotten_and_brought_back() -> None:
    """The places are listed with excerpts; what is forgotten is in no search until it is undone."""
    async with open_chat(person=False, terminal=False) as chat:
        code = await chat.type_lines(
            "/remember The key is under the pot.", "/forget key is under", "/search key", "/undo", "/search key"
        )

        output = chat.out.getvalue()
        assert code == 0
        assert "Remembered: The key is under the pot." in output
        assert "1  archives" in output
        assert "Forgotten in 1 place." in output
        assert "Undone in 1 place: key is under" in output
        assert output.rpartition("Undone")[2].count("The key is under the pot.") == 1
        assert len(await chat.agent.passages()) == 1


async def test_read_only_blocks_are_marked() -> None:
    """A person sees which blocks the agent can't edit."""
    async with open_chat(person=False, terminal=False) as chat:
        await chat.agent.blocks.create("rules", "Be kind.", read_only=True)
        await chat.type_lines("/memory rules")

        assert chat.out.getvalue().splitlines()[0] == "rules  8/5,000 characters  version 0  read-only"


@pytest.mark.parametrize(
    ("line", "notes"),
    [
        ("/memroy", "did you mean /memory?"),
        ("/mem", "did you mean /memory?"),
        ("/nonsense", "there is no command /nonsense: /help lists them"),
        ("/memory human restore x", "that is not how /memory is used"),
        ("/memory human restore 9", "block 'human' has version 0 only"),
        ("/memory nobody", "'nobody'"),
        ("/search", "/search TEXT"),
        pytest.param("/forget", "that is not how /forget is used: /forget TEXT", marks=pytest.mark.uses("origins")),
        pytest.param("/undo", "nothing of this agent was corrected", marks=pytest.mark.uses("origins")),
    ],
)
async def test_a_command_that_can_not_be_done_says_why(line: str, notes: str) -> None:
    """The error is one line, a program learns of it by the exit code, and nothing was sent to the agent."""
    async with open_chat(person=False, terminal=False) as chat:
        code = await chat.type_lines(line)

        assert code == 1
        assert chat.err.getvalue().startswith("error: ")
        assert notes in chat.err.getvalue()
        assert await chat.agent.message_count() == 0


async def test_an_agent_that_gets_a_model_from_here_can_be_talked_to(tmp_path: Path) -> None:
    """The chat that refused to send goes on, once another program has done what the error said."""
    async with await open_async(tmp_path / "agents.db") as program:
        await program.create_agent("guide")
    async with await AsyncPerdure.open(tmp_path / "agents.db") as perdure:
        agent = await perdure.agent("guide")
        out, err, source = io.StringIO(), io.StringIO(), ListedLines([], interactive=True)
        view = TextView(out, err, interactive=True, coloured=False)
        session = ChatSession(perdure, agent, source, view, run_command=run_command)
        source.lines.append("I live in Turin.")
        await session.run()
        assert "Nothing was sent." in err.getvalue()

        await agent.update(model="perdure/extractive")
        source.lines.append("I live in Turin.")
        await session.run()

        assert "Noted: Lives in: Turin." in out.getvalue()


async def test_two_slashes_send_a_text_that_begins_with_one() -> None:
    """What looks like a command can be said too; blank lines are nothing."""
    async with open_chat() as chat:
        await chat.type_lines("//memory is what?", "", "   ")

        assert [message.text for message in await chat.agent.messages()] == ["/memory is what?", "OK."]


async def test_a_new_conversation_has_the_same_memory() -> None:
    """After /new messages go to another conversation of the same agent."""
    async with open_chat() as chat:
        await chat.type_lines("first", "/new", "second", "/quit", "never")

        messages = await chat.agent.messages()
        assert [(message.conversation_seq, message.text) for message in messages if message.role == "user"] == [
            (0, "first"),
            (1, "second"),
        ]


async def test_a_long_wait_shows_a_status_that_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only on a terminal with colours; the line is erased before anything else is written."""
    monkeypatch.setenv("TERM", "xterm")
    out = Screen()
    terminal = Terminal(out, out, interactive=True, coloured=True)
    terminal.show_status("thinking…")
    await asyncio.sleep(0.6)
    seconds = out.getvalue()
    terminal.write("Hello", "words")
    terminal.end_line()

    assert "thinking…" in seconds
    assert out.getvalue().endswith("\r\x1b[2KHello\n")


async def test_an_option_is_chosen_by_its_number() -> None:
    """The options of a question are a numbered list; a number of it stands for its text, any other text for itself."""
    question = calls("ask_user", question="Which colour?", options=["red", "dark blue"])
    model = ScriptedModel(question, says("Blue it is."), question, says("Hm."), says("5?"))
    async with open_chat(model=model) as chat:
        await chat.session.agent.tools.attach("ask_user")
        await chat.type_lines("paint", "2", "paint", "3", "2")

        texts = [message.text for message in await chat.session.agent.messages() if message.role == "user"]
        assert texts == ["paint", "dark blue", "paint", "3", "2"]
        assert "Which colour?\n\n1. red\n2. dark blue\n" in chat.out.getvalue()


def test_an_answer_breaks_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it comes, at the width that the terminal has then; a note begins on a line of its own."""
    monkeypatch.setenv("COLUMNS", "20")
    out = Screen()
    terminal = Terminal(out, out, interactive=True, coloured=False)
    for piece in ("The quick bro", "wn fox ju", "mps over."):
        terminal.write(piece, "words")
    terminal.show_status("thinking…")
    shown = out.getvalue()
    terminal.print_note("a note")

    assert shown == "The quick brown fox\njumps over."
    assert out.getvalue() == f"{shown}\na note\n"
