"""The root of every error; `perdure.core.errors` has them all."""

from __future__ import annotations

import re
from typing import ClassVar


class PerdureError(Exception):
    """The root: catch this to catch everything Perdure raises on purpose.

    `code` names the error on the wire: `block_read_only` of `BlockReadOnly`, where a class sets no other.
    """

    code: ClassVar[str] = "error"

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
