"""`perdure archive list`, `search`, `export`, `import` and `import-messages`, as programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.library import transfer as transfer_service
from tests.support.library import open_sync
from tests.support.programs import perdure, run_inside

HEADER = {"perdure": "archive", "version": 1, "name": "house", "created_at": "2024-01-01T00:00:00Z"}


def fill(home: Path) -> str:
    """A store with an agent, something it was told, and two archives; the id of the agent's own."""
    with open_sync(home / "perdure.db") as store:
        agent = store.create_agent("helper")
        agent.send("I planted a quince tree.")
        agent.archive("Quinces are ripe in October.", tags=["fruit"], occurred_at=datetime(2024, 10, 1, tzinfo=UTC))
        agent.archive("Pears keep well.", tags=["fruit"])
        store.archives.create("house").insert("The quince jam is in the cellar.")
        archive_id: str = agent.archives.list()[0].id
        return archive_id


def lines_of(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_archives_are_listed(tmp_path: Path) -> None:
    """An empty folder says how one is made and is left alone; then names, counts and who has them."""
    home = tmp_path / "home"
    empty = run_inside(home, "archive", "list")
    assert (empty.returncode, home.exists()) == (0, False)
    assert "There are no archives yet" in empty.stderr

    fill(home)
    table = run_inside(home, "archive", "list")
    rows = json.loads(run_inside(home, "archive", "list", "--json").stdout)

    assert table.stdout.splitlines()[0].split() == ["name", "id", "passages", "agents", "changed"]
    assert "perdure archive export" in table.stderr
    assert [(row["name"], row["passages"], row["agents"]) for row in rows] == [
        ("helper's archive", 2, ["helper"]),
        ("house", 1, []),
    ]


def test_search_finds_what_the_agent_would(tmp_path: Path) -> None:
    """History and archives of the agent used last, or one archive; by tags and dates; what ran is told."""
    fill(tmp_path)
    plain = run_inside(tmp_path, "search", "quince")
    why = run_inside(tmp_path, "search", "quince", "--agent", "helper", "--why")
    house = run_inside(tmp_path, "search", "jam", "--archive", "house")
    tagged = json.loads(run_inside(tmp_path, "search", "fruit pears quinces", "--tag", "fruit", "--json").stdout)
    dated = json.loads(run_inside(tmp_path, "search", "quince", "--until", "2024-12-31", "--json", "--why").stdout)

    assert "I planted a quince tree." in plain.stdout
    assert "Quinces are ripe in October." in plain.stdout
    assert "cellar" not in plain.stdout
    assert "perdure chat helper" in plain.stderr
    assert " = words " in why.stdout or "words" in why.stdout
    assert "archive: searched by words in 2 texts; not by vectors: " in why.stdout
    assert "The quince jam is in the cellar." in house.stdout
    assert tagged["messages"] == []
    assert {passage["text"] for passage in tagged["passages"]} == {"Quinces are ripe in October.", "Pears keep well."}
    assert dated["messages"] == []
    (passage,) = dated["passages"]
    assert passage["why"]["words"] > 0
    assert dated["ran"]["passages"]["arms"] == ["words"]
    assert run_inside(tmp_path, "search", "dragonfruit").stdout == "Nothing found for 'dragonfruit'.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("search", " "), 1, "nothing to look for"),
        (("search", "x", "--agent", "nobody"), 1, "'nobody'"),
        (("search", "x", "--archive", "nowhere"), 1, "there are 'house'"),
        (("search", "x", "--since", "soon"), 1, "'soon'"),
        (("search", "x", "--limit", "0"), 2, "--limit"),
        (("search", "x", "--agent", "a", "--archive", "b"), 2, "--agent"),
        (("archive", "export", "house"), 2, "perdure archive export ARCHIVE FILE"),
        (("archive", "export", "nowhere", "-"), 1, "'nowhere'"),
        (("archive", "import", "nofile"), 1, "nofile can't be read"),
        (("conversation", "import", "nofile", "helper"), 1, "nofile can't be read"),
    ],
)
def test_what_can_t_be_done_is_told(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    """With an exit code and what helps, never a traceback."""
    fill(tmp_path)
    result = run_inside(tmp_path, *arguments)

    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_an_archive_goes_to_another_store_and_back(tmp_path: Path) -> None:
    """By file and by pipe, to the letter; nothing is there twice; an existing file is not written over."""
    first_home, other = tmp_path / "one", tmp_path / "other"
    fill(first_home)
    file, again = tmp_path / "all of it.jsonl", tmp_path / "again.jsonl"
    exported = run_inside(first_home, "archive", "export", "--all", str(file))
    imported = run_inside(other, "archive", "import", str(file))
    repeated = perdure(other, "archive", "import", "-", stdin=file.read_bytes())
    run_inside(other, "archive", "export", "--all", str(again))

    assert "Exported 2 archives with 3 passages in " in exported.stderr
    assert f'`perdure archive import "{file}"` reads' in exported.stderr
    assert "Imported 3 passages into \"helper's archive\", 'house'." in imported.stderr
    assert "Imported 0 passages" in repeated.stderr
    assert "3 were there already" in repeated.stderr
    assert again.read_text() == file.read_text()
    assert (
        run_inside(first_home, "archive", "export", "house", "-").stdout.splitlines()
        == file.read_text().splitlines()[3:]
    )
    assert "--overwrite" in run_inside(first_home, "archive", "export", "house", str(file)).stderr
    assert lines_of(file)[0]["name"] == "helper's archive"
    assert run_inside(first_home, "archive", "export", "house", str(file), "--overwrite").returncode == 0
    assert [line.get("name") for line in lines_of(file)] == ["house", None]


def test_what_is_imported_an_agent_finds(tmp_path: Path) -> None:
    """Into an archive that is there, or for an agent that is named."""
    fill(tmp_path)
    file = tmp_path / "in.jsonl"
    passage = {"text": "The key is under the pot.", "occurred_at": "2024-01-02T00:00:00Z"}
    file.write_text(json.dumps(passage))
    into = run_inside(tmp_path, "archive", "import", str(file), "--into", "house")
    file.write_text(f"{json.dumps({**HEADER, 'name': 'keys'})}\n\n{json.dumps(passage)}\n")
    imported_for_agent = run_inside(tmp_path, "archive", "import", str(file), "--agent", "helper")

    assert "Imported 1 passage into 'house'." in into.stderr
    assert "Imported 1 passage into 'keys'." in imported_for_agent.stderr
    assert "under the pot" in run_inside(tmp_path, "search", "pot", "--archive", "house").stdout
    assert "under the pot" in run_inside(tmp_path, "search", "pot", "--agent", "helper").stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "it is not JSON"),
        (b"[1]", "JSON object"),
        (b'{"tags": []}', "no text"),
        (b'{"text": " ", "occurred_at": "2024-01-02T00:00:00Z"}', "empty"),
        (b'{"text": "x", "occurred_at": "2024-01-02"}', "zone"),
        (b'{"text": "x"}', "occurred_at"),
        (b'{"text": "x", "occurred_at": "2024-01-02T00:00:00Z", "id": "x"}', "id"),
        (b'{"text": "x", "occurred_at": "2024-01-02T00:00:00Z", "tags": "home"}', "tags"),
        (b'{"text": "x", "occurred_at": "2024-01-02T00:00:00Z", "metadata": [1]}', "metadata"),
        (b'{"perdure": "archive", "version": 2, "name": "x"}', "upgrade Perdure"),
        (b'{"perdure": "agent", "version": 1}', "agent"),
        (b'{"perdure": "archive", "version": 1, "name": "", "created_at": "2024-01-02T00:00:00Z"}', "name"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_corrupt_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    """By its number and with the reason; nothing of the file was imported."""
    file = tmp_path / "in.jsonl"
    good = json.dumps({"text": "The key is under the pot.", "occurred_at": "2024-01-02T00:00:00Z"}).encode()
    file.write_bytes(b"\n".join((json.dumps(HEADER).encode(), good, line, good)))
    result = run_inside(tmp_path / "home", "archive", "import", str(file))

    assert result.returncode == 1
    assert "line 3: " in result.stderr
    assert message in result.stderr
    assert not (tmp_path / "home").exists()


def test_a_passage_needs_an_archive(tmp_path: Path) -> None:
    """A file without a header goes only where it is told to."""
    file = tmp_path / "in.jsonl"
    file.write_text('{"text": "x", "occurred_at": "2024-01-02T00:00:00Z"}\n')

    assert (
        "line 1: it is a passage, and no archive was begun"
        in run_inside(tmp_path / "home", "archive", "import", str(file)).stderr
    )


def test_large_files_go_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several archives in one file, each passage to its own."""
    monkeypatch.setattr(transfer_service, "BATCH", 2)
    file = tmp_path / "in.jsonl"
    rows: list[dict[str, object]] = []
    for name in ("a", "b"):
        rows.append({**HEADER, "name": name})
        rows += [{"text": f"{name}{number}", "occurred_at": "2024-01-02T00:00:00Z"} for number in range(5)]
    file.write_text("\n".join(map(json.dumps, rows)))

    assert "Imported 10 passages into 'a', 'b'" in run_inside(tmp_path, "archive", "import", str(file)).stderr
    for name in ("a", "b"):
        lines = run_inside(tmp_path, "archive", "export", name, "-").stdout.splitlines()
        assert [json.loads(line)["text"] for line in lines[1:]] == [f"{name}{number}" for number in range(5)]


def test_history_is_imported(tmp_path: Path) -> None:
    """From a file or a pipe, once only; order and conversation are told; a bad line leaves nothing behind."""
    fill(tmp_path)
    file = tmp_path / "talk.jsonl"
    talk = [
        {"role": "user", "name": "Bob", "text": "I like medlars.", "occurred_at": "2023-05-07T09:00:00Z"},
        {"role": "assistant", "text": "Medlars are odd.", "occurred_at": "2023-05-07T08:00:00Z"},
    ]
    file.write_text("\n".join(map(json.dumps, talk)))
    first = run_inside(tmp_path, "conversation", "import", str(file), "helper")
    again = perdure(tmp_path, "conversation", "import", "-", "helper", stdin=file.read_text())
    new = run_inside(tmp_path, "conversation", "import", str(file), "helper", "--conversation", "new")
    file.write_text(file.read_text() + '\n\n{"role": "tool", "text": "x"}')
    wrong = run_inside(tmp_path, "conversation", "import", str(file), "helper", "--conversation", "new")

    assert "Imported 2 messages into conv-" in first.stderr
    assert "1 of them are older than" in first.stderr
    assert "perdure chat helper" in first.stderr
    assert "Imported 0 messages into conv-" in again.stderr
    assert "2 were there already" in again.stderr
    assert "Imported 2 messages into conv-" in new.stderr
    assert (wrong.returncode, "line 4: role is 'tool'" in wrong.stderr) == (1, True)
    (agent,) = json.loads(run_inside(tmp_path, "agent", "list", "--json").stdout)
    assert agent["messages"] == 2 + 2 + 2
    assert "Bob" in run_inside(tmp_path, "search", "medlars").stdout
    run_inside(tmp_path, "agent", "reset", "helper", "--yes")
    file.write_text("\n".join(map(json.dumps, talk)))
    gone = run_inside(tmp_path, "conversation", "import", str(file), "helper").stderr
    assert "2 of the skipped messages were taken out of view by a reset" in " ".join(gone.split())
    assert "--conversation new" in gone


def test_the_hooks_of_this_machine_are_listed(tmp_path: Path) -> None:
    """With where they come from and when they are called; a file that can't be used is told, by doctor too."""
    empty = run_inside(tmp_path, "hook", "list")
    (tmp_path / "hooks.toml").write_text(
        "[[hook]]\nname = 'limit'\non = ['run_end', 'before_tool']\ntools = ['pay']\ncommand = 'true'\n"
    )
    people, programs = run_inside(tmp_path, "hook", "list"), run_inside(tmp_path, "hook", "list", "--json")
    (tmp_path / "hooks.toml").write_text("[[hook]]\n")
    broken = run_inside(tmp_path, "hook", "list")

    assert (empty.returncode, empty.stdout) == (0, "")
    assert people.stdout.splitlines() == [
        "limit  before_tool, run_end of pay",
        f"    from {tmp_path / 'hooks.toml'}; up to 10 s, and is passed over if it fails",
    ]
    assert json.loads(programs.stdout) == [
        {
            "name": "limit",
            "on": ["before_tool", "run_end"],
            "tools": ["pay"],
            "source": str(tmp_path / "hooks.toml"),
            "timeout_s": 10,
            "if_it_fails": "go_on",
            "problem": None,
        }
    ]
    assert broken.returncode == 1 and "command is a text for the shell" in broken.stderr
