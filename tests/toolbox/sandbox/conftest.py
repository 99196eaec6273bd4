"""The sandboxes that the tests of a module share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.toolbox.sandbox.cages import ORDINARY_USER, Cage, ordinary_python


def options_of(kind: str) -> dict[str, Any]:
    """The options of a sandbox of this kind. The test is skipped where it can't be opened."""
    if sys.platform != "linux":
        pytest.skip("the sandbox works on Linux only")
    role, _, without = kind.partition(" without ")
    options: dict[str, Any] = {}
    if role == "root" and os.geteuid() != 0:
        pytest.skip("the tests don't run as root")
    if os.geteuid() == 0 and (role == "user" or without):
        if (python := ordinary_python()) is None:
            pytest.skip("no interpreter here can be started by every user")
        options["python"] = python
        if role == "user":
            options["user"] = ORDINARY_USER
    return {**options, **({without: False} if without else {})}


@pytest.fixture(scope="module")
def cage(request: pytest.FixtureRequest) -> Iterator[Cage]:
    """A sandbox for a module. The parameter is its kind: "root" or "user", and maybe " without namespaces"."""
    kind = getattr(request, "param", "root" if os.geteuid() == 0 else "user")
    sandbox = Cage(**options_of(kind))
    try:
        isolation = sandbox.isolation
        if not isolation.enough:
            pytest.skip(f"this machine can't hold code back: {isolation.summary}")
        processes = next(measure for measure in isolation.measures if measure.name == "processes")
        if "without" not in kind and not processes.works:
            pytest.skip(f"this machine has no namespaces for an ordinary user: {processes.meaning}")
        yield sandbox
    finally:
        sandbox.close()
