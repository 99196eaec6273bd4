"""Schedules and events on the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.support.library import open_sync
from tests.support.programs import run_inside


def test_a_schedule_is_added_listed_shown_cancelled_and_deleted(tmp_path: Path) -> None:
    """By its id, the beginning of it or its name, with what comes next; nothing is fired by these commands."""
    assert "There are no schedules yet" in run_inside(tmp_path, "schedule", "list").stderr
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann")
        store.create_agent("ben")
    added = run_inside(
        tmp_path, "schedule", "add", "tea", "ann", "--cron", "0 9 * * *", "--name", "tea", "--zone", "Asia/Tokyo"
    )
    once = run_inside(tmp_path, "schedule", "add", "cake", "ben", "--at", "2090-01-01T08:00", "--json")
    wrong = run_inside(tmp_path, "schedule", "add", "tea", "ann", "--every", "1h", "--zone", "Tokyo")
    none = run_inside(tmp_path, "schedule", "add", "tea", "ann", "--every", "1h", "--cron", "x")
    cake = json.loads(once.stdout)

    assert added.returncode == once.returncode == 0, added.stderr + once.stderr
    assert added.stdout.splitlines()[0].endswith("ann  cron 0 9 * * * (Asia/Tokyo)")
    assert [line[-9:] for line in added.stdout.splitlines()[1:]] == ["09:00 JST"] * 5
    assert "perdure serve" in added.stderr
    assert (wrong.returncode, "Asia/Tokyo" in wrong.stderr) == (1, True)
    assert (none.returncode, "give one of" in none.stderr) == (2, True)
    assert (cake["agent"], cake["message"], len(cake["next_times"])) == ("ben", "cake", 1)
    rows = run_inside(tmp_path, "schedule", "list").stdout.splitlines()
    assert run_inside(tmp_path, "schedules").stdout.splitlines() == rows
    assert sorted(("tea" in row, "ben" in row) for row in rows[1:]) == [(False, True), (True, False)]
    assert len(run_inside(tmp_path, "schedule", "list", "ben").stdout.splitlines()) == 2
    assert run_inside(tmp_path, "schedule", "pause", "tea").stdout.endswith(" is paused.\n")
    assert "paused" in run_inside(tmp_path, "schedule", "list").stdout
    assert run_inside(tmp_path, "schedule", "resume", "tea").stdout.count("next: ") == 5
    cancelled = run_inside(tmp_path, "schedule", "cancel", cake["id"][:17])
    assert cancelled.stdout == f"{cake['id']} fires no more.\n"
    assert "had cancelled already" in run_inside(tmp_path, "schedule", "cancel", cake["id"]).stdout
    assert "cancelled" in run_inside(tmp_path, "schedule", "list", "--all").stdout
    shown = run_inside(tmp_path, "schedule", "show", "tea")
    assert shown.stdout.splitlines()[1:] == ["tea", *added.stdout.splitlines()[1:]]
    assert run_inside(tmp_path, "schedule", "delete", "tea", "--yes").returncode == 0
    missing = run_inside(tmp_path, "schedule", "show", "tea")
    assert (missing.returncode, "perdure schedule list" in missing.stderr) == (1, True)
    named = run_inside(tmp_path, "schedule", "add", "sweep", "ben", "--cron", "@daily", "--zone", "Asia/Tokyo")
    assert named.stdout.splitlines()[0].endswith("ben  cron @daily (Asia/Tokyo)"), named.stderr


def test_an_event_is_answered_or_noted(tmp_path: Path) -> None:
    """With data as JSON; a repeated key is answered as before."""
    run_inside(tmp_path, "agent", "create", "ann")
    event = ("event", "login", "ann", "--data", '{"from": "a phone"}', "--key", "k", "--json")
    told, again = (json.loads(run_inside(tmp_path, *event).stdout) for _ in range(2))
    noted = run_inside(tmp_path, "event", "like", "ann", "--note")
    wrong = run_inside(tmp_path, "event", "like", "ann", "--data", "7")

    assert told["run_id"] == again["run_id"]
    assert told["text"]
    assert "with the next message" in noted.stdout
    assert (wrong.returncode, "JSON object" in wrong.stderr) == (1, True)
    with open_sync(tmp_path / "perdure.db") as store:
        roles = [message.role for message in store.agent("ann").messages()]
    assert roles == ["system", "assistant", "system"]


def test_firings_are_shown(tmp_path: Path) -> None:
    """What became of the last due times, with the run."""
    with open_sync(tmp_path / "perdure.db") as store:
        agent = store.create_agent("ann")
        made = agent.schedules.create("tea", at="in 1s")
        for _ in range(300):
            if agent.schedules.firings(made.id):
                break
            time.sleep(0.02)
        (firing,) = agent.schedules.firings(made.id)
    shown = run_inside(tmp_path, "schedule", "show", made.id)
    shape = json.loads(run_inside(tmp_path, "schedule", "show", made.id, "--json").stdout)

    assert firing.run_id is not None
    assert firing.run_id in shown.stdout
    assert [(one["outcome"], one["run_id"]) for one in shape["past"]] == [("fired", firing.run_id)]
