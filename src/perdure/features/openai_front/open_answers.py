"""What stays between requests that get memory around them: connections to providers, and answers that are being made.

Every program has this service. What answers a request is imported by the routes alone: it takes the whole server.
"""

from __future__ import annotations

import asyncio

import httpx

from perdure.app import App, Endpoint
from perdure.core.ids import AgentId
from perdure.core.tasks import end_tasks
from perdure.providers.openai_endpoint import HttpClients

CLOSE_S = 5.0
"""So long answers that are still being made are waited for when the program ends."""

KnownAgents = dict[str, tuple[float, AgentId]]
"""Key -> until when its agent is known, and that."""


class OpenAnswers:
    """Holds the answers that are being made; `agents` are those that keys were last used for."""

    def __init__(self, app: App) -> None:
        self._clients: dict[str, tuple[Endpoint, HttpClients]] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.agents: KnownAgents = {}

    async def start(self) -> None:
        """Nothing runs before the first request."""

    async def close(self) -> None:
        """Give answers that are being made a moment to end, and close all connections."""
        if self.tasks:
            await asyncio.wait(set(self.tasks), timeout=CLOSE_S)
        await end_tasks(*self.tasks)
        for _, clients in self._clients.values():
            await clients.aclose()

    def add(self, task: asyncio.Task[None]) -> None:
        """Hold a task that makes an answer until it ends."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def client(self, endpoint: Endpoint) -> httpx.AsyncClient:
        """Return the client for an endpoint, whose address may have changed."""
        known = self._clients.get(endpoint.provider)
        if known is None or known[0] != endpoint:
            known = self._clients[endpoint.provider] = endpoint, HttpClients(guard=endpoint.guard)
        return known[1].client()
