"""The official clients: the newest, which the tests import, an older one in use, and the last before 1.0."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import letta_client

NEWEST, OLD, OLDEST = "1.12.1", "1.7.12", "0.1.307"
OLD_FOLDER = Path(sys.prefix) / "letta-old"
FOLDERS = {OLD: OLD_FOLDER, OLDEST: Path(sys.prefix) / "letta-oldest"}
"""Version -> where `make setup` installs it, beside the newest."""


@contextlib.contextmanager
def client_module(version: str) -> Iterator[ModuleType]:
    """The module of this client. The older one takes the newest one's place until the block ends, because its parts
    import each other by the same names."""
    if version == NEWEST:
        yield letta_client
        return
    newest = _loaded()
    for name in newest:
        del sys.modules[name]
    sys.path.insert(0, str(OLD_FOLDER))
    try:
        yield importlib.import_module("letta_client")
    finally:
        sys.path.remove(str(OLD_FOLDER))
        for name in _loaded():
            del sys.modules[name]
        sys.modules.update(newest)


def list_methods(client: Any, path: str = "") -> Mapping[str, Any]:
    """The client's lists: the path of the resource -> its method `list`."""
    found: dict[str, Any] = {}
    for name in dir(type(client)):
        if name.startswith(("_", "with_")) or not hasattr(client, name):
            continue
        value = getattr(client, name)
        if name == "list" and path:
            found[path] = value
        elif type(value).__name__.endswith("Resource"):
            found |= list_methods(value, f"{path}.{name}" if path else name)
    return found


def _loaded() -> dict[str, ModuleType]:
    """The modules of the client that are loaded."""
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "letta_client"}
