"""Modules that can be imported at once and are loaded when something in them is first used: most calls never do."""

from __future__ import annotations

import os
import sys
from _thread import RLock
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_loading = RLock()


class Later(ModuleType):
    """A module that fills itself when anything in it is read, set, deleted or listed; from then on it is an ordinary
    one."""

    def __init__(self, found: ModuleSpec) -> None:
        super().__init__(found.name)
        known = {"__spec__": found, "__loader__": found.loader, "__package__": found.parent, "__file__": found.origin}
        self.__dict__.update(known, _not_loaded=True)

    def __getattr__(self, name: str) -> Any:
        _load(self, name)
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _load(self, name)
        setattr(self, name, value)

    def __delattr__(self, name: str) -> None:
        _load(self, name)
        delattr(self, name)

    def __dir__(self) -> Iterable[str]:
        _load(self, "names")
        return dir(self)


def import_later(found: ModuleSpec) -> Later:
    """Put a module that was found among those imported, without loading it."""
    module = sys.modules[found.name] = Later(found)
    return module


def import_asyncio(readable: Sequence[Path]) -> None:
    """Import asyncio without `ssl`, more than half of what it holds; whoever uses that loads it.

    Args:
        readable: what there will be to load it from. If it needs other files, it is loaded now.
    """
    package, ssl = find_spec("asyncio"), find_spec("ssl")
    places = package.submodule_search_locations if package is not None else None
    protocol = PathFinder.find_spec("asyncio.sslproto", places)  # it reads from `ssl` as soon as it is loaded
    if ssl is None or protocol is None or not _loads_from("ssl", readable):
        import asyncio

        return
    import_later(ssl)
    later = import_later(protocol)
    import asyncio

    vars(asyncio)["sslproto"] = later  # as an import would have left it


def _loads_from(name: str, readable: Sequence[Path]) -> bool:
    """Whether a module can be imported, with all that it maps into memory in these folders. Tried by a copy of this."""
    pid = os.fork()
    if pid == 0:
        try:
            before = _mapped()
            __import__(name)
            folders = [folder.resolve() for folder in readable]
            within = all(any(path.is_relative_to(folder) for folder in folders) for path in _mapped() - before)
            os._exit(0 if within else 1)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _mapped() -> set[Path]:
    """The files that are mapped into this process's memory."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return {Path(line[line.index("/") :]) for line in lines if "/" in line}


def _load(module: Later, wanted: str) -> None:
    with _loading:
        if not isinstance(module, Later):  # another thread was first
            return
        if module.__dict__.pop("_not_loaded", None) is None:
            raise AttributeError(f"module {module.__name__!r} has no {wanted!r} yet: it is being loaded", name=wanted)
        found = module.__dict__["__spec__"]
        try:
            found.loader.exec_module(module)
        except BaseException:
            module.__dict__["_not_loaded"] = True
            raise
        ModuleType.__setattr__(module, "__class__", ModuleType)
