"""How the dashboard answers: files that are kept in memory and named by what they hold, compressed text, and nothing at
all where the browser has it already.

A page is compressed though it can show what a stranger wrote beside what is private: to learn of the one by the length
of the other (BREACH), a stranger has to make the browser ask for pages of their choice. Requests of other sites are
refused (`Sec-Fetch-Site`, `Origin`, a SameSite=Strict cookie), and no page holds a token against forged ones. The page
of keys, which shows a new key once, is not compressed.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from perdure.core.text.json_strings import encodable

STATIC = Path(__file__).parent / "static"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
FOREVER, ASK_AGAIN = "max-age=31536000, immutable", "no-cache"
COMPRESSED_BYTES = 1_000
"""Shorter texts are sent as they are."""
PAGE_LEVEL = 5
"""Of gzip: 250 kB take 5 ms, and come to an eighth."""

_GZIP = re.compile(r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?P<q>[0-9.]+)\s*)?(?=,|$)")


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the dashboard. `version` is made of its bytes."""

    kind: str
    body: bytes
    compressed: bytes
    version: str


@functools.cache
def assets() -> Mapping[str, Asset]:
    """Name -> file, of all files that pages load. They are read and compressed once."""
    found = {path.name: path.read_bytes() for path in sorted(STATIC.iterdir()) if path.suffix in TYPES}
    return {
        name: Asset(TYPES[Path(name).suffix], body, gzip.compress(body, mtime=0), version_of(body))
        for name, body in found.items()
    }


def version_of(body: bytes) -> str:
    """A short name of bytes, which other bytes don't have."""
    return hashlib.sha256(body).hexdigest()[:20]


def address_of(name: str) -> str:
    """The address of a file, which a browser may keep for good: a changed file has another one."""
    return f"/static/{name}?v={assets()[name].version}"


def asset_answer(asset: Asset, request: Request, headers: Mapping[str, str]) -> Response:
    """The answer with a file; 304 if the browser has it."""
    kept = FOREVER if request.query_params.get("v") == asset.version else ASK_AGAIN
    more = {**headers, "cache-control": kept, "etag": f'W/"{asset.version}"', "vary": "accept-encoding"}
    if _is_known(request, asset.version):
        return Response(status_code=304, headers=more)
    if takes_gzip(request):
        return Response(asset.compressed, headers={**more, "content-encoding": "gzip"}, media_type=asset.kind)
    return Response(asset.body, headers=more, media_type=asset.kind)


def page_answer(text: str, request: Request, headers: Mapping[str, str], *, status: int = 200) -> Response:
    """The answer with the HTML of a page: compressed where the browser takes that. A page that is opened may be kept by
    the browser, which asks each time whether it is still the same; what an action answers is not kept."""
    body, more = encodable(text).encode(), dict(headers)
    if status == 200 and request.method in ("GET", "HEAD"):
        version = version_of(body)
        more |= {"cache-control": f"private, {ASK_AGAIN}", "etag": f'W/"{version}"', "vary": "accept-encoding, cookie"}
        if _is_known(request, version):
            return Response(status_code=304, headers=more)
    if (
        len(body) >= COMPRESSED_BYTES
        and takes_gzip(request)
        and not request.scope["path"].startswith("/settings/access")
    ):
        body = gzip.compress(body, PAGE_LEVEL, mtime=0)
        more |= {"content-encoding": "gzip", "vary": more.get("vary", "accept-encoding")}
    return Response(body, status, headers=more, media_type="text/html")


def takes_gzip(request: Request) -> bool:
    """Whether the client says that it takes gzip."""
    match = _GZIP.search(request.headers.get("accept-encoding", "").lower())
    return match is not None and (match["q"] or "1").strip("0.") != ""


def _is_known(request: Request, version: str) -> bool:
    """Whether the browser says that it has this version."""
    known = {one.strip().removeprefix("W/").strip('"') for one in request.headers.get("if-none-match", "").split(",")}
    return version in known
