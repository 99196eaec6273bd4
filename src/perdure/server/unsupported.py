"""Requests of the API that this server does not support."""

from __future__ import annotations

from perdure.core.errors import PerdureError


class NotSupported(PerdureError):
    """The request is valid, but this server does not support it. Nothing was written; a retry can't succeed."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
