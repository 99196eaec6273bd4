"""Who may change what through a server of memory, and who is told of it."""

from __future__ import annotations

from perdure.core.ids import AgentId


class Door:
    """The door of who works on this machine, and may do everything; nobody is told."""

    def check(self, method: str, path: str) -> None:
        """Check that the client may do what a request to the API with this method and path does. Raises:
        ScopeTooSmall."""

    async def note(self, action: str, agent_id: AgentId) -> None:
        """Note that the client has changed something of an agent by the tool `action`, or has made one."""
