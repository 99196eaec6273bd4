"""Names of uploaded files: accepted if they are safe, or refused with what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import FileNameInvalid
from perdure.features.files.converters.kinds import safe_path


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("plan.md", "plan.md"),
        ("  plan.md ", "plan.md"),
        ("src/app.py", "src/app.py"),
        ("./src//app.py", "src/app.py"),
        ("a b/ c ", "a b/c"),
        (".gitignore", ".gitignore"),
        ("..plan", "..plan"),
        ("résumé 计划.pdf", "résumé 计划.pdf"),
        ("re\u0301sume\u0301", "résumé"),
    ],
)
def test_a_path_keeps_its_folders(path: str, safe: str) -> None:
    """Two files of the same name in different folders stay two."""
    assert safe_path(path) == safe


@pytest.mark.parametrize(
    "name",
    ["", "  ", ".", "...", "./", "a\0.txt", "a\n.txt", "a\x1b[31m", "a\u202etxt.exe", "\ud800", "x" * 256, "汉" * 86],
)
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    """With a message that can be printed."""
    with pytest.raises(FileNameInvalid) as raised:
        safe_path(name)

    assert raised.value.code == "file_name_invalid"
    str(raised.value).encode()


@pytest.mark.parametrize("path", ["../a", "a/../b", "/a", "C:/a", "c:a", "a\\b", "a/" * 33 + "b", "a/\0"])
def test_a_path_that_leads_outside_is_refused(path: str) -> None:
    """Not corrected: who writes such a path means something by it."""
    with pytest.raises(FileNameInvalid):
        safe_path(path)


@given(st.text(max_size=40) | st.lists(st.sampled_from(["..", ".", "/", "\\", "C:", "a", " "])).map("".join))
def test_what_is_accepted_is_inside_and_stays_the_same(name: str) -> None:
    """No part leads upward, and a safe path is its own safe path."""
    try:
        safe = safe_path(name)
    except FileNameInvalid:
        return

    assert not safe.startswith("/")
    assert not {"", ".", ".."} & set(safe.split("/"))
    assert safe_path(safe) == safe


def test_a_path_that_leaves_its_folder_is_told_so() -> None:
    for path in ("../x.txt", "a/../b"):
        with pytest.raises(FileNameInvalid, match=r"`\.\.` is not allowed"):
            safe_path(path)
