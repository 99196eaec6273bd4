"""Folders that an export was about to replace when its process was killed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

OLD = ".old"
"""How the name of a folder ends while another one takes its place; it begins with a dot and its own name."""


def restore_replaced(target: Path) -> None:
    """Move a folder back, if an export was killed after moving it aside and before replacing it."""
    if target.exists() or not target.name or not target.parent.is_dir():
        return
    beside = [one for one in target.parent.iterdir() if one.suffix == OLD and one.stem.startswith(f".{target.name}.")]
    whole = [one for one in beside if len(one.stem) == len(f".{target.name}.") + 8 and one.is_dir()]
    if whole:
        with suppress(OSError):  # another process was first
            max(whole, key=lambda one: one.stat().st_mtime).replace(target)
