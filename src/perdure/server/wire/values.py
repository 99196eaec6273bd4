"""Values that clients give as they like, and get back."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from perdure.core.blocks import LABEL_PATTERN


def keywords(**said: Any) -> Any:
    """The metadata that tells limits in the OpenAPI document, by keywords of JSON Schema; the library checks them, in
    its own words."""
    return Field(json_schema_extra=said)


def finite(value: Any) -> Any:
    """`value` as given. Raises: ValueError: it holds a number that JSON has no word for, though its reader takes it."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError("it holds a number that is not finite") from None
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(finite)]
"""An object that can be given back."""

FILLED = r"[^\s\x1c-\x1f\x85]"
Filled = Annotated[str, keywords(pattern=FILLED)]
"""A text with more in it than white space."""

Label = Annotated[str, keywords(pattern=f"^{LABEL_PATTERN}$")]
"""What a block can be called."""

Date = Annotated[str, keywords(anyOf=[{"format": "date"}, {"format": "date-time"}, {"pattern": r"^\s*$"}])]
"""A day or a moment; empty is none."""
