"""What a server loads and builds before it is asked for anything: what few servers need waits for its first use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from starlette.routing import Match

from perdure.server.wire.base import WireRequest
from perdure.server.wire.http import LateRoute, Router
from tests.support.programs import environment

HEAVY = (
    *("numpy", "jinja2", "cryptography", "psycopg", "mcp", "pydantic_ai", "tokenizers", "safetensors", "regex"),
    *("markdown_it", "nh3"),
    *("prompt_toolkit", "pygments", "rich.markdown", "rich.progress", "watchfiles", "pydantic.v1", "opentelemetry.sdk"),
    *(
        "perdure.library.sync.perdure",
        "perdure.search.recall",
        "perdure.server.serving.openapi",
        "perdure.cli.session.prompt",
    ),
)
PROGRAM = f"""
import atexit, json, sys
@atexit.register
def show():
    from perdure.server.serving.app import build_routes
    from perdure.server.wire.http import LateRoute
    from perdure.server.wire.base import WireRequest
    late = [route for route in build_routes() if isinstance(route, LateRoute)]
    print(json.dumps({{
        "heavy": [name for name in {HEAVY!r} if sys.modules.get(name)],
        "routes": len(late),
        "built": [route.path for route in late if "dependant" in vars(route)],
        "bodies": len(WireRequest.__subclasses__()),
        "built bodies": sum(one.__pydantic_complete__ for one in WireRequest.__subclasses__()),
    }}), flush=True)
from perdure.cli import main
sys.argv = ["perdure", "serve", "--port", "0"]
main()
"""


@pytest.mark.slow
def test_a_server_loads_and_builds_what_it_is_asked_for(tmp_path: Path) -> None:
    """Of the modules, routes and bodies that few servers need, a server that nobody asked has none."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            ready = child.stdout.readline()
            os.kill(child.pid, signal.SIGTERM)
            out, err = child.communicate(timeout=60)
        finally:
            child.kill()

    assert ready.startswith(b"Perdure is serving"), err
    found = json.loads(out)
    assert found.pop("routes") > 200
    assert found.pop("built bodies") < found.pop("bodies") / 10  # but for the bases of a few
    assert found == {"heavy": [], "built": []}


class _BodyIn(WireRequest):
    name: str


def _router() -> Router:
    router = Router(tags=["things"])

    @router.put("/things/{id}", operation_id="put_thing")
    async def put(id: str, body: _BodyIn) -> dict[str, Any]:
        """Store a thing."""
        return {id: body.name}

    return router


def test_a_route_is_found_before_it_is_built() -> None:
    """By its path and its methods; a request with another method is refused by it, not by the next one."""
    (route,) = _router().routes

    assert isinstance(route, LateRoute)
    for method, match in (("PUT", Match.FULL), ("GET", Match.PARTIAL)):
        assert route.matches({"type": "http", "method": method, "path": "/things/1"})[0] == match
    assert route.matches({"type": "http", "method": "PUT", "path": "/others/1"})[0] == Match.NONE
    assert "dependant" not in vars(route)
    assert (route.operation_id, route.tags, route.description) == ("put_thing", ["things"], "Store a thing.")
    with pytest.raises(AttributeError, match="no_such_name"):
        route.no_such_name  # noqa: B018


def test_a_route_is_built_once_whoever_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is made in a thread while requests come: both see the whole route."""
    (route,) = _router().routes
    assert isinstance(route, LateRoute)
    calls: list[None] = []
    build = route._build
    assert build is not None

    def build_once() -> None:
        calls.append(None)
        build()

    monkeypatch.setattr(route, "_build", build_once)
    start = Barrier(8)

    def ask(name: str) -> Any:
        start.wait()
        return getattr(route, name)

    names = ["app", "dependant", "body_field", "unique_id"] * 2
    with ThreadPoolExecutor(8) as threads:
        values = list(threads.map(ask, names))

    assert len(calls) == 1
    assert values == [getattr(route, name) for name in names]
