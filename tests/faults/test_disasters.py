"""What a user meets when something breaks: the real server says what it is, in its answer and in its log."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sqlite3
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.faults.disasters import Served, serving
from tests.faults.file_layer import COMPILER, layer_variables
from tests.support.programs import perdure, run_inside

pytestmark = pytest.mark.faults

FULL = os.environ.get("PERDURE_FAULTS") == "full"
SAID = "My neighbour is called Zanzibar."
SECRET = "an-api-key-that-nobody-may-read"


def of_trace(served: Served, answer: httpx.Response) -> list[dict[str, object]]:
    """The lines of the log that an answer names."""
    assert answer.json()["trace_id"] == answer.headers["x-trace-id"]
    return [line for line in served.lines() if line.get("trace_id") == answer.json()["trace_id"]]


def test_a_defect_is_in_the_log_under_the_id_that_the_answer_names(tmp_path: Path) -> None:
    """With its traceback: one in a route, one in a run. What was said and what is secret is not there, and what the
    HTTP library says is."""
    with serving(tmp_path / "home", DEFECT=SAID, PERDURE_API_KEY=SECRET) as served:
        served.client.headers["authorization"] = f"Bearer {SECRET}"
        route = served.client.get("/v1/mcp-servers/")
        run = served.send(served.make_agent(), SAID)
        with socket.create_connection((served.client.base_url.host, served.client.base_url.port or 0)) as raw:
            raw.sendall(b"\x00nonsense\r\n\r\n")
            raw.recv(1_000)
        assert served.stop() == 0
        lines = served.lines()

    assert (route.status_code, route.json()["detail"]) == (500, "An unknown error occurred")
    (line,) = of_trace(served, route)
    assert (line["level"], line["error"]) == ("error", "ZeroDivisionError")
    assert "in broken" in str(line["traceback"])
    assert run.status_code == 500
    defect, answer = of_trace(served, run)
    assert run.json()["error"]["run_id"] in str(defect["message"])
    assert "in broken" in str(defect["traceback"])
    assert run.json()["error"]["run_id"] in str(answer["message"])
    assert any(line["logger"] == "uvicorn.error" for line in lines)
    assert [lines[0]["message"][:7], lines[-1]["message"][:7]] == ["Opening", "Stopped"]
    assert "Zanzibar" not in served.log.read_text()
    assert SECRET not in served.log.read_text()


def limit_files(pid: int, size: int) -> None:
    """The largest file that a process may write from now on; its disk is then as good as full."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process")
@pytest.mark.parametrize("filled_by", ["blocks", "messages"] if FULL else ["blocks"])
def test_a_disk_without_room_is_told_and_the_store_goes_on_when_there_is_some(tmp_path: Path, filled_by: str) -> None:
    """The answer is 507 and says what to do, what was answered before is there, reading works; once there is room a
    message is answered, and so is one that was accepted when there was none."""
    with serving(tmp_path / "home") as served:
        agent = served.make_agent()
        assert served.send(agent, "My name is Ada.", "first").status_code == 200
        wal = served.home / "perdure.db-wal"
        limit_files(served.pid, wal.stat().st_size + 300_000)
        made = 0
        while (full := fill(served, agent, filled_by, made)).status_code == 200:
            made += 1
        refused = served.send(agent, "There is no room.", "last")
        read = served.client.get(f"{agent}/messages", params={"limit": 1_000})
        limit_files(served.pid, resource.RLIM_INFINITY)
        for _ in range(400):
            again = served.send(agent, "There is no room.", "last")
            if again.status_code != 409:  # the run that was accepted goes on by itself
                break
            time.sleep(0.05)
        kept = [served.client.get(f"{agent}/messages", params={"limit": 1_000}).json(), blocks(served)]
        served.stop()

    assert made > 0
    for answer in (full, refused) if filled_by == "blocks" else (full,):
        assert answer.status_code == 507, answer.text
        assert "the file-size limit of this process" in answer.json()["detail"]
        assert "ulimit -f" in answer.json()["detail"]
        assert "error" in {line["level"] for line in of_trace(served, answer)}
    assert read.status_code == 200
    assert again.status_code == 200, again.text
    said = [message["content"] for message in kept[0] if message["message_type"] == "user_message"]
    assert (said[0], said[-1]) == ("My name is Ada.", "There is no room.")
    if filled_by == "blocks":
        assert (len(said), kept[1].count("filled")) == (2, made)
    else:
        assert len(said) >= made + 2


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs a C compiler, and Linux")
def test_a_disk_that_confirms_nothing_is_told_and_nothing_more_is_written(tmp_path: Path) -> None:
    """The answer is 503 and says what to do; what was answered before is there at the next start."""
    home = tmp_path / "home"
    home.mkdir()
    with serving(home, **layer_variables(home, tmp_path / "record", fail_flush=40)) as served:
        agent = served.make_agent()
        said = 0
        while (failed := served.send(agent, f"message {said}")).status_code == 200 and said < 60:
            said += 1
        later = served.client.post("/v1/blocks/", json={"label": "later", "value": ""})
        served.kill()
    with serving(home) as again:
        kept = again.client.get(f"{agent}/messages", params={"limit": 1_000}).json()
        again.stop()

    assert said > 0
    for answer in (failed, later):
        assert answer.status_code == 503, answer.text
        assert "check the disk" in answer.json()["detail"]
        assert of_trace(again, answer), answer.text
    texts = {message["content"] for message in kept if message["message_type"] == "user_message"}
    assert {f"message {number}" for number in range(said)} <= texts


def fill(served: Served, agent: str, by: str, number: int) -> httpx.Response:
    if by == "blocks":
        return served.client.post("/v1/blocks/", json={"label": "filled", "value": "y" * 20_000})
    return served.send(agent, "x" * 9_000, f"key {number}")


def blocks(served: Served) -> list[str]:
    """The labels of all."""
    return [block["label"] for block in served.client.get("/v1/blocks/", params={"limit": 1_000}).json()]


def left_by_a_kill(home: Path) -> tuple[str, int]:
    """A store whose server was killed, with a log: the path of its agent, and how many messages were answered."""
    with serving(home) as served:
        agent = served.make_agent()
        count = 3
        for number in range(count):
            assert served.send(agent, f"My number is {number}.").status_code == 200
        served.kill()
    assert (home / "perdure.db-wal").stat().st_size > 100_000
    return agent, count


def assert_refused(home: Path, told: str) -> None:
    """The server does not start, `doctor` says why, and so does the server's log."""
    served = perdure(home, "serve", "--port", "0", PERDURE_LOG="json")
    checked = run_inside(home, "doctor", "--json", PERDURE_PORT="1")
    lines = [json.loads(line) for line in served.stderr.splitlines()]
    assert (served.returncode, served.stdout) == (1, "")
    assert lines[-1]["level"] == "error"
    assert told in lines[-1]["message"]
    assert checked.returncode == 1
    (data,) = [check for check in json.loads(checked.stdout)["checks"] if check["name"] == "data"]
    assert data["status"] == "broken"
    assert told in data["text"]


@pytest.mark.slow
def test_a_log_without_its_store_and_a_store_without_its_log_are_refused(tmp_path: Path) -> None:
    """Nothing is touched, what helps is said, and it helps: putting the file back, or accepting the loss."""
    home = tmp_path / "home"
    agent, count = left_by_a_kill(home)
    store, log, aside = home / "perdure.db", home / "perdure.db-wal", tmp_path / "aside"
    left = log.read_bytes()

    store.rename(aside)
    assert_refused(home, "is empty, but its log perdure.db-wal is not")
    store.touch()
    assert_refused(home, "is empty, but its log perdure.db-wal is not")
    assert (log.read_bytes(), store.read_bytes()) == (left, b"")
    aside.rename(store)
    log.rename(aside)
    note_again(store)  # renaming counts as touching it: a backup may have been put there
    assert_refused(home, "its log perdure.db-wal is gone")
    aside.rename(log)
    with serving(home) as served:
        messages = served.client.get(f"{agent}/messages", params={"limit": 1_000}).json()
        served.kill()
    assert [message["message_type"] for message in messages].count("user_message") == count

    log.unlink()
    assert_refused(home, "`perdure store verify --accept-loss` goes on")
    assert "All agrees" in run_inside(home, "store", "verify", "--accept-loss").stdout
    with serving(home) as served:
        assert served.client.get("/v1/agents/").status_code == 200
        assert served.stop() == 0


def note_again(store: Path) -> None:
    """As if the newest mark had been noted after the last change of the file."""
    (home_mark := store.with_name(f"{store.name}-mark")).write_bytes(home_mark.read_bytes())


def test_a_kill_at_any_time_is_no_loss(tmp_path: Path) -> None:
    """However often: a store that was only killed is never refused."""
    home = tmp_path / "home"
    for number in range(30 if FULL else 2):
        with serving(home) as served:
            served.send(served.make_agent(), f"My number is {number}.")
            served.kill()


def test_a_header_that_is_gone_is_damage(tmp_path: Path) -> None:
    """And no reason to choose another path."""
    home = tmp_path / "home"
    with serving(home) as served:
        served.make_agent()
        assert served.stop() == 0
    with (home / "perdure.db").open("r+b") as file:
        file.write(bytes(100))

    assert_refused(home, "is damaged (its header is gone): restore a backup")


PAGE_BYTES = 4_096


def test_a_letter_or_a_page_that_changed_is_found(tmp_path: Path) -> None:
    """`verify` names the message of which one letter is another; a page of zeros is found by reading it, which is 503
    with what helps, and by `verify`."""
    home = tmp_path / "home"
    with serving(home) as served:
        agent = served.make_agent()
        assert served.send(agent, SAID).status_code == 200
        assert served.stop() == 0
    store = home / "perdure.db"
    assert "All agrees." in run_inside(home, "store", "verify").stdout
    whole = store.read_bytes()

    with contextlib.closing(sqlite3.connect(store)) as connection:
        (parts,) = connection.execute("SELECT parts FROM messages WHERE seq = 0").fetchone()
    assert whole.count(parts.encode()) == 1
    store.write_bytes(whole.replace(parts.encode(), parts.replace("Zanzibar", "Zanzibor").encode()))
    flipped = run_inside(home, "store", "verify")
    assert flipped.returncode == 1
    assert "1 messages that are not as they were written: number 0" in flipped.stdout
    assert "restore a backup" in flipped.stderr

    page = whole.index(parts.encode()) // PAGE_BYTES * PAGE_BYTES
    store.write_bytes(whole[:page] + bytes(PAGE_BYTES) + whole[page + PAGE_BYTES :])
    with serving(home) as served:
        read = served.client.get(f"{agent}/messages")
        other = served.client.get("/v1/models/")
        assert served.stop() == 0
    zeroed = run_inside(home, "store", "verify")
    assert (read.status_code, other.status_code) == (503, 200)
    assert "is damaged" in read.json()["detail"]
    assert "restore a backup" in read.json()["detail"]
    assert "is damaged" in str(of_trace(served, read)[0]["message"])
    assert zeroed.returncode == 1
    assert "damaged" in zeroed.stdout + zeroed.stderr
    assert "Zanzib" not in served.log.read_text()
