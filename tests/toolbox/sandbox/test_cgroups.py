"""The control group around the sandbox: found where it was delegated, limited, left alone elsewhere.

The groups here are folders that the tests make up, so what is written is seen, and not what a kernel does with it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from perdure.toolbox.sandbox.cgroups import PREFIX, ControlGroup, DelegatedGroup, find_delegated_group
from tests.toolbox.sandbox.cages import Cage
from tests.toolbox.sandbox.conftest import options_of


class Machine:
    """What the kernel says of this process, and a tree of control groups."""

    def __init__(self, place: Path, *, path: str = "/app/server", root: str = "/", kind: str = "cgroup2") -> None:
        self.proc, self.top = place / "proc", place / "groups"
        self.proc.mkdir()
        (self.proc / "cgroup").write_text(f"4:memory:/elsewhere\n0::{path}\n")
        (self.proc / "mountinfo").write_text(
            f"20 1 0:1 / /proc rw - proc proc rw\n25 20 0:2 {root} {self.top} rw,relatime shared:9 - {kind} cgroup rw\n"
        )
        self.own = self.group("app/server", procs="1 2")
        self.parent = self.group("app")

    def group(self, name: str, *, controllers: str = "cpu memory pids", on: str = "", procs: str = "") -> Path:
        folder = self.top / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in (("controllers", controllers), ("subtree_control", on), ("procs", procs)):
            (folder / f"cgroup.{file}").write_text(text)
        return folder

    def find_group(self, *marked: Path) -> DelegatedGroup:
        return find_delegated_group(self.proc, is_marked=lambda folder: folder in marked)


def test_the_group_above_is_used_and_its_controllers_are_turned_on(tmp_path: Path) -> None:
    """As where systemd starts a service in a group below the one that it delegates."""
    machine = Machine(tmp_path)

    assert machine.find_group(machine.parent) == DelegatedGroup(machine.parent)
    assert (machine.parent / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_controllers_that_are_on_stay_as_they_are(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.group("app", on="memory io pids")

    assert machine.find_group(machine.parent) == DelegatedGroup(machine.parent)
    assert (machine.parent / "cgroup.subtree_control").read_text() == "memory io pids"


def test_its_own_group_is_used_if_only_that_was_delegated(tmp_path: Path) -> None:
    """Where somebody has turned its controllers on; else its own processes are in the way."""
    machine = Machine(tmp_path)
    busy = machine.find_group(machine.own)
    machine.group("app/server", on="memory pids", procs="1 2")

    assert busy.folder is None
    assert machine.find_group(machine.own) == DelegatedGroup(machine.own)


def test_what_was_not_delegated_is_left_alone(tmp_path: Path) -> None:
    """Even where it could be written to."""
    machine = Machine(tmp_path)
    group = machine.find_group()

    assert group.folder is None
    assert "was not delegated" in group.why
    assert (machine.parent / "cgroup.subtree_control").read_text() == ""


def test_what_belongs_to_the_user_is_not_thereby_delegated(tmp_path: Path) -> None:
    """As `app.slice` of a desktop session, which the user's systemd manages; the reason names the mark."""
    machine = Machine(tmp_path)
    owned = machine.parent.stat().st_uid == os.geteuid()
    group = find_delegated_group(machine.proc)

    assert (owned, group.folder, "user.delegate" in group.why) == (True, None, True)
    assert (machine.parent / "cgroup.subtree_control").read_text() == ""


@pytest.mark.parametrize(("value", "taken"), [(b"1", True), (b"0", False)])
def test_the_mark_of_systemd_is_what_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: bytes, taken: bool
) -> None:
    """On the group itself, not on one beside it."""
    machine = Machine(tmp_path)
    marks = {(machine.parent, "user.delegate"): value}

    def getxattr(path: Path, name: str) -> bytes:
        if (path, name) not in marks:
            raise OSError(errno.ENODATA, "no such attribute")
        return marks[path, name]

    monkeypatch.setattr(os, "getxattr", getxattr)

    assert (find_delegated_group(machine.proc).folder == machine.parent) is taken


def test_a_group_with_processes_of_its_own_cannot_be_used(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.group("app", procs="77")
    group = machine.find_group(machine.parent)

    assert (group.folder, "DelegateSubgroup=" in group.why) == (None, True)


def test_without_the_controllers_there_is_none(tmp_path: Path) -> None:
    """As where version 1 has them."""
    machine = Machine(tmp_path)
    for name in ("app", "app/server"):
        machine.group(name, controllers="hugetlb pids")
    group = machine.find_group(machine.parent, machine.own)

    assert (group.folder, group.why) == (None, f"{machine.parent} has no controller for memory")


@pytest.mark.parametrize(
    "options", [{"kind": "cgroup"}, {"path": "/gone"}, {"path": "/../.."}, {"path": "/app/server", "root": "/other"}]
)
def test_a_group_that_is_not_seen_is_none(tmp_path: Path, options: dict[str, str]) -> None:
    """No version 2, a place that is not there, one outside of what is mounted."""
    machine = Machine(tmp_path, **options)
    group = machine.find_group(machine.parent, machine.own)

    assert group.folder is None
    assert group.why


def test_in_a_container_the_path_begins_where_the_mount_does(tmp_path: Path) -> None:
    machine = Machine(tmp_path, path="/docker/1/app/server", root="/docker/1")

    assert machine.find_group(machine.parent) == DelegatedGroup(machine.parent)


def test_a_group_has_its_limits_before_it_has_a_process(tmp_path: Path) -> None:
    """All of them, as the kernel reads them."""
    group = ControlGroup.create(tmp_path, memory_bytes=5 << 20, processes=7)
    limits = {file.name: file.read_text() for file in group.folder.iterdir()}
    group.add_process(1234)

    assert limits == {"memory.max": "5242880", "memory.swap.max": "0", "pids.max": "7"}
    assert (group.folder / "cgroup.procs").read_text() == "1234"


def test_a_group_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        ControlGroup.create(tmp_path / "absent", memory_bytes=1, processes=1)

    assert [*tmp_path.iterdir()] == []


def test_groups_of_servers_that_are_gone_are_removed(tmp_path: Path) -> None:
    """Not those of servers that run, and nothing that is called otherwise."""
    gone, running, other = (tmp_path / name for name in (f"{PREFIX}999999999-a", f"{PREFIX}{os.getpid()}-b", "other"))
    for folder in (gone, running, other):
        folder.mkdir()
    created = ControlGroup.create(tmp_path, memory_bytes=1, processes=1).folder

    assert {*tmp_path.iterdir()} == {running, other, created}


def test_the_sandbox_is_in_a_group_of_its_own(tmp_path: Path) -> None:
    """The fork server, before it has started anything, with limits for all calls together."""
    kind = "root" if os.geteuid() == 0 else "user"
    cage = Cage(
        **options_of(kind), find_group=lambda: DelegatedGroup(tmp_path), concurrency=2, memory_mb=100, processes=5
    )
    try:
        (measure,) = [one for one in cage.isolation.measures if one.name == "control group"]
        if not cage.isolation.enough:
            pytest.skip(cage.isolation.summary)
        (folder,) = tmp_path.iterdir()
        pid = cage.sandbox.pid
        ran = cage.run("1 + 1")

        assert measure.works
        assert (folder / "cgroup.procs").read_text() == str(pid)
        assert (folder / "memory.max").read_text() == str(2 * (100 + 64) * (1 << 20) + (128 << 20))
        assert (folder / "pids.max").read_text() == str(4 * 5 + 16)
        assert ran.value == 2
    finally:
        cage.close()


@pytest.mark.parametrize("group", [DelegatedGroup(None, "a reason"), DelegatedGroup(Path("/nowhere/at-all"))])
def test_the_sandbox_works_without_a_group_and_says_why(group: DelegatedGroup) -> None:
    """Also where it turns out only then that none can be made."""
    kind = "root" if os.geteuid() == 0 else "user"
    cage = Cage(**options_of(kind), find_group=lambda: group)
    try:
        if not cage.isolation.enough:
            pytest.skip(cage.isolation.summary)
        (measure,) = [one for one in cage.isolation.measures if one.name == "control group"]

        assert not measure.works
        assert (group.why or "/nowhere/at-all: No such file") in measure.meaning
        assert cage.run("1 + 1").value == 2
    finally:
        cage.close()
