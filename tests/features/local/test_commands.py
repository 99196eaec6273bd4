"""`perdure model`: what is here, fetched and removed; and the first message of a new home."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.features.local.conftest import Seen, list_one_model
from tests.support.model_files import file_server, gguf
from tests.support.programs import environment, perdure, perdure_from_cold, run_inside


@pytest.mark.slow
def test_from_an_empty_home_to_an_answer_that_is_remembered(
    tmp_path: Path, llama: str, model_file: Path, seen: Seen
) -> None:
    """Two commands after the installation; each says what comes next."""
    home = tmp_path / "home"
    chosen = run_inside(home, "model", "use", str(model_file), PYTHONPATH=llama)
    assert (chosen.returncode, chosen.stderr) == (
        0,
        "Agents without a model of their own answer with local/one: `perdure` starts the chat.\n",
    )
    first = perdure_from_cold(home, "-p", "My dog is called Rex.", PYTHONPATH=llama_path(llama))
    assert (first.returncode, first.stdout) == (0, "I remember.\n"), first.stderr
    assert "Model local/one (chosen by `perdure model use`)" in first.stderr

    again = perdure(home, "-p", "What is he called?", PYTHONPATH=llama_path(llama))
    assert (again.returncode, again.stdout) == (0, "I remember.\n")
    assert len([line for line in seen() if "said" in line]) == 2


def llama_path(llama: str) -> str:
    """The variable for programs that start on their own: the stand-in, and the package that is tested."""
    return f"{llama}:{Path(__file__).resolve().parents[3] / 'src'}"


def test_a_model_of_the_list_is_fetched_from_a_mirror_and_used_at_once(
    tmp_path: Path, llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is there, so it is taken."""
    data = gguf()
    list_one_model(monkeypatch, data, "https://models.invalid/maker/mine.gguf")
    with file_server({"/maker/mine.gguf": data}) as server:
        got = run_inside(tmp_path, "model", "get", "mine", PERDURE_MODEL_MIRROR=server.url)
    assert (got.returncode, got.stderr) == (
        0,
        "mine is here, and its checksum is right. `perdure model use mine` makes it the default; without another model"
        " `perdure` takes it at once.\n",
    )
    answer = perdure(tmp_path, "-p", "Hello", PYTHONPATH=llama_path(llama))
    assert answer.stdout == "I remember.\n", answer.stderr

    assert "Model local/mine (it is on this machine)" in answer.stderr


def test_the_list_has_what_is_here_and_what_can_be_fetched(tmp_path: Path, llama: str, model_file: Path) -> None:
    run_inside(tmp_path, "model", "use", str(model_file))
    rows = json.loads(run_inside(tmp_path, "model", "list", "--json").stdout)

    assert [(row["name"], row["is_here"], row["is_default"]) for row in rows] == [
        ("tiny", False, False),
        ("small", False, False),
        ("medium", False, False),
        ("one", True, True),
    ]
    assert rows[1]["licence"] == "Apache-2.0"


def test_a_linked_file_stays_when_its_model_is_removed(tmp_path: Path, llama: str, model_file: Path) -> None:
    """One that was fetched goes, after a question."""
    run_inside(tmp_path, "model", "use", str(model_file))
    done = run_inside(tmp_path, "model", "remove", "one")
    assert (done.returncode, done.stderr) == (0, "one is no longer a model here; its file stays.\n")
    assert model_file.exists()
    fetched = tmp_path / "models" / "small.gguf"
    fetched.write_bytes(gguf())
    run_inside(tmp_path, "model", "use", "small")
    refused = run_inside(tmp_path, "model", "remove", "small")
    assert "Pass --yes to delete the model" in refused.stderr

    done = run_inside(tmp_path, "model", "remove", "small", "--yes")
    assert (done.returncode, done.stderr) == (0, "Removed small. `perdure model get small` fetches it again.\n")
    assert list((tmp_path / "models").iterdir()) == []


def test_the_file_of_a_model_in_the_folder_stays_when_it_is_used_by_its_path(tmp_path: Path, llama: str) -> None:
    """A link to itself would take its place."""
    file = tmp_path / "models" / "one.gguf"
    file.parent.mkdir()
    file.write_bytes(gguf())
    done = run_inside(tmp_path, "model", "use", str(file), PERDURE_LOCAL_MODEL="~none/x.gguf")

    assert (done.returncode, file.is_symlink(), file.read_bytes()) == (0, False, gguf())


def test_a_model_whose_file_is_gone_says_so_and_can_be_removed(tmp_path: Path, llama: str, model_file: Path) -> None:
    """Its name may need quotes, and its ending may be in capitals."""
    file = model_file.rename(model_file.with_name("One (Q4).GGUF"))
    run_inside(tmp_path, "model", "use", str(file))
    hidden = file.with_name(".one.gguf")
    hidden.write_bytes(gguf())
    refused = run_inside(tmp_path, "model", "use", str(hidden))
    default = [
        row["name"] for row in json.loads(run_inside(tmp_path, "model", "list", "--json").stdout) if row["is_default"]
    ]
    (tmp_path / "models" / "default").unlink()
    listed = run_inside(tmp_path, "model", "list")
    file.unlink()
    gone = run_inside(tmp_path, "model", "use", "One (Q4)")

    assert "`perdure model use 'One (Q4)'` makes it the default" in listed.stderr
    assert "is a hidden file" in refused.stderr and default == ["One (Q4)"]
    assert f"its file {file} is gone" in " ".join(gone.stderr.split())
    assert run_inside(tmp_path, "model", "remove", "One (Q4)").returncode == 0
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["use", "small"], "model 'small' not found: `perdure model get small` fetches it"),
        (["use", "other"], "model 'other' not found: `perdure model list` shows all"),
        (["use", "notes.gguf"], "notes.gguf is not a model that llama.cpp reads: No such file"),
        (["use", "~none/x.gguf"], "~none/x.gguf is not a model that llama.cpp reads: No such file"),
        (["get", "huge"], "model 'huge' not found: tiny, small, medium can be fetched"),
        (["remove", "small"], "model 'small' not found"),
        (["remove", "../one"], "model '../one' not found"),
    ],
)
def test_what_can_not_be_done_says_what_helps(tmp_path: Path, arguments: list[str], words: str) -> None:
    """And nothing is made."""
    done = run_inside(tmp_path, "model", *arguments)

    assert done.returncode != 0
    assert words in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_settings_decide_before_a_choice(tmp_path: Path, llama: str, model_file: Path) -> None:
    """Who chooses all the same is told."""
    chosen = run_inside(tmp_path, "model", "use", str(model_file), PERDURE_MODEL="openai/gpt-4.1")

    assert chosen.stderr == ("PERDURE_MODEL is 'openai/gpt-4.1' and decides: unset it to answer with local/one.\n")


@pytest.mark.slow
def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, model_file: Path) -> None:
    """Before anything is made, and again by the check."""
    program = "import sys; sys.modules['xllamacpp'] = None; from perdure.cli import main; main()"
    more = {"PERDURE_LOCAL_MODEL": str(model_file)}
    done = subprocess.run(
        [sys.executable, "-c", program, "-p", "Hello"],
        env=environment(tmp_path, **more),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "perdure[local]" in done.stderr
