"""Prompt texts, one file each."""

from __future__ import annotations

import functools
from importlib import resources

__all__ = ["base_prompt"]


@functools.cache
def base_prompt() -> str:
    """The base prompt of an agent that has none of its own."""
    return resources.files(__package__).joinpath("base.txt").read_text(encoding="utf-8").strip()
