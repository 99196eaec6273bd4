"""`perdure serve` as a program: it says where it listens, answers, and stops in order."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from perdure.cli.commands.serve import StopSignals
from tests.support.programs import environment, run_inside
from tests.support.warm import warm


@pytest.mark.parametrize(("stop", "cold"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_it_serves_until_it_is_stopped(tmp_path: Path, stop: signal.Signals, cold: bool) -> None:
    """One line tells the address, the model and why, and what is next; a signal closes the store and is no failure."""
    env = environment(tmp_path)
    program = [sys.executable, "-m", "perdure"] if cold else [str(warm("perdure", env))]
    with subprocess.Popen(
        [*program, "serve", "--port", "0"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            ready = re.match(r"Perdure is serving on (http://127\.0\.0\.1:\d+) · model (\S+) \((.+)\) · next: ", line)
            assert ready, line
            with urllib.request.urlopen(f"{ready[1]}/v1/health/", timeout=10) as answer:
                health = json.load(answer)
            os.kill(child.pid, stop)
            out, err = child.communicate(timeout=20)
        finally:
            child.kill()

    assert health["status"] == "ok"
    assert ready[2] == "perdure/extractive"
    assert child.returncode == 0
    assert out == ""
    assert err.splitlines() == [
        f"Opening {tmp_path / 'perdure.db'} …",
        f"Dashboard: {ready[1]}",
        "Stopped; everything is kept.",
    ]


def test_a_signal_stops_the_start_and_is_ignored_while_the_store_closes() -> None:
    """Before the server is ready a signal does what it did before; after it was ready, nothing."""
    seen: list[str] = []
    own = signal.signal(signal.SIGTERM, lambda *_: seen.append(phase))
    try:
        for phase in ("start", "end"):
            with StopSignals() as signals:
                if phase == "end":
                    signals.ignore()
                signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, own)

    assert seen == ["start"]


def test_no_link_that_signs_in_stands_in_a_log(tmp_path: Path) -> None:
    """Where stderr is no terminal, whoever reads the log could use it."""
    env = environment(tmp_path) | {"PERDURE_API_KEY": "a key of some length"}
    command = [str(warm("perdure", env)), "serve", "--port", "0"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        try:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(3)]
            os.kill(child.pid, signal.SIGTERM)
            lines += list(child.stdout)
            child.wait(timeout=20)
        finally:
            child.kill()

    assert any("`perdure ui` makes a link" in line for line in lines), lines
    assert not any("token" in line or "a key of" in line for line in lines)


def test_a_log_of_json_has_no_other_lines(tmp_path: Path) -> None:
    """Neither on stdout nor on stderr: also where it serves is a line of the log."""
    env = environment(tmp_path) | {"PERDURE_LOG": "json"}
    command = [str(warm("perdure", env)), "serve", "--port", "0"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        try:
            assert child.stdout is not None
            lines = [json.loads(child.stdout.readline()) for _ in range(3)]
            os.kill(child.pid, signal.SIGTERM)
            lines += map(json.loads, child.stdout)
            child.wait(timeout=20)
        finally:
            child.kill()

    assert [line["message"].partition(" http")[0] for line in lines[1:3]] == ["Perdure is serving on", "Dashboard:"]
    assert child.returncode == 0 and {line["level"] for line in lines} == {"info"}


class NoModels(BaseHTTPRequestHandler):
    """An Ollama without any model."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"object": "list", "data": null}')

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_it_serves_before_its_local_model_is_there(tmp_path: Path) -> None:
    """What is missing is said; the model may be fetched while this runs."""
    with HTTPServer(("127.0.0.1", 0), NoModels) as ollama:
        Thread(target=ollama.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{ollama.server_port}"
        env = environment(tmp_path) | {"OLLAMA_BASE_URL": address, "PERDURE_MODEL": "ollama/qwen3"}
        command = [str(warm("perdure", env)), "serve", "--port", "0"]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                line = child.stdout.readline()
                os.kill(child.pid, signal.SIGTERM)
                _, err = child.communicate(timeout=20)
            finally:
                child.kill()
        ollama.shutdown()

    assert "model ollama/qwen3 (from PERDURE_MODEL)" in line
    assert f"{address}/v1 has no model 'qwen3': `ollama pull qwen3` gets it" in " ".join(err.split())


def test_an_address_that_others_reach_needs_a_key(tmp_path: Path) -> None:
    """Its own, or one in the store."""
    result = run_inside(tmp_path, "serve", "--host", "0.0.0.0")

    assert result.returncode == 1
    said = " ".join(result.stderr.split())
    assert "set PERDURE_API_KEY=auto" in said and "perdure key create" in said and "PERDURE_ALLOWED_HOSTS" in said


@pytest.mark.parametrize(("names", "is_said"), [("", True), ("box.lan", False)])
def test_an_open_address_says_which_names_are_answered(tmp_path: Path, names: str, is_said: bool) -> None:
    """Nobody calls this machine by the address that means all of them."""
    env = environment(tmp_path, PERDURE_API_KEY="auto", PERDURE_ALLOWED_HOSTS=names)
    command = [str(warm("perdure", env)), "serve", "--host", "0.0.0.0", "--port", "0"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            os.kill(child.pid, signal.SIGTERM)
            _, err = child.communicate(timeout=30)
        finally:
            child.kill()

    assert "Perdure is serving on" in line
    assert ("PERDURE_ALLOWED_HOSTS=" in " ".join(err.split())) is is_said


def test_several_processes_serve_one_address(tmp_path: Path) -> None:
    """One line says when all of them answer; a worker that is killed comes back; a signal stops them all."""
    env = environment(tmp_path)
    command = [str(warm("perdure", env)), "serve", "--port", "0", "--workers", "2"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            ready = re.match(r"Perdure is serving on (http://127\.0\.0\.1:\d+) · 2 workers · model (\S+) ", line)
            assert ready, line
            with urllib.request.urlopen(f"{ready[1]}/v1/ready/", timeout=10) as answer:
                state = json.load(answer)
            os.kill(child.pid, signal.SIGTERM)
            out, err = child.communicate(timeout=20)
        finally:
            child.kill()

    assert state["status"] == "ok"
    assert child.returncode == 0
    assert out == ""
    assert err.splitlines() == ["Starting 2 workers …", f"Dashboard: {ready[1]}", "Stopped; everything is kept."]


def test_a_worker_needs_a_supervisor(tmp_path: Path) -> None:
    """The option is not for people."""
    result = run_inside(tmp_path, "serve", "--worker", "7,8")

    assert result.returncode == 1
    assert "--worker is for processes that `perdure serve --workers` starts" in result.stderr
