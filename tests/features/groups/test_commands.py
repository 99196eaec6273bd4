"""Groups of agents on the command line."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from perdure.features.groups.commands import cancel_on_interrupt
from tests.cli.test_completion import completions
from tests.support.library import SlowSpeaker, open_async, open_sync
from tests.support.programs import run_inside


def made(home: Path, *arguments: str) -> Any:
    """The group that a command makes."""
    done = run_inside(home, "group", "create", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_group_is_made_listed_shown_changed_and_deleted(tmp_path: Path) -> None:
    """By its id, the beginning of it or its description; each command says what comes next."""
    assert "There are no groups yet" in run_inside(tmp_path, "groups").stderr
    with open_sync(tmp_path / "perdure.db") as store:
        for name in ("anna", "ben", "mia"):
            store.create_agent(name)
    trip = made(tmp_path, "round_robin", "anna", "ben", "--description", "trip", "--max-turns", "4")
    talk = made(tmp_path, "dynamic", "anna", "--manager", "mia", "--max-cost", "0.5")
    listed = run_inside(tmp_path, "groups")
    changed = run_inside(tmp_path, "group", "update", "trip", "mia", "anna", "--max-turns", "1000")
    shown = run_inside(tmp_path, "group", "show", trip["id"][:16])

    assert (trip["max_turns"], [one["name"] for one in trip["agents"]]) == (4, ["anna", "ben"])
    assert (talk["manager"]["name"], talk["max_cost_usd"], talk["termination_token"]) == ("mia", 0.5, "DONE!")
    assert [line.split()[1] for line in listed.stdout.splitlines()[1:]] == ["dynamic", "round_robin"]
    assert "perdure group send GROUP TEXT" in listed.stderr
    assert changed.stdout == shown.stdout
    assert shown.stdout.splitlines()[1:] == ["agents: mia, anna", "limits: turns 1,000"]
    assert completions(tmp_path, f"group show {trip['id'][:16]}") == [trip["id"]]
    unasked = run_inside(tmp_path, "group", "delete", "trip")
    assert (unasked.returncode, "Pass --yes to delete the group" in unasked.stderr) == (1, True)
    assert "This can't be undone; its agents stay." in run_inside(tmp_path, "group", "delete", "trip", "--yes").stderr
    assert [one["id"] for one in json.loads(run_inside(tmp_path, "group", "list", "--json").stdout)] == [talk["id"]]


def test_a_group_that_can_not_be_is_refused(tmp_path: Path) -> None:
    """With what helps."""
    missing = run_inside(tmp_path, "group", "show", "trip")
    assert (missing.returncode, "perdure group create" in missing.stderr) == (1, True)
    with open_sync(tmp_path / "perdure.db") as store:
        for name in ("anna", "ben"):
            store.create_agent(name)

    for said, *arguments in (
        ("--manager AGENT", "supervisor", "anna"),
        ("has none: leave it out", "round_robin", "anna", "--manager", "ben"),
        ("the manager is not a participant", "dynamic", "anna", "--manager", "anna"),
        ("agent 'eve' not found: there are", "round_robin", "anna", "eve"),
        ("more than once", "round_robin", "anna", "anna"),
        ("is not one of", "chaos", "anna"),
    ):
        done = run_inside(tmp_path, "group", "create", *arguments)
        assert (done.returncode != 0, said in " ".join(done.stderr.split())) == (True, True), done.stderr
    assert "there is none yet" in run_inside(tmp_path, "group", "show", "trip").stderr
    nobody = run_inside(tmp_path / "new", "group", "create", "round_robin", "ann", "ben")
    assert "agent 'ann' not found: there is no agent yet" in nobody.stderr


def test_a_group_answers_with_its_speakers_names(tmp_path: Path) -> None:
    """As it goes, in the transcript and for programs; a reset asks first."""
    with open_sync(tmp_path / "perdure.db") as store:
        for name in ("anna", "ben"):
            store.create_agent(name, model="perdure/extractive")
    trip = made(tmp_path, "round_robin", "anna", "ben", "--description", "trip")
    sent = run_inside(tmp_path, "group", "send", "trip", "I am Eve.")
    shaped = json.loads(run_inside(tmp_path, "groups", "send", "trip", "And I like tea.", "--json").stdout)
    shown = run_inside(tmp_path, "group", "show", "trip", "--limit", "3")
    entries = json.loads(run_inside(tmp_path, "group", "show", "trip", "--json").stdout)["messages"]

    assert sent.returncode == 0, sent.stderr
    assert [line for line in sent.stdout.splitlines() if line in ("anna", "ben")] == ["anna", "ben"]
    assert f"perdure group show {trip['id'][:14]}" in sent.stderr
    assert (shaped["turn"], shaped["stop_reason"]) == (1, "end_turn")
    assert [one["name"] for one in shaped["replies"]] == ["anna", "ben"]
    assert shaped["answer"] == shaped["replies"][-1]["text"] != ""
    assert [one["sender_name"] or "You" for one in entries] == ["You", "anna", "ben"] * 2
    heads = [line.split()[0] for line in shown.stdout.splitlines()[2:] if not line.startswith("  ")]
    assert heads == ["You", "anna", "ben"]
    with open_sync(tmp_path / "perdure.db") as store:
        store.delete_agent(store.agent("ben").id)
    assert "◆ ben said something that was deleted" in run_inside(tmp_path, "group", "show", "trip").stdout
    assert "No turn goes on." in run_inside(tmp_path, "group", "cancel", "trip").stderr
    unasked = run_inside(tmp_path, "group", "reset", "trip")
    assert (unasked.returncode, "Pass --yes to reset the group" in unasked.stderr) == (1, True)
    assert "This can't be undone" in run_inside(tmp_path, "group", "reset", "trip", "--yes").stderr
    assert json.loads(run_inside(tmp_path, "group", "show", "trip", "--json").stdout)["messages"] == []


async def test_an_interrupt_cancels_the_turn(tmp_path: Path) -> None:
    """The program that shows it goes on to its end."""
    model = SlowSpeaker("To ", "Turin.")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        alone = await perdure.groups.create("round_robin", agents=[await perdure.create_agent("ann")])
        turn = await alone.submit("Where?")
        with cancel_on_interrupt(alone, turn):
            await model.speaking.wait()
            os.kill(os.getpid(), signal.SIGINT)
            reply = await perdure.groups.by_id(turn.group_id).reply(turn)

        assert reply.stop_reason == "cancelled"
