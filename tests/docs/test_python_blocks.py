"""Every Python block of the documentation runs alone, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from tests.adapters.packages import frameworks as frameworks
from tests.docs.example_types import write_examples
from tests.docs.markdown import PAGES, RUN_PAGES, Fence, fences, page_name

NO_RUN = "python no-run"
NO_RUN_MAX = 4
"""Of all pages but the Chinese ones, whose blocks are the same: what is not run is not known to be true."""


@pytest.mark.slow
@pytest.mark.usefixtures("frameworks")
@pytest.mark.parametrize("page", RUN_PAGES, ids=page_name)
def test_python_blocks_run_alone_and_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each begins with nothing, in an empty folder; a `text` block right after one is its output."""
    for block in fences(page):
        if block.info != "python":
            continue
        folder = tmp_path / str(block.line)
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PERDURE_HOME", str(folder / "home"))
        printed = _run(block)

        if block.output is not None:
            assert printed == block.output, f"{page_name(page)}:{block.line}"


def test_python_blocks_that_do_not_run_are_rare_and_at_least_compile() -> None:
    """`python no-run` is for what can't run here, such as a call to a service."""
    unrun = [block for page in RUN_PAGES for block in fences(page) if block.info == NO_RUN]

    assert len(unrun) <= NO_RUN_MAX
    for block in unrun:
        compile(block.text, f"{page_name(block.page)}:{block.line}", "exec")


def test_every_block_is_written_for_the_type_checkers(tmp_path: Path) -> None:
    """At the line of its page, so that what `make check` finds leads there."""
    files = write_examples(PAGES, tmp_path)
    blocks = [block for page in PAGES for block in fences(page) if block.info in ("python", NO_RUN)]

    assert len(set(files)) == len(blocks)
    for block, file in zip(blocks, files, strict=True):
        assert file.name.endswith(f"_{block.line}.py")
        assert file.read_text().splitlines()[block.line - 1 :] == block.text.splitlines()


SETTINGS: Mapping[str, Callable[[str], object]] = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
"""Blocks that belong into files of other programs -> what reads them."""


def test_settings_of_other_programs_can_be_read() -> None:
    for block in (block for page in PAGES for block in fences(page) if block.info in SETTINGS):
        assert SETTINGS[block.info](block.text)


def test_every_block_says_what_it_is() -> None:
    """A block with another info string would be checked by nobody."""
    known = {"python", NO_RUN, "text", "console", "console no-run", "sh no-run", "mermaid", *SETTINGS}

    found = Counter(block.info for page in PAGES for block in fences(page))

    assert set(found) <= known


def _run(block: Fence) -> str:
    """What the block prints. Errors are shown with the page's own lines."""
    name = f"<{page_name(block.page)}:{block.line}>"
    linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.text, name, "exec"), {"__name__": "__main__"})
    return printed.getvalue()
