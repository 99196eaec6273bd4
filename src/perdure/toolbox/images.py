"""Fetch a picture by its address, behind the web guard."""

from __future__ import annotations

from perdure.core.errors import InvalidInput
from perdure.core.incoming.images import image_type_of
from perdure.core.messages import IMAGE_TYPES
from perdure.toolbox.builtin.web import FetchLimits, fetch
from perdure.toolbox.web_guard import WebGuard


async def fetch_image(url: str, guard: WebGuard, *, limit_bytes: int) -> tuple[str, bytes]:
    """The media type and the bytes of the picture at this address.

    Raises: InvalidInput: it is no picture, or too large; AddressRefused; ToolError: it can't be reached.
    """
    limits = FetchLimits(body_bytes=limit_bytes)
    page = await fetch(url, guard, limits=limits, accept=", ".join(IMAGE_TYPES))
    shown = page.url[:200]
    if page.status != 200:
        raise InvalidInput(f"the image at {shown} can't be fetched: the server answered with status {page.status}")
    if page.cut:
        raise InvalidInput(f"the image at {shown} has more than {limit_bytes:,} bytes: send a smaller one")
    kind = image_type_of(page.body)
    if kind is None:
        sent = page.kind or "something without a type"
        raise InvalidInput(f"{shown} is no image that can be shown, but {sent}: give a PNG, JPEG, GIF or WebP")
    return kind, page.body
