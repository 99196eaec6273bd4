"""What is wrong with a file of a plug-in or policy is told with the file and the line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.features.plugins.installed import load_records
from perdure.features.plugins.manifest import read_manifest
from perdure.features.plugins.places import FileInvalid
from perdure.features.plugins.policy import load_policy
from perdure.settings import Settings
from tests.features.plugins.files import write

HOOK = '{\n "hooks": {\n\t"PreToolUse": [\n  {\n   "matcher": %s,\n   "hooks": [\n    %s\n   ]\n  }\n ]\n }\n}'
"""The file of a hook: its matcher on line 5, the hook on line 7."""

BROKEN = {
    "a name of another type": ("plugin.json", '{\n "version": "1",\n "name": 5\n}', 3, "name: "),
    "a name that can't be used": ("plugin.json", '{\n\n "name": "../x"\n}', 3, "name"),
    "no object": (".claude-plugin/plugin.json", "\n\n[1]", 3, "valid"),
    "no JSON": ("plugin.json", '{\n "name": "x",\n}', 3, "can't be used"),
    "no UTF-8": ("plugin.json", b'{\n "name": "\xff"}', 2, "UTF-8"),
    "a version of another type": ("plugin.json", '{\n "name": "x",\n\t"version":\n [1]}', 3, "version: "),
    "a place outside": ("plugin.json", '{\n "commands": [\n  "./a",\n  "../b"\n ]}', 4, "commands.1: "),
    "a dependency that is no name": ("plugin.json", '{\n "dependencies": [\n  "a",\n  "../b"]}', 4, "dependencies.1: "),
    "a range that is none": ("plugin.json", '{\n "dependencies": {\n  "a": "1",\n  "b": "new"}}', 4, "'new'"),
    "a matcher that is not a pattern": ("hooks/hooks.json", HOOK % ('"("', '{"command": "x"}'), 5, "matcher"),
    "a hook without a command": ("hooks/hooks.json", HOOK % ('"*"', '{"type": "command"}'), 7, "command"),
    "a hook that is a text": ("hooks/hooks.json", HOOK % ('"*"', '"x"'), 7, "hooks.PreToolUse.0.hooks.0: "),
    "a timeout below zero": ("hooks/hooks.json", HOOK % ('"*"', '{"command": "x",\n"timeout": -1}'), 8, "timeout: "),
    "a hook in the manifest": ("plugin.json", '{\n "hooks": {\n  "Stop": 5}}', 3, "hooks.Stop: "),
    "a server without a place": (".mcp.json", '{\n "mcpServers": {\n  "a": {}}}', 3, "mcpServers.a: "),
    "an argument that is a number": (
        ".mcp.json",
        '{\n "a": {\n  "command": "x",\n  "args": [\n   "a",\n   5]}}',
        6,
        "a.args.1: ",
    ),
    "a server's name": (".mcp.json", '{\n "a": {"url": "http://x"},\n "../b": {"command": "x"}}', 3, "../b"),
}


@pytest.mark.parametrize(("file", "text", "line", "why"), BROKEN.values(), ids=BROKEN)
def test_a_file_of_a_plug_in(tmp_path: Path, file: str, text: str | bytes, line: int, why: str) -> None:
    """Also where tabs stand between the values."""
    write(tmp_path / file, "").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FileInvalid) as raised:
        read_manifest(tmp_path, name="x")

    assert (raised.value.path, raised.value.line) == (file, line) and why in raised.value.why
    assert str(raised.value).startswith(f"{file}:{line}: ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("denied_tools = []\n\ndenied_helper = ['x']", 3),
        ("# denied_tools\ndenied_tools = 'x'", 2),
        ("allowed_models = [\n 'a',\n 5]", 1),
        ("\n\n[denied_tools]\nx = 1", 3),
        ("denied_tools = []\ndenied_tools = []", 2),
        ("denied_tools = [\n'a'\n\n!", 4),
    ],
)
def test_a_policy(tmp_path: Path, text: str, line: int) -> None:
    """Whether it is not TOML, or has something unknown."""
    file = write(tmp_path / "policy.toml", text)
    with pytest.raises(FileInvalid) as raised:
        load_policy(Settings(policy=str(tmp_path)))

    assert (raised.value.path, raised.value.line) == (str(file), line)


def test_the_file_of_records(tmp_path: Path) -> None:
    """One that somebody has edited."""
    write(tmp_path / "plugins" / "plugins.json", '{\n "a": {},\n}')
    with pytest.raises(FileInvalid) as raised:
        load_records(Settings(home=str(tmp_path)))

    assert raised.value.line == 3


@pytest.mark.parametrize(
    "record",
    [
        {"roots": {"agents": ["../../x"]}},
        {"roots": {"agents": ["/etc"]}},
        {"hooks": [{"event": "Nope", "command": "x"}]},
        {"hooks": 5},
        {"dependencies": {"b": "newest"}},
        {"folder": "../x"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_record_that_no_plug_in_can_have(tmp_path: Path, record: object) -> None:
    """Nothing is used then, and the file is named."""
    file = write(tmp_path / "plugins" / "plugins.json", json.dumps({"a": record}))
    with pytest.raises(FileInvalid, match="can't be used"):
        load_records(Settings(home=str(tmp_path)))
    assert file.exists()
