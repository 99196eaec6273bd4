"""The public names: one list, all of them there."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import perdure


@pytest.mark.parametrize("name", perdure.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    """Names are loaded at first use, so a wrong home would show only then."""
    value = getattr(importlib.import_module("perdure"), name)

    assert value.__module__.startswith("perdure.")


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As with any module."""
    with pytest.raises(AttributeError, match="no_such_name"):
        perdure.no_such_name  # noqa: B018


def test_importing_perdure_loads_no_engine() -> None:
    """What is not used costs nothing."""
    code = "import perdure, sys; print(any(name.startswith('perdure.') for name in sys.modules))"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "False"
