"""The folder in which the processes that serve one address keep their metrics."""

from __future__ import annotations

from pathlib import Path

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable of that folder, as prometheus-client reads it when it is imported."""


def forget_process(folder: str, pid: int) -> None:
    """Remove what was true of a process only while it ran; what it has counted stays."""
    for path in Path(folder).glob(f"gauge_live*_{pid}.db"):
        path.unlink(missing_ok=True)
