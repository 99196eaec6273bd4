"""What Letta's API has and this server has not: paths that answer 501 with a sentence, and paths that nobody knows.

A client must not take a missing path for a missing object, so both say what is missing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from perdure.core.text.tables import read_table
from perdure.server.wire.errors import METHODS, NotSupported, error_answer

ABSENT: Mapping[str, str] = {
    path: part["sentence"] for part in read_table(__file__, "absent.toml")["parts"] for path in part["paths"]
}
"""Template of a path of Letta's API that is not here -> the sentence of its 501."""


def absent_routes() -> list[Route]:
    """Build the routes that answer 501. They must precede those with an id in the same place."""
    return [
        Route(path, functools.partial(_refuse, sentence), methods=sorted(METHODS), include_in_schema=False)
        for path, sentence in ABSENT.items()
    ]


async def _refuse(sentence: str, request: Request) -> Response:
    """Answer 501. The body is read first: many clients read no answer before they have sent it."""
    async for _ in request.stream():
        pass
    return error_answer(NotSupported(sentence))


# --- unknown paths

SHOWN_CHARS = 200
"""How much of an unknown path its answer repeats."""

NEAR = 0.75
"""How alike two words of paths are, from 0 to 1, so that one may be meant by the other."""

_ID = re.compile(r"[a-z_]+-[0-9a-f]{8}-.*")


def unknown_path_detail(path: str, routes: Sequence[BaseRoute]) -> str:
    """Return the text of the 404 for an unknown path, with the nearest known path."""
    shown = path if len(path) <= SHOWN_CHARS else f"{path[:SHOWN_CHARS]}..."
    detail = f"Unknown path: this server has no {shown!r}"
    near = _nearest(path, routes) if len(path) <= SHOWN_CHARS else None
    return f"{detail}. {f'Did you mean {near}?' if near else '/docs lists the paths.'}"


def _nearest(path: str, routes: Sequence[BaseRoute]) -> str | None:
    """The template of the route that is most like a path; None: none is."""
    words = path.strip("/").split("/")
    if words[:2] == ["v1", "v1"]:  # the client's base URL ends with it
        words = words[1:]
    elif words[0] != "v1":
        words = ["v1", *words]
    best, nearest = 0.0, None
    for route in routes:
        if not isinstance(route, Route) or not route.include_in_schema:
            continue
        likeness = _path_similarity(words, route.path.strip("/").split("/"))
        if likeness > best:
            best, nearest = likeness, route.path
    return nearest


def _path_similarity(words: Sequence[str], parts: Sequence[str]) -> float:
    """How alike a path and a template are: the mean over their words, 0 if any two are not near."""
    if len(words) != len(parts):
        return 0.0
    likes = [_word_likeness(word, part) for word, part in zip(words, parts, strict=True)]
    return sum(likes) / len(likes) if min(likes) >= NEAR else 0.0


@functools.lru_cache(maxsize=4096)
def _word_likeness(word: str, part: str) -> float:
    """How alike a word of a path and a part of a template are. A parameter is most like an id."""
    if part.startswith("{"):
        return 1.0 if _ID.fullmatch(word) else NEAR
    return SequenceMatcher(None, word, part).ratio()
