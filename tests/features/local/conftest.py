"""What the tests of local models share: the stand-in for llama.cpp, which they and the processes of models find."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.features.local import catalogue, commands, models
from perdure.features.local.catalogue import LocalModel
from tests.support.model_files import write_model

LLAMA = Path(__file__).resolve().parents[2] / "support" / "llama"
Seen = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> str:
    """The stand-in, installed; the variable by which programs find it too."""
    monkeypatch.syspath_prepend(LLAMA)
    path = os.pathsep.join(filter(None, (str(LLAMA), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("PYTHONPATH", path)
    return path


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """A small model file, `one.gguf`."""
    folder = tmp_path / "files"
    folder.mkdir()
    return write_model(folder)


@pytest.fixture
def seen(model_file: Path) -> Seen:
    """What the processes of that model were started with, and what they were asked."""

    def read() -> list[dict[str, Any]]:
        lines = model_file.with_name("one.gguf.seen").read_text().splitlines()
        return [json.loads(line) for line in lines]

    return read


def list_one_model(monkeypatch: pytest.MonkeyPatch, data: bytes, address: str) -> None:
    """Let the catalogue hold one model, `mine`: with this contents, at this address."""
    sha256 = hashlib.sha256(data).hexdigest()
    model = LocalModel(name="mine", address=address, size_bytes=len(data), sha256=sha256)
    for module in (catalogue, models, commands):
        monkeypatch.setattr(module, "catalogue", lambda: {"mine": model})
