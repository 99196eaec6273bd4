"""`perdure connect`: it shows, asks, writes, checks, and takes back; and says what to add by hand where it can't."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from perdure.core.errors import InvalidInput
from perdure.features.connect.checks import check_answer, check_entries
from perdure.features.connect.jsonc import JsonText
from perdure.features.connect.own_command import own_command
from perdure.features.connect.programs import ConfigEntry, data_variables, find_program, plan_entries, programs
from tests.support.programs import SRC, environment, perdure, run_inside
from tests.support.warm import warm
from tests.ui.browser import BASE, dashboard

FILES = {
    "claude-code": (".claude.json", ".mcp.json"),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json"),
    "codex": (".codex/config.toml", ".codex/config.toml"),
    "vscode": (".config/Code/User/mcp.json", ".vscode/mcp.json"),
    "zed": (".config/zed/settings.json", ".zed/settings.json"),
}
NAMES = {
    "claude-code": "mcpServers",
    "cursor": "mcpServers",
    "codex": "mcp_servers",
    "vscode": "servers",
    "zed": "context_servers",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user, in whose project `a project` the command runs."""
    folder = tmp_path / "home"
    (folder / "a project" / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder / "a project")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    monkeypatch.setattr(sys, "platform", "linux")
    # Each check starts the program that is on the PATH: a warm one, for a cold start costs a second of CPU.
    monkeypatch.setenv("PATH", os.pathsep.join([str(warm("perdure", environment(folder)).parent), os.environ["PATH"]]))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "PERDURE_STORE"):
        monkeypatch.delenv(name, raising=False)
    return folder


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.mark.parametrize("program", FILES)
@pytest.mark.parametrize("is_project", [False, True])
def test_a_program_is_connected_and_taken_out_again(home: Path, program: str, is_project: bool) -> None:
    """Its own file names the server, which starts; undo leaves nothing."""
    data, options = home.parent / 'data "of" mine', ("--project", ".") if is_project else ()
    done = run_inside(data, "connect", program, "--yes", *options)
    assert (done.returncode, "starts and answers" in done.stdout) == (0, True), done
    folder = home / "a project" if is_project else home
    path = folder / FILES[program][is_project]
    text = path.read_text()
    found = tomllib.loads(text) if path.suffix == ".toml" else JsonText(text).root.value
    server = found[NAMES[program]]["perdure"]
    assert server["env"] == {"PERDURE_HOME": str(data)}
    assert Path(server["command"]).is_absolute()
    assert server["args"][server["args"].index("mcp") :] in (
        ["mcp", "--project", "."],
        ["mcp", "--project", "${workspaceFolder}"],
        ["mcp"],
    )
    assert run_inside(data, "connect", program, "--undo").returncode == 0

    assert files_in(home) == {}
    assert sorted(one.name for one in home.iterdir()) == ["a project"]


@pytest.mark.parametrize("names_it", [True, False])
def test_a_project_that_was_moved_is_named_at_undo(home: Path, names_it: bool) -> None:
    """What lies elsewhere now is left alone, and the user's own configuration is given back."""
    data, project = home.parent / "data", home / "a project"
    for options in ((), ("--project", str(project))):
        run_inside(data, "connect", "cursor", "--yes", *options)
    moved = project.rename(home / "moved") / ".cursor/mcp.json"
    os.chdir(home)
    done = run_inside(data, "connect", "cursor", "--undo", *(("--project", str(project)) if names_it else ()))

    assert done.returncode == 0, done
    assert f"{project}/.cursor/mcp.json is gone with its project. If that was moved, take perdure out" in done.stdout
    assert "perdure" in moved.read_text() and (home / ".cursor/mcp.json").exists() == names_it
    again = run_inside(data, "connect", "cursor", "--undo", "--project", str(project))
    assert (again.returncode, "there is nothing to take back" in again.stderr) == (1, True)


def test_nothing_is_written_without_a_yes(home: Path) -> None:
    """The difference is shown."""
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text('{\n  "mcpServers": {} // mine\n}\n')
    done = run_inside(home.parent / "data", "connect", "cursor")

    assert (done.returncode, "Pass --yes" in done.stderr) == (1, True)
    assert '+     "perdure": {' in done.stdout
    shown = run_inside(home.parent / "data", "connect", "claude-code").stdout
    assert "more lines" not in shown and shown.count('"command": ') == 6  # all of a long difference
    assert (home / ".cursor/mcp.json").read_text() == '{\n  "mcpServers": {} // mine\n}\n'


def test_print_writes_nothing(home: Path) -> None:
    done = run_inside(home.parent / "data", "connect", "claude-code", "--print")

    assert (done.returncode, files_in(home)) == (0, {})
    assert done.stdout.startswith(f'{home}/.claude.json:\n{{\n  "mcpServers": {{')
    assert f"{home}/.claude/settings.json:" in done.stdout


def test_a_broken_file_is_left_alone_with_what_to_add_by_hand(home: Path) -> None:
    """Also the other file of the same program is not written."""
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text('{"hooks": {')
    done = run_inside(home.parent / "data", "connect", "claude-code", "--yes")

    assert (done.returncode, files_in(home)) == (1, {".claude/settings.json": b'{"hooks": {'})
    assert "line 1 can't be read as JSON" in done.stdout and "To add by hand:" in done.stdout
    assert '"SessionStart": [' in done.stdout
    assert "Claude Code was not connected: nothing was written" in done.stderr


@pytest.mark.parametrize("link", [".mcp.json", ".claude"])
def test_a_link_out_of_a_project_is_not_followed(home: Path, tmp_path: Path, link: str) -> None:
    """Whoever made the project would choose which file is written. Inside of it a link is followed."""
    project, other = tmp_path / "project", tmp_path / "other"
    (project / ".git").mkdir(parents=True)
    other.mkdir()
    (project / link).symlink_to(other / "app.json" if link == ".mcp.json" else other)
    words = ["connect", "claude-code", "--project", str(project), "--yes"]
    refused = run_inside(home.parent / "data", *words)

    assert refused.returncode == 1 and f"{other}" in refused.stdout and "is not in the project" in refused.stdout
    assert (list(other.iterdir()), (project / ".mcp.json").exists()) == ([], False)
    (project / link).unlink()
    (project / "inner").mkdir()
    (project / link).symlink_to("inner/app.json" if link == ".mcp.json" else "inner")
    assert run_inside(home.parent / "data", *words).returncode == 0
    assert list((project / "inner").iterdir())
    (project / link).unlink()
    (project / link).symlink_to(other / "app.json" if link == ".mcp.json" else other)
    assert run_inside(home.parent / "data", "connect", "claude-code", "--undo").returncode in (0, 1)
    assert not list(other.iterdir())


@pytest.mark.parametrize("line", ["notify-send Done; exec nice perdure hook stop", "perdure hook stop"])
def test_a_hook_of_the_users_own_stays_or_comes_back(home: Path, line: str) -> None:
    """One that only ends as ours do is theirs; one that they wrote as we do is replaced. Undo leaves both as before,
    also in a file that was changed since."""
    group = {"hooks": [{"type": "command", "command": line, "timeout": 3}]}
    (home / ".claude").mkdir()
    settings = home / ".claude/settings.json"
    settings.write_text(json.dumps({"hooks": {"Stop": [group]}}))
    for _ in range(2):  # what was replaced is kept when it is connected again
        run_inside(home.parent / "data", "connect", "claude-code", "--yes")
        found = json.loads(settings.read_text())
        settings.write_text(json.dumps(found | {"model": "opus"}))
    run_inside(home.parent / "data", "connect", "claude-code", "--undo")

    assert len(found["hooks"]["Stop"]) == (2 if line.startswith("notify") else 1)
    after = json.loads(settings.read_text())
    assert (after["hooks"]["Stop"], after["model"]) == ([group], "opus")


def test_hooks_are_added_beside_those_that_are_there(home: Path) -> None:
    """Once, however often; undo leaves the others. Quotes in the path of the data hold in the shell."""
    mine = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}}
    (home / ".claude").mkdir()
    settings = home / ".claude/settings.json"
    settings.write_text(json.dumps(mine, indent=4))
    before, data = settings.read_bytes(), home.parent / "my 'data'"
    run_inside(data, "connect", "claude-code", "--yes")
    assert "is connected already" in run_inside(data, "connect", "claude-code", "--yes").stdout
    found = json.loads(settings.read_text())["hooks"]
    assert {name: len(groups) for name, groups in found.items()} == {
        "Stop": 2,
        "SessionStart": 1,
        "PostToolUse": 1,
        "PreCompact": 1,
        "SessionEnd": 1,
    }
    command = found["PostToolUse"][0]["hooks"][0]["command"]
    (home / "payload.json").write_text(json.dumps({"cwd": ".", "tool_input": {"file_path": "/a"}}))
    assert os.system(f"{command} < {home}/payload.json") == 0
    assert list(data.rglob("edits.jsonl"))
    run_inside(data, "connect", "claude-code", "--undo")

    assert settings.read_bytes() == before


@pytest.mark.parametrize("option", ["--read-only", "--no-hooks"])
def test_without_hooks_only_the_server_is_written(home: Path, option: str) -> None:
    run_inside(home.parent / "data", "connect", "claude-code", "--yes", option)

    assert list(files_in(home)) == [".claude.json"]
    args = json.loads((home / ".claude.json").read_text())["mcpServers"]["perdure"]["args"]
    assert ("--read-only" in args) == (option == "--read-only")


@pytest.mark.parametrize("option", ["--read-only", "--no-hooks"])
@pytest.mark.parametrize(
    "before", [None, '{\n  "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say"}]}]}\n}\n']
)
def test_hooks_of_an_earlier_time_are_taken_out(home: Path, option: str, before: str | None) -> None:
    """Else a program that only reads would store what is said; the user's own hooks stay, and undo gives all back."""
    path, data = home / ".claude/settings.json", home.parent / "data"
    path.parent.mkdir()
    if before is not None:
        path.write_text(before)
    run_inside(data, "connect", "claude-code", "--yes")
    assert path.read_text().count("perdure hook ") == 5
    done = run_inside(data, "connect", "claude-code", "--yes", option)

    assert (done.returncode, done.stdout.count("starts and answers")) == (0, 1), done
    assert json.loads(path.read_text()) == json.loads(before or "{}")
    run_inside(data, "connect", "claude-code", "--undo")
    assert (path.read_text() if path.exists() else None) == before


def test_programs_own_variables_move_their_files(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each system has its own folders."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "x"))

    def path_of(name: str) -> Path:
        return plan_entries(find_program(name), folder=None)[0].path

    assert path_of("claude-code") == tmp_path / "c" / ".claude.json"
    assert path_of("codex") == tmp_path / "x" / "config.toml"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert path_of("vscode") == home / "Library/Application Support/Code/User/mcp.json"
    assert path_of("zed") == home / ".config/zed/settings.json"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("APPDATA", str(tmp_path / "Roaming"))
    assert path_of("vscode") == tmp_path / "Roaming/Code/User/mcp.json"
    assert path_of("zed") == tmp_path / "Roaming/zed/settings.json"


def test_a_password_does_not_get_where_others_read_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the project, and the command of a hook, which each user sees while it runs."""
    monkeypatch.setenv("PERDURE_STORE", "postgresql://ada:secret@db/perdure")
    with pytest.raises(InvalidInput, match="PERDURE_STORE has a password"):
        plan_entries(find_program("cursor"), folder=home)

    assert data_variables(shared=False)["PERDURE_STORE"].endswith("@db/perdure")
    assert plan_entries(find_program("cursor"), folder=None)
    with pytest.raises(InvalidInput, match="in the command of a hook"):
        plan_entries(find_program("claude-code"), folder=None)
    assert plan_entries(find_program("claude-code"), folder=None, hooks=False)
    monkeypatch.setenv("PERDURE_STORE", "postgresql://db/perdure?user=ada&password=secret")
    with pytest.raises(InvalidInput, match="PERDURE_STORE has a password"):
        data_variables(shared=True)
    monkeypatch.setenv("PERDURE_STORE", "postgresql://ada@db/perdure")
    assert data_variables(shared=True)["PERDURE_STORE"] == "postgresql://ada@db/perdure"
    for store in ("~none/x.db", "sqlite:///x.db"):  # nor one that no program could open
        monkeypatch.setenv("PERDURE_STORE", store)
        with pytest.raises(InvalidInput, match="PERDURE_STORE"):
            data_variables(shared=False)


def test_a_module_of_the_opened_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs start the command in folders of others, which may have a `perdure.py`."""
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (tmp_path / "perdure.py").write_text("raise SystemExit('run')")

    done = subprocess.run([*own_command(), "--version"], cwd=tmp_path, capture_output=True, text=True)

    assert done.stdout.startswith("perdure "), done.stderr


def test_programs_without_a_file_say_what_a_person_does(home: Path) -> None:
    done = run_inside(home.parent / "data", "connect", "open-webui", PERDURE_BASE_URL="http://127.0.0.1:9999")
    assert (done.returncode, "http://127.0.0.1:9999" in done.stdout) == (0, True)
    unknown = run_inside(home.parent / "data", "connect", "emacs")

    assert (unknown.returncode, "there are claude-code, cursor, codex" in unknown.stderr) == (1, True)


def test_each_program_says_where_its_format_is_documented() -> None:
    assert [one.name for one in programs().values() if "2026" not in one.source] == []


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("print('hello')", "Expecting value"),
        ("print(5)", "it answered b'5"),
        ("import sys; sys.exit('no store here')", "no store here"),
        ('print(\'{"jsonrpc": "2.0", "id": 1, "error": {}}\')', "it answered"),
    ],
)
async def test_a_server_that_does_not_start_is_told(tmp_path: Path, program: str, why: str) -> None:
    """With what it said itself."""
    request = {"method": "initialize"}
    assert why in await check_answer([sys.executable, "-c", program], {}, tmp_path, request)
    assert "can't be started" in await check_answer(["/no/such/program"], {}, tmp_path, request)


@pytest.mark.parametrize(("line", "why"), [("exit 3;", "ended without"), ("echo 5;", "answered"), ("echo x;", "value")])
async def test_a_hook_that_does_not_run_is_told(tmp_path: Path, line: str, why: str) -> None:
    """It has to end with 0, and what it prints has to be an object."""
    hook = {"type": "command", "command": f"{line} true perdure hook session-start"}
    entry = ConfigEntry(path=tmp_path, format="json", names=("hooks",), value={"hooks": [hook]}, mark="start")
    with pytest.raises(InvalidInput, match=f"`perdure hook session-start` does not start: .*{why}"):
        await check_entries([entry], tmp_path)
    hook["command"] = hook["command"].removeprefix(line)

    assert await check_entries([entry], tmp_path) == ["perdure hook session-start"]


@pytest.mark.parametrize(
    ("program", "names"), [("claude-code", ["mcp", "hook session-start"]), ("zed", ["mcp", "acp"]), ("letta-code", [])]
)
def test_each_side_that_was_written_is_started(home: Path, program: str, names: list[str]) -> None:
    """The tools, the agent of an editor, the hooks."""
    done = run_inside(home.parent / "data", "connect", program, "--yes")

    assert done.returncode == 0, done
    assert [line for line in done.stdout.splitlines() if "starts and answers" in line] == [
        f"`perdure {name}` starts and answers." for name in names
    ]


def test_a_path_that_is_no_text_is_taken_back(home: Path) -> None:
    """A project's folder may have any bytes in its name."""
    folder = Path(os.fsdecode(os.fsencode(home / "p") + b"\xff"))
    (folder / ".git").mkdir(parents=True)
    for option in ("--yes", "--undo"):
        done = perdure(home.parent / "data", "connect", "claude-code", "--project", str(folder), option)
        assert done.returncode == 0, done

    assert files_in(folder) == {}


@pytest.mark.parametrize("level", ["off", "light", "strict"])
def test_reminders_have_the_level_that_was_given(home: Path, level: str) -> None:
    """In the server and in the hook; connected again, it changes. Only the hook knows sessions, for `light`."""
    data = home.parent / "data"
    run_inside(data, "connect", "claude-code", "--yes")
    run_inside(data, "connect", "claude-code", "--yes", "--nudges", level)
    args = json.loads((home / ".claude.json").read_text())["mcpServers"]["perdure"]["args"]
    (group,) = json.loads((home / ".claude/settings.json").read_text())["hooks"]["PostToolUse"]

    assert args[-2:] == ["--nudges", "off" if level == "light" else level]
    assert group["hooks"][0]["command"].endswith(f"perdure hook post-tool-use --nudges {level}")
    assert run_inside(data, "connect", "claude-code", "--yes", "--nudges", "loud").returncode == 1
    run_inside(data, "connect", "claude-code", "--yes")
    (group,) = json.loads((home / ".claude/settings.json").read_text())["hooks"]["PostToolUse"]
    assert group["hooks"][0]["command"].endswith("perdure hook post-tool-use")
    run_inside(data, "connect", "claude-code", "--undo")
    assert files_in(home) == {}


def test_letta_code_gets_the_address_of_the_server(home: Path) -> None:
    """Beside its own settings, which it writes anew at each start."""
    path = home / ".letta/settings.json"
    path.parent.mkdir()
    path.write_text('{"lastAgent": "agent-1", "env": {"LETTA_BASE_URL": "https://api.letta.com"}}')
    empty = run_inside(home.parent / "data", "connect", "letta-code", "--print", PERDURE_BASE_URL=" ")
    assert '"LETTA_BASE_URL": "http://127.0.0.1:8283"' in empty.stdout
    run_inside(home.parent / "data", "connect", "letta-code", "--yes", PERDURE_BASE_URL="http://127.0.0.1:9999/")
    found = json.loads(path.read_text())
    assert found == {"lastAgent": "agent-1", "env": {"LETTA_BASE_URL": "http://127.0.0.1:9999"}}
    path.write_text(json.dumps({**found, "lastAgent": "agent-2"}))
    run_inside(home.parent / "data", "connect", "letta-code", "--undo")

    assert json.loads(path.read_text()) == {"lastAgent": "agent-2", "env": {"LETTA_BASE_URL": "https://api.letta.com"}}


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("open-webui", ("--undo",)),
        ("open-webui", ("--project", ".")),
        ("letta-code", ("--project", ".")),
        ("letta-code", ("--read-only",)),
        ("letta-code", ("--nudges", "off")),
    ],
)
def test_an_option_that_changes_nothing_is_refused(home: Path, program: str, options: tuple[str, ...]) -> None:
    done = run_inside(home.parent / "data", "connect", program, *options, "--yes")

    assert (done.returncode, f"leave {options[0]} out" in done.stderr) == (1, True)


@pytest.mark.parametrize("store", ["/data/my store.db", "postgresql://ada@db/p", "postgresql://ada:secret@db/p"])
async def test_on_this_machine_the_page_says_where_the_data_is(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    """As the command does; not to somebody behind a proxy, and no password."""
    monkeypatch.setenv("PERDURE_HOME", "/data/perdure")
    monkeypatch.setenv("PERDURE_STORE", store)
    async with dashboard() as (client, _):
        found = (await client.get("/connections?format=json")).json()["connect"]
        elsewhere = await client.get("/connections?format=json", headers={"x-forwarded-for": "203.0.113.7"})
    server, hooks = (json.loads(part["text"]) for part in found[0]["texts"])
    command = hooks["hooks"]["Stop"][0]["hooks"][0]["command"]
    environment = server["mcpServers"]["perdure"].get("env", {})

    assert "/data/perdure" not in elsewhere.text and "secret" not in json.dumps(found)
    if "secret" in store:
        assert (environment, command) == ({}, "perdure hook stop")
    else:
        assert environment == {"PERDURE_HOME": "/data/perdure", "PERDURE_STORE": store}
        variables = f"PERDURE_HOME=/data/perdure PERDURE_STORE={shlex.quote(store)}"
        assert command == f"{variables} perdure hook stop"


async def test_the_page_of_connections_has_the_same_snippets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a button that copies it, and with nothing of the server's machine."""
    for name in ("PERDURE_HOME", "PERDURE_STORE"):
        monkeypatch.delenv(name, raising=False)
    async with dashboard() as (client, _):
        page = (await client.get("/connections")).text
        found = (await client.get("/connections?format=json")).json()["connect"]
    texts = {one["name"]: (one["command"], [part["text"] for part in one["texts"]]) for one in found}

    assert list(texts) == ["Claude Code", "Cursor", "Codex", "VS Code", "Zed", "Open WebUI", "Letta Code"]
    assert texts["Claude Code"][0] == "perdure connect claude-code"
    assert json.loads(texts["Claude Code"][1][0])["mcpServers"]["perdure"] == {
        "type": "stdio",
        "command": "perdure",
        "args": ["mcp", "--project", "."],
    }
    hooks = json.loads(texts["Claude Code"][1][1])["hooks"]
    assert hooks["SessionStart"][0]["hooks"][0]["command"] == "perdure hook session-start"
    assert f"{BASE}/mcp" in texts["Open WebUI"][1][0]
    assert json.loads(texts["Letta Code"][1][0]) == {"env": {"LETTA_BASE_URL": BASE}}
    assert page.count("<summary>Claude Code</summary>") == page.count(">Claude Code") == 1
    assert page.count('data-copy="connect-') == sum(bool(command) + len(parts) for command, parts in texts.values())
    assert str(Path.home()) not in json.dumps(found)
