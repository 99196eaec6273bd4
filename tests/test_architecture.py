"""The house keeps its plan: which room imports which, and who may print. Sizes are counted by `scripts/house.py`."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.house import GENERATED, imports, imports_and_calls, modules

pytestmark = pytest.mark.slow  # all of `src` is parsed; `make check` runs this file

SRC = Path(__file__).resolve().parents[1] / "src"
PACKAGE = "perdure"
ROOT = "perdure/__init__.py"

CORE = frozenset({"core"})
SCRATCH = frozenset({"scratch"})
ADAPTERS = frozenset({"storage", "providers", "toolbox", "converters", "telemetry"})
ENGINE_SEES = frozenset({"core", "context", "domain", "search"}) | SCRATCH
APP_SEES = ENGINE_SEES | ADAPTERS | {"engine", "settings"}
LIBRARY_SEES = ENGINE_SEES | {"engine", "app", "settings"}
FACE_SEES = LIBRARY_SEES | {"library", ROOT}

# room -> the other rooms it may import. A room is a module or package right under the package.
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "core": frozenset(),
    "scratch": frozenset(),
    "context": CORE,
    "domain": frozenset({"core", "context"}),
    "search": frozenset({"core", "context", "domain"}),
    "engine": ENGINE_SEES,
    **dict.fromkeys(sorted(ADAPTERS), CORE | SCRATCH),
    "settings": CORE,
    "app": APP_SEES,
    "library": LIBRARY_SEES,
    "server": FACE_SEES,
    "ui": FACE_SEES | {"server"},  # its pages are routes of the server
    "cli": FACE_SEES | {"server", "ui"},  # `perdure serve` starts them
    "adapters": frozenset({"library", "features", ROOT}),  # programs: nothing imports them
    # Each file of a feature is like one of the room whose work it does.
    "features": APP_SEES | FACE_SEES | {"server", "ui", "cli"},
    "testing": APP_SEES | {"app", "library", ROOT},
    ROOT: FACE_SEES | {"features"},  # the public names
    "__main__": frozenset({"cli"}),
}

# Rooms that reach the store through the classes of `library` only.
FRONTS = frozenset({"server", "ui", "cli", "adapters"})
STORE_MODULES = ("perdure.storage",)
# What units of work are typed with; the rest of the store is seen by the composition root alone.
TRANSACTION = frozenset({"perdure.storage.tx", "perdure.storage.store"})
SEES_TRANSACTION = frozenset({"domain", "search", "engine", "library"})

QUIET_ROOMS = frozenset({"core", "context", "domain", "search", "engine", "storage"})

# Slow to import, and needed only by what is asked for later: a face, a wire model, another database.
HEAVY = (
    *("typer", "rich", "prompt_toolkit", "pydantic", "psycopg"),
    *("pypdf", "mammoth", "numpy", "tokenizers", "safetensors", "mcp", "httpx2", "cryptography", "langgraph"),
    "charset_normalizer",
)


def room_of(src: Path, path: Path) -> str:
    """The room a file belongs to."""
    first = path.relative_to(src / PACKAGE).parts[0]
    return ROOT if first == "__init__.py" else first.removesuffix(".py")


def room_imported(src: Path, name: str) -> str | None:
    """The room that a dotted name leads to; None if it is not ours."""
    parts = name.split(".")
    if parts[0] != PACKAGE:
        return None
    if len(parts) == 1:
        return ROOT
    room = parts[1]
    is_room = room in MAY_IMPORT or (src / PACKAGE / room).is_dir() or (src / PACKAGE / f"{room}.py").is_file()
    return room if is_room else ROOT  # else it is one of the public names


def may_name_features(src: Path, path: Path) -> bool:
    """Whether a file of the kernel may name features: a generated one, or one that says where public names stand."""
    return path == src / PACKAGE / "context" / "__init__.py" or path.read_text(encoding="utf-8").startswith(GENERATED)


def forbidden_imports(src: Path) -> list[str]:
    """One line per import that goes the wrong way, and per room the plan does not know."""
    found = []
    for path, tree in modules(src):
        room, where = room_of(src, path), path.relative_to(src).as_posix()
        if room not in MAY_IMPORT:
            found.append(f"{where}: the plan knows no room {room!r}")
            continue
        names_features = may_name_features(src, path)
        for line, name in imports(src, path, tree):
            if room in SEES_TRANSACTION and name.rpartition(".")[0] in TRANSACTION:
                continue
            target = room_imported(src, name)
            if target == "features" and names_features:
                continue
            if target not in {None, room} and target not in MAY_IMPORT[room]:
                found.append(f"{where}:{line}: {room} may not import {name}")
    return found


def prints(src: Path) -> list[str]:
    """One line per call of `print` in a room that has no terminal."""
    return [
        f"{path.relative_to(src).as_posix()}:{node.lineno}"
        for path, tree in modules(src)
        if room_of(src, path) in QUIET_ROOMS
        for node in imports_and_calls(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def reaches_store(src: Path, path: Path, tree: ast.Module) -> list[int]:
    """The lines of a module that name a transaction (its import, `Tx`, `store.read`, `store.write`) or the runner."""
    lines = {
        line
        for line, name in imports(src, path, tree)
        if any(name == module or name.startswith(f"{module}.") for module in STORE_MODULES)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id="Tx"):
                lines.add(node.lineno)
            case ast.Attribute(attr="read" | "write", value=ast.Name(id="store") | ast.Attribute(attr="store")):
                lines.add(node.lineno)
            case ast.Attribute(attr="runner"):
                lines.add(node.lineno)
    return sorted(lines)


def fronts_at_the_store(src: Path) -> dict[str, list[int]]:
    """Path below the package -> lines, of the files of fronts that reach the store by themselves."""
    found: dict[str, list[int]] = {}
    for path, tree in modules(src):
        name, room = path.relative_to(src / PACKAGE).as_posix(), room_of(src, path)
        if room in FRONTS:
            found[name] = reaches_store(src, path, tree)
    return {name: lines for name, lines in found.items() if lines}


def plant(src: Path, files: Mapping[str, str]) -> None:
    """Write a small package under `src`: path below the package -> its text."""
    for name, text in files.items():
        path = src / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_imports_point_one_way() -> None:
    """core <- context <- domain <- search <- engine <- app <- library <- server, ui, cli; adapters see core only."""
    assert list(modules(SRC)), f"no modules under {SRC}"

    assert forbidden_imports(SRC) == []


@pytest.mark.slow
def test_every_module_says_what_lives_in_it() -> None:
    """Every module opens with a docstring."""
    assert [path.relative_to(SRC).as_posix() for path, tree in modules(SRC) if not ast.get_docstring(tree)] == []


def test_rooms_without_a_terminal_do_not_print() -> None:
    """What the inner rooms and the store have to say, they return, raise or log."""
    assert prints(SRC) == []


def test_fronts_reach_the_store_through_the_library() -> None:
    """No transaction and no unit of work stands in the server, the pages or the CLI."""
    assert fronts_at_the_store(SRC) == {}


def test_one_place_makes_a_run_of_a_request() -> None:
    """Outside the engine only the library's requests give a request its run, so no two fronts differ in it; and what
    features do in the background."""
    makers = [
        path.relative_to(SRC / PACKAGE).as_posix()
        for path, tree in modules(SRC)
        if room_of(SRC, path) not in ("engine", "features")
        if any(name == "perdure.engine.records.run_request.with_run" for _, name in imports(SRC, path, tree))
    ]

    assert makers == ["library/messages/requests.py"]


def test_the_kernel_imports_no_feature() -> None:
    """It finds them by their folders, and asks each for what it plugs in. Generated files do where a part is used."""
    found = [
        (path.relative_to(SRC / PACKAGE).as_posix(), name)
        for path, tree in modules(SRC)
        if room_of(SRC, path) not in ("features", "adapters", ROOT) and not may_name_features(SRC, path)
        for _, name in imports(SRC, path, tree)
        if room_imported(SRC, name) == "features"
    ]

    assert found == []


KINDS = (
    *("providers", "toolbox", "features.files.converters", "storage.stores", "search.vectors", "context.engines"),
    *("features.compression", "features.facts.extraction", "engine.compaction", "domain.tools"),
)
"""Where things are that come in several kinds: models, tools, files, databases, engines, compressors, hooks, ..."""


@pytest.mark.slow
def test_only_the_composition_root_knows_more_than_two_kinds_of_things() -> None:
    """A new kind of thing needs no change in a file that knows all others: each has a registry of its own."""
    knows = {
        path.relative_to(SRC / PACKAGE).as_posix(): {
            kind for _, name in imports(SRC, path, tree) for kind in KINDS if name.startswith(f"{PACKAGE}.{kind}.")
        }
        for path, tree in modules(SRC)
    }

    assert {name: kinds for name, kinds in knows.items() if len(kinds) > 2}.keys() == {"app/__init__.py"}


def test_importing_perdure_and_opening_a_store_is_light(tmp_path: Path) -> None:
    """`import perdure` loads none of the modules that only faces, wire models or another database need; an opened
    store, which each command has, loads nothing of the server."""
    program = (
        f"import json, sys, {PACKAGE}; loaded = [m for m in {HEAVY!r} if m in sys.modules]\n"
        f"with {PACKAGE}.Perdure('p.db'): pass\n"
        f"print(json.dumps([loaded, [m for m in ('fastapi', '{PACKAGE}.server') if m in sys.modules]]))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], []]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("core/ids.py", "from perdure.context import budget"),
        ("core/ids.py", "import perdure.settings"),
        ("core/ids.py", "from perdure import Perdure"),
        ("core/ids.py", "import perdure"),
        ("context/window/budget.py", "from perdure.domain.blocks.units import append"),
        ("context/prompts/base.py", "from ...domain import blocks"),
        ("domain/blocks/units.py", "from perdure import engine"),
        ("domain/blocks/units.py", "import os, perdure.storage.stores.open as store"),
        ("engine/run/loop.py", "def run():\n    from perdure.storage import open_sqlite"),
        (
            "engine/run/loop.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from perdure.providers import x",
        ),
        ("engine/run/loop.py", "from ... import settings"),
        ("engine/run/loop.py", "import importlib\nimportlib.import_module('perdure.toolbox')"),
        ("storage/stores/open.py", "from perdure.settings import Settings"),
        ("storage/stores/open.py", "from perdure.context import tokens"),
        ("toolbox/functions.py", "from ..providers import registry"),
        ("toolbox/custom.py", "from perdure.storage.tx import Tx"),
        ("toolbox/mcp/toolbox.py", "from perdure.domain.secrets import open_server"),
        ("converters/pdf.py", "from perdure.search.chunking import chunks"),
        ("settings.py", "from . import engine"),
        ("app.py", "from .library import Perdure"),
        ("app.py", "from perdure.testing import InlineStore"),
        ("library.py", "from perdure.server import serve"),
        ("library/agent.py", "from perdure.storage import open_sqlite"),
        ("domain/blocks.py", "from perdure.storage.tables.blocks import Blocks"),
        ("server/__init__.py", "from perdure.cli import main"),
        ("server/routes/agents.py", "from perdure.ui import pages"),
        ("ui/pages.py", "from perdure.testing import ScriptedModel"),
        ("testing/model.py", "from perdure.cli import main"),
        ("__init__.py", "from perdure.testing import ScriptedModel"),
        ("__init__.py", "from .server import config"),
        ("attic/__init__.py", "import os"),
    ],
)
def test_a_wrong_import_is_seen(tmp_path: Path, path: str, text: str) -> None:
    """The checker can fail: each planted import against the plan is reported once, with its file."""
    plant(tmp_path, {"__init__.py": "", path: text})

    found = forbidden_imports(tmp_path)

    assert len(found) == 1
    assert found[0].startswith(f"perdure/{path}:")


def test_right_imports_pass(tmp_path: Path) -> None:
    """The checker does not cry wolf: each room importing what it may, in every form, is in order."""
    plant(
        tmp_path,
        {
            "__init__.py": "from perdure.core.errors import PerdureError\nfrom .library import Perdure",
            "__main__.py": "from perdure.cli import main",
            "core/ids.py": "from __future__ import annotations\nimport re\nfrom . import errors\nfrom .errors import X",
            "context/prompts/base.py": "from ..budget import Budget\nfrom ...core import ids",
            "domain/blocks/units.py": "from perdure.core.ids import AgentId\nfrom perdure.context import tokens",
            "engine/run/loop.py": "from perdure import core, context, domain, search\nimport perdure.engine.run.runner",
            "storage/stores/sqlite.py": "import sqlite3\nfrom perdure.storage.tx import Tx\nfrom .open import x",
            "settings.py": "from .core.errors import SettingsError",
            "app.py": "from perdure import domain, engine, providers, settings, storage, toolbox",
            "library/__init__.py": "from perdure.app import App\nfrom perdure.library.agent import Agent",
            "library/agent.py": "from .. import settings\nfrom ..engine import runner",
            "cli/__init__.py": "def main():\n    from perdure import Perdure, settings",
            "server/routes/agents.py": "from ..wire import agents\nfrom perdure.library import Perdure",
            "testing/model.py": "from perdure import app, library, storage\nimport perdure_plugin",
        },
    )

    assert forbidden_imports(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("server/routes/blocks.py", "from perdure.storage.tx import Tx"),
        ("server/routes/blocks.py", "import perdure.storage.tx as core"),
        ("server/routes/blocks.py", "from ...storage import open_store"),
        ("server/routes/blocks.py", "def unit(tx: Tx) -> None: ..."),
        ("server/routes/blocks.py", "async def get(library): return await library.app.store.read(print)"),
        ("server/wire/blocks.py", "async def get(app): return await app.ports.store.write(print)"),
        ("cli/commands/search.py", "read = store.read"),
        ("cli/commands/cancel.py", "async def cancel(perdure): await perdure.app.runner.cancel(1)"),
    ],
)
def test_a_front_at_the_store_is_seen(tmp_path: Path, path: str, text: str) -> None:
    """Each way for a front to reach the store by itself is found, with its line."""
    plant(tmp_path, {path: text})

    assert fronts_at_the_store(tmp_path) == {path: [1]}


def test_fronts_on_the_library_pass(tmp_path: Path) -> None:
    """A route that calls the library is in order, and so are the library, files and words that are called alike."""
    plant(
        tmp_path,
        {
            "library/memory/blocks.py": "import perdure.storage.tx\nasync def get(app): await app.store.read(1)",
            "server/routes/blocks.py": '"""Tx."""\nasync def get(library): return await library.blocks.get(1)',
            "cli/app.py": "def load(file): return file.read()",
            "library/perdure.py": "from perdure.storage.store import Store",
        },
    )

    assert fronts_at_the_store(tmp_path) == {}


def test_a_print_is_seen(tmp_path: Path) -> None:
    """Calls of `print` are found in the quiet rooms only; the word in a string or another method is none."""
    plant(
        tmp_path,
        {
            "core/ids.py": '"""print( is a word here."""\nconsole.print("x")',
            "engine/run/loop.py": 'def run():\n    print("x")',
            "cli/__init__.py": 'print("x")',
        },
    )

    assert prints(tmp_path) == ["perdure/engine/run/loop.py:2"]
