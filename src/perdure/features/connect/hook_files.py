"""The files that hooks and their work share. Imports the standard library only at first."""

from __future__ import annotations

import time

from perdure.features.notes.folders import data_folder

CONTEXT_FILE = "context.md"
"""In a project's state folder: what the next session begins with."""
LOG_BYTES = 500_000


def log(text: str) -> None:
    """Add a line to the log of hooks; where that is not possible, nothing happens."""
    path = data_folder() / "hooks.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n")
    except OSError:
        pass
