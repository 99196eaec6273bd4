"""The setting `project` in requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from perdure.features.plugins.projects import PATH_CHARS, check_root
from perdure.server.wire.fields import request_limits
from perdure.settings import Settings


def _below_roots(value: str) -> str:
    """The path of a project, checked where a server reads it. Raises: InvalidInput."""
    if value and isinstance(settings := request_limits.get(), Settings):
        check_root(value, settings)
    return value


ProjectPath = Annotated[str, Field(max_length=PATH_CHARS), AfterValidator(_below_roots)]
"""The folder of an agent's project, below one of the server's roots; empty: none."""
