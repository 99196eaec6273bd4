"""Folders of files: taken in, made text in the background, read by agents, kept through a kill."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import AlreadyExists, File, Folder, InvalidInput, ModelRequest, NotFound, Perdure, StoreFull
from perdure.core.errors import FileEncodingInvalid, FileNameInvalid, FileTooLarge, FileTypeUnsupported
from perdure.core.messages import ToolResult
from perdure.core.passages import PassageFilter
from perdure.storage.tx import Tx
from perdure.testing import ScriptedModel, calls, says
from tests.support.library import MODEL, open_async, open_sync
from tests.support.warm import KILL, killed, warm

PLAN = "".join(f"line {number} of the plan\n" for number in range(1, 41))
WAIT_S = 30.0


def reading(folder: Folder, *ids: Any) -> list[File]:
    return list(folder.wait(timeout_s=WAIT_S))


def results(perdure: Perdure, reply: Any) -> list[ToolResult]:
    assert reply.stop_reason == "end_turn"
    return [result for message in reply.messages for result in message.results]


def open_library(path: Path, *script: Any) -> tuple[Perdure, ScriptedModel]:
    model = ScriptedModel(*script)
    return Perdure(path / "agents.db", models={MODEL: model}, settings=_settings()), model


def _settings() -> Any:
    from dataclasses import replace

    from perdure import Settings

    return replace(Settings(), model=MODEL, embedding="none")


def until(check: Callable[[], Any]) -> Any:
    """What the check gives once it is true."""
    end = time.monotonic() + WAIT_S
    while not (found := check()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)
    return found


# -- taking files in ---------------------------------------------------------------------------------------------------


def test_an_upload_becomes_lines(tmp_path: Path) -> None:
    """From a path, bytes or an open file; what is known of it is told, and any of its lines can be read."""
    path = tmp_path / "plan.md"
    path.write_text(PLAN)
    with open_sync(tmp_path / "agents.db") as perdure, path.open("rb") as binary:
        folder = perdure.folders.create("docs", description="plans")
        taken = [
            folder.upload(path),
            folder.upload(PLAN.encode(), name="src/b.py"),
            folder.upload(binary, name="c.txt"),
        ]
        assert [file.status for file in taken] == ["pending"] * 3
        read = reading(folder)

        assert [(file.name, file.status, file.kind) for file in read] == [
            ("plan.md", "completed", "markdown"),
            ("src/b.py", "completed", "code"),
            ("c.txt", "completed", "text"),
        ]
        first = folder.file("plan.md")
        assert (first.line_count, first.char_count, first.size_bytes) == (40, len(PLAN), len(PLAN))
        assert first.done == first.total
        assert first.chunk_count > 0
        assert (first.original_name, first.media_type) == ("plan.md", "text/markdown")
        assert folder.text("plan.md") == PLAN
        assert folder.text(first.id, first_line=39, last_line=99) == "line 39 of the plan\nline 40 of the plan"
        assert [file.name for file in folder.files(limit=1, after=first.id)] == ["src/b.py"]


@pytest.mark.parametrize("text", ["", "\n", "x", "x\n", "a\n\nb", "\U0001f9ed" * 200_000, "y\n" * 100_000])
def test_text_of_every_shape_comes_back(tmp_path: Path, text: str) -> None:
    """Empty, one long line, many short ones."""
    with open_sync(tmp_path / "agents.db") as perdure:
        folder = perdure.folders.create("docs")
        file = folder.upload(text.encode(), name="a.txt")
        (read,) = folder.wait([file.id], timeout_s=WAIT_S)
        assert read.status == "completed", read.problem
        assert folder.text(file.id) == text
        lines = text.split("\n")
        assert folder.text(file.id, first_line=len(lines) - 1, last_line=len(lines)) == "\n".join(
            lines[max(0, len(lines) - 2) :]
        ).removesuffix("\n")


def test_one_bad_file_among_good_ones(tmp_path: Path) -> None:
    """It fails with its reason, the others go on."""
    with open_sync(tmp_path / "agents.db") as perdure:
        folder = perdure.folders.create("docs")
        folder.upload(b"good\n", name="1.txt")
        folder.upload(b"%PDF-1.7 torn", name="2.pdf")
        folder.upload(b"\x89PNG\r\n\x1a\n", name="3.md")
        folder.upload(b"good too\n", name="4.txt")
        files = {file.name: file for file in reading(folder)}

        assert [file.status for file in files.values()] == ["completed", "error", "error", "completed"]
        assert files["2.pdf"].problem
        assert "PNG" in files["3.md"].problem
        with pytest.raises(InvalidInput, match="can't be opened"):
            agent = perdure.create_agent()
            agent.files.attach("docs")
            agent.files.open("2.pdf")


def test_what_can_not_be_taken_is_refused_at_once(tmp_path: Path) -> None:
    """Each with what is wrong; nothing of it is kept."""
    with open_sync(tmp_path / "agents.db", file_limit_bytes=1_000) as perdure:
        folder = perdure.folders.create("docs")
        for name, data, error in (
            ("../secrets.txt", b"x", FileNameInvalid),
            ("/etc/passwd", b"x", FileNameInvalid),
            ("a\x00.txt", b"x", FileNameInvalid),
            ("", b"x", FileNameInvalid),
            (None, b"x", FileNameInvalid),
            ("a.png", b"x", FileTypeUnsupported),
            ("a.zip", b"PK\x03\x04", FileTypeUnsupported),
            ("a.txt", b"x" * 1_001, FileTooLarge),
        ):
            with pytest.raises(error):
                folder.upload(data, name=name)
        for source in (tmp_path / "none.txt", tmp_path, 7, "a\x00b"):
            with pytest.raises(InvalidInput):
                folder.upload(source, name="a.txt")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            folder.upload(b"x", name="a.txt", if_exists="maybe")  # type: ignore[arg-type]
        assert folder.files() == []


def test_a_text_is_read_again_in_the_encoding_that_is_chosen(tmp_path: Path) -> None:
    """It takes the place of the one whose encoding was guessed, and has no warning."""
    perdure, _ = open_library(tmp_path)
    with perdure:
        folder = perdure.folders.create("docs")
        data = "Zażółć gęślą jaźń".encode("cp1250")
        guessed, *_ = reading(folder, folder.upload(data, name="a.txt").id)
        folder.upload(data, name="a.txt", encoding="latin-1")
        folder.wait()
        wrong = folder.text("a.txt")
        chosen, *_ = reading(folder, folder.upload(data, name="a.txt", encoding="Windows-1250").id)

        assert "guessed" in guessed.warnings[0] and "`encoding`" in guessed.warnings[0]
        assert wrong.startswith("Za¿ó³æ")
        assert (folder.text("a.txt"), chosen.warnings) == ("Zażółć gęślą jaźń", ())
        assert [file.name for file in folder.files()] == ["a.txt"]


@pytest.mark.parametrize(
    ("name", "data", "encoding", "problem"),
    [
        ("a.txt", b"x", "gb1830", "no encoding of files is called so"),
        ("a.txt", b"x", "rot13", "no encoding of files is called so"),
        ("a.txt", b"x", "a\0b", "no encoding of files is called so"),
        ("a.txt", b"x\x81", "gb18030", "bytes that are not in it"),
        ("a.txt", b"xyz", "utf-16-le", "bytes that are not in it"),
        ("a.pdf", b"%PDF-1.4", "latin-1", "is not a text file"),
    ],
)
def test_an_encoding_that_can_not_be_used_says_why(
    tmp_path: Path, name: str, data: bytes, encoding: str, problem: str
) -> None:
    """And which there are; nothing is stored."""
    perdure, _ = open_library(tmp_path)
    with perdure:
        folder = perdure.folders.create("docs")
        with pytest.raises(FileEncodingInvalid, match=rf"{problem}.*such as gb18030, big5"):
            folder.upload(data, name=name, encoding=encoding)

        assert not folder.files()


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    """Kept, refused, told apart by a suffix, or replaced; a file with the same bytes is not made anew."""
    with open_sync(tmp_path / "agents.db") as perdure:
        folder = perdure.folders.create("docs")
        first = folder.upload(b"one walrus\n", name="a/b.txt")
        reading(folder)
        assert folder.upload(b"two\n", name="a/b.txt", if_exists="skip").id == first.id
        with pytest.raises(AlreadyExists):
            folder.upload(b"two\n", name="a/b.txt", if_exists="error")
        assert folder.upload(b"two\n", name="a/b.txt", if_exists="suffix").name == "a/b_(1).txt"
        assert folder.upload(b"two\n", name="a/b.txt", if_exists="suffix").name == "a/b_(2).txt"
        assert folder.upload(b"one walrus\n", name="a/b.txt").id == first.id

        other = folder.upload(b"one penguin\n", name="a/b.txt")
        assert other.id != first.id
        reading(folder)
        assert folder.text("a/b.txt") == "one penguin\n"
        with pytest.raises(NotFound):
            folder.file(first.id)
        until(lambda: passages(perdure, folder) == ["one penguin", "two", "two"])


def passages(perdure: Perdure, folder: Folder) -> list[str]:
    """What is found of the folder's files, sorted."""

    def texts(tx: Tx) -> list[str]:
        return sorted(one.text for one in tx.passages.page(folder.info.archive_id, where=PassageFilter(), limit=10_000))

    inner = perdure._inner  # the store, which the plain face doesn't show
    return perdure._portal.run(inner.app.store.read(texts))


def test_deleted_files_and_folders_leave_nothing(tmp_path: Path) -> None:
    """Neither what they said, nor the folder on any agent, nor the tools."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        folder = perdure.folders.create("docs")
        for number in range(5):
            folder.upload(f"about {number}\n".encode(), name=f"{number}.txt")
        reading(folder)
        agent.files.attach("docs")
        assert {"open_files", "grep_files", "semantic_search_files"} <= {tool.spec.name for tool in agent.tools.list()}
        folder.delete_file("3.txt")
        until(lambda: len(passages(perdure, folder)) == 4)
        assert [file.name for file in folder.files()] == ["0.txt", "1.txt", "2.txt", "4.txt"]

        perdure.folders.delete(folder.id)
        assert perdure.folders.list() == []
        assert agent.files.folders() == []
        assert "open_files" not in [tool.spec.name for tool in agent.tools.list()]
        with pytest.raises(NotFound):
            folder.files()
        with pytest.raises(NotFound):
            perdure.folders.get("docs")


def test_a_folder_is_deleted_after_the_last_row_of_its_files(tmp_path: Path) -> None:
    """Also of files that have no passages, because nothing has read them yet or there is nothing in them."""
    with open_sync(tmp_path / "agents.db") as perdure:
        for number in range(6):
            folder = perdure.folders.create(f"docs {number}")
            for name in ("a.txt", "b.txt"):
                folder.upload(b"" if number % 2 else b"a secret", name=name)
            perdure.folders.delete(folder.id)
    with sqlite3.connect(tmp_path / "agents.db") as database:
        for table in ("files", "file_uploads", "file_parts", "folders", "archives"):
            assert database.execute(f"SELECT COUNT(*) FROM {table}").fetchone() == (0,), table


def test_files_whose_folder_an_earlier_version_removed_are_removed_too(tmp_path: Path) -> None:
    with open_sync(tmp_path / "agents.db") as perdure:
        folder = perdure.folders.create("docs")
        folder.upload(b"a secret", name="a.txt")
        reading(folder)
    with sqlite3.connect(tmp_path / "agents.db") as database:
        database.execute("UPDATE files SET status = 'deleted'")
        database.execute("DELETE FROM folders")

    def texts() -> int:
        with sqlite3.connect(tmp_path / "agents.db") as database:
            return int(database.execute("SELECT COUNT(*) FROM file_parts").fetchone()[0])

    assert texts()
    with open_sync(tmp_path / "agents.db"):
        until(lambda: not texts())


@pytest.mark.parametrize("name", ["", "  ", "a/b", "x" * 201, "a\nb", 7])
def test_folder_names(tmp_path: Path, name: Any) -> None:
    """What would not stand in a path is refused; a name is one folder's own."""
    with open_sync(tmp_path / "agents.db") as perdure:
        with pytest.raises(InvalidInput):
            perdure.folders.create(name)
        one = perdure.folders.create("Ada's plans (2026) 🧭")
        with pytest.raises(AlreadyExists):
            perdure.folders.create(one.name)
        changed = one.update(name="plans", description="d", instructions="i", metadata={"a": 1})
        assert (changed.info.name, changed.info.metadata) == ("plans", {"a": 1})
        with pytest.raises(InvalidInput):
            one.update(kind="x")  # type: ignore[call-arg]


def test_the_same_bytes_are_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their text is taken from the file that has it."""
    from perdure.features.files.converters import convert

    asked: list[str] = []
    inner = convert.convert_file

    async def counted(name: str, file: Any, **more: Any) -> Any:
        asked.append(name)
        return await inner(name, file, **more)

    monkeypatch.setattr(convert, "convert_file", counted)
    with open_sync(tmp_path / "agents.db") as perdure:
        one, two = perdure.folders.create("one"), perdure.folders.create("two")
        one.upload(PLAN.encode(), name="plan.md")
        reading(one)
        two.upload(PLAN.encode(), name="other.md")
        two.upload(PLAN.encode(), name="as.txt")
        reading(two)
        assert asked == ["plan.md", "as.txt"]
        assert two.text("other.md") == PLAN
        assert two.file("other.md").line_count == 40
        assert passages(perdure, two)[0] in passages(perdure, one)


async def test_a_full_disk_is_told_to_whoever_waits_and_the_file_is_read_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it was tried meanwhile: that there was no room is not the file's fault."""
    async with await open_async(tmp_path / "agents.db", lease_s=1) as perdure:
        store, tried, often = perdure.app.store, 0, asyncio.Event()
        write = store.write

        async def full(work: Any, *args: Any, **more: Any) -> Any:
            nonlocal tried
            if work.__name__ == "_put_parts":
                tried += 1
                if tried > 5:
                    often.set()
                raise StoreFull("the disk is full")
            return await write(work, *args, **more)

        monkeypatch.setattr(store, "write", full)
        folder = await perdure.folders.create("plans")
        file = await folder.upload(PLAN.encode(), name="plan.txt")
        with pytest.raises(StoreFull, match="the disk is full"):
            await folder.wait([file.id], timeout_s=WAIT_S)
        await asyncio.wait_for(often.wait(), WAIT_S)
        monkeypatch.undo()

        (read,) = await folder.wait([file.id], timeout_s=WAIT_S)
        assert (read.status, read.line_count, read.tries) == ("completed", 40, 1)


# -- what survives -----------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys, threading, time
from perdure import Perdure
from perdure.features.files.converters import convert
inner = convert.convert_file
async def hang(name, file, **more):
    if name == "2.txt":
        print("reading", flush=True)
        time.sleep(60)
    return await inner(name, file, **more)
convert.convert_file = hang
perdure = Perdure(sys.argv[1])
folder = perdure.folders.create("docs")
for number in range(1, 5):
    folder.upload((f"about {number}\\n" * 5_000).encode(), name=f"{number}.txt")
    print("taken", number, flush=True)
time.sleep(60)
"""


def test_a_kill_loses_no_upload(tmp_path: Path) -> None:
    """What was acknowledged is there; what was half-read is read by the next process, once."""
    store = tmp_path / "agents.db"
    program = tmp_path / "killed.py"
    program.write_text(KILLED, "utf-8")
    child = subprocess.Popen([warm(str(program), os.environ), store], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    taken = 0
    for line in child.stdout:
        taken += line.startswith("taken")
        if line.startswith("reading"):
            break
    child.send_signal(KILL)
    child.communicate()
    assert killed(child.returncode) == -9
    with open_sync(store) as perdure:
        folder = perdure.folders.get("docs")
        files = reading(folder)
        assert [file.name for file in files][:taken] == ["1.txt", "2.txt", "3.txt", "4.txt"][:taken]
        assert all(file.status == "completed" for file in files)
        counted = {file.id: file.chunk_count for file in files}
        found: dict[str, int] = dict.fromkeys(counted, 0)

        def count(tx: Tx) -> None:
            for one in tx.passages.page(folder.info.archive_id, limit=100_000):
                found[one.source["file_id"]] += 1

        perdure._portal.run(perdure._inner.app.store.read(count))
        assert found == counted


# -- what agents see ---------------------------------------------------------------------------------------------------


def system(request: ModelRequest) -> str:
    return request.system


def deltas(request: ModelRequest) -> list[dict[str, Any]]:
    """The delta messages about folders and files in a request, without the marker."""
    shapes = [json.loads(message.text) for message in request.messages if message.kind == "memory_delta"]
    return [
        {name: value for name, value in shape.items() if name != "marker"}
        for shape in shapes
        if shape["type"] in ("file_delta", "folder_delta")
    ]


def test_an_agent_reads_lines_and_says_which(tmp_path: Path) -> None:
    """Every result names file and lines; what was opened stays open; sent bytes stay sent."""
    perdure, model = open_library(
        tmp_path,
        calls("semantic_search_files", query="line 17"),
        calls("grep_files", pattern="line 1[78]", include="*.md"),
        calls("open_files", file_requests=[{"file_name": "plan.md", "offset": 16, "length": 2}]),
        says("It says so."),
    )
    with perdure:
        folder = perdure.folders.create("docs")
        folder.upload(PLAN.encode(), name="plan.md")
        folder.upload(b"other\n", name="other.txt")
        reading(folder)
        agent = perdure.create_agent()
        agent.files.attach("docs", open_files=False)
        search, grep, read = results(perdure, agent.send("What is on line 17?"))

        assert search.text.startswith("docs/plan.md: lines 1-40")
        assert "docs/plan.md:17\n16| line 16 of the plan\n17> line 17 of the plan\n18| " in grep.text
        assert grep.text.endswith("[1 file searched]")
        assert read.text == "docs/plan.md: lines 17-18 of 40\n17: line 17 of the plan\n18: line 18 of the plan"
        (file,) = agent.files.list(is_open=True)
        assert (file.path, file.first_line, file.last_line) == ("docs/plan.md", 17, 18)

        agent.send("And?")
        first, last = model.requests[0], model.requests[-1]
        assert first.system == last.system
        assert '<file status="closed" name="docs/plan.md" lines="40"/>' in first.system
        assert last.messages[: len(first.messages)] == first.messages
        assert deltas(last) == []
        assert "[Viewing lines 17 to 18 (out of 40 lines)]" not in last.system
        # Written anew for another reason, the section shows the lines.
        agent.update(description="other", system="Be kind.")
        agent.send("Again?")
        assert "[Viewing lines 17 to 18 (out of 40 lines)]\n17: line 17 of the plan" in model.requests[-1].system
        assert deltas(model.requests[-1]) == []


def test_what_others_open_is_told_by_a_small_message(tmp_path: Path) -> None:
    """Also what they close, delete or add; nothing that was sent changes."""
    perdure, model = open_library(tmp_path)
    with perdure:
        folder = perdure.folders.create("docs", instructions="Read before you answer.")
        folder.upload(PLAN.encode() * 100, name="plan.md")
        reading(folder)
        agent = perdure.create_agent()
        agent.files.attach("docs", open_files=False)
        agent.send("1")
        agent.files.open("plan.md", first_line=5)
        agent.send("2")
        (delta,) = deltas(model.requests[-1])
        assert (delta["type"], delta["op"], delta["file"]) == ("file_delta", "opened", "docs/plan.md")
        assert "5: line 5 of the plan" in delta["text"]
        assert "[cut: it is open up to line" in delta["text"]
        assert len(delta["text"]) < 2_000
        agent.files.close("docs/plan.md")
        agent.send("3")
        assert deltas(model.requests[-1])[1:] == [{"type": "file_delta", "file": "plan.md", "op": "closed"}]
        folder.upload(b"new\n", name="new.txt")
        reading(folder)
        agent.send("4")
        delta = deltas(model.requests[-1])[-1]
        assert delta == {
            "type": "folder_delta",
            "folder": "docs",
            "op": "changed",
            "files": 2,
            "newest": ["new.txt", "plan.md"],
        }
        assert {request.system for request in model.requests} == {model.requests[0].system}
        assert "Read before you answer." in model.requests[0].system


def test_files_of_a_new_folder_are_opened_where_there_is_room(tmp_path: Path) -> None:
    """From the first, as many as may be open; later ones too; none is closed for it."""
    perdure, model = open_library(tmp_path)
    with perdure:
        folder = perdure.folders.create("docs")
        for number in range(4):
            folder.upload(f"about {number}\n".encode(), name=f"{number}.txt")
        reading(folder)
        agent = perdure.create_agent(settings={"max_files_open": 3})
        agent.files.attach("docs")
        assert [file.file.name for file in agent.files.list(is_open=True)] == ["0.txt", "1.txt", "2.txt"]
        agent.send("1")
        assert "[Viewing file start (out of 1 lines)]\n1: about 0" in model.requests[-1].system
        agent.files.close("1.txt")
        folder.upload(b"late\n", name="late.txt")
        reading(folder)
        until(lambda: "late.txt" in [file.file.name for file in agent.files.list(is_open=True)])


def test_the_one_used_longest_ago_is_closed_first(tmp_path: Path) -> None:
    """And the agent is told; asked for more than may be open, it is refused."""

    def ask(*numbers: int, **more: Any) -> Any:
        return calls("open_files", file_requests=[{"file_name": f"{number}.txt"} for number in numbers], **more)

    perdure, model = open_library(
        tmp_path,
        ask(0),
        ask(1),
        ask(0),
        ask(2),
        ask(0, 1, 2),
        ask(1, close_all_others=True),
        ask(close_all_others=True),
    )
    with perdure:
        folder = perdure.folders.create("docs")
        for number in range(3):
            folder.upload(f"about {number}\n".encode(), name=f"{number}.txt")
        reading(folder)
        agent = perdure.create_agent(settings={"max_files_open": 2})
        agent.files.attach("docs", open_files=False)
        found = [result.text for result in results(perdure, agent.send("go"))]
        assert found[3].endswith("[closed: docs/1.txt]")
        assert "the limit is 2" in found[4]
        assert found[5].endswith("[closed: docs/2.txt, docs/0.txt]")
        assert found[6] == "[closed: docs/1.txt]"
        assert agent.files.list(is_open=True) == []
        agent.send("more")
        assert deltas(model.requests[-1]) == []


@pytest.mark.slow
def test_the_section_never_takes_more_than_its_share(tmp_path: Path) -> None:
    """Of small windows too, whatever is open: what has no room is said to be open only."""
    from perdure.context.sections.tokens import ScriptTokenCounter
    from perdure.context.window.budget import directories_section

    perdure, model = open_library(tmp_path)
    with perdure:
        for name in ("docs", "more"):
            folder = perdure.folders.create(name, description="d" * 3_000)
            for number in range(55):
                folder.upload(PLAN.encode() * (8 if number < 8 else 1), name=f"{number}.txt")
            reading(folder)
        for window in (8_000, 32_000, 128_000):
            agent = perdure.create_agent(settings={"context_window_tokens": window, "max_files_open": 8})
            for name in ("docs", "more"):
                agent.files.attach(name, open_files=False)
            for number in range(8):
                agent.files.open(f"docs/{number}.txt")
            agent.send("hello")
            section = directories_section(model.requests[-1].system)
            assert section.endswith("</directories>")
            assert 0 < ScriptTokenCounter().count(section) <= window / 4
            assert "files" in {part.name for part in agent.context().parts}


def test_a_long_file_leaves_room_for_those_behind_it(tmp_path: Path) -> None:
    """Of those that are opened unasked."""
    with open_sync(tmp_path / "agents.db") as perdure:
        docs = perdure.folders.create("docs")
        docs.upload(("a line of a long file\n" * 20_000).encode(), name="long.txt")
        for name in ("b.txt", "c.txt"):
            docs.upload(b"short\n", name=name)
        reading(docs)
        agent = perdure.create_agent("ann")

        agent.files.attach("docs")
        open_library = {file.file.name: file.last_line for file in agent.files.list(is_open=True)}
        assert (open_library["b.txt"], open_library["c.txt"]) == (1, 1)
        assert 100 < open_library["long.txt"] < 2_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "says_so"),
    [
        ("open_files", {"file_requests": [{"file_name": "none.txt"}]}, "not found: there are docs/a/x.py, docs/b/x.py"),
        (
            "open_files",
            {"file_requests": [{"file_name": "docs/xx.py"}]},
            "not found: is it docs/a/x.py or docs/b/x.py?",
        ),
        ("open_files", {"file_requests": [{"file_name": "x.py"}]}, "may be docs/a/x.py, docs/b/x.py"),
        ("open_files", {"file_requests": [{"file_name": "a/x.py", "offset": 99}]}, "has 40 lines"),
        ("open_files", {"file_requests": [{"file_name": "a/x.py", "offset": -1}]}, "offset=-1"),
        ("open_files", {"file_requests": []}, "file_requests is empty"),
        ("open_files", {"file_requests": [{"file_name": "torn.pdf"}]}, "can't be read"),
        ("grep_files", {"pattern": "("}, "not a regular expression"),
        ("grep_files", {"pattern": "(a+)+$"}, "time limit"),
        ("grep_files", {"pattern": "x", "context_lines": 99}, "context_lines=99"),
        ("grep_files", {"pattern": "x", "offset": -1}, "offset=-1"),
        ("semantic_search_files", {"query": " "}, "query is empty"),
    ],
)
def test_what_tools_refuse(tmp_path: Path, name: str, arguments: dict[str, Any], says_so: str) -> None:
    """With what helps; a pattern that would take for ever is stopped within a second."""
    perdure, _ = open_library(tmp_path, calls(name, **arguments))
    with perdure:
        folder = perdure.folders.create("docs")
        folder.upload(
            PLAN.encode() + b"a" * 60_000 + b"!\n" if "a+" in str(arguments) else PLAN.encode(), name="a/x.py"
        )
        folder.upload(PLAN.encode(), name="b/x.py")
        if "torn" in str(arguments):  # a process reads it, which takes longer than all else here
            folder.upload(b"%PDF-1.7 torn", name="torn.pdf")
        reading(folder)
        agent = perdure.create_agent()
        agent.files.attach("docs", open_files=False)
        (result,) = results(perdure, agent.send("go"))
        assert result.status == "error"
        assert says_so in result.text


def test_grep_goes_on_page_by_page(tmp_path: Path) -> None:
    """Every match once, over all files, in order."""
    pages = [calls("grep_files", pattern="walrus", context_lines=0, offset=offset) for offset in (0, 20, 40)]
    others = [calls("grep_files", pattern="penguin"), calls("grep_files", pattern="x", include="*.c")]
    perdure, _ = open_library(tmp_path, *pages, *others)
    with perdure:
        folder = perdure.folders.create("docs")
        for number in range(3):
            folder.upload(b"a walrus\nnothing\n" * 15, name=f"{number}.txt")
        reading(folder)
        agent = perdure.create_agent()
        agent.files.attach("docs", open_files=False)
        *found, none, nowhere = [result.text for result in results(perdure, agent.send("go"))]
        assert "[more matches: grep_files with offset=20]" in found[0]
        assert found[2].endswith("[3 files searched]")
        places = [line for text in found for line in text.split("\n") if line.startswith("docs/")]
        assert places == [f"docs/{number}.txt:{line}" for number in range(3) for line in range(1, 31, 2)]
        assert none == "[no match; 3 files searched]"
        assert nowhere == "No match: no file's path matches include='*.c'."


def test_callers_change_a_folders_archive_only_by_its_files(tmp_path: Path) -> None:
    """Nothing of it goes, comes or changes, whatever is asked; the file itself can still be deleted."""
    perdure, _ = open_library(tmp_path)
    with perdure:
        folder = perdure.folders.create("docs")
        file = folder.upload(b"the walrus sleeps", name="plan.md")
        reading(folder)
        archive, agent = perdure.archives.get(folder.info.archive_id), perdure.create_agent()
        agent.files.attach("docs")
        before = archive.passages()
        refused: list[Callable[[], Any]] = [
            lambda: archive.insert("more"),
            lambda: archive.insert_many(["more"]),
            lambda: archive.update_passage(before[0].id, text="other"),
            lambda: archive.delete_passage(before[0].id),
            lambda: archive.delete_where(text="walrus"),
            lambda: archive.delete_where(text="in none of them"),
            lambda: agent.update_passage(before[0].id, text="other"),
            lambda: agent.delete_passage(before[0].id),
        ]
        for ask in refused:
            with pytest.raises(InvalidInput, match="holds what a folder's files say: change the files of 'docs'"):
                ask()
        with pytest.raises(InvalidInput, match="delete the folder"):
            archive.delete()
        with pytest.raises(InvalidInput, match="change the folder 'docs'"):
            archive.update(name="mine")
        with pytest.raises(InvalidInput, match="attach the folder"):
            archive.attach_to(agent.id)
        with pytest.raises(InvalidInput, match="detach the folder"):
            agent.archives.detach(archive.id)
        assert (archive.passages(), perdure.archives.get(archive.id).info) == (before, archive.info)
        assert agent.archive("My own.").archive_id != archive.id

        folder.delete_file(file.id)
        assert until(lambda: not archive.passages())


def test_a_search_of_an_agent_finds_its_files(tmp_path: Path) -> None:
    """With file and lines, beside what it put away, by words and among the newest; not those of folders it lost."""
    with open_sync(tmp_path / "agents.db") as perdure:
        folder, agent = perdure.folders.create("docs"), perdure.create_agent()
        folder.upload(b"# Plan\n\nthe walrus sleeps\n", name="notes/plan.md")
        reading(folder)
        own = agent.archive("A walrus eats clams.")
        assert [hit.passage for hit in agent.search_archive("walrus")] == [own]

        agent.files.attach("docs")
        found = {hit.passage.id: hit.passage for hit in agent.search_archive("walrus")}
        (read,) = (passage for passage in found.values() if passage.id != own.id)
        assert found[own.id] == own
        place = {"file_name": "notes/plan.md", "first_line": 1, "last_line": 3}
        assert place.items() <= read.source.items()
        assert {hit.passage.id for hit in agent.search_archive("")} == set(found)
        assert [hit.passage for hit in agent.search_archive("walrus", since=read.occurred_at, tags=read.tags)] == [read]
        assert [one.id for one in agent.passages()] == [own.id]

        agent.files.detach("docs")
        assert [hit.passage for hit in agent.search_archive("walrus")] == [own]


def test_what_is_recalled_names_a_file_as_its_tools_do(tmp_path: Path) -> None:
    """By folder and name, also when the folder is called otherwise since, and the same name stands in two: so it can be
    opened. A long name is not cut."""
    name = f"{'a' * 60}/{'b' * 60}.md"
    paths: list[str] = []

    def opens(_: ModelRequest) -> Any:
        return calls("open_files", file_requests=[{"file_name": path} for path in paths])

    with open_sync(tmp_path / "agents.db", opens, says("Read.")) as perdure:
        agent = perdure.create_agent()
        for title in ("plans", "notes"):
            folder = perdure.folders.create(title)
            folder.upload(f"the walrus of {title} sleeps\n".encode(), name=name)
            reading(folder)
            agent.files.attach(title)
        folder.update(name="papers")
        found = agent.recall("walrus", budget_tokens=400)
        paths += [line.removeprefix("### ") for line in found.text.splitlines() if line.startswith("### ")]
        (open_library,) = results(perdure, agent.send("Read them."))

    assert paths == [f"papers/{name}", f"plans/{name}"]
    assert [source.path for source in found.sources if source.kind == "passage"] == paths
    assert open_library.status == "success"
    assert "the walrus of plans sleeps" in open_library.text


def test_lines_are_asked_for_in_order(tmp_path: Path) -> None:
    """The last one before the first one is refused, with both."""
    with open_sync(tmp_path / "agents.db") as perdure:
        folder = perdure.folders.create("docs")
        folder.upload(PLAN.encode(), name="plan.md")
        reading(folder)
        assert folder.text("plan.md", first_line=7, last_line=7) == "line 7 of the plan"
        for first, last in ((7, 6), (1, 0), (5_000, 2)):
            with pytest.raises(InvalidInput, match=f"last_line is {last}, before first_line, {first}"):
                folder.text("plan.md", first_line=first, last_line=last)
