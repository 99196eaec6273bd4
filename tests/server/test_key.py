"""The API key that this machine makes: once, for its owner alone, and not taken from a file that others know."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from perdure import InvalidInput
from perdure.server.config import KEY_FILE, ServerConfig, load_key, make_key

KEY = "a-key-that-is-long-enough"


def test_auto_makes_a_key_once(tmp_path: Path) -> None:
    """In the data folder, which is made; mode 600 whatever the umask; the next start has the same."""
    home = tmp_path / "home"
    environment = {"PERDURE_API_KEY": "auto", "PERDURE_HOME": str(home)}
    before = os.umask(0)
    try:
        first = ServerConfig.from_environment(environment)
    finally:
        os.umask(before)

    assert first.key_file == home / KEY_FILE
    assert stat.S_IMODE(first.key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert first.api_key is not None
    assert len(first.api_key) >= 40
    assert ServerConfig.from_environment({**environment, "PERDURE_HOST": "0.0.0.0"}).api_key == first.api_key
    assert first.api_key not in repr(first)


@pytest.mark.parametrize(("host", "taken"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("::", False)])
def test_a_short_key_is_for_this_machine_alone(host: str, taken: bool) -> None:
    """Other machines could guess it."""
    for key in ("short", "k" * 15):
        environment = {"PERDURE_API_KEY": key, "PERDURE_HOST": host}
        if taken:
            assert ServerConfig.from_environment(environment).api_key == key
            continue
        with pytest.raises(InvalidInput, match="at least 16") as refused:
            ServerConfig.from_environment(environment)
        assert key not in str(refused.value)

    assert ServerConfig(host=host, api_key="k" * 16).api_key is not None


def test_only_a_start_makes_it(tmp_path: Path) -> None:
    """Who only looks writes nothing, and has a key that nobody knows in place of `auto`."""
    environment = {"PERDURE_API_KEY": "AUTO", "PERDURE_HOME": str(tmp_path / "home")}
    seen = {ServerConfig.from_environment(environment, create_key=False).api_key for _ in range(2)}

    assert len(seen - {"auto", "AUTO", None}) == 2
    assert not (tmp_path / "home").exists()
    assert ServerConfig.from_environment({"LETTA_SERVER_PASSWORD": "auto"}).api_key == "auto"


def test_many_that_make_it_at_once_have_one_key(tmp_path: Path) -> None:
    """Each gets a whole key, and all the same; no draft is left."""
    count = 8
    barrier = Barrier(count)

    def start(_: int) -> str:
        barrier.wait()
        return make_key(tmp_path / KEY_FILE)

    with ThreadPoolExecutor(count) as pool:
        keys = set(pool.map(start, range(count)))

    assert keys == {load_key(tmp_path / KEY_FILE)}
    assert [file.name for file in tmp_path.iterdir()] == [KEY_FILE]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """Its key may be known, so it is not asked for; what helps is said, and the key is not."""
    file = tmp_path / KEY_FILE
    file.write_text(KEY)
    file.chmod(mode)

    with pytest.raises(InvalidInput, match=rf"is open to others \(mode {mode:o}\).*delete it") as refused:
        ServerConfig.from_environment({"PERDURE_API_KEY": "auto", "PERDURE_HOME": str(tmp_path)})
    assert KEY not in str(refused.value)


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    """A link, which may lead to a file that others wrote; a folder; a pipe, without waiting; a file without a key."""
    target = tmp_path / "target"
    target.write_text(KEY)
    target.chmod(0o600)
    for number, kind in enumerate(("link", "folder", "pipe", "empty", "short")):
        file = tmp_path / str(number)
        match kind:
            case "link":
                file.symlink_to(target)
            case "folder":
                file.mkdir(mode=0o700)
            case "pipe":
                os.mkfifo(file, 0o600)
            case _:
                file.write_text("" if kind == "empty" else "short")
                file.chmod(0o600)
        with pytest.raises(InvalidInput, match="delete it"):
            load_key(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_refused(tmp_path: Path) -> None:
    """Its owner knows the key."""
    file = tmp_path / KEY_FILE
    file.write_text(KEY)
    file.chmod(0o600)
    os.chown(file, 12_345, 12_345)

    with pytest.raises(InvalidInput, match="12345"):
        load_key(file)
