"""What must be ended with the test run. Exit handlers are not enough: a worker that is slow to leave is killed."""

from __future__ import annotations

import contextlib

at_end = contextlib.ExitStack()
"""Closed by `conftest.py` after the last test of a process."""
