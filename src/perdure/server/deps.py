"""What routes are given."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from perdure.library.perdure import AsyncPerdure

__all__ = ["Library"]


def _library(request: Request) -> AsyncPerdure:
    library: AsyncPerdure = request.app.state.perdure
    return library


Library = Annotated[AsyncPerdure, Depends(_library)]
"""The open store of this server."""
