"""What confirms an entry: a result of a tool that acts or looks outside, what the user said, a yes to what they saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import ModelReply
from perdure.testing import ScriptedModel, calls, says
from tests.support.library import open_async

STEPS = "Run make build, copy dist to the server, check that the page answers with 200."
REFUSED = "refused by the rule 'confirmed'"


def shell(says: str) -> str:
    """Run a command."""
    return says


def keep(**changes: Any) -> ModelReply:
    """A call that keeps the steps."""
    return calls("start_long_term_update", **{"layer": "L3", "name": "deploy-shop", "text": STEPS} | changes)


async def kept(path: Path, *turns: tuple[str, list[ModelReply]]) -> tuple[bool, str]:
    """Whether the steps were stored after these messages of the user and answers, and the last result of a tool."""
    model = ScriptedModel(*(answer for _, answers in turns for answer in answers), otherwise=says("Well."))
    path.mkdir(exist_ok=True)  # noqa: ASYNC240
    async with await open_async(path / "perdure.db", model=model, tools=[shell]) as perdure:
        agent = await perdure.create_agent("ann", tools=["shell", "ask_user", "conversation_search", "run_code"])
        await agent.skills.enable()
        for text, _ in turns:
            await agent.send(text)
        results = [one.text for request in model.requests for one in request.messages if one.role == "tool"]
        return any(one.version for one in await agent.skills.list()), results[-1]


FAILURES = (
    "Deploying...\nexit code 1",
    "Process exited with code 127",
    "exit status: 2",
    '{"stdout": "", "exit_code": 1}',
    "subprocess.CalledProcessError: Command 'make' returned non-zero exit status 2.",
    "Traceback (most recent call last):\n  File x",
    "Error: no such host",
    "building\nfatal: not a git repository",
    "sh: 1: foo: command not found",
    '{"ok": false}',
    '{"status": "error", "detail": "x"}',
    '{"error": "timeout"}',
    '{"status_code": 503}',
    "HTTP/1.1 500 Internal Server Error",
    "12 passed, 1 failed in 3 s",
    "错误：没有权限",
)
SUCCESSES = (
    "deployed, the page answers with 200",
    "exit code 0",
    "Process exited with code 0",
    '{"stdout": "ok", "exit_code": 0, "error": null}',
    '{"ok": true, "error": ""}',
    "12 passed, 0 failed",
    "0 errors, 3 warnings",
    "HTTP/1.1 200 OK",
    '{"status": "success", "code": 200}',
    "error handling is tested",
    "部署完成",
)


@pytest.mark.slow
@pytest.mark.parametrize("text", FAILURES)
async def test_a_result_that_tells_of_a_failure_confirms_nothing(tmp_path: Path, text: str) -> None:
    """Although the call itself succeeded."""
    done, told = await kept(tmp_path, ("Deploy.", [calls("shell", says=text), keep(evidence="shell")]))

    assert not done and REFUSED in told and "tells of a failure" in told


@pytest.mark.slow
@pytest.mark.parametrize("text", SUCCESSES)
async def test_a_result_that_succeeded_confirms(tmp_path: Path, text: str) -> None:
    assert (await kept(tmp_path, ("Deploy.", [calls("shell", says=text), keep(evidence="shell")])))[0]


async def test_the_newest_result_of_a_tool_decides(tmp_path: Path) -> None:
    """An older success says nothing where the newest call failed; a handle names the one that is meant."""
    script = [calls("shell", says="deployed"), calls("shell", says="exit code 1"), keep(evidence="shell")]

    done, told = await kept(tmp_path, ("Deploy.", script))
    assert not done and "msg-4 is a result of shell that tells of a failure: 'exit code 1'" in told
    assert (await kept(tmp_path / "other", ("Deploy.", [*script[:2], keep(evidence="msg-2")])))[0]


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("Hello, how are you?", False),
        ("Deploy the shop.", False),
        ("Yes.", False),
        ("To deploy, run make build, copy dist to the server and check the page.", True),
        ("Copy dist", False),
    ],
)
async def test_the_user_has_to_have_said_it(tmp_path: Path, text: str, done: bool) -> None:
    assert (await kept(tmp_path, (text, [keep(evidence="user")])))[0] == done


@pytest.mark.parametrize(
    ("shown", "answer", "done"),
    [
        (f"I would keep this: {STEPS}", "Yes, keep it.", True),
        (f"I would keep this: {STEPS}", "好的", True),
        (f"I would keep this: {STEPS}", "👍", True),
        (f"I would keep this: {STEPS}", "Yes, but not the last step.", False),
        (f"I would keep this: {STEPS}", "No.", False),
        (f"I would keep this: {STEPS}", "What is the weather?", False),
        (f"I would keep this: {STEPS}", "不对", False),
        ("May I keep how it is done?", "Yes.", False),
    ],
)
async def test_a_yes_confirms_what_was_shown_right_before(tmp_path: Path, shown: str, answer: str, done: bool) -> None:
    turns = ("Deploy it.", [says(shown)]), (answer, [keep(evidence="user")])

    assert (await kept(tmp_path, *turns))[0] == done


async def test_a_yes_to_a_question_confirms_what_it_shows(tmp_path: Path) -> None:
    turns = ("Deploy it.", [calls("ask_user", question=f"Is this right? {STEPS}")]), ("Yes", [keep(evidence="user")])

    assert (await kept(tmp_path, *turns))[0]
    assert not (await kept(tmp_path / "other", *turns[:1], ("Go on.", [keep(evidence="ask_user")])))[0]


async def test_a_yes_to_something_older_confirms_nothing(tmp_path: Path) -> None:
    turns = [
        ("Deploy it.", [says(f"I would keep this: {STEPS}")]),
        ("What is the time?", [says("Ten.")]),
        ("Ok.", [keep(evidence="user")]),
    ]

    assert not (await kept(tmp_path, *turns))[0]


async def test_a_message_of_another_conversation_is_not_the_users_word_here(tmp_path: Path) -> None:
    ids = list[str]()
    model = ScriptedModel(says("ok"), lambda request: keep(evidence=ids[0]), says("no"))
    async with await open_async(tmp_path / "perdure.db", model=model) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.skills.enable()
        await agent.send(STEPS)
        other = await agent.new_conversation()
        ids += [one.id for one in await agent.messages() if one.role == "user"]
        await agent.send("Go on.", conversation=other.id)

        assert "newest 200 messages of this conversation" in model.requests[-1].messages[-1].text


@pytest.mark.uses("helpers")
async def test_what_a_helper_says_confirms_nothing(tmp_path: Path) -> None:
    from tests.features.helpers.helper_office import define, lead

    define(tmp_path, "scout")
    model = ScriptedModel(
        calls("run_helper", name="scout", prompt="Try it"),
        says("It works."),
        keep(evidence="run_helper"),
        says("Well."),
    )
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        await agent.skills.enable()
        await agent.send("Go")

        assert REFUSED in model.requests[-1].messages[-1].text
        assert "what another agent says" in model.requests[-1].messages[-1].text


@pytest.mark.uses("schedules")
async def test_what_an_agents_own_schedule_says_confirms_nothing() -> None:
    """It stands where the user's words stand."""
    from tests.features.schedules.test_firing import fire, opened

    model = ScriptedModel(
        calls("schedule_create", message=STEPS, at="in 1m"), says("ok"), keep(evidence="user"), says("no")
    )
    async with opened(model) as (perdure, agent, clock):
        await agent.tools.attach("schedule_create")
        await agent.skills.enable()
        await agent.send("Remind yourself.")
        clock.advance(61)
        assert await fire(perdure) == 1

        assert STEPS in model.requests[2].messages[-1].text
        assert REFUSED in model.requests[-1].messages[-1].text
