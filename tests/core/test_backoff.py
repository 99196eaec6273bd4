"""Pauses that grow with each failure in a row."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import perdure
from perdure.core.incoming.backoff import backoff_s


@pytest.mark.parametrize("failures", [0, 1, 2, 10, 1_025, 10**9])
def test_a_pause_is_bounded_after_any_number_of_failures(failures: int) -> None:
    """A power of floats overflows after 1,024 of them."""
    pause = backoff_s(failures, first_s=0.5, most_s=60.0)

    assert pause == {0: 0.5, 1: 0.5, 2: 1.0}.get(failures, 60.0)


@pytest.mark.slow
def test_no_pause_grows_by_a_power_of_its_own_without_a_bound() -> None:
    """Each power with a count of failures in it is of a count that a constant bounds in the same file."""
    found = set()
    for path in Path(perdure.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
                power = ast.unparse(node.right)
                if ("failures" in power or "tries" in power) and "TRIES" not in text and "min(" not in power:
                    found.add(f"{path.name}: {ast.unparse(node)}")

    assert found == set()
