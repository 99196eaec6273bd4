"""Files of other programs: written as a whole or not at all, taken back byte for byte, left alone if they are odd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import InvalidInput
from perdure.features.connect.files import (
    FILE_BYTES,
    FileChange,
    check_writable,
    plan_changes,
    undo_changes,
    write_changes,
)
from perdure.features.connect.programs import ConfigEntry
from tests.support.programs import SRC

VALUE: Any = {"command": "perdure", "args": ["mcp"]}
# As the documentation of the programs has them.
CLAUDE = """{
  "numStartups": 3,
  "mcpServers": {
    "shared-server": {
      "command": "/path/to/server",
      "args": [],
      "env": {}
    }
  }
}"""
VSCODE = """// Place your servers here
{
\t"inputs": [
\t\t{ "type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true },
\t],
\t"servers": {
\t\t"perplexity": { "type": "stdio", "command": "npx", "args": ["-y", "server-perplexity-ask"], }, // keep
\t},
}
"""
ZED = """{
  // Zed settings
  "context_servers": {
    "your-mcp-server": { "source": "custom", "command": "some-command", "args": ["arg-1"], "env": {} }
  }
}
"""
CODEX = """# Codex
model = "gpt-5"

[mcp_servers.docs]
command = "npx"
args = ["-y", "mcp-server"]
env = { "API_KEY" = "value" }
"""
FORMS = {
    "claude": ("json", ("mcpServers", "perdure"), CLAUDE),
    "vscode": ("jsonc", ("servers", "perdure"), VSCODE),
    "zed": ("jsonc", ("context_servers", "perdure"), ZED),
    "codex": ("toml", ("mcp_servers", "perdure"), CODEX),
    "crlf": ("jsonc", ("servers", "perdure"), VSCODE.replace("\n", "\r\n")),
    "mark": ("json", ("mcpServers", "perdure"), "\ufeff" + CLAUDE),
    "one line": ("json", ("mcpServers", "perdure"), '{"mcpServers":{}}'),
    "empty": ("json", ("mcpServers", "perdure"), ""),
    "space": ("toml", ("mcp_servers", "perdure"), "\n\n"),
    "foreign": ("json", ("mcpServers", "perdure"), '{"mcpServers": {"perdure": {"command": "mine"}}}'),
    "foreign table": ("toml", ("mcp_servers", "perdure"), '[mcp_servers.perdure]\ncommand = "mine"\n'),
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / 'a "home" with spaces'))


def entry(path: Path, format: str = "json", names: Sequence[str] = ("mcpServers", "perdure")) -> ConfigEntry:
    return ConfigEntry(path=path, format=format, names=names, value=VALUE)


def connect(*entries: ConfigEntry) -> Sequence[FileChange]:
    changes = plan_changes(entries)
    write_changes("program", changes, entries)
    return changes


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_is_taken_back_byte_for_byte(tmp_path: Path, form: str) -> None:
    """In the format of each program, with comments, CRLF, a byte order mark; also where a server of that name was."""
    format, names, text = FORMS[form]
    path = tmp_path / "config"
    path.write_bytes(text.encode())
    path.chmod(0o640)
    (change,) = connect(entry(path, format, names))
    assert path.read_bytes() == change.after != text.encode()
    assert path.stat().st_mode & 0o777 == 0o640

    assert undo_changes("program") == [f"{path} is as it was."]
    assert path.read_bytes() == text.encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize("form", ["claude", "vscode", "zed", "codex", "foreign", "foreign table"])
def test_undo_takes_only_the_entry_from_a_file_that_the_program_wrote_anew(tmp_path: Path, form: str) -> None:
    """Also if it was connected again meanwhile; a server of that name that was there before is there again."""
    format, names, text = FORMS[form]
    path = tmp_path / "config"
    path.write_text(text)
    connect(entry(path, format, names))
    changed = (
        path.read_text().replace('"perdure"', '"perdure"  ') if format != "toml" else path.read_text() + "\nlast = 1\n"
    )
    path.write_text(changed)
    again = ConfigEntry(path=path, format=format, names=names, value={**VALUE, "args": ["mcp", "--read-only"]})
    connect(again)
    path.write_text(path.read_text() + "\n")

    assert undo_changes("program") == [f"{path} was changed since: only Perdure's entries were taken out."]
    assert ("perdure" in path.read_text()) == ("mine" in text)
    assert ("mine" in path.read_text()) == ("mine" in text)
    with pytest.raises(InvalidInput, match="nothing to take back"):
        undo_changes("program")


def test_connecting_twice_keeps_what_was_before_the_first_time(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(CLAUDE)
    connect(entry(path))
    connect(ConfigEntry(path=path, format="json", names=("mcpServers", "perdure"), value={"command": "other"}))
    undo_changes("program")

    assert path.read_text() == CLAUDE


def test_files_and_folders_that_were_made_go_with_undo(tmp_path: Path) -> None:
    """But a folder in which something else is stays."""
    first, second = tmp_path / "a" / "b" / "config", tmp_path / "c" / "config"
    connect(entry(first), entry(second))
    (tmp_path / "c" / "other").touch()
    undo_changes("program")

    assert not (tmp_path / "a").exists()
    assert [one.name for one in (tmp_path / "c").iterdir()] == ["other"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link(tmp_path: Path, exists: bool) -> None:
    """The file behind it is written, and taken back; also one that was not there yet."""
    real, link = tmp_path / "dotfiles" / "config", tmp_path / "config"
    link.symlink_to(real)
    if exists:
        real.parent.mkdir()
        real.write_text(CLAUDE)
    connect(entry(link))
    assert link.is_symlink() and "perdure" in real.read_text()
    undo_changes("program")

    assert link.is_symlink()
    assert (real.read_text() == CLAUDE) if exists else not real.parent.exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"mcpServers": {', "line 1 can't be read as JSON"),
        (b"[]", "the file is a list there and not an object"),
        (b'{"mcpServers": []}', "mcpServers is a list there and not an object"),
        (b'{"mcpServers": null}', "mcpServers is null there"),
        ('{"a": "é"}'.encode("utf-16"), "it is not UTF-8"),
        (b'{"a": "\xff"}', "it is not UTF-8"),
        (b" " * (FILE_BYTES + 1), "it has more than 50,000,000 bytes"),
    ],
)
def test_a_file_that_is_not_understood_is_left_alone(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=why) as error:
        connect(entry(path))

    assert str(path) in str(error.value)
    assert path.read_bytes() == content


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """A folder, a pipe, on which reading would wait for ever, and links in a circle."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    for name in ("", "pipe", "circle"):
        with pytest.raises(InvalidInput):
            connect(entry(tmp_path / name))


@pytest.mark.parametrize("place", ["file", "folder"])
def test_what_is_read_only_is_left_alone(tmp_path: Path, place: str) -> None:
    """Also for root, who could write it."""
    folder = tmp_path / "settings"
    folder.mkdir()
    path = folder / "config"
    path.write_text(CLAUDE)
    read_only = path if place == "file" else folder
    read_only.chmod(0o555)
    try:
        with pytest.raises(InvalidInput, match="is read-only"):
            check_writable(path)
        with pytest.raises(InvalidInput, match="is read-only"):
            connect(entry(path))
    finally:
        read_only.chmod(0o755)

    assert path.read_text() == CLAUDE


def test_a_file_that_changes_between_the_diff_and_the_writing_is_left_alone(tmp_path: Path) -> None:
    """And so are the others of the same program."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(CLAUDE)
    entries = [entry(first), entry(second)]
    changes = plan_changes(entries)
    second.write_text("{}")
    with pytest.raises(InvalidInput, match="was changed meanwhile, so nothing was written"):
        write_changes("program", changes, entries)

    assert (first.read_text(), second.read_text()) == (CLAUDE, "{}")


def test_undo_goes_on_behind_a_file_that_can_not_be_changed(tmp_path: Path) -> None:
    """What is left can be taken back later."""
    first, second = tmp_path / "first", tmp_path / "second"
    connect(entry(first), entry(second))
    text = first.read_text()
    first.write_text("{ half")
    with pytest.raises(InvalidInput, match="Take perdure out by hand"):
        undo_changes("program")
    assert not second.exists()
    first.write_text(text)
    undo_changes("program")

    assert not first.exists()


def test_what_can_not_be_put_back_is_left_alone(tmp_path: Path) -> None:
    """A server of that name with a text that is none, in a file that was changed since, also by connecting again."""
    path = tmp_path / "config"
    path.write_text('{"mcpServers": {"perdure": {"command": "\\ud800"}}}')
    connect(entry(path))
    path.write_text(path.read_text() + "\n")
    for call in (lambda: undo_changes("program"), lambda: connect(entry(path, names=("other", "perdure")))):
        with pytest.raises(InvalidInput, match="what stood there before is not UTF-8"):
            call()


def test_undo_of_one_project_leaves_the_others(tmp_path: Path) -> None:
    """Also one that lies in it, and the user's own configuration."""
    inner = tmp_path / "a" / "inner"
    for project in (tmp_path / "a", tmp_path / "b", inner, None):
        entries = [entry((project or tmp_path / "a") / ("user" if project is None else ".mcp.json"))]
        write_changes("program", plan_changes(entries), entries, project)
    assert len(undo_changes("program", tmp_path / "a")) == 1

    assert sorted(
        str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.name in ("user", ".mcp.json")
    ) == ["a/inner/.mcp.json", "a/user", "b/.mcp.json"]


@pytest.mark.slow
def test_ten_megabytes_are_written_and_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps({"projects": {str(number): "x" * 1_000 for number in range(10_000)}}, indent=2))
    before = path.read_bytes()
    assert len(before) > 10_000_000
    connect(entry(path))
    assert json.loads(path.read_bytes())["mcpServers"]["perdure"] == VALUE
    undo_changes("program")

    assert path.read_bytes() == before


ONE = """
import sys
from pathlib import Path
from perdure.core.errors import InvalidInput
from perdure.features.connect.files import plan_changes
from perdure.features.connect.programs import ConfigEntry
from perdure.features.connect.files import write_changes
path, name = Path(sys.argv[1]), sys.argv[2]
while True:
    entries = [ConfigEntry(path=path, format="json", names=("mcpServers", name), value={"command": "x" * 1000})]
    try:
        write_changes(name, plan_changes(entries), entries)
        break
    except InvalidInput as error:
        assert "was changed meanwhile" in str(error), error
"""


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each sees the other's entry, or says that the file changed."""
    path = tmp_path / "config"
    path.write_text(CLAUDE)
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    started = [
        subprocess.Popen([sys.executable, "-c", ONE, path, f"p{number}"], env=environment) for number in range(4)
    ]
    assert [one.wait(60) for one in started] == [0] * 4

    assert sorted(json.loads(path.read_text())["mcpServers"]) == ["p0", "p1", "p2", "p3", "shared-server"]


KILLED = """
import os, sys
from pathlib import Path
import perdure.features.connect.files as files
from perdure.features.connect.programs import ConfigEntry
from perdure.features.connect.files import write_changes
left = [int(sys.argv[2])]
def dies(real):
    def call(*arguments, **named):
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)
        return real(*arguments, **named)
    return call
for name in ("fsync", "open", "fdopen"):
    setattr(os, name, dies(getattr(os, name)))
files.Path.replace = dies(Path.replace)
entries = [ConfigEntry(path=Path(sys.argv[1]), format="json", names=("mcpServers", "perdure"), value={"command": "x"})]
write_changes("program", files.plan_changes(entries), entries)
"""


@pytest.mark.slow
def test_killed_anywhere_a_file_has_all_or_nothing(tmp_path: Path) -> None:
    """And undo gives what was there before."""
    path, codes = tmp_path / "config", []
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    for steps in range(30):
        path.write_text(CLAUDE)
        done = subprocess.run([sys.executable, "-c", KILLED, path, str(steps)], env=environment, check=False)
        codes.append(done.returncode)
        servers = sorted(json.loads(path.read_text())["mcpServers"])
        assert servers in (["shared-server"], ["perdure", "shared-server"])
        try:
            undo_changes("program")
        except InvalidInput as error:
            assert "nothing to take back" in str(error)
        assert path.read_text() == CLAUDE
        if done.returncode == 0:
            break

    assert codes[-1] == 0 and codes.count(9) >= 5
