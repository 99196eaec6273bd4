"""Requirements: installed once for each set, by whoever comes first, a few at a time, in a cache of limited size."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from perdure.toolbox.sandbox.installer import Installer, InstallFailed, give_to_root
from perdure.toolbox.sandbox.package_cache import remove_tree, tree_bytes
from perdure.toolbox.sandbox.requirements import Requirements, RequirementsFailed
from tests.toolbox.sandbox.cages import Cage
from tests.toolbox.sandbox.conftest import options_of

MEBIBYTE = 1 << 20


class Shelf(Installer):
    """Installs a module `greeting` without pip, when `open` is set. `missing` is not to be had."""

    def __init__(self, *, size: int = 0) -> None:
        super().__init__()
        self.open, self.begun = asyncio.Event(), asyncio.Event()
        self.open.set()
        self.wanted: list[Sequence[str]] = []
        self.busy = self.most = 0
        self._size = size

    async def install(
        self, wanted: Sequence[str], scratch: Path, *, bytes_max: int, progress: Callable[[str], None]
    ) -> Path:
        self.wanted.append(wanted)
        self.begun.set()
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            target = scratch / "target"
            target.mkdir()
            (target / "greeting.py").write_text("WORD = 'hello'", encoding="utf-8")
            (target / "weight").write_bytes(bytes(self._size))
            await asyncio.sleep(0)
            await self.open.wait()
            if "missing" in wanted:
                raise InstallFailed("No matching distribution found for missing")
            return target
        finally:
            self.busy -= 1


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def requirements(tmp_path: Path, shelf: Shelf) -> Requirements:
    return Requirements(tmp_path / "cache", installer=shelf)


async def install_set(requirements: Requirements, wanted: Sequence[str], *, owner: str = "") -> str:
    async with requirements.hold(wanted, owner=owner) as name:
        return name


async def test_a_set_is_installed_once(requirements: Requirements, tmp_path: Path, shelf: Shelf) -> None:
    """Whoever asks at the same time waits for it; order does not matter; another set is another folder."""
    sets = [["greeting", "other==1"], ["other==1", "greeting"], [" greeting ", "other==1"]]

    names = await asyncio.gather(*(install_set(requirements, one) for one in sets))
    again = await install_set(requirements, ["other==1", "greeting"])
    other = await install_set(requirements, ["greeting"])

    assert {*names, again} == {names[0]}
    assert other != names[0]
    assert (tmp_path / "cache" / names[0] / "greeting.py").read_text(encoding="utf-8") == "WORD = 'hello'"
    assert shelf.wanted == [("greeting", "other==1"), ("greeting",)]


async def test_what_fails_leaves_nothing_and_is_tried_again(requirements: Requirements, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RequirementsFailed, match="No matching distribution found for missing"):
            await install_set(requirements, ["missing"])

    assert folders_in(tmp_path / "cache") == []


async def test_two_installers_at_a_time_and_a_queue_for_each_agent(requirements: Requirements, shelf: Shelf) -> None:
    """Of 24 sets at once the fifth and all after it are refused at once; another agent's is taken all the same."""
    shelf.open.clear()
    tasks = [asyncio.create_task(install_set(requirements, [f"p{number}"], owner="one")) for number in range(24)]
    other = asyncio.create_task(install_set(requirements, ["q"], owner="other"))
    refused, _ = await asyncio.wait(tasks, timeout=0.3)
    shelf.open.set()
    accepted = [task for task in (*tasks, other) if task not in refused]
    await asyncio.gather(*accepted)

    assert len(refused) == 20
    assert all("4 other sets of requirements are installed" in str(task.exception()) for task in refused)
    assert (shelf.most, len(shelf.wanted)) == (2, 5)
    assert await install_set(requirements, ["p23"], owner="one")  # there is room again


async def test_a_call_that_is_given_up_ends_its_installer(
    requirements: Requirements, shelf: Shelf, tmp_path: Path
) -> None:
    """What it made is removed, and who waited for the same set goes on with it."""
    shelf.open.clear()
    first = asyncio.create_task(install_set(requirements, ["greeting"]))
    await shelf.begun.wait()
    waiting = asyncio.Event()

    async def wait_for_set() -> str:
        async with requirements.hold(["greeting"], progress=lambda line: waiting.set()) as name:
            return name

    second = asyncio.create_task(wait_for_set())
    await waiting.wait()

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    shelf.open.set()
    name = await second

    assert folders_in(tmp_path / "cache") == [name]
    assert len(shelf.wanted) == 2


async def test_sets_that_were_not_used_for_long_make_room(tmp_path: Path) -> None:
    """Four sets of 1 MiB fit beside the room of two that are made; one that is used stays."""
    requirements = Requirements(tmp_path / "cache", installer=Shelf(size=MEBIBYTE), bytes_max=8 * MEBIBYTE)
    async with requirements.hold(["a"]) as in_use:
        others = [await install_set(requirements, [name]) for name in "bcd"]
        for number, name in enumerate([in_use, *others]):
            os.utime(tmp_path / "cache" / f".{name}.lock", (number, number))

        last = await install_set(requirements, ["e"])

        assert folders_in(tmp_path / "cache") == sorted([in_use, *others[1:], last])


async def test_a_cache_that_is_full_of_sets_in_use_refuses(tmp_path: Path) -> None:
    requirements = Requirements(tmp_path / "cache", installer=Shelf(size=MEBIBYTE), bytes_max=MEBIBYTE)
    async with requirements.hold(["a"]):
        with pytest.raises(RequirementsFailed, match="in use take"):
            await install_set(requirements, ["b"])


async def test_what_a_process_left_that_died_is_removed(requirements: Requirements, tmp_path: Path) -> None:
    unfinished = tmp_path / "cache" / ".new-0123" / "work"
    unfinished.mkdir(parents=True)

    name = await install_set(requirements, ["greeting"])

    assert folders_in(tmp_path / "cache") == [name]


@pytest.mark.parametrize(
    "requirement",
    [
        "",
        "-e .",
        "--index-url=http://example.com",
        "./package",
        "/package",
        "git+https://example.com/x",
        "x @ https://example.com/x.whl",
        "x; os_name == 'posix'",
        "x==1\n--pre",
        "x y",
        "-r",
        "a" * 300,
    ],
)
async def test_what_is_no_name_is_refused(requirements: Requirements, shelf: Shelf, requirement: str) -> None:
    """Options, paths, addresses would have the installer do more than install."""
    with pytest.raises(RequirementsFailed, match="can't be used"):
        await install_set(requirements, [requirement])

    assert shelf.wanted == []


@pytest.mark.parametrize(
    "requirement", ["requests", "a.b-c_d", "x[extra,other]==1.2", "x >= 1, < 2", "x~=1.0", "x==1.*"]
)
async def test_names_with_versions_are_taken(requirements: Requirements, requirement: str) -> None:
    assert await install_set(requirements, [requirement])


def test_removing_goes_past_no_link(tmp_path: Path) -> None:
    """A link is removed, not what it leads to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x", encoding="utf-8")
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep" / "folder").symlink_to(outside)
    (inside / "deep" / "file").symlink_to(outside / "file")

    remove_tree(inside)

    assert not inside.exists()
    assert (outside / "file").read_text(encoding="utf-8") == "x"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["root", "user", "user without namespaces"])
def test_a_call_sees_its_own_set_and_no_other(kind: str) -> None:
    """Read-only, by import; what was installed for others is out of reach."""
    options = options_of(kind)
    folder = Path(tempfile.mkdtemp(prefix="perdure-requirements-"))
    folder.chmod(0o755)
    cage = Cage(cache=folder / "cache", **options)
    cage.sandbox._requirements = Requirements(folder / "cache", installer=Shelf())
    source = (
        "import os\ntry:\n    import greeting\nexcept ImportError:\n    found = None\n"
        "else:\n    found = greeting.WORD\n    try:\n        open(greeting.__file__, 'a')\n"
        "    except OSError:\n        found += ', read-only'\n"
        f"try:\n    others = os.listdir('/run/perdure/store')\nexcept OSError:\n    others = []\n"
        f"try:\n    others += os.listdir({str(folder / 'cache')!r})\nexcept OSError:\n    pass\n[found, others]"
    )
    try:
        cage.run("1", requirements=("other",))
        with_it = cage.run(source, requirements=("greeting",))
        without = cage.run(source)
    finally:
        cage.close()
        remove_tree(folder)

    assert (with_it.value, without.value) == (["hello, read-only", []], [None, []]), with_it


def folders_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


@pytest.mark.slow
@pytest.mark.parametrize("root", [True, False])
def test_a_package_may_nest_as_deep_as_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: bool) -> None:
    """It is taken over and removed all the same: else nothing could be installed beside it any more."""
    owned: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1_000)
    monkeypatch.setattr(os, "lchown", lambda path, uid, gid: owned.append(os.fspath(path)))
    deep = folder = tmp_path / "set"
    folder.mkdir()
    for _ in range(1_500):
        deep /= "d"
        deep.mkdir()
    (deep / "file").write_text("x")

    give_to_root(folder)
    size = tree_bytes(folder)
    remove_tree(folder)

    assert size == 1_501 * 4_096
    assert len(owned) == (1_502 if root else 0)
    assert not folder.exists()
