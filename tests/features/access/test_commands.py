"""The API key on this machine: made by the server, told by doctor, printed when it is asked for."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from perdure.cli.commands import serve as serving
from perdure.cli.session.work import standard_view
from perdure.server.config import ServerConfig, load_key
from tests.support.programs import environment, run_inside
from tests.support.warm import warm

pytestmark = pytest.mark.uses("access")


def status(url: str, key: str) -> int:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_a_server_asks_for_the_key_that_it_made(tmp_path: Path) -> None:
    """It says where the key is and not the key, which `perdure key show` prints; nobody gets in without it."""
    env = environment(tmp_path, PERDURE_API_KEY="auto")
    with subprocess.Popen(
        [warm("perdure", env), "serve", "--port", "0"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            url = child.stdout.readline().split(" ")[4]
            key = run_inside(tmp_path, "key", "show").stdout.strip()
            match = status(f"{url}/v1/agents/count", key), status(f"{url}/v1/agents/count", "auto")
            os.kill(child.pid, signal.SIGTERM)
            _, err = child.communicate(timeout=20)
        finally:
            child.kill()

    assert match == (200, 401)
    assert len(key) >= 40
    assert f"It asks for the API key of {tmp_path / 'api.key'}: `perdure key show` prints it." in " ".join(err.split())
    assert key not in err


async def test_a_key_that_was_made_is_masked_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one of the environment is."""

    async def tell(config: ServerConfig, *_: object, **__: object) -> int:
        logging.getLogger("perdure").warning("somebody sent %s", config.api_key)
        return 0

    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    monkeypatch.setenv("PERDURE_API_KEY", "auto")
    monkeypatch.setattr(serving, "_serve", tell)
    await serving.serve(standard_view())
    output, key = capsys.readouterr().err, load_key(tmp_path / "api.key")

    assert key is not None
    assert "somebody sent" in output
    assert key not in output


def test_there_is_no_key_unless_one_is_made(tmp_path: Path) -> None:
    """What helps is said, and nothing is printed for a script to take for a key."""
    result = run_inside(tmp_path, "key", "show")

    assert (result.returncode, result.stdout) == (1, "")
    assert "PERDURE_API_KEY=auto" in result.stderr


def test_doctor_tells_whether_there_is_a_key(tmp_path: Path) -> None:
    """None, one that the next start makes, one of the environment, and a file that others can read; never the key."""

    def check(name: str, **more: str) -> tuple[str, str]:
        result = run_inside(tmp_path, "doctor", "--json", **more)
        match = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
        return match[name]["status"], f"{match[name]['text']} {match[name]['fix']}"

    open_ = check("API key")
    assert (open_[0], "every user of this machine" in open_[1], "PERDURE_API_KEY=auto" in open_[1]) == (
        "note",
        True,
        True,
    )
    assert check("API key", PERDURE_API_KEY="a secret word") == ("ok", "set, not shown ")
    assert check("API key", PERDURE_API_KEY="auto") == (
        "ok",
        f"the next `perdure serve` makes one, in {tmp_path / 'api.key'} ",
    )
    (tmp_path / "api.key").write_text("a-key-that-is-long-enough")
    (tmp_path / "api.key").chmod(0o644)
    broken = check("server", PERDURE_API_KEY="auto")
    assert (broken[0], "is open to others" in broken[1], "long-enough" in broken[1]) == ("broken", True, False)


def test_the_first_and_the_last_key_of_a_store_say_what_changes(tmp_path: Path) -> None:
    """Everybody needs one from the first on, and nobody after the last one is deleted."""
    first = run_inside(tmp_path, "key", "create", "phone")
    second = run_inside(tmp_path, "key", "create", "laptop", "--scope", "admin")
    assert "It is the first key" in first.stderr and "--scope admin" in first.stderr
    assert "first key" not in second.stderr
    ids = [one["id"] for one in json.loads(run_inside(tmp_path, "key", "list", "--json").stdout)]
    deleted = [run_inside(tmp_path, "key", "delete", id_, "--yes") for id_ in ids]
    assert [one.returncode for one in deleted] == [0, 0]
    assert ["the last key" in one.stderr for one in deleted] == [False, True]
    assert "no keys yet" in run_inside(tmp_path, "key", "list").stderr


def test_the_keys_of_a_deleted_user_keep_a_line(tmp_path: Path) -> None:
    """Else a server of this store would be open again; the line says nothing of the user."""
    run_inside(tmp_path, "user", "create", "ann")
    run_inside(tmp_path, "key", "create", "anns phone", "--user", "ann")
    assert run_inside(tmp_path, "user", "delete", "ann", "--yes").returncode == 0
    (key,) = json.loads(run_inside(tmp_path, "key", "list", "--json").stdout)
    assert (key["user_id"], key["name"], key["start"]) == (None, "of a deleted user", "")
    assert key["revoked_at"] is not None
