"""Values that clients give as they like, and get back."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator

__all__ = ["JsonObject", "finite"]


def finite(value: Any) -> Any:
    """`value` as given. Raises: ValueError: it holds a number that JSON has no word for, though its reader takes it."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError("it holds a number that is not finite") from None
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(finite)]
"""An object that can be given back."""
