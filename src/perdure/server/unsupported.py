"""What the API describes and this server does not do."""

from __future__ import annotations

from perdure.core.errors import PerdureError

__all__ = ["NotSupported"]


class NotSupported(PerdureError):
    """The request is right, but nothing here could keep its promise. Nothing was written; asking again won't help."""

    code = "not_supported"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
