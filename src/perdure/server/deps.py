"""The dependencies of routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from perdure.library.perdure import AsyncPerdure
from perdure.server.mcp_guard import McpGuard


def _library(request: Request) -> AsyncPerdure:
    library: AsyncPerdure = request.app.state.perdure
    return library


Library = Annotated[AsyncPerdure, Depends(_library)]
"""The open store of this server."""


def _mcp_guard(request: Request) -> McpGuard:
    guard: McpGuard = request.app.state.mcp_guard
    return guard


Guarded = Annotated[McpGuard, Depends(_mcp_guard)]
"""The checks on MCP servers that clients register."""
