"""What a shell completes: asked by the variables that the scripts of typer set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.library import open_sync
from tests.support.programs import run_inside


def completions(home: Path, words: str, shell: str = "bash") -> list[str]:
    """What comes for the last of the words, which begin behind `perdure`."""
    line = f"perdure {words}"
    asks = {"_TYPER_COMPLETE_ARGS": line}
    if shell == "fish":
        asks["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    if shell == "bash":
        asks = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = run_inside(home, _PERDURE_COMPLETE=f"complete_{shell}", **asks)
    assert (done.returncode, done.stderr) == (0, "")
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.uses("acp", "files", "manifests")
def test_verbs_nouns_and_options_are_completed(tmp_path: Path) -> None:
    """The verbs of every day, nouns, and the verbs of a noun; and no store is made."""
    assert completions(tmp_path, "a") == ["acp", "apply", "agent", "approval", "archive"]
    assert completions(tmp_path, "se") == ["search", "serve", "secret"]
    assert completions(tmp_path, "folder ") == ["list", "attach", "detach", "delete"]
    assert completions(tmp_path, "archive delete house --y") == ["--yes"]
    assert completions(tmp_path, "chat ") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.uses("files")
def test_names_of_agents_are_completed(tmp_path: Path) -> None:
    """Newest first, as an argument and as an option; the id where a shell would take the name apart."""
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann")
        spaced = store.create_agent("two words")
        store.create_agent("anton")
        store.delete_agent(store.create_agent("another").id)

    assert completions(tmp_path, "chat an") == ["anton", "ann"]
    assert completions(tmp_path, "folder attach docs an") == ["anton", "ann"]
    assert completions(tmp_path, "search quince --agent an") == ["anton", "ann"]
    assert completions(tmp_path, "chat agent-") == [spaced.id]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_what_it_is(tmp_path: Path, shell: str) -> None:
    """The model beside the name of an agent."""
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann")

    (line,) = [line for line in completions(tmp_path, "chat an", shell) if "ann" in line]
    assert "test/scripted" in line


def test_a_damaged_store_completes_nothing(tmp_path: Path) -> None:
    """Nothing is printed into the line that somebody types."""
    (tmp_path / "perdure.db").write_text("no database")

    assert completions(tmp_path, "chat an") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(tmp_path: Path, shell: str) -> None:
    """The one that `--install-completion` writes, which asks this program for completions."""
    done = run_inside(tmp_path, _PERDURE_COMPLETE=f"source_{shell}")

    assert (done.returncode, done.stderr) == (0, "")
    assert f"_PERDURE_COMPLETE=complete_{shell}" in done.stdout
    assert "--install-completion" in run_inside(tmp_path, "--help").stdout
