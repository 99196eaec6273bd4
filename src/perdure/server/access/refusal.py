"""The answer to a request that is not passed on."""

from __future__ import annotations


class Refusal(Exception):
    """Its status, text and headers. The guard sends it."""

    def __init__(self, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers
