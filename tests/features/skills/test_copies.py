"""Skills in agent files and backups; a text that is forgotten or erased is gone from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure
from perdure.testing import calls, says
from tests.support.library import open_sync
from tests.support.programs import run_inside

CANARY = "xylocarp"
SCRIPT = (calls("read_skill", name="xylocarp-jam"), says("ok"))


def write_all(store: Perdure) -> None:
    """An agent with a skill of two versions that was used, a protected one and an archived one."""
    agent = store.create_agent("ann")
    agent.skills.enable()
    agent.skills.write("xylocarp-jam", f"Boil the {CANARY}.", description=f"Make jam of {CANARY}")
    agent.skills.write("xylocarp-jam", f"Boil the {CANARY} and stir.")
    agent.skills.write("oven", "It is too cold.", layer="L2")
    agent.skills.protect("oven")
    agent.skills.write("old", "An old way.")
    agent.skills.archive("old")
    agent.send("go")


def shapes(store: Perdure, name: str = "ann") -> list[object]:
    """What the skills of an agent hold, and their versions."""
    skills = store.agent(name).skills
    own = [one for one in skills.list(archived=None) if one.version]
    return [
        (
            *(one.name, one.layer, one.description, one.is_protected, one.archived_at, one.changed_at),
            *((version.version, version.text, version.evidence) for version in skills.versions(one.name)),
        )
        for one in own
    ]


@pytest.mark.uses("agent_files")
def test_an_agent_file_has_the_skills(tmp_path: Path) -> None:
    home, other, file = tmp_path / "home", tmp_path / "other", tmp_path / "ann.af"
    home.mkdir()
    with open_sync(home / "perdure.db", *SCRIPT) as store:
        write_all(store)
        before = shapes(store)
    assert len(before) == 3
    assert run_inside(home, "agent", "export", "ann", str(file)).returncode == 0
    imported = run_inside(other, "agent", "import", str(file), "--name", "copy")

    assert imported.returncode == 0, imported.stderr
    with open_sync(other / "perdure.db") as store:
        assert shapes(store, "copy") == before
        assert store.agent("copy").skills.write("xylocarp-jam", "New.").version == 3


@pytest.mark.uses("origins", "agent_files")
def test_a_text_that_was_forgotten_is_in_no_file(tmp_path: Path) -> None:
    file = tmp_path / "ann.af"
    with open_sync(tmp_path / "perdure.db", *SCRIPT) as store:
        write_all(store)
        store.agent("ann").forget(CANARY)
    assert run_inside(tmp_path, "agent", "export", "ann", str(file)).returncode == 0

    assert CANARY not in file.read_text(encoding="utf-8")
    assert "It is too cold." in file.read_text(encoding="utf-8")


@pytest.mark.uses("origins")
def test_an_erased_text_is_nowhere_in_the_database(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    with open_sync(path, *SCRIPT) as store:
        write_all(store)
        agent = store.agent("ann")
        counts = agent.find_mentions(CANARY).counts
        agent.forget(CANARY, erase=True)
        names = [one.name for one in agent.skills.list(archived=None) if one.version]

        assert counts["skill"] >= 3
        assert agent.find_mentions(CANARY).counts == {}
        assert names == ["[redacted]-jam", "old", "oven"]
        assert agent.skills.get(names[0]).uses.uses == 1
    assert CANARY.encode() not in b"".join(one.read_bytes() for one in tmp_path.glob("perdure.db*"))


def test_what_an_agent_learned_goes_with_it(tmp_path: Path) -> None:
    """Deleting the agent deletes its skills, versions and uses."""
    with open_sync(tmp_path / "perdure.db", *SCRIPT) as store:
        write_all(store)
        agent = store.agent("ann")
        store.delete_agent(agent.id)
        store.create_agent("bob").send("hi")
        run = run_inside(tmp_path, "store", "verify")

        assert run.returncode == 0, run.stderr
        with pytest.raises(Exception, match="not found"):
            agent.skills.list()


def changed(file: Path, change: Callable[[dict[str, Any]], None], *names: str) -> None:
    """Change the skills of these names in an agent file, with all that their versions say."""
    document = json.loads(file.read_text(encoding="utf-8"))
    for copy in document["metadata"]["perdure"]["agents"]["agent-0"]["skills"]:
        if copy["skill"]["name"] in names:
            for part in (copy["skill"], *copy["versions"]):
                change(part)
    file.write_text(json.dumps(document), encoding="utf-8")


def saying(text: str) -> Callable[[dict[str, Any]], None]:
    """A change of what a skill says."""
    return lambda part: part.update(text=text)


@pytest.mark.slow
@pytest.mark.uses("agent_files")
@pytest.mark.parametrize(
    ("change", "told", "state"),
    [
        (saying("The password is hunter2-4711."), "left out: refused by the rule 'no_credential'", "gone"),
        (saying("x" * 40_000), "left out: refused by the rule 'sized'", "gone"),
        (saying(" "), "left out: refused by the rule 'sized'", "gone"),
        (lambda part: part.update(name="read_skill"), "left out: refused by the rule 'named'", "gone"),
        (lambda part: part.update(name="../x"), "left out: refused by the rule 'named'", "gone"),
        (lambda part: part.update(name="working-alone"), "left out: refused by the rule 'named'", "gone"),
        (lambda part: part.update(layer="L0"), "left out: refused by the rule 'a_persons_layer'", "gone"),
        (lambda part: part.update(version=7), "left out: the numbers", "gone"),
        (saying("Kill the process, pid 4711."), "put into the archive, from where you may restore it: ", "archived"),
        (lambda part: part.update(description="long " * 1_000), "", "shown"),
    ],
)
def test_a_skill_of_a_file_keeps_to_the_rules(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], told: str, state: str
) -> None:
    """One that breaks a rule for all is left out, another one comes into the archive; the import says why."""
    home, file = tmp_path / "home", tmp_path / "ann.af"
    home.mkdir()
    with open_sync(home / "perdure.db") as store:
        write_all(store)
    assert run_inside(home, "agent", "export", "ann", str(file)).returncode == 0
    changed(file, change, "xylocarp-jam")
    imported = run_inside(tmp_path / "other", "agent", "import", str(file), "--name", "copy")

    assert imported.returncode == 0 and told in " ".join((imported.stdout + imported.stderr).split()), imported.stderr
    with open_sync(tmp_path / "other" / "perdure.db") as store:
        skills = store.agent("copy").skills
        shown = [one for one in skills.list() if one.version]
        names = {"gone": ["oven"], "archived": ["oven"], "shown": ["oven", "xylocarp-jam"]}[state]
        assert sorted(one.name for one in shown) == names
        assert all(len(one.description) <= 200 for one in shown)
        assert (state == "archived") == ("xylocarp-jam" in [one.name for one in skills.list(archived=True)])


@pytest.mark.uses("agent_files")
def test_an_older_version_with_a_credential_stays_outside(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "ann.af"
    home.mkdir()
    with open_sync(home / "perdure.db") as store:
        write_all(store)
    assert run_inside(home, "agent", "export", "ann", str(file)).returncode == 0
    text = file.read_text(encoding="utf-8").replace(f"Boil the {CANARY}.", "The password is hunter2-4711.")
    file.write_text(text, encoding="utf-8")
    imported = run_inside(tmp_path / "other", "agent", "import", str(file))

    assert "1 older: left out: refused by the rule 'no_credential'" in " ".join(imported.stderr.split())
    with open_sync(tmp_path / "other" / "perdure.db") as store:
        skills = store.agent("ann").skills
        assert [one.version for one in skills.versions("xylocarp-jam")] == [2]
        assert "hunter2" not in str(shapes(store))
        assert skills.write("xylocarp-jam", "New.").version == 3
