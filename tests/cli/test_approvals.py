"""Calls that wait for a person, in the chat and as commands."""

from __future__ import annotations

import json
from pathlib import Path

from perdure import Perdure, tool
from perdure.core.tool_rules import RequiresApproval
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says
from tests.cli.running import open_chat, perdure

BUILT_IN = "perdure/extractive"


@tool
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


async def test_in_the_chat_a_call_is_shown_and_decided() -> None:
    """Refused with a reason that may be several words, or let run."""
    script = (calls("pay", n=1), says("Pity."), calls("pay", n=2), says("Done."))
    async with open_chat(*script, tools=[pay]) as chat:
        agent = chat.session.agent
        await agent.rules.set([RequiresApproval("pay")])
        await chat.take("pay one")
        assert 'pay {"n": 1} waits for you' in chat.out.getvalue()
        await chat.take("/deny far too dear")
        await chat.take("pay two")
        await chat.take("/approve")
        await chat.take("/approve")

        said = [result.text for message in await agent.messages() for result in message.results]
    assert said == ["Error: request to call tool denied. User reason: far too dear", "paid 2"]
    assert "Pity." in chat.out.getvalue()
    assert "Done." in chat.out.getvalue()
    assert "no call waits for you" in chat.out.getvalue() + chat.err.getvalue()


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

    listed = perdure(tmp_path, "approvals")
    assert 'one: core_memory_append {"label": "human", "content": "Likes tea."} waits for you' in listed.stdout
    (first, second) = json.loads(perdure(tmp_path, "approvals", "--json").stdout)
    assert (first["agent"], second["awaits"]) == ("one", "approval")

    wrong = perdure(tmp_path, "approve", "one", first["call_id"], "--arguments", "5")
    assert wrong.returncode == 1
    assert "--arguments" in wrong.stderr
    approved = perdure(tmp_path, "approve", "one", "--arguments", '{"label": "human", "content": "Likes cocoa."}')
    denied = perdure(tmp_path, "deny", "two", second["call_id"], "--reason", "no")
    assert (approved.returncode, denied.returncode) == (0, 0), approved.stderr + denied.stderr

    with Perdure(tmp_path / "perdure.db", settings=Settings(model=BUILT_IN, embedding="none")) as store:
        assert store.agent("one").blocks.get("human").value == "Likes cocoa."
        assert store.agent("two").blocks.get("human").value == ""
    left = {call["call_id"] for call in json.loads(perdure(tmp_path, "approvals", "--json").stdout)}
    assert not left & {first["call_id"], second["call_id"]}  # the built-in model may have asked for more
