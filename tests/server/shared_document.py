"""The OpenAPI document, built by one process of a test run for all of them: it takes several seconds of CPU."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.server.serving import openapi
from tests.support.at_end import at_end

Build = Callable[..., dict[str, Any]]

own_build: Build = openapi.build
"""What builds a document in this process, for tests of the building."""


def share(build: Build) -> Build:
    """Build a document as `build` does, unless another process of this run has: then read its file."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return build

    @functools.wraps(build)
    def build_once(*arguments: Any, has_key: bool) -> dict[str, Any]:
        path = Path(tempfile.gettempdir()) / f"perdure-openapi-{run}-{has_key}.json"
        at_end.callback(path.unlink, missing_ok=True)
        with path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # of two that come at once the second waits for the first
            file.seek(0)
            text = file.read()
            document: dict[str, Any] = json.loads(text) if text else build(*arguments, has_key=has_key)
            if not text:
                json.dump(document, file)
        return document

    return build_once
