"""Telling a dead holder from a living one."""

from __future__ import annotations

import subprocess
import sys
import time

from perdure.engine.records.leases import is_dead, process_owner


def test_this_process_is_not_dead() -> None:
    """It is running this test."""
    assert not is_dead(process_owner())


def test_another_process_that_runs_is_not_dead() -> None:
    """Its runs are its own, on the same machine too, however long nothing is heard of it."""
    code = "from perdure.engine.records.leases import process_owner; print(process_owner(), flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        owner = child.stdout.readline().strip()
        alive = not is_dead(owner)
        child.communicate("")

        assert alive
        assert owner != process_owner()
    assert is_dead(owner)


def test_a_process_that_has_ended_is_dead() -> None:
    """The next process on the same machine need not wait for its lease."""
    code = "from perdure.engine.records.leases import process_owner; print(process_owner())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    assert is_dead(ended)


def test_a_process_number_that_was_given_away_again_is_dead() -> None:
    """The number lives, but began at another time: our own number, and that of a process that runs."""
    host, namespace, pid, _, _ = process_owner().rsplit("/", 4)
    assert is_dead(f"{host}/{namespace}/{pid}/1/")

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as living:
        assert is_dead(f"{host}/{namespace}/{living.pid}/1/")
        living.communicate()


def test_a_process_that_has_ended_but_was_not_reaped_is_dead() -> None:
    """In a container without an init nobody reaps it."""
    code = "from perdure.engine.records.leases import process_owner; print(process_owner(), flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        owner = child.stdout.read().strip()  # it ends here, and is a zombie until the block does
        for _ in range(100):
            if is_dead(owner):
                break
            time.sleep(0.02)

        assert is_dead(owner)


def test_nothing_is_known_of_another_machine_or_container() -> None:
    """Only their lease tells."""
    _, _, rest = process_owner().partition("/")
    machine, namespace, pid, started, _ = process_owner().rsplit("/", 4)

    assert not is_dead(f"elsewhere/{rest}")
    assert not is_dead(f"{machine}/{namespace}0/{pid}/{started}0/")
    assert not is_dead("no owner at all")
