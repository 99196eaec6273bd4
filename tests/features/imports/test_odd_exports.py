"""Exports as they come: with what desktops add to ZIP files, times in any unit, and numbers that JSON does not know."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput, Perdure
from tests.features.imports import golden
from tests.support.library import open_sync
from tests.support.programs import environment


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "perdure.db") as opened:
        yield opened


def test_hidden_files_in_a_zip_file_are_left_alone(store: Perdure, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"a.md": "# A\n\nb\n", "__MACOSX/._a.md": b"\0\xff", ".trash/b.md": b"\xff"}

    assert store.imports.run("markdown", golden.write_zip(tmp_path / "x.zip", files)).memories.new == 1


def test_messages_of_a_thread_of_zep_may_lie_in_their_own_page(store: Perdure, tmp_path: Path) -> None:
    """As its service answers, with the number of all messages beside the list."""
    page = {"messages": [{"uuid": "m", "role": "user", "content": "Rome is old."}], "row_count": 1}
    file = golden.write_json(tmp_path / "zep.json", {"threads": [{"thread_id": "t", "messages": page}]})

    assert store.imports.run("zep", file).messages.new == 1


def test_what_only_chatgpt_shows_is_no_text(store: Perdure, tmp_path: Path) -> None:
    """Its answers name sources and things in characters of their own."""
    text = '\ue200entity\ue202["city","Rome"]\ue201 is old.\ue200cite\ue202turn0search0\ue201\ue200x\ue202[1\ue201'
    nodes = [golden.node("r", None), golden.node("u", "r", "user", "Rome?"), golden.node("a", "u", "assistant", text)]
    talk = {"id": "c", "mapping": {one["id"]: one for one in nodes}, "current_node": "a"}
    store.imports.run("chatgpt", golden.write_json(tmp_path / "conversations.json", [talk]))
    agent = store.agent("chatgpt")

    assert agent.messages(conversation=agent.conversations()[1].id)[1].text == "Rome is old."


@pytest.mark.parametrize("at", [1.7e9, 1.7e12, 1.7e15, 1.7e18, "1700000000", "1700000000000.5", "2023-11-14 22:13:20"])
def test_times_are_read_in_any_unit(store: Perdure, tmp_path: Path, at: Any) -> None:
    line = {"role": "user", "text": "hi", "occurred_at": at, "conversation": "a"}
    store.imports.run("jsonl", golden.write_lines(tmp_path / "x.jsonl", [line]))
    agent = store.agent("jsonl")

    assert f"{agent.messages(conversation=agent.conversations()[1].id)[0].occurred_at:%F %T}" == "2023-11-14 22:13:20"


def test_an_empty_time_is_none(store: Perdure, tmp_path: Path) -> None:
    lines = [{"role": "user", "text": "hi", "occurred_at": ""}, {"memory": "x", "created_at": None}]

    assert store.imports.run("jsonl", golden.write_lines(tmp_path / "x.jsonl", lines)).new == 2


def test_metadata_with_numbers_that_json_lacks_is_left_out(store: Perdure, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text('[{"id": NaN, "memory": "x", "created_at": NaN, "metadata": {"a": Infinity}}]')

    assert store.imports.run("mem0", tmp_path / "m.json").memories.new == 1


@pytest.mark.parametrize(
    ("place", "said"),
    [("~nobody-there/x.json", "can't be read"), ("a\0b", "can't be read"), ("more.json", "more behind")],
)
def test_what_cannot_be_read_is_named(
    store: Perdure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.json").write_text(json.dumps(golden.chatgpt()) + "[]")
    with pytest.raises(InvalidInput, match=said):
        store.imports.run("chatgpt", place)


PROGRAM = """
import resource, sys
from perdure import Perdure, InvalidInput
with Perdure(sys.argv[1]) as store:
    agent = store.agent("ann").id
    sys.dont_write_bytecode = True  # Python would keep as much of a module as the limit lets it write
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    try:
        store.export(sys.argv[2], agent)
    except InvalidInput as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.uses("exports")
def test_an_export_to_a_full_disk_leaves_nothing(store: Perdure, tmp_path: Path) -> None:
    store.create_agent("ann").import_messages([("user", None, "x" * 50_000, "2024-01-01T00:00:00Z")])
    store.close()
    (tmp_path / "to").mkdir()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "perdure.db"), str(tmp_path / "to" / "out")]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False)

    assert "can't be written: File too large" in done.stdout, done.stderr
    assert [*(tmp_path / "to").iterdir()] == []


@pytest.mark.uses("exports")
def test_an_export_below_a_file_is_refused(store: Perdure, tmp_path: Path) -> None:
    store.create_agent("ann")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidInput, match="can't be written"):
        store.export(tmp_path / "file" / "out")
