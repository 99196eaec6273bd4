"""Bad files: refused with file and line, nothing written, no code run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.core.errors import InvalidInput, PerdureError
from perdure.features.manifests.files import open_files
from tests.features.manifests.office_files import RAN
from tests.support.library import MODEL, open_async

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
DEEP = "agents: {ada: {metadata: " + "[" * 100_000 + "]" * 100_000 + "}}"
RING = """
groups:
  one: {agents: [ada], groups: [two]}
  two: {groups: [three]}
  three:
    groups:
      - one
agents: {ada: {}}
"""

BAD: Mapping[str, tuple[str, str]] = {
    "a bomb of aliases": (f"agents: {{ada: {{metadata: {{\n{BOMB.replace(chr(10), ',' + chr(10))}}}}}}}", "values"),
    "an alias of itself": ("agents: &a {ada: {metadata: *a}}", "a.yaml:1: values are nested"),
    "aliases that explode in metadata": (
        f"agents:\n  ada:\n    metadata:\n      {BOMB.replace(chr(10), chr(10) + ' ' * 6)}",
        "aliases",
    ),
    "too deep": (DEEP, "a.yaml:1: values are nested more than 20 levels"),
    "a tag": ("agents: {ada: {system: !!python/object/apply:os.system [ls]}}", "a.yaml:1: the tag"),
    "a custom tag": ("agents:\n  ada: {system: !include /etc/passwd}", "a.yaml:2: the tag"),
    "a merge key": ("agents:\n  ada: &a {tags: [x]}\n  bob:\n    <<: *a", "a.yaml:4: a key is no text"),
    "no YAML": ("agents:\n  ada: [", "a.yaml:"),
    "a control character": ("agents: {ada: {system: \x07}}", "a.yaml"),
    "a list": ("- agents", "a.yaml:1: the file is a list"),
    "a text": ("hello", "a.yaml:1: the file is 'hello'"),
    "nothing": ("# nothing\n", "nothing in it"),
    "an unknown section": ("agent:\n  ada: {}", "a.yaml:1: the file has no field 'agent': did you mean 'agents'?"),
    "an unknown field": (
        "agents:\n  ada:\n    modle: x",
        "a.yaml:3: 'ada' has no field 'modle': did you mean 'model'?",
    ),
    "an unknown field of a block": ("agents:\n  ada:\n    blocks:\n      notes:\n        text: x", "a.yaml:5: 'notes'"),
    "a wrong type": ("agents:\n  ada:\n    tags: x", "a.yaml:3: 'tags' is 'x': give a list"),
    "a number for a text": ("agents:\n  ada:\n    model: 5", "a.yaml:3: 'model' is 5: give a text"),
    "true for a number": ("groups:\n  g:\n    max_turns: true", "a.yaml:3: 'max_turns' is True"),
    "a field without a value": ("agents:\n  ada:\n    tags:", "a.yaml:3: 'tags' is empty: give a list"),
    "a schedule without fields": ("schedules:\n  tea:", "a.yaml:2: 'tea' has no 'agent'"),
    "sections without things": ("agents:\nschedules:", "nothing in it"),
    "a key twice": ("agents:\n  ada: {}\n  ada: {}", "a.yaml:3: 'ada' is there twice"),
    "a key twice in two forms": ("agents:\n  é: {}\n  e\u0301: {}", "a.yaml:3: 'é' is there twice"),
    "a tool twice": (
        "agents:\n  ada:\n    tools: [memory_insert, memory_insert]",
        "a.yaml:3: 'memory_insert' is there twice",
    ),
    "seed and value": (
        "agents:\n  ada:\n    blocks:\n      n:\n        seed: x\n        value: y",
        "a.yaml:6: give `seed`",
    ),
    "another version": ("version: 2\nagents: {ada: {}}", "a.yaml:1: 'version' is 2: give 1"),
    "infinity": ("agents: {ada: {metadata: {x: .inf}}}", "a.yaml:1: the number '.inf' is not finite"),
    "a circle of groups": (RING, "a.yaml:7: the groups are a circle: one → two → three → one"),
    "a group of itself": ("groups:\n  g:\n    groups: [g]", "a.yaml:3: the groups are a circle: g → g"),
    "a group without agents": ("groups:\n  g: {agents: []}", "a.yaml:2"),
    "an agent that is not there": ("groups:\n  g:\n    agents: [nobody]", "a.yaml:3: there is no agent 'nobody'"),
    "a block that is not there": ("agents:\n  ada:\n    shared_blocks: [x]", "a.yaml:3: the files have no block 'x'"),
    "an archive that is not there": ("agents:\n  ada:\n    archives: [x]", "a.yaml:3: no archive has the name 'x'"),
    "a tool that is not there": (
        "agents:\n  ada:\n    tools:\n      - none_such",
        "a.yaml:4: there is no tool 'none_such'",
    ),
    "a model that is not there": ("agents:\n  ada:\n    model: no/such", "a.yaml:3: "),
    "a name that can't be used": ("agents:\n  a/b: {}", "a.yaml:2: agent 'a/b'"),
    "a setting that is not there": (
        f"agents:\n  ada:\n    model: {MODEL}\n    settings: {{context_window_token: 9}}",
        "a.yaml:4: ",
    ),
    "a setting that is like another one": (
        f"agents:\n  ada:\n    model: {MODEL}\n    settings:\n      temperatur: 1",
        "a.yaml:5: 'settings' has no field 'temperatur': did you mean 'temperature'?",
    ),
    "a setting that is like none": (
        f"agents:\n  ada:\n    model: {MODEL}\n    settings: {{colour: red}}",
        "a.yaml:4: 'settings' has no field 'colour': there are ",
    ),
    "a setting of the program": (
        "agents:\n  ada:\n    settings:\n      companion: true",
        "a.yaml:4: 'settings' has no field",
    ),
    "a block above its limit": ("agents:\n  ada:\n    blocks:\n      n: {value: xxxx, limit_chars: 2}", "a.yaml:4: "),
    "a zone that is not there": ("agents:\n  ada:\n    timezone: Mars/Olympus", "a.yaml:3: "),
    "a file outside": ("tools:\n  f:\n    file: ../f.py", "a.yaml:3: the file '../f.py' lies outside"),
    "an absolute file": ("tools:\n  f:\n    file: /etc/passwd", "a.yaml:3: the file '/etc/passwd' lies outside"),
    "a file by a detour": ("tools:\n  f:\n    file: sub/../../f.py", "a.yaml:3: "),
    "a link that leads outside": ("tools:\n  f:\n    file: link.py", "a.yaml:3: link.py: it lies outside"),
    "a file that is not there": ("tools:\n  f:\n    file: gone.py", "a.yaml:3: there is no file 'gone.py'"),
    "a folder as a file": ("tools:\n  f:\n    file: sub", "a.yaml:3: there is no file 'sub'"),
    "a tool without source": ("tools:\n  f: {}", "a.yaml:2: give the tool's `file`"),
    "a source that is no Python": ("tools:\n  f:\n    source: 'def f(:'", "a.yaml:"),
    "a source without the function": ("tools:\n  f:\n    source: 'def g(): pass'", "a.yaml:"),
    "a tool with a built-in name": ("tools:\n  memory_insert:\n    source: 'def memory_insert(): pass'", "a.yaml:2"),
    "a binary file": ("tools:\n  f:\n    file: binary.py", "a.yaml:3: binary.py: the file is no text"),
    "a secret in the file": (
        "mcp_servers:\n  w:\n    url: https://x.example\n    token: abc",
        "a.yaml:4: 'token' is 'abc'",
    ),
    "a url and a command": (
        "mcp_servers:\n  w:\n    url: https://x.example\n    command: ls",
        "a.yaml:2: an MCP server",
    ),
    "a url of another scheme": ("mcp_servers:\n  w:\n    url: file:///etc/passwd", "a.yaml:3"),
    "two times": (
        "agents: {ada: {}}\nschedules:\n  s: {agent: ada, message: x, every: 1d, cron: '* * * * *'}",
        "a.yaml:3",
    ),
    "no agent": ("schedules:\n  s: {message: x, every: 1d}", "a.yaml:2: 's' has no 'agent'"),
    "a time that passed": ("agents: {ada: {}}\nschedules:\n  s: {agent: ada, message: x, at: 2001-01-01}", "a.yaml:3"),
    "too often": ("agents: {ada: {}}\nschedules:\n  s: {agent: ada, message: x, every: 1s}", "a.yaml:3"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
async def test_it_is_refused_with_its_place_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    """Whatever is wrong, the error says where; no agent is made, and no file is run."""
    text, expected = BAD[name]
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "f.py").write_text(f"open({str(RAN)!r}, 'w')\ndef f():\n    '''It.'''\n")
    (folder / "binary.py").write_bytes(b"\xff\xfe\x00\x01")
    (folder / "link.py").symlink_to(tmp_path / "f.py")
    (folder / "a.yaml").write_text(text)
    async with await open_async(tmp_path / "store.db") as library:
        with pytest.raises(PerdureError) as found:
            await library.manifests.apply(folder / "a.yaml")

        assert expected in str(found.value), str(found.value)
        assert await library.agents() == [] and await library.groups.list() == []
        assert not RAN.exists()


async def test_a_folder_is_read_whole_and_says_which_file(tmp_path: Path) -> None:
    """Things of several files may name one another; one of two of a name is refused with both places."""
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.yaml").write_text("nonsense: [")
    (tmp_path / "a.yml").write_text("groups: {g: {agents: [ada]}}")
    (tmp_path / "b" / "agents.yaml").write_text(f"agents:\n  ada: {{model: {MODEL}}}\n---\nblocks: {{x: {{}}}}\n")
    async with await open_async(tmp_path / "store.db") as library:
        done = await library.manifests.apply(tmp_path)
        (tmp_path / "c.yaml").write_text("\nagents: {ada: {}}")
        with pytest.raises(InvalidInput) as twice:
            await library.manifests.plan(tmp_path)
        empty = tmp_path / "empty"
        empty.mkdir()
        with pytest.raises(InvalidInput):
            await library.manifests.plan(empty)
        with pytest.raises(InvalidInput):
            await library.manifests.plan(tmp_path / "nothing.yaml")

        assert [one.name for one in done.changes] == ["x", "ada", "g"]
        assert str(twice.value) == "c.yaml:2: agent 'ada' is in b/agents.yaml:2 already"


def test_a_folder_with_too_much_in_it_is_not_walked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as `/`, the whole disk."""
    monkeypatch.setattr("perdure.features.manifests.files.WALK_MAX", 3)
    for name in "abcd":
        (tmp_path / name).mkdir()

    with pytest.raises(InvalidInput, match="more than 3 files and folders"):
        open_files(tmp_path)
