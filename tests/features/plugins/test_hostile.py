"""Hostile plug-ins, commands and skills: nothing of them runs before a person agrees, nothing goes past the policy."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.core.errors import Conflict, InvalidInput
from perdure.features.plugins.definitions import KINDS
from perdure.features.plugins.layers import find_definitions
from perdure.settings import Settings
from tests.features.plugins.files import define, write

Make = Callable[[Path], object]


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that each hostile thing would make if it ran."""
    return tmp_path / "it-ran"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The folder of a plug-in with a helper."""
    folder = tmp_path / "source"
    define(folder, "agents", "rev")
    return folder


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A data folder of its own."""
    return Settings(home=str(tmp_path / "home"))


@pytest.fixture
def store(settings: Settings) -> Iterator[Perdure]:
    """A store whose data folder has no plug-in yet."""
    with Perdure(settings=settings) as opened:
        yield opened


def manifest(**fields: object) -> Make:
    """What writes a manifest with these fields."""
    return lambda folder: write(folder / ".claude-plugin" / "plugin.json", json.dumps({"name": "evil", **fields}))


def hooks(**hook: object) -> Make:
    """What writes hooks with this one."""
    shape = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", **hook}]}]}}
    return lambda folder: write(folder / "hooks" / "hooks.json", json.dumps(shape))


def many_files(folder: Path) -> None:
    """More files than a plug-in may have."""
    for number in range(2_001):
        write(folder / f"{number}.txt", "")


def deep_folders(folder: Path) -> None:
    """More levels of folders than a plug-in may have."""
    write(folder.joinpath(*["a"] * 13, "x.md"), "x")


REFUSED: dict[str, tuple[Make, str]] = {
    "a name that leads out of the data folder": (manifest(name="../../evil"), "plugin.json.*name"),
    "a name with a slash": (manifest(name="a/b"), "plugin.json.*name"),
    "a name that hides": (manifest(name=".new-x"), "plugin.json.*name"),
    "a name that is not text": (manifest(name=["x"]), "plugin.json.*name"),
    "helpers outside of its folder": (manifest(agents="../../../etc"), "plugin.json:1: agents"),
    "commands at a whole path": (manifest(commands=["/etc"]), "plugin.json:1: commands"),
    "hooks outside of its folder": (manifest(hooks="./a/../../b.json"), "plugin.json:1: hooks"),
    "a dependency that is no name": (manifest(dependencies=["../x"]), "dependencies"),
    "a dependency of no version": (manifest(dependencies={"x": "newest"}), "newest"),
    "a dependency that is missing": (manifest(dependencies={"tidy": "^1"}), "'tidy', which is not installed"),
    "a manifest that is not JSON": (lambda folder: write(folder / "plugin.json", "{"), "plugin.json.*line 1"),
    "a manifest that is deep": (lambda folder: write(folder / "plugin.json", "[" * 50 + "]" * 50), "plugin.json"),
    "a manifest that is huge": (lambda folder: write(folder / "plugin.json", " " * 300_000 + "{}"), "plugin.json"),
    "a link to a file outside": (lambda folder: (folder / "agents" / "x.md").symlink_to("/etc/passwd"), "a link"),
    "a link to a folder outside": (lambda folder: (folder / "skills").symlink_to("/etc"), "a link"),
    "a pipe": (lambda folder: os.mkfifo(folder / "pipe"), "no file"),
    "a file with a control character in its name": (lambda folder: write(folder / "a\x1b[2Jb.md", "x"), "name"),
    "a file whose name is not UTF-8": (lambda folder: (folder / os.fsdecode(b"\xff")).write_text("x"), "name"),
    "too many files": (many_files, "more than"),
    "folders that are too deep": (deep_folders, "levels"),
    "a hook without a command": (hooks(command=" "), "hooks/hooks.json:1: hooks.PreToolUse"),
    "a hook with a terminal's escapes": (hooks(command="true\x1b[2J"), "hooks/hooks.json:1: hooks.PreToolUse"),
    "a hook that waits below zero": (hooks(command="true", timeout=-1), "hooks/hooks.json"),
    "hooks that are a list": (lambda folder: write(folder / "hooks" / "hooks.json", '{"hooks": []}'), "hooks.json"),
    "a hook that is a number": (
        lambda folder: write(folder / "hooks" / "hooks.json", '{"PreToolUse": [{"hooks": 5}]}'),
        "hooks.json:1: PreToolUse.0.hooks",
    ),
    "arguments that are an object": (
        lambda folder: write(folder / ".mcp.json", '{"a": {"command": "x", "args": {"b": 1}}}'),
        r"\.mcp\.json:1: a\.args",
    ),
    "a matcher that is not a pattern": (
        lambda folder: write(
            folder / "hooks" / "hooks.json",
            json.dumps({"PreToolUse": [{"matcher": "(", "hooks": [{"command": "true"}]}]}),
        ),
        "matcher",
    ),
    "a server with a command and a url": (
        lambda folder: write(folder / ".mcp.json", '{"mcpServers": {"a": {"command": "x", "url": "http://x"}}}'),
        "needs a command or a url",
    ),
    "a server with a path as its name": (
        lambda folder: write(folder / ".mcp.json", '{"mcpServers": {"../a": {"command": "x"}}}'),
        "server's name",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_plug_in_is_refused_before_anything_is_installed(
    store: Perdure, settings: Settings, source: Path, name: str
) -> None:
    """With the file and the reason; the data folder is as it was."""
    make, why = REFUSED[name]
    make(source)
    with pytest.raises(InvalidInput, match=why):
        store.plugins.install(str(source), expected=store.plugins.look(str(source)).digest)

    assert not (settings.folder / "plugins").exists() and store.plugins.list() == []


@pytest.mark.parametrize(
    "url", ["ext::sh -c 'touch {mark}'", "--upload-pack=touch {mark}", "file:///missing", "-u", ""]
)
def test_a_source_that_would_run_a_program_is_refused(store: Perdure, mark: Path, url: str) -> None:
    """Git has addresses and options that do."""
    with pytest.raises(InvalidInput):
        store.plugins.look(url.format(mark=mark))

    assert not mark.exists()


def test_nothing_runs_until_it_is_approved(store: Perdure, settings: Settings, source: Path, mark: Path) -> None:
    """Neither its hooks, its MCP servers, its scripts, nor the hooks and filters of its repository."""
    touch = f"touch {mark}"
    hooks(command=touch)(source)
    write(source / ".mcp.json", json.dumps({"mcpServers": {"a": {"command": "touch", "args": [str(mark)]}}}))
    write(source / ".gitattributes", "* filter=evil")
    for name in ("setup.py", "install.sh", "postinstall"):
        write(source / name, touch).chmod(0o755)
    git = ["git", "-C", str(source), "-c", "user.email=a@example.org", "-c", "user.name=a"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    write(source / ".git" / "hooks" / "post-checkout", f"#!/bin/sh\n{touch}\n").chmod(0o755)

    for place in (str(source), f"file://{source}"):
        contents = store.plugins.look(place)
        assert contents.record.hooks[0].command == touch and contents.record.servers[0].place == touch
        store.plugins.install(place, expected=contents.digest)
    assert not mark.exists()
    assert not (settings.folder / "plugins" / "source" / ".git").exists()


def test_what_changed_after_it_was_shown_is_not_installed(store: Perdure, source: Path) -> None:
    """Whoever agreed has seen something else."""
    digest = store.plugins.look(str(source)).digest
    hooks(command="true")(source)
    with pytest.raises(Conflict, match="look at it again"):
        store.plugins.install(str(source), expected=digest)

    assert store.plugins.list() == []


def test_hooks_that_are_written_after_approval_do_not_run(
    store: Perdure, settings: Settings, source: Path, mark: Path
) -> None:
    """What runs is what was shown, whatever the installed folder says later."""
    store.plugins.install(str(source), expected=store.plugins.look(str(source)).digest)
    hooks(command=f"touch {mark}")(settings.folder / "plugins" / "source")
    with Perdure(settings=settings) as other:
        other.create_agent("ann")

        assert other.plugins.get("source").record.hooks == []
    assert not mark.exists()


def test_nothing_of_it_goes_past_the_policy(tmp_path: Path, source: Path) -> None:
    """A plug-in that the policy forbids can't be installed, nor can one take the name of a policy's definition."""
    policy = tmp_path / "policy"
    write(policy / "policy.toml", 'denied_plugins = ["source"]\ndenied_helpers = ["*evil*"]')
    for kind in KINDS:
        define(policy, kind, "review", "policy")
    home = tmp_path / "home"
    define(home, "agents", "evil")
    define(source, "agents", "evil")
    manifest(name="good")(source)
    settings = Settings(home=str(home), policy=str(policy), helpers='{"review": {"description": "x", "prompt": "x"}}')
    for kind in KINDS:
        for folder in (home, tmp_path / "app" / ".claude", source):
            define(folder, kind, "review", "mine", name="review")
    with Perdure(settings=settings) as store:
        store.plugins.install(str(source), expected=store.plugins.look(str(source)).digest)
        (source / ".claude-plugin" / "plugin.json").unlink()
        with pytest.raises(InvalidInput, match="the policy forbids it"):
            store.plugins.install(str(source), expected=store.plugins.look(str(source)).digest)

        found = {kind: find_definitions(kind, settings, tmp_path / "app").by_name for kind in KINDS}
        assert all(found[kind]["review"].body == "policy" for kind in KINDS)
        assert "evil" not in found["agents"] and "good:evil" not in found["agents"] and "good:rev" in found["agents"]
