"""What the model will see: pure functions of values, without I/O.

The names below are for other programs too. `compress` writes what a tool returned in fewer tokens, `expand` opens parts
of it; `plan` decides which messages of a chat a model sees, `assemble` makes the request of them. Each is loaded at its
first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.context.engines.chat import ChatSummary, Window, assemble, plan
    from perdure.features.compression.compress import compress, decode
    from perdure.features.compression.lookup import expand
    from perdure.features.compression.pipeline import LEVELS, Level
    from perdure.features.compression.shorten import Compressed

_HOMES = {
    "context.engines.chat": ("ChatSummary", "Window", "assemble", "plan"),
    "features.compression.compress": ("compress", "decode"),
    "features.compression.lookup": ("expand",),
    "features.compression.pipeline": ("LEVELS", "Level"),
    "features.compression.shorten": ("Compressed",),
}

__all__ = ["LEVELS", "ChatSummary", "Compressed", "Level", "Window", "assemble", "compress", "decode", "expand", "plan"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use. Raises: AttributeError."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'perdure.context' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"perdure.{home}"), name)
    globals()[name] = value
    return value
