"""Plug-ins that need others, that take the place of older ones, that fail half-way."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.core.errors import AlreadyExists, InvalidInput, NotFound
from perdure.features.plugins.hooks import plugin_hooks
from perdure.features.plugins.layers import find_definitions
from perdure.settings import Settings
from tests.features.plugins.files import define, write


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A data folder of its own."""
    return Settings(home=str(tmp_path / "home"))


@pytest.fixture
def store(settings: Settings) -> Iterator[Perdure]:
    """A store whose data folder has no plug-in yet."""
    with Perdure(settings=settings) as opened:
        yield opened


def make(folder: Path, version: str, *, needs: object = (), servers: tuple[str, ...] = (), hook: str = "") -> str:
    """A plug-in in a folder, whose helper says its version; return the path."""
    shutil.rmtree(folder, ignore_errors=True)
    write(folder / "plugin.json", json.dumps({"name": folder.name, "version": version, "dependencies": needs or []}))
    define(folder, "agents", "rev", version)
    write(folder / ".mcp.json", json.dumps({name: {"command": "true"} for name in servers}))
    if hook:
        write(folder / "hooks" / "hooks.json", json.dumps({"PreToolUse": [{"hooks": [{"command": hook}]}]}))
    return str(folder)


def install(store: Perdure, source: str) -> None:
    """Look at a plug-in and install it."""
    store.plugins.install(source, expected=store.plugins.look(source).digest)


def test_a_plug_in_needs_others_in_the_right_version(store: Perdure, settings: Settings, tmp_path: Path) -> None:
    """Without one it is refused; where one is lost later, it is not in use."""
    top = make(tmp_path / "top", "1", needs=["other", {"name": "base", "version": "^1.2"}])
    for version, why in ((None, "'base'|'other'"), ("1.1", "1.1 is installed"), ("1.3", "")):
        if version is not None:
            install(store, make(tmp_path / "other", "1"))
            install(store, make(tmp_path / "base", version))
        if why:
            with pytest.raises(InvalidInput, match=why):
                install(store, top)
    install(store, top)
    assert "top:rev" in find_definitions("agents", settings, None).by_name
    for action in (store.plugins.disable, store.plugins.remove):
        with pytest.raises(InvalidInput, match="needed by top"):
            action("base")

    base = make(tmp_path / "base", "2.0")
    assert store.plugins.look(base).notes == [
        "top is no longer in use then: it needs 'base' ^1.2, and 2.0 is installed"
    ]
    install(store, base)
    assert store.plugins.get("top").unused == "it needs 'base' ^1.2, and 2.0 is installed"
    assert "top:rev" not in find_definitions("agents", settings, None).by_name


def test_plug_ins_that_need_each_other_are_refused(store: Perdure, tmp_path: Path) -> None:
    """One of them would have to come first; one that needs itself has nothing to wait for."""
    for name, other in (("a", "b"), ("b", "a")):
        with pytest.raises(InvalidInput, match=f"'{other}', which is not installed"):
            install(store, make(tmp_path / name, "1", needs={other: "*"}))
    install(store, make(tmp_path / "self", "1", needs={"self": "^1"}))

    assert store.plugins.get("self").unused == ""


def test_another_version_takes_the_place_of_one(store: Perdure, settings: Settings, tmp_path: Path) -> None:
    """With its helpers, hooks and servers; of the one before nothing is left."""
    install(store, make(tmp_path / "tidy", "1", servers=("mem", "old"), hook="echo 1"))
    install(store, make(tmp_path / "tidy", "2", servers=("mem",)))

    assert find_definitions("agents", settings, None).by_name["tidy:rev"].body == "2"
    assert plugin_hooks(settings) == [] and [one.name for one in store.mcp.list()] == ["tidy-mem"]
    assert sum(one.is_dir() for one in (settings.folder / "plugins").iterdir()) == 1


def test_an_install_that_fails_changes_nothing(store: Perdure, settings: Settings, tmp_path: Path) -> None:
    """Here a server's name is taken: the version before stays as it was, with its server."""
    store.mcp.add("tidy-web", command="true", check=False)
    with pytest.raises(AlreadyExists):
        install(store, make(tmp_path / "tidy", "1", servers=("mem", "web")))
    assert store.plugins.list() == [] and [one.name for one in store.mcp.list()] == ["tidy-web"]

    install(store, make(tmp_path / "tidy", "1", servers=("mem",)))
    with pytest.raises(AlreadyExists):
        install(store, make(tmp_path / "tidy", "2", servers=("mem", "web")))
    assert store.plugins.get("tidy").record.version == "1"
    assert find_definitions("agents", settings, None).by_name["tidy:rev"].body == "1"
    assert sorted(one.name for one in store.mcp.list()) == ["tidy-mem", "tidy-web"]
    store.plugins.remove("tidy")
    assert [one.name for one in store.mcp.list()] == ["tidy-web"] and not (settings.folder / "plugins").exists()


def test_a_token_in_a_header_is_a_secret(store: Perdure, tmp_path: Path) -> None:
    """As most files of servers have it; another header has to be the secret as a whole."""
    headers = {"authorization": "Bearer ${MY_KEY}", "X-Key": "${MY_KEY}"}
    source = make(tmp_path / "tidy", "1")
    write(tmp_path / "tidy" / ".mcp.json", json.dumps({"web": {"url": "https://a.test/", "headers": headers}}))
    install(store, source)

    (server,) = store.mcp.list()
    assert (server.auth_header, *server.header_names) == ("Authorization", "X-Key")


def test_a_folder_of_skills_may_be_one_itself(store: Perdure, tmp_path: Path) -> None:
    """The plug-in's own, too; each skill is there once."""
    source = Path(make(tmp_path / "tidy", "1"))
    manifest = {"name": "tidy", "skills": ["./", "./more", "./deep/inner"], "agents": None}
    write(source / "plugin.json", json.dumps(manifest))
    for place in (".", "more", "more/below", "deep/inner", "skills/usual"):
        name = "name: whole\n" if place == "." else ""
        write(source / place / "SKILL.md", f"---\n{name}description: At {place}\n---\nDo it.")

    found = [one.name for one in store.plugins.look(str(source)).definitions["skills"]]
    assert sorted(found) == ["tidy:inner", "tidy:more", "tidy:usual", "tidy:whole"]


def test_what_is_empty_or_gone_is_told(store: Perdure, settings: Settings, tmp_path: Path) -> None:
    """A folder that is no plug-in, such as a marketplace; and a plug-in whose folder somebody removed."""
    write(tmp_path / "shop" / ".claude-plugin" / "marketplace.json", "{}")
    assert "it brings nothing that is used here" in store.plugins.look(str(tmp_path / "shop")).notes[0]
    install(store, make(tmp_path / "tidy", "1"))
    shutil.rmtree(settings.folder / "plugins" / "tidy")

    assert "its folder is gone" in str(store.plugins.get("tidy").problems[0])


def test_a_branch_of_a_repository_is_installed(store: Perdure, tmp_path: Path) -> None:
    """By its URL and name; one that is missing is an error with what git says."""
    source = Path(make(tmp_path / "tidy", "1"))
    git = ["git", "-C", str(source), "-c", "user.email=a@example.org", "-c", "user.name=a"]
    for command in (["init", "-qb", "main"], ["add", "-A"], ["commit", "-qm", "one"], ["checkout", "-qb", "next"]):
        subprocess.run([*git, *command], check=True)
    define(source, "agents", "rev", "2")
    subprocess.run([*git, "commit", "-qam", "two"], check=True)
    subprocess.run([*git, "checkout", "-q", "main"], check=True)

    bodies = [store.plugins.look(f"file://{source}{end}").definitions["agents"][0].body for end in ("", "#next")]
    assert bodies == ["1", "2"]
    with pytest.raises(InvalidInput, match="none-such"):
        store.plugins.look(f"file://{source}#none-such")


def test_unknown_plug_ins_are_not_found(store: Perdure) -> None:
    """Whatever is done with them."""
    plugins = store.plugins
    for action in (plugins.get, plugins.enable, plugins.disable, plugins.remove):
        with pytest.raises(NotFound, match="none is installed"):
            action("tidy")


def test_a_name_in_other_letters_is_the_same(store: Perdure, tmp_path: Path) -> None:
    """Else it would stand before the one that is installed."""
    install(store, make(tmp_path / "tidy", "1"))
    with pytest.raises(InvalidInput, match="'TIDY' has the name of 'tidy'"):
        store.plugins.look(make(tmp_path / "TIDY", "1"))


def test_a_plug_in_may_have_the_name_of_the_file_of_records(store: Perdure, tmp_path: Path) -> None:
    """Its folder is called otherwise."""
    install(store, make(tmp_path / "plugins.json", "1"))

    assert [one.name for one in store.plugins.list()] == ["plugins.json"]
    store.plugins.remove("plugins.json")
