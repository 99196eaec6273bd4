"""The log of hooks, whose output nobody sees. Imports the standard library only."""

from __future__ import annotations

import os
import time

from perdure.features.notes.folders import data_folder, make_folder

LOG_BYTES = 500_000


def log(text: str) -> None:
    """Add a line to the log of hooks; where that is not possible, nothing happens."""
    path = data_folder() / "hooks.log"
    try:
        make_folder(path.parent)
        if path.exists() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {' '.join(text.splitlines())}\n")
    except OSError:
        pass
