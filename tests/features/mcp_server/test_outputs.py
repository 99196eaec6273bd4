"""Large texts kept out of the window: stored, described, asked; and which files may be read."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import InvalidInput, NotFound, ToolError
from perdure.features.mcp_server import memory, outputs
from perdure.features.mcp_server.outputs import OUTPUT_BYTES, Outputs
from perdure.features.notes.folders import organisation_folder
from perdure.scratch import PREFIX
from perdure.testing import InlineStore
from tests.features.mcp_server.clients import all_below, connected, files_with, opened, refused, said
from tests.support.library import open_async, open_sync
from tests.support.programs import run_inside

LOG = "\n".join(f"line {number} status={'failed' if number % 7 == 0 else 'ok'}" for number in range(500))


async def test_a_text_is_described_and_asked_of_in_each_way(tmp_path: Path) -> None:
    table = '[{"name": "ann", "age": 31}, {"name": "bob", "age": 77}]'
    async with connected(tmp_path) as client:
        told = await said(client, "index_output", text=LOG, title="a\x1blog\nof jobs")
        await said(client, "index_output", text=table)
        grep = await said(client, "search_output", output="output:1", grep="line 49[0-3]")
        lines = await said(client, "search_output", output="output:1", lines="3..4")
        query = await said(client, "search_output", output="output:1", query="failed", budget_tokens=100)
        where = await said(client, "search_output", output="output:2", where="age>40")
        path = await said(client, "search_output", output="output:2", path="[0].name")
        listed = await said(client, "memory_list", kind="outputs")
        nothing = await refused(client, "search_output", output="output:1")
        unknown = await refused(client, "search_output", output="output:9", query="x")
        strange = await refused(client, "search_output", output="../../etc/passwd", query="x")
        neither = await refused(client, "index_output")
        empty = await refused(client, "index_output", text=" \n ")

    assert told.startswith("output:1 a log of jobs: 500 lines, ") and "line 499" in told and len(told) < 1_000
    assert "line 492" in grep and "line 494" not in grep and "line 2 " in lines and "line 9 " not in lines
    assert "line 7 status=failed" in query and len(query) < 600
    assert "bob" in where and "ann" not in where and "ann" in path
    assert listed.splitlines()[1] == "output:1 a log of jobs (500 lines)"
    assert "nothing is asked" in nothing and "not found" in unknown and "not found" in strange
    assert "either path" in neither and "empty" in empty


async def test_a_file_is_read_inside_the_project_and_further_roots_only(tmp_path: Path) -> None:
    """Links out of them, `..`, folders, pipes, devices and files of 30 MB are refused."""
    project, more, secret = tmp_path / "project", tmp_path / "more", tmp_path / "secret.txt"
    more.mkdir()
    project.mkdir()
    (project / "sub").mkdir()
    secret.write_text("the secret")
    (more / "b.txt").write_text("of a further root")
    (project / "a.txt").write_bytes(b"caf\xe9 and more")
    (project / "link.txt").symlink_to(secret)
    (project / "inside.txt").symlink_to(project / "a.txt")
    (project / "loop").symlink_to(project / "loop")
    (project / "null").symlink_to("/dev/zero")
    os.mkfifo(project / "pipe")
    with (project / "large").open("wb") as large:
        large.truncate(30_000_000)
    async with connected(tmp_path, roots=[more]) as client:
        read = [
            await said(client, "index_output", path=path)
            for path in ("a.txt", str(project / "a.txt"), "sub/../a.txt", "inside.txt", str(more / "b.txt"))
        ]
        errors = {
            path: await refused(client, "index_output", path=path)
            for path in (
                *("link.txt", "../secret.txt", str(secret), "/dev/zero", "null", "loop", "pipe", "large", "sub", "."),
                *("none", "a.txt/x", "x\x00y", "~/x", "x" * 5_000),
            )
        }
        stored = await said(client, "memory_list", kind="outputs")

    assert "caf\ufffd and more" in read[0] and "of a further root" in read[4]
    assert len(stored.splitlines()) == 5 and not any("the secret" in error for error in errors.values())
    for path in ("link.txt", "../secret.txt", str(secret), "/dev/zero", "null"):
        assert "outside the allowed folders" in errors[path] and "--root" in errors[path]
    assert "is not a regular file" in errors["pipe"] and "Is a directory" in errors["sub"]
    assert "30,000,000 bytes" in errors["large"]
    assert all(len(error) < 700 for error in errors.values())


@pytest.mark.parametrize("swapped", ["sub/a.txt", "sub"])
def test_a_link_that_takes_a_files_place_while_it_is_opened_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    for folder in (project / "sub", outside):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text(f"of {folder.name}")
    open_file = os.open

    def swap_first(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not (project / "old").exists():
            (project / swapped).rename(project / "old")
            (project / swapped).symlink_to(outside / swapped.removeprefix("sub").removeprefix("/"))
        return open_file(path, flags, mode, dir_fd=dir_fd)

    assert outputs.read_file("sub/a.txt", [project]) == "of sub"
    monkeypatch.setattr(os, "open", swap_first)
    with pytest.raises(InvalidInput, match="can't be read"):
        outputs.read_file("sub/a.txt", [project])


def test_a_folder_that_is_asked_for_leaves_no_descriptor_open(tmp_path: Path) -> None:
    descriptors = Path("/dev/fd")
    before = len(list(descriptors.iterdir()))
    for path in (".", "sub"):
        (tmp_path / "sub").mkdir(exist_ok=True)
        with pytest.raises(InvalidInput, match="Is a directory"):
            outputs.read_file(path, [tmp_path])

    assert len(list(descriptors.iterdir())) == before


async def test_outputs_belong_to_one_project(tmp_path: Path) -> None:
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        async with opened(perdure, tmp_path / "one") as client:
            await said(client, "index_output", text="of one")
        async with opened(perdure, tmp_path / "two") as client:
            other = await refused(client, "search_output", output="output:1", query="one")
        async with opened(perdure, tmp_path / "one") as client:
            own = await said(client, "search_output", output="output:1", query="one")

    assert "not found" in other and "of one" in own


async def test_an_agent_by_name_and_by_id_has_the_same_outputs(tmp_path: Path) -> None:
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        ann = await perdure.create_agent("ann")
        async with opened(perdure, None, agent="ann") as client:
            await said(client, "index_output", text="of ann")
        async with opened(perdure, None, agent=ann.id) as client:
            assert "of ann" in await said(client, "search_output", output="output:1", query="ann")


async def test_outputs_belong_to_one_store(tmp_path: Path) -> None:
    """Also where several stores have one data folder."""
    (tmp_path / "project").mkdir()
    for name in ("a.db", "b.db"):
        async with await open_async(tmp_path / name) as perdure, opened(perdure, tmp_path / "project") as client:
            assert await said(client, "memory_list", kind="outputs") == "No output is indexed."
            await said(client, "index_output", text="x")
            await said(client, "track", files=["a.py"])
            assert "1 edit in 1 file" not in await said(client, "track", files=["a.py"])


async def test_outputs_go_with_their_agent(tmp_path: Path, home: Path) -> None:
    """The agent that is made anew has none."""
    (tmp_path / "project").mkdir()
    async with await open_async(tmp_path / "a.db") as perdure, opened(perdure, tmp_path / "project") as client:
        await said(client, "index_output", text="the secret")
        for agent in await perdure.agents():
            await perdure.delete_agent(agent.id)
        left = files_with(home, "secret")
        error = await refused(client, "search_output", output="output:1", query="secret")

    assert left == [] and "not found" in error


@pytest.mark.uses("origins")
async def test_what_was_forgotten_is_hidden_in_outputs_until_it_is_undone(tmp_path: Path) -> None:
    """And an output that is stored later says it again."""
    (tmp_path / "project").mkdir()
    async with await open_async(tmp_path / "a.db") as perdure, opened(perdure, tmp_path / "project") as client:
        await said(client, "memory_remember", text="The name of the cat is Mimosa.")
        await said(client, "index_output", text="a log\nmimosa failed", title="of Mimosa")
        (agent,) = await perdure.agents()
        await agent.forget("Mimosa")
        await said(client, "index_output", text="Mimosa again")
        hidden = await said(client, "search_output", output="output:1", lines="1..2")
        listed = await said(client, "memory_list", kind="outputs")
        later = await said(client, "search_output", output="output:2", query="again")
        await agent.undo()
        shown = await said(client, "search_output", output="output:1", lines="1..2")

    assert "[redacted] failed" in hidden and "of [redacted]" in listed
    assert "Mimosa again" in later and "mimosa failed" in shown


@pytest.mark.uses("origins")
async def test_what_was_erased_is_erased_from_outputs(tmp_path: Path, home: Path) -> None:
    """The rest of them stays, under the same handles."""
    (tmp_path / "project").mkdir()
    async with await open_async(tmp_path / "a.db") as perdure, opened(perdure, tmp_path / "project") as client:
        await said(client, "memory_remember", text="The name of the cat is Mimosa.")
        await said(client, "index_output", text="another log")
        await said(client, "index_output", text="a log\nmimosa failed", title="of Mimosa")
        (agent,) = await perdure.agents()
        await agent.forget("Mimosa", erase=True)
        new = await said(client, "index_output", text="a third log")
        rest = await said(client, "search_output", output="output:2", lines="1..2")

    assert "a log" in rest and "[redacted] failed" in rest and new.startswith("output:3")
    assert files_with(home, "imosa") == []


@pytest.mark.uses("origins")
def test_forgetting_says_that_outputs_are_not_searched(home: Path) -> None:
    """Where the agent keeps some; one of another agent is none of its."""
    home.mkdir()
    with open_sync(home / "perdure.db") as perdure:
        agent, _ = perdure.create_agent("ann", human="Mimosa"), perdure.create_agent("bob", human="Mimosa")
        Outputs(organisation_folder(store=home / "perdure.db") / agent.id).store("a log", "")
    said_of = {name: run_inside(home, "forget", "Mimosa", name).stdout for name in ("ann", "bob")}

    assert "1 kept output of index_output may have it too and is not searched" in " ".join(said_of["ann"].split())
    assert "index_output" not in said_of["bob"]


@pytest.mark.uses("origins")
async def test_what_was_forgotten_stays_hidden_in_an_output_of_which_a_part_is_erased(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    async with await open_async(tmp_path / "a.db") as perdure, opened(perdure, tmp_path / "project") as client:
        await said(client, "memory_remember", text="The cats are Mimosa and Minka.")
        await said(client, "index_output", text="a log\nmimosa and minka failed")
        (agent,) = await perdure.agents()
        await agent.forget("Minka")
        await agent.forget("Mimosa", erase=True)
        rest = await said(client, "search_output", output="output:1", lines="1..2")

    assert "[redacted] and [redacted] failed" in rest


async def test_only_the_user_reads_what_is_stored(tmp_path: Path, home: Path) -> None:
    """Also where the data folder is open to others, as is the mask of new files."""
    (tmp_path / "home").mkdir(mode=0o755)
    mask = os.umask(0o022)
    try:
        async with connected(tmp_path) as client:
            await said(client, "index_output", text="x")
            await said(client, "track", files=["a.py"])
    finally:
        os.umask(mask)
    found = all_below(home)

    assert {"1", "edits.jsonl"} <= {one.name for one in found}
    assert [one for one in found if one.stat().st_mode & 0o077] == []


def test_a_text_comes_back_byte_for_byte(tmp_path: Path) -> None:
    kept, text = Outputs(tmp_path), "one\r\ntwo\rthree\n\n\x0bé"
    stored = kept.store(text, "")

    assert kept.text(stored.handle) == text
    assert [one.chars for one in kept.list(1)] == [len(text)]


async def test_patterns_find_the_ends_of_lines_that_windows_wrote(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await said(client, "index_output", text="one ok\r\ntwo failed\r\nthree ok")
        assert "two failed" in await said(client, "search_output", output="output:1", grep="failed$")


def test_several_processes_delete_the_oldest_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that another one has just deleted is no error."""
    monkeypatch.setattr(outputs, "OUTPUTS_MAX", 1)
    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(lambda number: Outputs(tmp_path).store(f"text {number}", ""), range(200)))

    assert len(stored) == 200


async def test_calls_beyond_those_that_may_wait_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number, or by the size of their arguments; the others are answered."""
    monkeypatch.setattr(memory, "CALLS_WAITING", 3)
    monkeypatch.setattr(memory, "CHARS_WAITING", 1_000)
    async with connected(tmp_path) as client:
        answers: list[Any] = await asyncio.gather(
            *(client.call_tool("index_output", {"text": "x" * size}) for size in (600, 600, 1, 1, 1))
        )
        again = await said(client, "index_output", text="y")

    assert [one.is_error for one in answers] == [False, True, False, False, True]
    assert "wait for answers" in answers[1].content[0].text and again


def test_the_oldest_outputs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number, and by their size together; the newest stays, and numbers are not used again."""
    monkeypatch.setattr(outputs, "OUTPUTS_MAX", 3)
    kept = Outputs(tmp_path)
    for number in range(5):
        kept.store(f"text {number}", "")
    by_number = [one.handle for one in kept.list(10)]
    monkeypatch.setattr(outputs, "OUTPUTS_BYTES", 1_000)
    kept.store("x" * 2_000, "")
    by_size = [one.handle for one in kept.list(10)]

    assert by_number == ["output:5", "output:4", "output:3"] and by_size == ["output:6"]
    assert kept.text("output:6") == "x" * 2_000


def test_nothing_is_left_of_what_could_not_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what a killed process left goes with the next one."""
    kept = Outputs(tmp_path)
    kept.store("one", "")
    left = tmp_path / "outputs" / f"{PREFIX}output-old"
    left.mkdir()
    (left / "text").write_text("half")
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", _no_space)
        with pytest.raises(ToolError, match="can't be stored"):
            kept.store("two", "")
    with pytest.raises(InvalidInput, match="20,000,000"):
        kept.store("x" * (OUTPUT_BYTES + 1), "")
    kept.store("three", "")

    assert sorted(file.name for file in (tmp_path / "outputs").iterdir()) == ["1", "2"]
    assert kept.text("2") == "three"


def _no_space(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_two_processes_never_share_a_number(tmp_path: Path) -> None:
    """The one that comes second takes the next."""
    first, second = Outputs(tmp_path), Outputs(tmp_path)
    handles = [store.store(f"text {number}", "").handle for number in range(3) for store in (first, second)]
    with pytest.raises(NotFound):
        first.text("output:7")

    assert handles == [f"output:{number}" for number in range(1, 7)]


async def test_a_pattern_that_takes_for_ever_ends(tmp_path: Path) -> None:
    """And others are answered meanwhile."""
    async with connected(tmp_path) as client:
        text = "x" * 400_000 + "!"
        await said(client, "index_output", text=text)
        slow = asyncio.create_task(refused(client, "search_output", output="output:1", grep="(x+x+)+y"))
        await asyncio.sleep(0.1)
        assert "output:1" in await said(client, "memory_list", kind="outputs")

        assert "takes too long" in await slow
        assert "nothing matches" not in await said(client, "search_output", output="output:1", grep="x!$")
