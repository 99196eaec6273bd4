"""What a person sends from an editor: texts, images, and files that are named or embedded."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from acp import schema

from perdure.core.errors import InvalidInput


def read_prompt(blocks: Sequence[Any]) -> tuple[str, list[bytes]]:
    """Return (text, images) of a prompt. A file that is only named stands in the text by its address; an embedded one
    with its text.

    Raises: InvalidInput: a block that is not taken, or an image that is no base64.
    """
    texts, images = list[str](), list[bytes]()
    for block in blocks:
        match block:
            case schema.TextContentBlock(text=text):
                texts.append(text)
            case schema.ImageContentBlock(data=data):
                try:
                    images.append(base64.b64decode(data, validate=True))
                except ValueError as error:
                    raise InvalidInput("an image of the prompt is no base64") from error
            case schema.ResourceContentBlock(name=name, uri=uri):
                texts.append(f"[{name}]({uri})")
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents(uri=uri, text=text)):
                texts.append(f"Contents of {uri}:\n\n{text}")
            case _:
                kind = "a file that is no text" if block.type == "resource" else block.type
                raise InvalidInput(f"a prompt can't have {kind}: send text, images or files as text")
    return "\n\n".join(text for text in texts if text), images
