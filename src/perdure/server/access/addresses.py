"""Which addresses clients of the API may name, for MCP servers, providers and callbacks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from perdure.core.runs import Callback
from perdure.library.perdure import AsyncPerdure
from perdure.server.access.gate import Gate
from perdure.server.config import ServerConfig


class AddressGuard:
    """Whether clients may name addresses on this machine and in private networks. The library and the CLI belong to the
    admin and have no such check.

    Without the setting, private ones are allowed when only this machine reaches the server: it listens on loopback, and
    has no keys and no further allowed hosts.
    """

    def __init__(self, library: AsyncPerdure, config: ServerConfig, gate: Gate) -> None:
        self._setting, self._gate = library.app.settings.mcp_private, gate
        self._has_no_hosts = not config.allowed_hosts

    @property
    def allows_private(self) -> bool:
        """Whether clients may name addresses on this machine and in private networks."""
        if self._setting:
            return self._setting == "on"
        return self._has_no_hosts and not self._gate.needed

    def callback(self, url: str | None) -> Callback | None:
        """A callback to this address, which may be as private as any that a client names; None: there is none."""
        return None if url is None else Callback(url=url, private=self.allows_private)


def guard_of(request: Request) -> AddressGuard:
    """The checks of this server."""
    guard: AddressGuard = request.app.state.address_guard
    return guard


Addresses = Annotated[AddressGuard, Depends(guard_of)]
