"""What all bodies of requests and shapes of answers have in common, and the content of messages and tool returns."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema

from perdure.core.errors import InvalidInput
from perdure.core.ids import DEFAULT_USER
from perdure.core.messages import IMAGE_TYPES, Image, ImageLink, Text
from perdure.core.text.reprs import attributes
from perdure.server.wire.errors import NotSupported
from perdure.server.wire.fields import FILLED, Filled, Items, keywords

OTHER_PARTS = frozenset(
    {"tool_call", "tool_return", "reasoning", "redacted_reasoning", "omitted_reasoning", "summarized_reasoning"}
)
"""Parts of messages that the API has and this server does not take."""

DETAILS = ("low", "high", "auto")

_TEXT: Mapping[str, Any] = {
    "type": "object",
    "required": ["text"],
    "properties": {"type": {"enum": ["text"], "default": "text"}, "text": {"type": "string", "pattern": FILLED}},
}
_SOURCES: Sequence[Mapping[str, Any]] = [
    {
        "type": "object",
        "required": ["type", "media_type", "data"],
        "properties": {
            "type": {"enum": ["base64"]},
            "media_type": {"enum": [*IMAGE_TYPES]},
            "data": {"type": "string", "contentEncoding": "base64"},
            "detail": {"enum": [*DETAILS, None]},
        },
    },
    {
        "type": "object",
        "required": ["type", "url"],
        "properties": {"type": {"enum": ["url"]}, "url": {"type": "string", "format": "uri"}},
    },
]
_IMAGE: Mapping[str, Any] = {
    "type": "object",
    "required": ["type", "source"],
    "properties": {"type": {"enum": ["image"]}, "source": {"oneOf": _SOURCES}},
}
Part = Annotated[dict[str, Any], WithJsonSchema({"anyOf": [_TEXT, _IMAGE]})]
"""A text or an image."""

Content = Filled | Annotated[Items[Part], keywords(minItems=1)]
"""A text, or parts."""


def parse_parts(content: str | Sequence[Mapping[str, Any]], where: str) -> tuple[Text | Image | ImageLink, ...]:
    """The parts of a message's content. `where`: its place in the body. Raises: InvalidInput, NotSupported."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_parse_part(part, f"{where}.{index}") for index, part in enumerate(content))


def parse_return(content: str | Sequence[Mapping[str, Any]], where: str) -> tuple[str, tuple[Image | ImageLink, ...]]:
    """(The text, the images) that a tool returned; `where` as in `parse_parts`. Raises: InvalidInput, NotSupported."""
    parts = parse_parts(content, where)
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    return text, tuple(part for part in parts if not isinstance(part, Text))


def _parse_part(part: Mapping[str, Any], where: str) -> Text | Image | ImageLink:
    """One part of a message's content. Raises: InvalidInput, NotSupported."""
    match part.get("type", "text"):
        case "text":
            text = part.get("text")
            if not isinstance(text, str):
                raise InvalidInput(f"body.{where}.text: must be a text, not {text!r:.80}")
            return Text(text)
        case "image":
            return _parse_image(part.get("source"), f"{where}.source")
        case "image_url":  # OpenAI's shape
            image = part.get("image_url")
            source = dict(image) if isinstance(image, Mapping) else {"url": image}
            return _parse_image(source | {"type": "url"}, f"{where}.image_url")
        case str() as kind if kind in OTHER_PARTS:
            raise NotSupported(f"{where}: content of type {kind!r} is not taken by this server, only text and images")
        case kind:
            raise InvalidInput(f"body.{where}.type: must be 'text' or 'image', not {kind!r:.80}")


def _parse_image(source: Any, where: str) -> Image | ImageLink:
    """An image by its source. Raises: InvalidInput."""
    if not isinstance(source, Mapping):
        raise InvalidInput(f"body.{where}: must be an object with the source of the image, not {source!r:.80}")
    url, data, detail = source.get("url"), source.get("data"), source.get("detail")
    if detail is not None and detail not in DETAILS:
        raise InvalidInput(f"body.{where}.detail: must be one of {', '.join(DETAILS)}, not {detail!r:.80}")
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.removeprefix("data:").partition(",")
        return _checked_image(head.removesuffix(";base64"), data, detail, f"{where}.url")
    match source.get("type", "url" if url is not None else "base64"):
        case "url":
            if not isinstance(url, str):
                raise InvalidInput(f"body.{where}.url: must be the address of an image, not {url!r:.80}")
            return ImageLink(url, detail)
        case "base64" | "letta":  # `letta` is an image that a server stored; without its bytes there is nothing to show
            return _checked_image(source.get("media_type"), data, detail, where)
        case kind:
            raise InvalidInput(f"body.{where}.type: must be 'base64' or 'url', not {kind!r:.80}")


def _checked_image(media_type: Any, data: Any, detail: str | None, where: str) -> Image:
    """An image in base64. Raises: InvalidInput."""
    if media_type not in IMAGE_TYPES:
        raise InvalidInput(f"body.{where}.media_type: must be one of {', '.join(IMAGE_TYPES)}, not {media_type!r:.80}")
    try:
        if not isinstance(data, str) or not base64.b64decode(data, validate=True):
            raise ValueError
    except ValueError:
        raise InvalidInput(f"body.{where}.data: must be the bytes of the image in base64") from None
    return Image(media_type, data, detail=detail)


ACTOR_ID = DEFAULT_USER
ORG_ID = "org-00000000-0000-4000-8000-000000000000"
"""Who acts on the wire where nobody is known: the names that clients of Letta's server expect."""

MASKED = ""
"""The value of a secret in answers. In a request it keeps the stored value."""

WIRE_FIELDS = "perdure:wire"
"""The key in an item's metadata of the fields that only the wire has. No reply shows it."""

WIRE_SETTING = "wire"
"""The setting of an agent that holds the fields which only the wire has."""

_WITH_ITEMS = frozenset({"list", "set", "frozenset", "tuple", "dict"})


def _set_fail_fast(schema: Any) -> None:
    """Let validation of everything with items within a schema stop at the first wrong one."""
    if isinstance(schema, dict):
        kind = schema.get("type")  # of a table of fields it may be a field of that name
        if isinstance(kind, str) and kind in _WITH_ITEMS:
            schema["fail_fast"] = True
        for name, part in schema.items():
            if name not in ("metadata", "serialization"):
                _set_fail_fast(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _set_fail_fast(part)


class WireRequest(BaseModel):
    """The body of a request. Unknown fields are ignored: newer clients send more than we know.

    Of a list or an object with free keys only the first wrong item is reported: a body has room for millions of them,
    and each costs as much as a thousand right ones.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    # A class is built at its first body, but an adapter of it at once: FastAPI hides what pydantic warns of there.
    def __init_subclass__(cls, **options: Any) -> None:
        cls.model_config["defer_build"] = True

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        cls.model_config["defer_build"] = False

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _set_fail_fast(schema)
        return schema

    def non_null(self, *names: str) -> dict[str, Any]:
        """The fields that are neither missing nor null, by name; with `names`, only these."""
        return {name: value for name, value in self if value is not None and (not names or name in names)}


def with_wire_fields(metadata: Mapping[str, Any], wire_fields: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata to store: `metadata` and, under a key of their own, the fields that only the wire has."""
    return own_metadata(metadata) | ({WIRE_FIELDS: dict(wire_fields)} if wire_fields else {})


def wire_members(owner: str, **values: str | None) -> tuple[tuple[str, str, str], ...]:
    """The condition of a filter that the object `owner` of stored fields holds these; None: any value."""
    return tuple((owner, name, value) for name, value in values.items() if value is not None)


def own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Stored metadata without the fields that only the wire has."""
    return {name: value for name, value in metadata.items() if name != WIRE_FIELDS}


def join_texts(content: str | Sequence[Mapping[str, Any]], refusal: str) -> str:
    """The text of a message's content, in one piece. Raises: NotSupported, with `refusal`: a part is no text."""
    if isinstance(content, str):
        return content
    if any(part.get("type", "text") != "text" or not isinstance(part.get("text"), str) for part in content):
        raise NotSupported(refusal)
    return "\n".join(part["text"] for part in content)


def nulls(*names: str) -> dict[str, None]:
    """Fields that clients expect, and that are always null here."""
    return dict.fromkeys(names)


def fields(value: object, *names: str, **others: str) -> dict[str, Any]:
    """The attributes of these names, and others under the names that the wire has for them: `size="file.size"`."""
    return fields_in(attributes(value, *names, **others))


def fields_in(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by name, times as the wire has them."""
    return {name: stamp(one) if isinstance(one, datetime) else one for name, one in values.items()}


def stamp(at: datetime | None) -> Any:
    """A time on the wire: ISO in UTC with microseconds and a `Z`; None stays None."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
