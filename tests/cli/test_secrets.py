"""`perdure secret`: values come by stdin or a prompt, never by an argument, and are never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.programs import perdure, run_inside

CANARY = "canary-5f1d7c0a"


def test_a_secret_is_set_from_stdin_listed_and_removed(tmp_path: Path) -> None:
    """Its last line end is not part of it; the list has the name only."""
    result = perdure(tmp_path, "secret", "set", "TOKEN", stdin=f"{CANARY}\n")
    assert (result.returncode, result.stdout) == (0, "")
    assert CANARY not in result.stderr
    printed = perdure(tmp_path, "secret", "set", "TOKEN", "--json", stdin=f"{CANARY}\n")
    assert (printed.stdout, printed.stderr) == ('{"name": "TOKEN"}\n', "")
    names = run_inside(tmp_path, "secret", "list")
    assert names.stdout.startswith("TOKEN ")
    (output,) = json.loads(run_inside(tmp_path, "secret", "list", "--json").stdout)
    assert output["name"] == "TOKEN"
    assert run_inside(tmp_path, "secret", "delete", "TOKEN", "--yes").returncode == 0

    assert json.loads(run_inside(tmp_path, "secret", "list", "--json").stdout) == []
    again = run_inside(tmp_path, "secret", "delete", "TOKEN", "--yes")
    assert (again.returncode, again.stderr) == (
        1,
        "error: secret 'TOKEN' not found: `perdure secret list` lists them\n",
    )


def test_bad_input_is_told_and_makes_nothing(tmp_path: Path) -> None:
    """A name that can't be, no value, an agent that is not there."""
    for arguments, message in (
        (("set", "A B"), "can't be used"),
        (("set", "TOKEN"), "no value came"),
        (("delete", "TOKEN"), "there is none yet"),
    ):
        result = run_inside(tmp_path, "secret", *arguments)
        assert (result.returncode, message in result.stderr) == (1, True), result.stderr

    assert list(tmp_path.iterdir()) == []


@pytest.mark.uses("access")
def test_a_secret_of_another_organisation_is_its_own(tmp_path: Path) -> None:
    run_inside(tmp_path, "org", "create", "Acme")
    assert perdure(tmp_path, "secret", "set", "TOKEN", "--org", "Acme", stdin=f"{CANARY}\n").returncode == 0
    assert json.loads(run_inside(tmp_path, "secret", "list", "--json").stdout) == []
    (output,) = json.loads(run_inside(tmp_path, "secret", "list", "--org", "Acme", "--json").stdout)
    assert output["name"] == "TOKEN"
    assert "not found" in run_inside(tmp_path, "secret", "list", "--org", "Nobody").stderr
