"""Telling a dead holder from a living one."""

from __future__ import annotations

import subprocess
import sys

from perdure.engine.leases import is_dead, process_owner


def test_this_process_is_not_dead() -> None:
    """It is running this test."""
    assert not is_dead(process_owner())


def test_a_process_that_has_ended_is_dead() -> None:
    """The next process on the same machine need not wait for its lease."""
    code = "from perdure.engine.leases import process_owner; print(process_owner())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    assert is_dead(ended)


def test_a_process_number_that_was_given_away_again_is_dead() -> None:
    """The number lives, but began at another time."""
    machine, _, _ = process_owner().rsplit("/", 1)[0].rpartition("/")

    assert is_dead(f"{machine}/1/")


def test_nothing_is_known_of_another_machine_or_container() -> None:
    """Only their lease tells."""
    _, _, rest = process_owner().partition("/")
    machine, namespace, pid, started, _ = process_owner().rsplit("/", 4)

    assert not is_dead(f"elsewhere/{rest}")
    assert not is_dead(f"{machine}/{namespace}0/{pid}/{started}0/")
    assert not is_dead("no owner at all")
