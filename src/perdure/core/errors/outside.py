"""Errors of what is outside: secrets that can't be opened, servers that can't be reached, answers that can't be read.

They are part of the tree in `core.errors`, which gives them out as well.
"""

from __future__ import annotations

from perdure.core.errors.root import PerdureError


class SecretKeyMissing(PerdureError):
    """Secrets are kept encrypted, and there is no key to do it with. Nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "secrets need a key here: set PERDURE_SECRET_KEY to a long random text (`openssl rand -base64 32` prints"
            " one), the same for every process of this store"
        )


class SecretUnreadable(PerdureError):
    """A secret can't be decrypted: another key, or a damaged row. Its value is lost unless the key comes back."""

    def __init__(self, why: str) -> None:
        super().__init__(f"a secret can't be decrypted: {why}. Set the key back, or set the secret anew")
        self.why = why


class McpUnreachable(PerdureError):
    """An MCP server can't be reached, does not speak MCP, or ended.

    Args:
        why: for everybody. `detail`: for whoever registered it, also what its process wrote last.
    """

    code = "mcp_connection_error"

    def __init__(self, server: str, why: str, *, detail: str = "") -> None:
        super().__init__(f"the MCP server {server!r} can't be reached: {detail or why}")
        self.server, self.why, self.detail = server, why, detail


class McpStdioRefused(PerdureError):
    """A stdio MCP server is a program that is run on this machine: whoever may only use the API may not name one."""

    def __init__(self) -> None:
        super().__init__(
            "a stdio MCP server runs a program on this machine, so it is registered there: `perdure mcp add NAME --"
            " COMMAND`. PERDURE_MCP_STDIO=on lets clients of the API do it too"
        )


class McpPrivateRefused(PerdureError):
    """An MCP server on this machine or in a private network: whoever may only use the API may not have this server
    connect to one. Nothing was sent there."""

    def __init__(self) -> None:
        super().__init__(
            "the address of this MCP server leads to this machine or a private network, so it is registered where"
            " Perdure runs: `perdure mcp add NAME --url URL`. PERDURE_MCP_PRIVATE=on lets clients of the API do it too"
        )


class DataTooLarge(PerdureError, ValueError):
    """Data from outside pass a limit; they were not parsed. The message says which, without saying whose data."""


class BodyUnreadable(PerdureError, ValueError):
    """A body from outside can't be unpacked."""
