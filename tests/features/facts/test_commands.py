"""`perdure fact` and `/facts`: what an agent knows, shown and corrected by a person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.library import open_sync
from tests.support.programs import perdure, run_inside


def shown(home: Path, *arguments: str) -> Any:
    """What a verb of `perdure fact` prints for programs."""
    result = run_inside(home, "fact", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def fill(home: Path) -> str:
    """A store with an agent and a fact; the id of the fact."""
    with open_sync(home / "perdure.db") as store:
        store.create_agent("ann")
    return str(shown(home, "add", "Ada lives in Turin.", "--subject", "Ada", "--relation", "LIVES_IN")["id"])


def test_a_fact_is_added_edited_forgotten_and_restored(tmp_path: Path) -> None:
    """By the beginning of its id; the history says who and why, and `perdure why` the same."""
    fact_id = fill(tmp_path)
    start = fact_id[:13]
    edited = shown(tmp_path, "edit", start, "Ada lives in Milan.", "--since", "2026-05-03", "--until", "2026-08-01")
    assert (edited["id"], edited["valid_at"]) == (fact_id, "2026-05-03T00:00:00+00:00")
    listed = run_inside(tmp_path, "facts", "list", "ann")
    assert (listed.returncode, "This form goes" in listed.stderr) == (0, False)
    assert listed.stdout.split("\n")[1].split("  ") == [start, "Ada lives in Milan.", "2026-05-03", "2026-08-01"]
    assert shown(tmp_path, "edit", start, "--until", "")["invalid_at"] is None

    unasked = run_inside(tmp_path, "fact", "forget", start)
    assert (unasked.returncode, "Pass --yes to forget the 1 fact" in unasked.stderr) == (1, True)
    gone = run_inside(tmp_path, "fact", "forget", start, "--yes")
    assert f"`perdure fact restore {start}` brings it back." in gone.stderr
    assert shown(tmp_path, "list") == []
    assert [one["text"] for one in shown(tmp_path, "restore", start)] == ["Ada lives in Milan."]

    history = run_inside(tmp_path, "fact", "history", start).stdout
    assert history == run_inside(tmp_path, "why", start).stdout
    assert "version 1  add by a person: it was new" in history
    assert "version 2  edit by a person: a person corrected it" in history
    assert "version 5  restore by a person: its deletion was taken back" in history


def test_facts_are_listed_by_time_entity_and_what_was_believed(tmp_path: Path) -> None:
    """And searched by words; entities are listed with how many facts name them."""
    fill(tmp_path)
    shown(tmp_path, "add", "Bob plays chess.", "--subject", "Bob", "--relation", "PLAYS", "--until", "2020-01-01")

    assert [one["text"] for one in shown(tmp_path, "list")] == ["Bob plays chess.", "Ada lives in Turin."]
    assert [one["text"] for one in shown(tmp_path, "list", "--entity", "Ada")] == ["Ada lives in Turin."]
    assert [one["text"] for one in shown(tmp_path, "list", "--at", "2019-01-01")] == ["Bob plays chess."]
    assert shown(tmp_path, "list", "--as-of", "2019-01-01") == []
    assert shown(tmp_path, "search", "chess", "ann")[0]["subject"] == "Bob"
    assert {one["name"]: one["fact_count"] for one in shown(tmp_path, "entities")} == {"Ada": 1, "Memory": 2, "Bob": 1}
    assert "Ada lives in Turin." in perdure(tmp_path, "chat", "ann", stdin="/facts\n").stdout
    assert "Bob plays chess." in perdure(tmp_path, "chat", "ann", stdin="/facts chess\n").stdout


@pytest.mark.slow
def test_facts_are_filtered_by_source_type_and_scope(tmp_path: Path) -> None:
    """Several sources: any of them; several parts of a scope: all of them."""
    fill(tmp_path)
    with open_sync(tmp_path / "perdure.db") as store:
        agent = store.agent("ann")
        agent.facts.update_settings(fact_types={"HOME": "Person -> Location"})
        (hit,) = agent.facts.list()
        agent.facts.update(hit.fact.id, type="HOME")
        (hit,) = agent.facts.ingest("I live in Oslo.", scope={"user_id": "bob", "run_id": "r1"})
        agent.facts.update(hit.fact.id, trust="web")

    home, oslo = ["Ada lives in Turin."], ["bob lives in Oslo."]
    for conditions, found in (
        (("--trust", "user"), home),
        (("--trust", "web", "--trust", "tool"), oslo),
        (("--trust", "tool"), []),
        (("--type", "HOME"), home),
        (("--type", "JOB"), []),
        (("--scope", "user_id=bob", "--scope", "run_id=r1"), oslo),
        (("--scope", "user_id=bob", "--scope", "run_id=r2"), []),
    ):
        for verb in (("list",), ("search", "lives")):
            assert [one["text"] for one in shown(tmp_path, *verb, "ann", *conditions)] == found, (verb, conditions)


def test_settings_of_extraction_are_shown_and_changed(tmp_path: Path) -> None:
    """Values are JSON, a prompt is a text; what is not named stays as it was."""
    fill(tmp_path)
    assert shown(tmp_path, "settings")["reflect"] is True
    slots = 'slots={"work.title": ["WORKS_AS"]}'
    changed = shown(tmp_path, "settings", "ann", "reflect=false", "prompt=Ships are objects.", slots)
    assert (changed["reflect"], changed["prompt"]) == (False, "Ships are objects.")
    assert changed["slots"] == {"work.title": ["WORKS_AS"]}
    assert shown(tmp_path, "settings", "ann", 'entity_types={"Ship": {}}')["entity_types"] == {"Ship": {}}
    again = shown(tmp_path, "settings", "ann")
    assert (again["reflect"], again["entity_types"]) == (False, {"Ship": {}})
    assert "Ships are objects." in run_inside(tmp_path, "fact", "settings", "ann").stdout


def test_extraction_is_paused_and_ruled(tmp_path: Path) -> None:
    """What is said while it is paused waits; a rule stays until it is lifted."""
    fill(tmp_path)
    assert shown(tmp_path, "pause", "ann") == {"agent": "ann", "paused": True}
    assert shown(tmp_path, "resume", "ann") == {"agent": "ann", "paused": False}
    assert shown(tmp_path, "rule", "salary", "ann")["number"] == 1
    assert [one["text"] for one in shown(tmp_path, "rules")] == ["salary"]
    assert shown(tmp_path, "rules", "--lift", "1") == []


def test_what_can_t_be_done_is_told(tmp_path: Path) -> None:
    """With what helps, never a traceback."""
    fact_id = fill(tmp_path)
    for arguments, words in (
        (("show", "fact-00000000"), "fact 'fact-00000000' not found"),
        (("edit", fact_id), "nothing changes: give the new text"),
        (("edit", fact_id, "--since", "soon"), "'soon'"),
        (("list", "--state", "old"), "it can be active, faded, proposed, archived or all"),
        (("list", "--trust", "enemy"), "--trust is 'enemy': it can be user, agent, import, file, tool"),
        (("list", "--scope", "ann"), "--scope is 'ann': write NAME=VALUE"),
        (("settings", "ann", "reflect"), "a setting is 'reflect': write NAME=VALUE"),
        (("settings", "ann", "reflect=maybe"), "reflect is 'maybe': give true or false"),
        (("settings", "ann", "colour=1"), "a graph has no 'colour': there are paused, entity_types"),
        (("list", "--entity", "Eve"), "entity 'Eve' not found"),
        (("add", "x", "--relation", "lives in"), "write it in capitals, such as LIVES_IN"),
        (("rules", "--lift", "7"), "rule '7' not found"),
        (("search", " "), "perdure fact search TEXT"),
    ):
        result = run_inside(tmp_path, "fact", *arguments)
        assert (result.returncode, words in result.stderr, "Traceback" in result.stderr) == (1, True, False), arguments


@pytest.mark.slow
def test_a_profile_a_timeline_and_what_fades(tmp_path: Path) -> None:
    """It is archived by a later pass; a dry run changes nothing, and `restore --last` takes the last one back."""
    with open_sync(tmp_path / "perdure.db") as store:
        agent = store.create_agent("ann")
        agent.update(settings={"facts": {"forgetting": {"min_age_days": 0, "min_score": 0.9}}})
    shown(
        tmp_path,
        "add",
        "The user lives in Turin.",
        "--relation",
        "LIVES_IN",
        "--object",
        "Turin",
        "--since",
        "2026-05-03",
    )

    assert shown(tmp_path, "profile")["slots"] == {"basic_info.location": ["Turin"]}
    (event,) = shown(tmp_path, "timeline", "--since", "2026-05-01", "--until", "2026-05-03")
    assert (event["kind"], event["tags"], event["text"]) == ("begin", ["LIVES_IN"], "The user lives in Turin.")
    assert [one["reason"] for one in shown(tmp_path, "tidy", "--dry-run")] == ["faded"]
    assert len(shown(tmp_path, "list")) == 1
    unasked = run_inside(tmp_path, "fact", "tidy")
    assert (unasked.returncode, "Pass --yes to let 1 fact fade" in unasked.stderr) == (1, True)
    assert len(shown(tmp_path, "tidy", "--yes")) == 1
    assert len(shown(tmp_path, "list", "--state", "faded")) == 1
    assert [one["reason"] for one in shown(tmp_path, "tidy", "--yes")] == ["unused"]
    assert shown(tmp_path, "list") == []
    assert len(shown(tmp_path, "restore", "--last")) == 1
    assert len(shown(tmp_path, "list")) == 1
    assert "--last" in run_inside(tmp_path, "fact", "restore").stderr


def test_passages_fade_and_are_brought_back(tmp_path: Path) -> None:
    """They are listed with their states; one comes back by its id, all by `restore --last`."""
    with open_sync(tmp_path / "perdure.db") as store:
        agent = store.create_agent("ann")
        agent.update(settings={"facts": {"forgetting": {"min_age_days": 0, "min_score": 0.9}}})
        passage = agent.archive("Ada likes tea.")

    def listed(*args: str) -> list[str]:
        done = run_inside(tmp_path, *args, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        return [one["state"] for one in (found["passages"] if isinstance(found, dict) else found)]

    assert "let 1 passage fade" in run_inside(tmp_path, "fact", "tidy").stderr
    for reason in ("faded", "unused"):
        assert [(one["kind"], one["reason"]) for one in shown(tmp_path, "tidy", "--yes")] == [("passage", reason)]
    assert (listed("archive", "show"), listed("archive", "show", "--state", "faded")) == (["archived"], [])
    assert (listed("search", "tea"), listed("search", "tea", "--state", "archived")) == ([], ["archived"])
    assert [one["state"] for one in shown(tmp_path, "restore", "--last")] == ["faded"]
    assert listed("archive", "restore", passage.id[:14]) == ["active"]
    assert "write active, faded, archived or all" in run_inside(tmp_path, "search", "tea", "--state", "gone").stderr


def test_a_search_of_everything_shows_facts(tmp_path: Path) -> None:
    """With `--why` also why; facts of another time are left out."""
    fact_id = fill(tmp_path)
    shown(tmp_path, "edit", fact_id, "--since", "2020-05-03", "--until", "2021-08-01")

    result = json.loads(run_inside(tmp_path, "search", "Turin", "--why", "--json").stdout)
    lines = run_inside(tmp_path, "search", "Turin", "--why").stdout

    assert [(one["id"], "ended" in one["why"]["parts"]) for one in result["facts"]] == [(fact_id, True)]
    assert "fact  Ada lives in Turin." in lines
    assert "facts: searched by words in 1 texts" in lines
    then = json.loads(run_inside(tmp_path, "search", "Turin", "--since", "2022-01-01", "--json").stdout)
    assert then["facts"] == []


def test_views_and_rules_about_entities(tmp_path: Path) -> None:
    """One text with the ids of its sources, groups of entities, a timeline by tags, and a rule about somebody."""
    fill(tmp_path)

    context = shown(tmp_path, "context", "Turin", "--budget", "200")
    assert "Ada lives in Turin." in context["text"] and context["tokens"] <= 200
    assert [len(ids) for ids in context["sources"].values()] == [1]
    assert [one["size"] for one in shown(tmp_path, "communities")] == [2]
    assert len(shown(tmp_path, "timeline", "--tag", "LIVES_IN")) == 1
    assert shown(tmp_path, "timeline", "--tag", "LIKES") == []
    assert shown(tmp_path, "rule", "", "--entity", "Ada")["entity"] == "Ada"
    assert "Ada" in run_inside(tmp_path, "fact", "rules").stdout


def test_a_day_is_one_of_the_agent(tmp_path: Path) -> None:
    """As it is given, and as it is shown."""
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann", timezone="Asia/Shanghai")
    fact = shown(tmp_path, "add", "Ada lives in Turin.", "--since", "2026-03-01")
    listed = run_inside(tmp_path, "fact", "list", "--at", "2026-03-01").stdout
    whole = run_inside(tmp_path, "fact", "show", fact["id"]).stdout
    events = run_inside(tmp_path, "fact", "timeline", "--until", "2026-03-01").stdout

    assert fact["valid_at"] == "2026-02-28T16:00:00+00:00"
    assert "  2026-03-01  " in listed and "true since 2026-03-01\n" in whole and "2026-03-01  begin" in events
    assert "true since 2026-03-01\n" in run_inside(tmp_path, "why", fact["id"]).stdout
