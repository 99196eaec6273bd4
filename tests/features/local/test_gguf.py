"""What the head of a model file says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import InvalidInput
from perdure.features.local.catalogue import ModelHead, read_head
from tests.support.model_files import FACTS, gguf

WHOLE = gguf()


def test_parameters_window_and_memory_are_read(tmp_path: Path) -> None:
    """Parameters are counted, as few files name them: 896 x 1,000 + 896."""
    path = tmp_path / "a.gguf"
    path.write_bytes(WHOLE)

    # Keys and values of 24 layers, 2 heads each, 64 numbers of 2 bytes.
    assert read_head(path) == ModelHead(896_896, 32_768, 24 * 2 * (64 + 64) * 2, len(WHOLE))


def test_a_file_that_says_little_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf({"general.architecture": FACTS["general.architecture"]}))

    assert read_head(path) == ModelHead(896_896, None, 0, path.stat().st_size)


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    """With the file's name: a text, nothing, a folder, a file that is not there."""
    (tmp_path / "text.gguf").write_text("Once upon a time")
    (tmp_path / "empty.gguf").touch()
    for name, why in (
        ("text.gguf", "it is not a whole GGUF file (16 bytes)"),
        ("empty.gguf", "it is not a whole GGUF file (0 bytes)"),
        ("", "Is a directory"),
        ("gone.gguf", "No such file"),
    ):
        with pytest.raises(InvalidInput) as caught:
            read_head(tmp_path / name)
        assert why in str(caught.value)


@given(st.integers(0, len(WHOLE) - 65), st.binary(max_size=20))
def test_a_damaged_head_is_an_error_or_a_head(tmp_path_factory: pytest.TempPathFactory, at: int, other: bytes) -> None:
    """Wherever it ends, and whatever stands there, nothing else is raised."""
    path = tmp_path_factory.mktemp("heads") / "a.gguf"
    path.write_bytes(WHOLE[:at] + other)

    try:
        read_head(path)
    except InvalidInput as error:
        assert str(path) in str(error)
