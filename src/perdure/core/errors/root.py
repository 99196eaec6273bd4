"""The root of every error; `perdure.core.errors` has them all."""

from __future__ import annotations

from typing import ClassVar


class PerdureError(Exception):
    """The root: catch this to catch everything Perdure raises on purpose."""

    code: ClassVar[str] = "error"
