"""What the next session of a coding agent begins with, in a file: a person waits for the start of a session, in which
there is no time to open the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.core.ids import AgentId
from perdure.features.mcp_server.context import MemoryReader
from perdure.features.notes.folders import CONTEXT_FILE, make_folder, state_folder
from perdure.features.notes.projects import ProjectMemory
from perdure.library.perdure import AsyncPerdure
from perdure.scratch import replace_file

CONTEXT_TOKENS = 1_500
PAUSE_S = 0.5
"""At least so long between two times that a server prepares it."""
_log = logging.getLogger(__name__)


async def prepare_context(perdure: AsyncPerdure, project: ProjectMemory) -> None:
    """Write what the next session of a project begins with, and what the first one of a new project does. Raises:
    OSError: it can't be written."""
    for memory in (project, ProjectMemory(perdure)):
        path = state_folder(memory.folder or "") / CONTEXT_FILE
        text = await MemoryReader(await memory.readers(), perdure.app.ports.counter).context(CONTEXT_TOKENS)
        if text:
            make_folder(path.parent)
            replace_file(path, f"What Perdure remembers of this project and its user:\n\n{text}\n".encode())
        else:
            path.unlink(missing_ok=True)


class NextSession:
    """What a project's next session begins with: after each change it is prepared, in the background."""

    def __init__(self, perdure: AsyncPerdure, project: ProjectMemory) -> None:
        self._perdure, self._project = perdure, project
        self._changed = asyncio.Event()

    async def tell(self, tool: str, agent_id: AgentId) -> None:
        """Note that something has changed."""
        self._changed.set()

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[None]:
        """Prepare while the block runs, and at its end for the last change."""
        background = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            background.cancel()
            await asyncio.wait([background])
            if self._changed.is_set():
                await self._prepare()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            await self._prepare()
            await asyncio.sleep(PAUSE_S)

    async def _prepare(self) -> None:
        self._changed.clear()
        try:
            await prepare_context(self._perdure, self._project)
        except asyncio.CancelledError:
            self._changed.set()
            raise
        except Exception:
            _log.warning("what the next session begins with could not be prepared", exc_info=True)
