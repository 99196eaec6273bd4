"""`perdure run`: list, show, export, replay and fork."""

from __future__ import annotations

import json
from pathlib import Path

from perdure import Perdure
from perdure.settings import Settings
from tests.support.programs import run_inside


def test_runs_are_listed_shown_exported_replayed_and_forked(tmp_path: Path) -> None:
    """The built-in program answers; a replay stores nothing."""
    settings = Settings(model="perdure/extractive", embedding="none")
    with Perdure(tmp_path / "perdure.db", settings=settings) as store:
        agent = store.create_agent("ada")
        first = agent.send("I live in Turin.").run_id
        second = agent.send("Hello.").run_id
        asked = [message.id for message in agent.messages() if message.role == "user"]
        count = agent.message_count()

    def shape(*arguments: str) -> object:
        return json.loads(run_inside(tmp_path, "run", *arguments).stdout)

    rows = shape("list", "ada", "--json")
    shown = run_inside(tmp_path, "run", "show", first).stdout
    exported = shape("export", first)
    replay = shape("replay", first, "--json")
    fork = run_inside(tmp_path, "run", "fork", asked[1], "--before")
    cancelled = run_inside(tmp_path, "run", "cancel", second)
    missing = run_inside(tmp_path, "run", "show", "run-x")

    assert isinstance(rows, list) and [row["id"] for row in rows] == [second, first]
    assert "I live in Turin." in shown and "⚙ memory_insert(" in shown
    assert isinstance(exported, dict) and exported["id"] == first and exported["steps"][0]["request"]
    assert isinstance(replay, dict) and len(replay["steps"]) == 2
    assert [step["new"]["text"] for step in replay["steps"]] == [step["old"]["text"] for step in replay["steps"]]
    assert "Conversation 1" in fork.stdout and "has ended already" in cancelled.stdout
    assert missing.returncode == 1 and "run-x" in missing.stderr
    with Perdure(tmp_path / "perdure.db", settings=settings) as store:
        agent = store.agent("ada")
        forked = [message.text for message in agent.messages(conversation=agent.conversations()[1].id)]
        said = [message.text for message in agent.messages(conversation=agent.conversations()[0].id)]

    assert len(said) >= count and forked == said[: len(forked)] and "Hello." not in forked


def test_the_beginning_of_an_id_is_enough(tmp_path: Path) -> None:
    """As lists print it; a step's leads to its run, and another kind is named."""
    settings = Settings(model="perdure/extractive", embedding="none")
    with Perdure(tmp_path / "perdure.db", settings=settings) as store:
        agent = store.create_agent("ada")
        run = agent.send("Hello.").run_id
        step, message = agent.steps()[0].id, agent.messages()[0].id

    exported = json.loads(run_inside(tmp_path, "run", "export", run[:12]).stdout)
    cancelled = run_inside(tmp_path, "run", "cancel", step[:13], "--json")
    fork = run_inside(tmp_path, "run", "fork", message[:16])
    wrong = run_inside(tmp_path, "run", "fork", run[:12])
    missing = run_inside(tmp_path, "run", "show", "run-00000000")

    assert (exported["id"], json.loads(cancelled.stdout)["id"]) == (run, run)
    assert "Conversation 1" in fork.stdout
    assert "is the id of a run: give one of a message" in wrong.stderr
    assert "run 'run-00000000' not found: `perdure run list` lists the newest" in missing.stderr
