"""Data that stands in TOML files beside the modules that use it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def read_table(module: str, name: str | None = None) -> dict[str, Any]:
    """Return what a file beside a module holds, by default the one that is named as the module is. `module`: the path
    of the module, its `__file__`."""
    path = Path(module)
    path = path.with_suffix(".toml") if name is None else path.with_name(name)
    return tomllib.loads(path.read_text(encoding="utf-8"))
