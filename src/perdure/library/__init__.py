"""The library face: open a store, make agents, talk to them, look into their memory.

`AsyncPerdure` does the work; `Perdure` is the same with plain calls, by one event loop in one thread; `sync` is
generated from the asynchronous classes. `names` has the public ones, so that who needs one part loads no other.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    names = importlib.import_module("perdure.library.names")
    if not hasattr(names, name):
        raise AttributeError(f"module 'perdure.library' has no attribute {name!r}")
    return getattr(names, name)
