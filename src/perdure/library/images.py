"""Pictures that a program sends: files, bytes, and addresses on the web."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path

from perdure.core.errors import InvalidInput
from perdure.core.incoming.images import image_type_of
from perdure.core.messages import Image, ImageLink

Picture = Path | bytes | str
"""A picture: a file, its bytes, or its address, which begins with http:// or https://."""


async def load_images(pictures: Sequence[Picture]) -> tuple[Image | ImageLink, ...]:
    """The pictures as parts of a message. Raises: InvalidInput: a file can't be read, or something is no picture."""
    return tuple([await _load(picture) for picture in pictures])


async def _load(picture: Picture) -> Image | ImageLink:
    """One picture as a part of a message. Raises: InvalidInput."""
    if isinstance(picture, str):
        if picture.startswith(("http://", "https://")):
            return ImageLink(picture)
        raise InvalidInput(f"the image {picture!r:.80} is no address: give a file as a Path, or its bytes")
    if isinstance(picture, Path):
        try:
            data = await asyncio.to_thread(picture.read_bytes)
        except OSError as error:
            raise InvalidInput(f"the image {picture} can't be read: {error.strerror}") from error
    elif isinstance(picture, bytes):
        data = picture
    else:
        raise InvalidInput(f"an image is {picture!r:.80}: give a Path, bytes or an address")
    kind = image_type_of(data)
    if kind is None:
        what = picture if isinstance(picture, Path) else f"an image of {len(data):,} bytes"
        raise InvalidInput(f"{what} is no image that can be shown: give a PNG, JPEG, GIF or WebP")
    return Image(kind, base64.b64encode(data).decode("ascii"))
