"""The n-th write of a session fails, with an I/O error or a full disk: the caller is told by an error of ours, the file
is whole, and the same session goes on and ends with everything once.

Every n with `PERDURE_FAULTS=full`; some of them in `make test-all`.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from tests.faults.file_layer import COMPILER, run_recorded

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs a C compiler, and Linux"),
]

FULL = os.environ.get("PERDURE_FAULTS") == "full"
FIRST, STEP = (1, 1) if FULL else (43, 320)
ERRORS = {"an I/O error": errno.EIO, "a full disk": errno.ENOSPC}
OURS = ("StoreUnavailable: ", "StoreFull: ")
"""SQLite says the same of the index of its log, whatever its write fails with."""


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ERRORS)
def test_the_nth_write_fails(tmp_path: Path, trouble: str) -> None:
    """Which n it is does not matter."""
    (tmp_path / "store").mkdir()
    ended = run_recorded(
        "tests.faults.nth_write_program",
        [str(tmp_path / "store"), str(ERRORS[trouble]), str(FIRST), str(STEP)],
        root=tmp_path / "store",
        record=tmp_path / "record",
        text="",
        timeout_s=1_800 if FULL else 120,
    )
    assert ended.returncode == 0, ended.stderr
    *sessions, plain = map(json.loads, ended.stdout.splitlines())
    told = 0
    print(f"{trouble}: {len(sessions)} of {plain['writes']} writes failed, each in a session of its own")
    for one in sessions:
        told += bool(one["errors"])
        assert all(error.startswith(OURS) for error in one["errors"]), one
        assert one["integrity"] == ["ok"], one
        assert one["whole"], one
        assert {key: one[key] for key in ("said", "passages", "blocks", "agents", "faults")} == {
            key: plain[key] for key in ("said", "passages", "blocks", "agents", "faults")
        }, one
    assert told > len(sessions) // 8  # the others are writes of a checkpoint or of the mark, which are made again
