"""What Letta's API has and this server has not: paths that answer 501 with a sentence, and paths that nobody knows.

A client must not take a missing path for a missing object, so both say what is missing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from perdure.server.wire.errors import METHODS, NotSupported, error_answer


@dataclass(frozen=True, slots=True)
class Absent:
    """A part of Letta's API that is not here.

    Args:
        paths: templates of its paths, as in a route. `{rest:path}` is everything below.
        sentence: what it is, why it is not here, and what to use instead.
    """

    paths: tuple[str, ...]
    sentence: str


ABSENT: Sequence[Absent] = (
    Absent(
        (
            *("/v1/templates", "/v1/templates/{rest:path}", "/v1/agents/{agent_id}/core-memory/variables"),
            *("/v1/legacy-templates/{rest:path}", "/v1/_internal_templates/{rest:path}"),
            *(f"/v1/agents/{{agent_id}}/{name}" for name in ("template", "version-template", "migrate")),
        ),
        "Templates of agents exist only in Letta's cloud. Keep the body of POST /v1/agents/ and send it again for each"
        " agent; blocks and tools can be shared by `block_ids` and `tool_ids`.",
    ),
    Absent(
        tuple(f"/v1/{noun}{rest}" for noun in ("feeds", "pipelines") for rest in ("", "/{rest:path}")),
        "Feeds and pipelines exist only in Letta's cloud. Wake an agent by POST /v1/agents/{agent_id}/events, or at"
        " times by POST /v1/agents/{agent_id}/schedule.",
    ),
    Absent(
        ("/v1/metadata/{rest:path}", "/v1/device-storage-key"),
        "Accounts with their balance, feedback and devices exist only in Letta's cloud. GET /v1/runs/ has what runs"
        " used.",
    ),
    Absent(
        (
            *("/v1/sandboxes", "/v1/sandboxes/{rest:path}", "/v1/agents/{agent_id}/sandboxes"),
            *("/v1/repositories", "/v1/repositories/{rest:path}", "/v1/agents/{agent_id}/repositories"),
            *("/v1/agents/{agent_id}/repositories/{rest:path}", "/v1/agents/{agent_id}/memory-files/{rest:path}"),
        ),
        "Sandboxes and repositories of agents exist only in Letta's cloud. An agent's memory as files is the git"
        " repository /v1/git/{agent_id}/state.git.",
    ),
    Absent(
        ("/v1/environments", "/v1/environments/{rest:path}"),
        "Environments, the remote computers of Letta Code, exist only in Letta's cloud. To run tools on a computer of"
        " your own, send `client_tools` with a message, or register an MCP server: POST /v1/mcp-servers/.",
    ),
    Absent(
        ("/v1/client-side-access-tokens", "/v1/client-side-access-tokens/{rest:path}"),
        "Access tokens for the clients of an application exist only in Letta's cloud. This server has one key,"
        " PERDURE_API_KEY; let a server of your own hold it and pass its users' requests on.",
    ),
    Absent(
        ("/v1/projects", "/v1/projects/{rest:path}", "/v1/agents/search", "/v1/agents/search/count"),
        "Projects and the search of agents by conditions exist only in Letta's cloud. Give agents `tags`, and list them"
        " by `tags`, `query_text` or `identity_id`: GET /v1/agents/.",
    ),
    Absent(
        ("/v1/tools/composio/{rest:path}",),
        "This server has no tools of Composio. Register its MCP server: POST /v1/mcp-servers/.",
    ),
    Absent(
        ("/v1/voice-beta/{rest:path}", "/v1/voice/{rest:path}"),
        "This server has no voice routes. An agent answers OpenAI's chat API: POST /v1/chat/completions with its id as"
        " the model.",
    ),
)
"""Each part of Letta's API that answers 501."""


def absent_routes() -> list[Route]:
    """Build the routes that answer 501. They must precede those with an id in the same place."""
    return [
        Route(path, functools.partial(_refuse, absent.sentence), methods=sorted(METHODS), include_in_schema=False)
        for absent in ABSENT
        for path in absent.paths
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
        likeness = _likeness(words, route.path.strip("/").split("/"))
        if likeness > best:
            best, nearest = likeness, route.path
    return nearest


def _likeness(words: Sequence[str], parts: Sequence[str]) -> float:
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
