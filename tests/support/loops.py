"""Event loops of the kinds that Perdure runs on."""

from __future__ import annotations

import asyncio

import pytest


def new_loop(kind: str) -> asyncio.AbstractEventLoop:
    """A new event loop, `asyncio` or `uvloop`; without uvloop the test is skipped."""
    return pytest.importorskip("uvloop").new_event_loop() if kind == "uvloop" else asyncio.new_event_loop()
