"""What the model will see: pure functions of values, without I/O.

The names below are for other programs too: they compress the output of a tool, and open parts of it. Each is loaded at
its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.context.tool_output.compress import compress, decode, expand
    from perdure.context.tool_output.pipeline import LEVELS, Compressed, Level

__all__ = ["LEVELS", "Compressed", "Level", "compress", "decode", "expand"]

_PIPELINE = ("LEVELS", "Compressed", "Level")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'perdure.context' has no attribute {name!r}")
    home = "pipeline" if name in _PIPELINE else "compress"
    value = getattr(importlib.import_module(f"perdure.context.tool_output.{home}"), name)
    globals()[name] = value
    return value
