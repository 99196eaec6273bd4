"""The methods of a path, for the `Allow` header of a 405; and 405 for literal paths that match a route with an id."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})


def methods_at(request: Request) -> Sequence[str]:
    """The methods of the request's path, sorted. Each method may have a route of its own."""
    routes = [route for route in request.app.routes if isinstance(route, Route) and route.endpoint is not _refuse]
    path = request.scope["path"].rstrip("/")
    scopes = [{**request.scope, "path": form} for form in (path, f"{path}/")]
    paths = [route.path for route in routes if any(route.matches(scope)[0] is not Match.NONE for scope in scopes)]
    if not paths:
        return ()
    first = min(paths, key=_parameters)  # `.../passages/delete` rather than `.../passages/{passage_id}`
    return sorted(_methods_of(routes, first))


def method_not_allowed_routes(routes: Sequence[BaseRoute]) -> list[Route]:
    """Build the routes that answer 405 for other methods of a literal path, such as `/v1/agents/count`.

    Without them, a route with an id, such as `/v1/agents/{agent_id}`, would answer 422. They must precede those.
    """
    plain = [route for route in routes if isinstance(route, Route)]
    patterns = {route.path: (route.path_regex, _PARAMETER.findall(route.path)) for route in plain}
    return [
        Route(path, _refuse, methods=METHODS - _methods_of(plain, path) - {"HEAD"}, include_in_schema=False)
        for path, (_, names) in patterns.items()
        if any(_shadows(other, path, names) for other in patterns.values())
    ]


async def _refuse(request: Request) -> Response:
    """Answer 405."""
    raise HTTPException(405)


def _shadows(other: tuple[re.Pattern[str], Sequence[str]], path: str, names: Sequence[str]) -> bool:
    """Whether another route matches this path with these parameters, one of its words taken as an id.

    A parameter that is no id, such as a name, may be any word.
    """
    pattern, others = other
    if len(others) <= len(names) or not pattern.match(_PARAMETER.sub("x", path)):
        return False
    return all(name.endswith("_id") for name in others if name not in names)


def _methods_of(routes: Sequence[Route], path: str) -> set[str]:
    """The methods of all routes of this path."""
    same = [route for route in routes if route.path.rstrip("/") == path.rstrip("/")]
    return {method for route in same for method in route.methods or ()}


def _parameters(path: str) -> int:
    """How many parameters a path has."""
    return len(_PARAMETER.findall(path))
