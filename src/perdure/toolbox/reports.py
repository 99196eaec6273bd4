"""Send the reports of callbacks to URLs that callers chose, behind the web guard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ToolError
from perdure.core.runs import Callback

if TYPE_CHECKING:
    from perdure.toolbox.web_guard import WebGuard

USER_AGENT = "Perdure (+callback)"


class Reports:
    """Sends reports. Their answers' bodies are not read, and redirects are not followed.

    Args:
        allowed_hosts: as the web guard takes them; receivers that may be private need not be among them.
        total_s: seconds for one report.
    """

    def __init__(self, allowed_hosts: Iterable[str] = (), *, total_s: float = 15.0) -> None:
        self._allowed_hosts, self._total_s = tuple(allowed_hosts), total_s

    async def send(self, callback: Callback, report: Mapping[str, Any]) -> int:
        """POST a report as JSON; return the status of the answer. Raises: AddressRefused; ToolError: no answer."""
        import httpx  # for those who use callbacks

        from perdure.toolbox.builtin.web import certificates
        from perdure.toolbox.web_guard import GuardedTransport

        try:
            async with (
                asyncio.timeout(self._total_s),
                httpx.AsyncClient(
                    transport=GuardedTransport(self._guard(callback.private), verify=certificates()),
                    timeout=self._total_s,
                    follow_redirects=False,
                    trust_env=False,
                    headers={"User-Agent": USER_AGENT},
                ) as client,
                client.stream("POST", callback.url, json=report) as response,
            ):
                return response.status_code
        except TimeoutError as error:
            raise ToolError(f"there was no answer within {self._total_s:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ToolError(f"the report could not be sent: {str(error) or type(error).__name__}") from error

    def _guard(self, private: bool) -> WebGuard:
        from perdure.toolbox.web_guard import ANY_PORT, PORTS, WebGuard

        return WebGuard(self._allowed_hosts, ports=ANY_PORT if private else PORTS, private=private)
