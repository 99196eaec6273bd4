"""What the commands refuse, and what their errors tell."""

from __future__ import annotations

import errno
import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.cli import main
from perdure.cli.session import work
from perdure.cli.session.exit_codes import INTERRUPTED
from perdure.cli.session.needs import CommandSetup
from perdure.core.errors import InvalidInput
from perdure.features.files.commands import select_files
from perdure.server.config import ServerConfig
from perdure.server.serving.serve import bind
from tests.support.programs import run_inside


def select_one(name: str) -> object:
    """The files that an upload of this name has."""
    return list(select_files([Path(name)], max_bytes=100))


def test_an_agent_needs_a_name(tmp_path: Path) -> None:
    """An empty one is not the default name."""
    made = run_inside(tmp_path, "agent", "create", "")

    assert (made.returncode, "''" in made.stderr) == (1, True)


@pytest.mark.uses("origins")
def test_what_looks_like_an_id_is_told_to_be_none(tmp_path: Path) -> None:
    """It was looked for as a text of memory."""
    run_inside(tmp_path, "agent", "create", "ann")

    assert "run 'run-1' not found" in run_inside(tmp_path, "why", "run-1").stderr
    assert "memory with the text" in run_inside(tmp_path, "why", "quince").stderr


@pytest.mark.parametrize("read", [work.read_bytes, work.read_text, work.InputLines])
def test_a_closed_stdin_is_no_defect(read: Callable[[str], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent process may have closed it; the error says so."""
    monkeypatch.setattr("sys.stdin", None)

    with pytest.raises(InvalidInput, match="can't be read: stdin is closed"):
        read("-")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.ENAMETOOLONG])
async def test_a_file_that_can_not_be_used_is_no_defect(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Whichever command it is: the error names the file. Without a file, it is the output that can't be written."""

    async def fail(*arguments: object, **named: object) -> None:
        raise OSError(number, os.strerror(number), file)

    file: str | None = "/data/a file"
    assert await work.run_work(fail, CommandSetup()) == 1
    assert f"/data/a file: {os.strerror(number)}" in capfd.readouterr().err
    file = None
    with pytest.raises(OSError):
        await work.run_work(fail, CommandSetup())


@pytest.mark.parametrize("read", [work.read_bytes, select_one])
def test_a_name_that_begins_as_a_home_folder_is_that_of_a_file(
    read: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As editors name their copies."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~$letter.docx").write_text("one")

    assert read("~$letter.docx")
    with pytest.raises(InvalidInput):
        read("~none/letter.docx")


@pytest.mark.parametrize("verb", ["revoke", "delete"])
@pytest.mark.uses("access")
def test_a_key_is_found_by_its_only_name(tmp_path: Path, verb: str) -> None:
    """Of several only by id, and an unknown one is answered with the list."""
    for name in ("one", "two", "two"):
        made = run_inside(tmp_path, "key", "create", name, "--json")
        assert made.returncode == 0, made.stderr

    assert "`perdure key list` shows all" in run_inside(tmp_path, "key", verb, "none", "--yes").stderr
    several = run_inside(tmp_path, "key", verb, "two", "--yes").stderr
    assert "2 keys are named 'two': give an id, key-" in several
    assert run_inside(tmp_path, "key", verb, "one", "--yes").returncode == 0
    assert run_inside(tmp_path, "key", verb, json.loads(made.stdout)["id"], "--yes").returncode == 0


def test_an_interrupt_while_the_command_is_looked_for_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C right after the start printed where in the imports it came."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perdure.cli.find_features", interrupt)
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == INTERRUPTED


@contextmanager
def held_port(answer: bytes) -> Iterator[int]:
    """A port on which a server gives this answer to everything."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"version": "1", "status": "ok"}', "Perdure itself answers on port"),
        (b"hello", "is in use by another program"),
    ],
)
def test_a_port_in_use_tells_by_whom(answer: bytes, words: str) -> None:
    """And names the option beside the variable."""
    with held_port(answer) as port, pytest.raises(InvalidInput, match=f"{words}.* with --port or PERDURE_PORT"):
        bind(ServerConfig(host="127.0.0.1", port=port))
