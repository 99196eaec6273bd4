"""Which methods a path takes, told with a 405; and that a path which is spelled out is not taken for one with an id."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

__all__ = ["methods_at", "refusals"]

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})


def methods_at(request: Request) -> Sequence[str]:
    """The methods of the request's path, sorted: each may be a route of its own."""
    found = [one for one in request.app.routes if isinstance(one, Route) and one.endpoint is not _refuse]
    path = request.scope["path"].rstrip("/")
    scopes = [{**request.scope, "path": form} for form in (path, f"{path}/")]
    paths = [one.path for one in found if any(one.matches(scope)[0] is not Match.NONE for scope in scopes)]
    if not paths:
        return ()
    first = min(paths, key=_parameters)  # `.../passages/delete` rather than `.../passages/{passage_id}`
    return sorted({method for one in found if _same(one.path, first) for method in one.methods or ()})


def refusals(routes: Sequence[BaseRoute]) -> list[Route]:
    """Routes that answer 405 where a path that is spelled out, such as `/v1/agents/count`, would else be taken for
    another route's with an id in it, which can't be one and would be answered 422. They stand before those."""
    known = [one for one in routes if isinstance(one, Route)]
    found: dict[str, Route] = {}
    for route in known:
        sample = _PARAMETER.sub("x", route.path)
        if any(_takes_as_id(other, route.path, sample) for other in known):
            own = {method for one in known if _same(one.path, route.path) for method in one.methods or ()}
            found[route.path] = Route(
                route.path, _refuse, methods=sorted(METHODS - own - {"HEAD"}), include_in_schema=False
            )
    return list(found.values())


async def _refuse(request: Request) -> Response:
    raise HTTPException(405)


def _takes_as_id(other: Route, path: str, sample: str) -> bool:
    """Whether the other route's path fits, with a word of this one in the place of an id. Names may be any word."""
    if _parameters(other.path) <= _parameters(path) or other.path_regex.match(sample) is None:
        return False
    own = set(_PARAMETER.findall(path))
    return all(name.endswith("_id") for name in _PARAMETER.findall(other.path) if name not in own)


def _same(path: str, other: str) -> bool:
    return path.rstrip("/") == other.rstrip("/")


def _parameters(path: str) -> int:
    return len(_PARAMETER.findall(path))
