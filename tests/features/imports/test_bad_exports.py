"""Exports that are cut off, too large, packed as a bomb, in another encoding or of another program: a clear error, and
nothing is stored."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import InvalidInput, Perdure
from perdure.features.imports.sources import reader_of
from perdure.features.imports.sources.chatgpt import branch_of
from perdure.features.imports.sources.files import FILE_BYTES, SourceFiles
from perdure.features.imports.sources.streams import json_items
from perdure.features.imports.work import PIECE_CHARS, pieces
from tests.features.imports import golden
from tests.support.library import open_sync


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "perdure.db") as opened:
        yield opened


def refused(store: Perdure, source: Any, place: Path) -> str:
    """The error of an import that is refused, after which nothing is stored."""
    with pytest.raises(InvalidInput) as caught:
        store.imports.plan(source, place)
    with pytest.raises(InvalidInput):
        store.imports.run(source, place)
    assert store.agents() == []
    return str(caught.value)


@pytest.mark.parametrize("source", ["chatgpt", "claude", "zep", "jsonl"])
def test_an_export_that_is_cut_off_says_where(store: Perdure, tmp_path: Path, source: Any) -> None:
    values = {"chatgpt": golden.chatgpt(), "claude": golden.claude(), "zep": golden.ZEP, "jsonl": golden.JSONL}[source]
    text = "".join(f"{json.dumps(one)}\n" for one in golden.JSONL) if source == "jsonl" else json.dumps(values)
    for part in (0.3, 0.6, 0.97):
        place = tmp_path / "conversations.json"
        place.write_bytes(text.encode()[: int(len(text) * part)])
        said = refused(store, source, place)

        assert "conversations.json" in said and "line" in said


def test_nothing_is_stored_of_an_export_whose_end_is_missing(store: Perdure, tmp_path: Path) -> None:
    """However much of it could be read before."""
    one = golden.chatgpt()[0]
    place = tmp_path / "conversations.json"
    place.write_text(json.dumps([{**one, "conversation_id": f"c{number}"} for number in range(120)])[:-200])

    assert "it ends in the middle" in refused(store, "chatgpt", place)


def test_nothing_is_stored_of_several_agents_that_are_to_be_one(store: Perdure, tmp_path: Path) -> None:
    place = golden.write_letta(tmp_path)
    with closing(sqlite3.connect(place)) as database:
        database.execute("INSERT INTO agents (id, name, created_at) VALUES ('agent-3', 'Tim', '2024-06-01 08:00:00')")
        database.commit()
    with pytest.raises(InvalidInput, match="several agents"):
        store.imports.run("letta-db", place, agent="solo")

    assert store.agents() == []


def test_a_zip_file_that_is_cut_off_or_damaged_is_refused(store: Perdure, tmp_path: Path) -> None:
    data = golden.write_chatgpt(tmp_path).read_bytes()
    for name, broken in (("cut", data[:-30]), ("bits", data[:60] + bytes(20) + data[80:])):
        (tmp_path / name).write_bytes(broken)
        assert refused(store, "chatgpt", tmp_path / name)


@pytest.mark.parametrize(
    "name", ["../conversations.json", "/conversations.json", "C:conversations.json", "a/../../b.json", "..\\b.json"]
)
def test_names_that_lead_out_of_a_zip_file_are_refused(store: Perdure, tmp_path: Path, name: str) -> None:
    place = golden.write_zip(tmp_path / "x.zip", {name: "[]"})

    assert "leads out" in refused(store, "chatgpt", place)


@pytest.mark.parametrize("source", ["chatgpt", "markdown"])
def test_a_zip_file_without_dates_has_the_present_time(store: Perdure, tmp_path: Path, source: Any) -> None:
    """As programs write them that do not want to depend on the time."""
    data = json.dumps(golden.chatgpt()) if source == "chatgpt" else "# A\n\nb\n"
    name = "conversations.json" if source == "chatgpt" else "a.md"
    place = tmp_path / "x.zip"
    with zipfile.ZipFile(place, "w") as target:
        target.writestr(zipfile.ZipInfo(name, date_time=(1980, 0, 0, 0, 0, 0)), data)

    assert store.imports.run(source, place).new > 0


@pytest.mark.slow
def test_a_zip_bomb_is_refused_before_it_is_unpacked(store: Perdure, tmp_path: Path) -> None:
    place = golden.write_zip(tmp_path / "x.zip", {"conversations.json": b"[" + b" " * 300_000_000})
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as target:
        for number in range(100_002):
            target.writestr(f"{number}", b"")
    (tmp_path / "many.zip").write_bytes(many.getvalue())

    small = golden.write_zip(tmp_path / "small.zip", {f"{number}.md": b"a" * 1_000_000 for number in range(9)})

    assert "packed" in refused(store, "chatgpt", place)
    assert "9,000,000 bytes" in refused(store, "markdown", small)
    assert "100,000 files" in refused(store, "chatgpt", tmp_path / "many.zip")


@pytest.mark.parametrize("source", ["chatgpt", "claude", "mem0", "zep", "jsonl"])
def test_a_file_of_a_gigabyte_is_refused_before_it_is_read(store: Perdure, tmp_path: Path, source: Any) -> None:
    place = tmp_path / "conversations.json"
    with place.open("wb") as file:
        os.truncate(file.fileno(), FILE_BYTES)

    assert "1,000,000,000 bytes" in refused(store, source, place)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'[{"mapping": {}, "title": "\xff"}]', "byte 28 is not UTF-8"),
        (b"\xff\xfe[\0]\0", "byte 1 is not UTF-8"),
        (b"", "it is empty"),
        (b"<html>", "it is not JSON"),
        (b"[" * 100_000, "an item can't be read"),
        (b'[{"mapping": ' + b'{"a":' * 100_000, "can't be read"),
        (b"[1]", "is not a conversation"),
        (b"[{]", "line 1, byte 3"),
        (b'[\n{"mapping": {}},\n{"mapping": nope}]', "line 3, byte 32"),
        (b"[" + b"9" * 5_000 + b"]", "can't be read"),
    ],
)
def test_what_is_no_json_names_line_and_byte(store: Perdure, tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "conversations.json").write_bytes(data)

    assert said in refused(store, "chatgpt", tmp_path / "conversations.json")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"role": "user", "text": "x", "occurred_at": "yesterday"}, "occurred_at"),
        ({"role": "nobody", "text": "x", "occurred_at": 1}, "role"),
        ({"role": "user", "parts": [{"type": "nope"}], "occurred_at": 1}, "nope"),
        ({"role": "user", "parts": "x", "occurred_at": 1}, "other forms"),
        ({"role": "user", "parts": [{"type": "text", "other": 1}], "occurred_at": 1}, "other forms"),
        ([], "an object"),
        ({"nothing": 1}, "a memory"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(store: Perdure, tmp_path: Path, line: Any, said: str) -> None:
    """Alone it is refused; beside others it is left out."""
    good = {"role": "user", "text": "x", "occurred_at": "2025-01-01T00:00:00Z"}
    error = refused(store, "jsonl", golden.write_lines(tmp_path / "x.jsonl", [line]))
    report = store.imports.run("jsonl", golden.write_lines(tmp_path / "x.jsonl", [good, line]))
    (why,) = report.left_out

    assert "x.jsonl: line 1" in error and said in error
    assert "x.jsonl: line 2" in why and said in why and report.messages.new == 1


@pytest.mark.parametrize("source", ["chatgpt", "claude", "mem0", "zep"])
def test_an_odd_item_among_others_is_left_out(store: Perdure, tmp_path: Path, source: Any) -> None:
    good: Any = {"chatgpt": golden.chatgpt(), "claude": golden.claude(), "mem0": golden.MEM0, "zep": golden.ZEP}[source]
    items = [*good["results"]] if source == "mem0" and isinstance(good, dict) else good
    items = [items] if isinstance(items, dict) else items
    report = store.imports.run(source, golden.write_json(tmp_path / "conversations.json", [{"odd": 1}, *items, 7]))
    (why,) = [one for one in report.left_out if "can't be read" in one]

    assert report.new > 0 and "odd" in why and report.left_out[why] == 2


def test_a_last_message_without_an_id_does_not_hide_its_conversation(store: Perdure, tmp_path: Path) -> None:
    """Claude's branch is the one of the last message that has one."""
    talk = golden.claude()[:1]
    talk[0]["chat_messages"].append({"sender": "human", "text": "cut off"})
    report = store.imports.run("claude", golden.write_json(tmp_path / "c.json", talk))

    assert (report.conversations.new, [*report.left_out]) == (1, [])


def test_what_else_is_left_out_is_named(store: Perdure, tmp_path: Path) -> None:
    relations = {"results": [{"id": "1", "memory": "x"}], "relations": [{"source": "ada", "destination": "tea"}]}
    claude, chatgpt = golden.claude()[:1], golden.chatgpt()[:1]
    claude[0]["chat_messages"][-1]["parent_message_uuid"] = "gone"
    chatgpt[0]["mapping"]["a1"]["parent"] = "lost"
    letta = golden.write_letta(tmp_path)
    with closing(sqlite3.connect(letta)) as database:
        database.execute("CREATE TABLE tools (id TEXT, name TEXT, tool_type TEXT)")
        database.execute("INSERT INTO tools VALUES ('1', 'roll', 'custom'), ('2', 'send_message', 'letta_core')")
        database.commit()
    found = {
        "mem0": store.imports.plan("mem0", golden.write_json(tmp_path / "m.json", relations)),
        "claude": store.imports.plan("claude", golden.write_json(tmp_path / "c.json", claude)),
        "chatgpt": store.imports.plan("chatgpt", golden.write_json(tmp_path / "g.json", chatgpt)),
        "letta": store.imports.plan("letta-db", letta),
    }
    names = {"mem0": "relations", "claude": "does not lead to", "chatgpt": "does not lead to", "letta": "tools"}

    for source, report in found.items():
        assert [count > 0 for why, count in report.left_out.items() if names[source] in why] == [True], source


def test_an_export_of_another_program_says_which_import_reads_it(store: Perdure, tmp_path: Path) -> None:
    chatgpt, claude = golden.write_chatgpt(tmp_path), golden.write_claude(tmp_path)

    assert "use `perdure import claude`" in refused(store, "chatgpt", claude)
    assert "use `perdure import chatgpt`" in refused(store, "claude", chatgpt)
    assert "use `perdure import chatgpt`" in refused(
        store, "zep", golden.write_json(tmp_path / "z.json", golden.chatgpt())
    )
    assert "use `perdure import mem0`" in refused(store, "chatgpt", golden.WRITERS["mem0"](tmp_path))
    assert "file of the database" in refused(store, "letta-db", chatgpt)
    assert "database of SQLite" in refused(store, "letta-db", golden.write_json(tmp_path / "l.db", []))
    assert "conversations.json" in refused(store, "chatgpt", golden.write_markdown(tmp_path))
    assert f"'{tmp_path / 'nowhere'}' can't be read: No such" in refused(store, "markdown", tmp_path / "nowhere")
    (tmp_path / "half.zip").write_bytes(b"PK\x03\x04")
    assert "half.zip is no whole ZIP file" in refused(store, "chatgpt", tmp_path / "half.zip")


def test_a_byte_order_mark_is_no_text(store: Perdure, tmp_path: Path) -> None:
    (tmp_path / "conversations.json").write_text(json.dumps(golden.chatgpt()), "utf-8-sig")
    (tmp_path / "x.jsonl").write_text(json.dumps(golden.JSONL[0]), "utf-8-sig")
    (tmp_path / "x.md").write_text("# A\n\nb\n", "utf-8-sig")

    assert store.imports.run("chatgpt", tmp_path / "conversations.json").messages.new == 8
    assert store.imports.run("jsonl", tmp_path / "x.jsonl").messages.new == 1
    assert store.imports.run("markdown", tmp_path / "x.md").memories.new == 1


def test_links_out_of_a_folder_are_not_followed(store: Perdure, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("The secret\n")
    folder = golden.write_markdown(tmp_path)
    (folder / "link.md").symlink_to(tmp_path / "secret.md")

    assert store.imports.run("markdown", folder).memories.new == 5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(
    values=st.lists(JSON, max_size=6), indent=st.sampled_from([None, 1]), ascii=st.booleans(), chunk=st.integers(1, 40)
)
def test_a_list_read_piece_by_piece_is_that_of_a_parser(values: Any, indent: Any, ascii: bool, chunk: int) -> None:
    """Whatever the pieces are, also in the middle of a character."""
    text = json.dumps(values, indent=indent, ensure_ascii=ascii)
    data = text.encode("utf-8", "surrogatepass")
    if b"\xed" in data and not ascii:
        return

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perdure.features.imports.sources.streams.CHUNK_BYTES", chunk)
        found = list(json_items(SourceFiles(io.BytesIO(data), "x.json"), "x.json"))

    assert found == values


@given(data=st.binary(max_size=60) | st.text(alphabet='[]{}",:0 a\\', max_size=60).map(str.encode))
@pytest.mark.parametrize("source", ["chatgpt", "claude", "mem0", "zep", "jsonl", "markdown"])
def test_any_bytes_are_read_or_refused_with_a_name(source: Any, data: bytes) -> None:
    try:
        list(reader_of(source)(SourceFiles(io.BytesIO(data), "the-file")))
    except InvalidInput as error:
        assert "the-file" in str(error)


KEYS = ["mapping", "chat_messages", "memory", "messages", "role"]


@given(value=JSON, source=st.sampled_from(["chatgpt", "claude", "mem0", "zep", "jsonl"]), key=st.sampled_from(KEYS))
def test_any_json_is_read_or_refused_with_a_name(value: Any, source: Any, key: str) -> None:
    shapes = [
        {
            key: value,
            "uuid": "1",
            "session_id": "s",
            "content": value,
            "author": value,
            "message": value,
            "parent": value,
        }
    ]
    shapes.append(
        {key: {"a": shapes[0], "b": value}, "chat_messages": [shapes[0]], "docs": [value], "current_node": "a"}
    )
    data = json.dumps(shapes).encode() if source != "jsonl" else "\n".join(map(json.dumps, shapes)).encode()
    try:
        list(reader_of(source)(SourceFiles(io.BytesIO(data), "the-file")))
    except InvalidInput as error:
        assert "the-file" in str(error)


@given(parents=st.lists(st.integers(-1, 12), min_size=1, max_size=12), current=st.integers(0, 12))
def test_a_branch_is_a_path_from_a_root_to_its_node(parents: list[int], current: int) -> None:
    """Also where the tree has circles or lacks nodes."""
    nodes = {
        str(number): golden.node(str(number), str(parent) if parent >= 0 else None, "user", "x")
        for number, parent in enumerate(parents)
    }
    path = branch_of(nodes, str(current))

    assert len(path) == len(set(path)) >= 1
    assert path[-1] == str(current) or str(current) not in nodes
    assert all(nodes[child]["parent"] == parent for parent, child in pairwise(path))


@given(st.text(alphabet="ab \n", max_size=200).map(lambda text: text * 150))
def test_pieces_of_a_long_text_hold_all_its_words(text: str) -> None:
    found = list(pieces(text))

    assert all(len(one) <= PIECE_CHARS for one in found)
    assert "".join("".join(found).split()) == "".join(text.split())
