"""Counts edits or takes reminders in a process of its own: FOLDER count FILE TIMES, or FOLDER nudge LEVEL TIMES."""

from __future__ import annotations

import sys
from pathlib import Path

from perdure.features.notes.nudges import EditCounter, check_nudge_level


def main(folder: str, action: str, what: str, times: str) -> None:
    """Do it so many times; print how many reminders there were."""
    counter, reminders = EditCounter(Path(folder)), 0
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(times)):
        if action == "count":
            counter.count(what)
        else:
            reminders += bool(counter.take_nudge(check_nudge_level(what)))
    print(reminders)


main(*sys.argv[1:])
