"""The PostgreSQL example can't run at the address it shows; here it runs at one that exists."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import ROOT, fences
from tests.docs.test_python_blocks import NO_RUN
from tests.support.postgres_server import address_of_a_new_schema


def test_the_postgresql_example_works_on_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    """`Perdure("postgresql://...")` makes its tables, and an agent on them keeps what it is told."""
    (block,) = (block for block in fences(ROOT / "docs" / "operations.md") if block.info == NO_RUN)
    code, count = re.subn(r"postgresql://[^\"]+", lambda found: address_of_a_new_schema(), block.text)
    assert count == 1

    exec(compile(code, "operations.md", "exec"), {})

    assert "+Name: Ada" in capsys.readouterr().out
