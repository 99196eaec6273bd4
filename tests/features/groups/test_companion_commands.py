"""Companions on the command line, and what the chat shows of them."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.cli.chat.slash import run_command
from perdure.cli.session.session import ChatSession
from perdure.testing import calls, says
from tests.support.library import open_sync
from tests.support.programs import open_chat, run_inside


def test_a_companion_is_switched_on_shown_changed_woken_and_switched_off(tmp_path: Path) -> None:
    """With the built-in program as its model, which edits nothing."""
    assert "No agent has a companion yet" in run_inside(tmp_path, "companions").stderr
    for verb in ("on", "show"):
        assert "there is no agent yet" in run_inside(tmp_path, "companion", verb, "ann").stderr
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann", model="perdure/extractive")
    on = run_inside(tmp_path, "companion", "on", "ann")
    changed = run_inside(tmp_path, "companion", "update", "ann", "--frequency", "3", "--max-tokens", "5000")
    nothing = run_inside(tmp_path, "companion", "wake")
    with open_sync(tmp_path / "perdure.db") as store:
        store.agent("ann").send("I like tea")
    woken = run_inside(tmp_path, "companion", "wake", "--json")
    listed = run_inside(tmp_path, "companions")
    shown = run_inside(tmp_path, "companion", "show")

    assert on.stdout.splitlines()[0].startswith("ann-sleeptime  agent-")
    assert on.stdout.splitlines()[1] == "tidies the memory of ann after every 5 turns; 0 turns since its last pass"
    assert changed.stdout.splitlines()[1].startswith("tidies the memory of ann after every 3 turns")
    assert changed.stdout.splitlines()[1].endswith("at most 5,000 tokens a pass")
    assert nothing.stdout == "Nothing new was said to 'ann' since the last pass.\n"
    made = json.loads(woken.stdout)["pass"]
    assert (made["number"], made["cause"], made["outcome"], made["edits"]) == (1, "request", "finished", [])
    assert listed.stdout.splitlines()[1].split()[:5] == ["ann", "ann-sleeptime", "3", "turns", "0"]
    assert "on request, finished" in shown.stdout
    unasked = run_inside(tmp_path, "companion", "off")
    assert (unasked.returncode, "Pass --yes" in unasked.stderr) == (1, True)
    assert run_inside(tmp_path, "companion", "off", "--yes").stdout == "'ann' has no companion any more.\n"
    missing = run_inside(tmp_path, "companion", "show")
    assert (missing.returncode, "perdure companion on AGENT" in missing.stderr) == (1, True)


async def test_the_chat_shows_what_a_companion_changed() -> None:
    """At its start what happened since the last message, after a turn what happened since; each once."""
    edit = calls("memory_insert", label="human", new_string="drinks tea")
    done = calls("memory_finish_edits", reason="She said so.")
    async with open_chat(says("OK."), edit, done, says("Hi."), edit, done, says("Hi."), says("Hi.")) as chat:
        await chat.agent.companion.enable()
        agent = await chat.perdure.agent(chat.agent.id)
        await agent.send("I drink tea")
        await agent.companion.wake()
        session = ChatSession(chat.perdure, agent, chat.source, chat.view, run_command=run_command)
        chat.source.lines.append(None)
        await session.run()
        first = chat.out.getvalue()
        await session.send("hello")
        await agent.companion.wake()
        await session.send("hello")
        await session.send("hello")

    line = "meanwhile your companion changed human: She said so."
    assert (first.count(line), chat.out.getvalue().count(line)) == (1, 2)
    assert "+drinks tea" in first
