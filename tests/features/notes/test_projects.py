"""Memory that belongs to a folder, with the one behind all: which folder, which agent, and what two processes make."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import AsyncPerdure, Settings
from perdure.app import start_organisation
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.core.models import EXTRACTIVE
from perdure.features.notes.folders import data_folder, find_project_folder, state_folder
from perdure.features.notes.nudges import EditCounter
from perdure.features.notes.projects import GLOBAL_NAME, ProjectMemory
from tests.support.library import open_async
from tests.support.programs import environment
from tests.support.warm import warm

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("open_project.py")


@pytest.fixture
async def perdure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncPerdure]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    async with await open_async(tmp_path / "perdure.db") as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / "src" / "deep").mkdir(parents=True)
    return folder


def test_a_folder_below_one_with_git_belongs_to_that_project(project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project / "src")
    (tmp_path / "plain" / "deep").mkdir(parents=True)
    worktree = tmp_path / "worktree"
    worktree.mkdir()
    (worktree / ".git").write_text("gitdir: elsewhere")  # as a worktree or submodule has it

    for folder in (project, project / "src" / "deep", project / ".git" / "hooks", tmp_path / "link" / "deep"):
        assert find_project_folder(folder) == project, folder
    assert find_project_folder(str(project / "src" / ".." / ".")) == project
    assert find_project_folder(tmp_path / "plain" / "deep") == tmp_path / "plain" / "deep"
    assert find_project_folder(worktree) == worktree


def test_git_in_the_home_folder_makes_no_project_of_all_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))

    assert find_project_folder("~/a") == tmp_path / "a"
    assert find_project_folder("~") == tmp_path


def test_a_home_that_is_a_link_is_no_project_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home" / ".git").mkdir(parents=True)
    (tmp_path / "home" / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "link"))

    assert find_project_folder("~/a") == tmp_path / "home" / "a"


def test_hooks_and_the_settings_name_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the store's address: a relative path, a link, a password of PostgreSQL make no difference."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    monkeypatch.delenv("PERDURE_STORE", raising=False)
    default = state_folder("/a")
    assert state_folder("/a", store=Settings.from_environment().store_address) == default
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for store in (str(tmp_path / "perdure.db"), "perdure.db", f"{tmp_path}/link/perdure.db"):
        monkeypatch.setenv("PERDURE_STORE", store)
        assert state_folder("/a", store=Settings.from_environment().store_address) == state_folder("/a") == default
    remote = state_folder("/a", store="postgresql://ann:one@db/p")

    assert remote == state_folder("/a", store="postgresql://ann:t:w@db/p") != default
    assert remote != state_folder("/a", store="postgresql://ann:one@db/q")


def test_a_folder_that_is_none_is_refused(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "file").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for folder, says in (
        (tmp_path / "gone", "No such file or directory"),
        (tmp_path / "nowhere", "No such file or directory"),
        (tmp_path / "loop", "can't be used"),
        (project / "file", "is a file"),
        (project / "file" / "x", "can't be used"),
        ("a\0b", "can't be used"),
        ("x" * 10_000, "can't be used"),
    ):
        with pytest.raises(InvalidInput, match=says) as caught:
            find_project_folder(folder)
        assert len(str(caught.value)) < 500
    (tmp_path / "vanished").mkdir()
    monkeypatch.chdir(tmp_path / "vanished")
    (tmp_path / "vanished").rmdir()
    with pytest.raises(InvalidInput, match="give a folder that exists"):
        find_project_folder(".")


def test_each_project_and_organisation_has_a_state_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    folders = [
        state_folder(one, org)
        for one in ("/a", "/b", "", b"/\xff".decode("utf-8", "surrogateescape"))
        for org in ("", "org-1")
    ]
    folders += [state_folder("/a", store=store) for store in ("/x.db", "/y.db")]

    assert data_folder() == tmp_path
    assert len(set(folders)) == 10
    assert all(folder.is_relative_to(tmp_path / "projects") for folder in folders)
    assert state_folder(Path("/a")) == state_folder("/a")


async def test_the_agents_are_made_with_the_first_write_and_found_from_then_on(
    perdure: AsyncPerdure, project: Path
) -> None:
    memory = ProjectMemory(perdure, project / "src")
    assert (await memory.readers(), memory.own_level) == ([], "project")
    agent = await memory.open()
    behind = await memory.open("global")

    again = ProjectMemory(perdure, project)
    assert [(level, one.id) for level, one in await again.readers()] == [("project", agent.id), ("global", behind.id)]
    assert agent.name.startswith("shop-") and behind.name == GLOBAL_NAME
    for one in (agent, behind):
        assert (await perdure.all_agents.resolve(one.id)).model == EXTRACTIVE  # no model, no key
    only_global = ProjectMemory(perdure)
    assert only_global.own_level == "global"
    assert [(level, one.id) for level, one in await only_global.readers()] == [("global", behind.id)]
    with pytest.raises(InvalidInput, match="there is no project"):
        await only_global.open("project")


async def test_two_projects_of_one_name_have_agents_of_their_own(perdure: AsyncPerdure, tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "shop").mkdir(parents=True)
    first, second = [await ProjectMemory(perdure, tmp_path / one / "shop").open() for one in ("a", "b")]

    assert first.id != second.id and first.name != second.name


async def test_an_agent_that_was_renamed_is_found_by_its_project(perdure: AsyncPerdure, project: Path) -> None:
    agent = await ProjectMemory(perdure, project).open()
    await agent.edit({"name": "my shop"})

    assert (await ProjectMemory(perdure, project).open()).id == agent.id


async def test_an_agent_that_was_deleted_is_made_anew_with_the_next_write(perdure: AsyncPerdure, project: Path) -> None:
    """Also by who has the memory open all the time."""
    memory = ProjectMemory(perdure, project)
    agent = await memory.open()
    await agent.delete()

    assert await memory.readers() == []
    again = await memory.open()
    await again.notes.add("doc", "new", {"text": "x"})
    assert (again.id != agent.id, again.name) == (True, agent.name)


async def test_an_agent_of_somebody_else_with_the_name_is_left_alone(perdure: AsyncPerdure, project: Path) -> None:
    """The project's agent gets another name, which is found again."""
    own = await ProjectMemory(perdure, project).open()
    name = own.name
    await own.delete()
    foreign = [await perdure.create_agent(one) for one in (name, GLOBAL_NAME)]
    made = [await ProjectMemory(perdure, project).open(level) for level in ("project", "global")]

    assert not {one.id for one in made} & {one.id for one in foreign}
    assert [one.name for one in made] == [f"{name} 2", f"{GLOBAL_NAME} 2"]
    again = [await ProjectMemory(perdure, project).open(level) for level in ("project", "global")]
    assert [one.id for one in again] == [one.id for one in made]


@pytest.mark.parametrize(
    "name",
    [
        "???",
        "-'-",
        "日本語",
        "a/../b".replace("/", "%"),
        "x" * 255,
        "new\nline",
        "tab\t",
        "emoji 🦊",
        " x ",
        b"\xff\xfe",
    ],
)
async def test_a_folder_with_any_name_has_an_agent(perdure: AsyncPerdure, tmp_path: Path, name: str | bytes) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/" + os.fsencode(name))
    os.mkdir(folder)  # noqa: PTH102
    agent = await ProjectMemory(perdure, folder).open()
    await agent.notes.add("doc", "here", {"text": "x"})

    assert (await ProjectMemory(perdure, folder).open()).id == agent.id
    assert agent.name.strip() == agent.name


def test_two_processes_that_open_one_new_folder_make_one_agent(project: Path, tmp_path: Path) -> None:
    ours = environment(tmp_path / "home")
    ours = {**ours, "PYTHONPATH": f"{ours['PYTHONPATH']}{os.pathsep}{ROOT}"}
    processes = [
        subprocess.Popen(
            [warm(str(PROGRAM), ours), tmp_path / "perdure.db", folder, title],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=ours,
        )
        for folder, title in ((project, "one"), (project / "src", "two"), (project, "three"))
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ids = {process.communicate(timeout=60)[0] for process in processes}

    assert len(ids) == 1 and ids != {""}


async def test_a_named_agent_takes_the_place_of_the_projects(perdure: AsyncPerdure, project: Path) -> None:
    ann = await perdure.create_agent("ann")
    behind = await ProjectMemory(perdure).open()
    memory = ProjectMemory(perdure, project, agent="ann")

    assert (await memory.open()).id == ann.id
    assert [(level, one.id) for level, one in await memory.readers()] == [("project", ann.id), ("global", behind.id)]
    assert (await ProjectMemory(perdure, agent=ann.id).open()).id == ann.id
    same = ProjectMemory(perdure, project, agent=GLOBAL_NAME)
    assert [one.id for _, one in await same.readers()] == [behind.id]  # its notes are not listed twice
    with pytest.raises(NotFound, match="'ben'"):
        await ProjectMemory(perdure, project, agent="ben").readers()


async def test_another_organisation_has_memory_of_its_own(perdure: AsyncPerdure, project: Path) -> None:
    other_id = OrgId("org-11111111-1111-4111-8111-111111111111")
    own = await ProjectMemory(perdure, project).open()
    app = await start_organisation(perdure.app, other_id)
    try:
        other = ProjectMemory(AsyncPerdure(app), project)
        assert await other.readers() == []
        opened = await other.open()
        assert opened.id != own.id
        assert other.state_of(opened).parent.name == other_id
        assert ProjectMemory(perdure, project).state_of(own).parent.name == "default"
        assert perdure.app.org_id == DEFAULT_ORG
    finally:
        await app.close()


async def test_a_note_begins_the_count_of_edits_anew_whoever_writes_it(perdure: AsyncPerdure, project: Path) -> None:
    """The page and the API know the agent only."""
    memory = ProjectMemory(perdure, project)
    agent = await memory.open()
    over_http = await ProjectMemory(perdure, agent=agent.name, over_http=True).edits()
    elsewhere = EditCounter(state_folder("/elsewhere", store=perdure.path))
    counters = (await memory.edits(), over_http, elsewhere)

    def count() -> list[int]:
        for counter in counters:
            counter.count("a.py")
        return [counter.totals()[0] for counter in counters]

    count()
    note, _ = await agent.notes.add("doc", "one", {"text": "x"})
    added = count()
    await (await perdure.agent(agent.name)).notes.edit(note.id, title="two")

    assert added == [1, 1, 2]
    assert [counter.totals()[0] for counter in counters] == [0, 0, 2]
