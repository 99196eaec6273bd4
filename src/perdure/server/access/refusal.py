"""Answers to requests that are not allowed."""

from __future__ import annotations

from perdure.core.errors import PerdureError


class Refusal(Exception):
    """The answer to a request that is not passed on: its status, text and headers. The guard sends it."""

    def __init__(self, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class ScopeTooSmall(PerdureError):
    """The key may use the route, but not for this. Nothing was written."""
