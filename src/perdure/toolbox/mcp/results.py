"""Convert the answer of an MCP server to text for a model."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.limits import DEFAULT_LIMITS
from perdure.core.messages import IMAGE_TYPES, Image, ToolStatus
from perdure.core.text.json_strings import compact_json
from perdure.core.tools.spec import ToolOutcome

if TYPE_CHECKING:
    from mcp.types import CallToolResult

IMAGES_MAX = 10
IMAGE_CHARS_MAX = DEFAULT_LIMITS.image_limit_bytes * 4 // 3
"""The most pictures of a result, and characters of one in base64."""

RESULT_CHARS_MAX = 1_000_000
"""More text than any tool's own limit allows; the rest is not converted."""


def build_outcome(result: CallToolResult) -> ToolOutcome:
    """The outcome with the texts, the pictures, a line about each picture and other content, and structured content if
    no text holds it."""
    parts: list[str] = []
    images: list[Image] = []
    chars_left = RESULT_CHARS_MAX
    for content in result.content:
        if chars_left <= 0:
            break
        if len(images) < IMAGES_MAX and (image := _image(content)) is not None:
            images.append(image)
            parts.append(image.text)
            continue
        parts.append(_render_content(content)[:chars_left])
        chars_left -= len(parts[-1])
    text = "\n".join(parts)
    if result.structured_content is not None and not _repeats(text, result.structured_content):
        structured = compact_json(result.structured_content)[: max(0, chars_left)]
        text = f"{text}\n{structured}" if text else structured
    status: ToolStatus = "error" if result.is_error else "success"
    return ToolOutcome(text=text or "(no content)", status=status, images=tuple(images))


def _image(content: Any) -> Image | None:
    """The picture that a content is; None: it is none that models take."""
    if content.type != "image" or content.mime_type not in IMAGE_TYPES or len(content.data) > IMAGE_CHARS_MAX:
        return None
    try:
        base64.b64decode(content.data, validate=True)
    except ValueError:
        return None
    return Image(content.mime_type, content.data)


def _render_content(content: Any) -> str:
    """The text of a content, or a line in brackets about it."""
    match content.type:
        case "text":
            return str(content.text)
        case "image" | "audio":
            return f"[{content.type}, {content.mime_type}, {_size(content.data)}: it can't be shown here]"
        case "resource":
            resource = content.resource
            text = getattr(resource, "text", None)
            if text is not None:
                return f"[resource {resource.uri}]\n{text}"
            return f"[resource {resource.uri}, {resource.mime_type or 'binary'}, {_size(resource.blob)}: not shown]"
        case "resource_link":
            about = f": {content.description}" if content.description else ""
            return f"[resource {content.uri}, {content.name}{about}]"
        case _:
            return f"[{content.type}: it can't be shown here]"


def _size(encoded: str) -> str:
    """The size of data in base64."""
    return f"{len(encoded) * 3 // 4:,} bytes"


def _repeats(text: str, structured: Any) -> bool:
    """Whether the text already holds the structured content: as JSON, or the one value that it wraps."""
    if not text:
        return False
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        return True
    try:
        return bool(parse_json(text, JsonLimits(size_bytes=4 * RESULT_CHARS_MAX)) == structured)
    except (ValueError, RecursionError):
        return False
