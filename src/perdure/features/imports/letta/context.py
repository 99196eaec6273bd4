"""What all steps of one import of a server share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from perdure.app import App
from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import AgentId
from perdure.features.imports.common.forgotten import ForgottenTexts
from perdure.features.imports.letta.client import LettaServer
from perdure.features.imports.letta.values import KeptIds, LettaReport, ids_for
from perdure.library.perdure import AsyncPerdure

T = TypeVar("T")


class LettaContext:
    """One import: `dry` only counts. `progress` takes how many messages and passages are stored or were here.

    Attributes:
        library: a store whose new things get the ids that `make` keeps.
        agents: id of an agent at the server -> its id here, empty: it is not made yet; those that are taken.
        archives: the same of archives. `folders`: the same of folders.
        blocks, read_archives: blocks that agents have, and archives whose passages were read, by their ids there.
        tools: name -> "here": agents can have it, or "review": once a person has read its code.
    """

    def __init__(self, app: App, server: LettaServer, *, dry: bool, progress: Callable[[int], None]) -> None:
        self.ids = KeptIds(app.ports.ids)
        self.app = replace(app, ports=replace(app.ports, ids=self.ids))
        self.library, self.store = AsyncPerdure(self.app), app.ports.store
        self.server, self.dry, self._progress = server, dry, progress
        self.forgotten = ForgottenTexts(self.library)
        self.report = LettaReport(server=server.label)
        self.agents: dict[str, AgentId] = {}
        self.archives: dict[str, str] = {}
        self.folders: dict[str, str] = {}
        self.tools: dict[str, str] = {}
        self.blocks: set[str] = set()
        self.read_archives: set[str] = set()

    def count(self, kind: str, *, new: int = 0, already: int = 0) -> None:
        """Count things of a kind."""
        found = self.report.counts[kind]
        found.new, found.already = found.new + new, found.already + already
        self._progress(self.report.total)

    def candidates(self, kind: str, source_id: str) -> Sequence[str]:
        """Return the ids that a thing of the server may have here."""
        return ids_for(kind, source_id, self.app.org_id)

    async def find(self, kind: str, source_id: str, get: Callable[[str], Awaitable[T]]) -> T | None:
        """Return a thing of the server that is here, by its id; `get` raises NotFound for one that is not."""
        for id_ in self.candidates(kind, source_id):
            with suppress(NotFound):
                return await get(id_)
        return None

    async def make(
        self,
        kind: str,
        source_id: str,
        create: Callable[[], Awaitable[T]],
        get: Callable[[str], Awaitable[T]] | None = None,
    ) -> T:
        """Make a thing with the id that it has at the server, or with another one where that is taken; with `get`,
        return the one that another copy of the server has made meanwhile. Raises: as `create`."""
        candidates = self.candidates(kind, source_id)
        try:
            for id_ in candidates:
                self.ids.kept[kind] = id_
                try:
                    return await create()
                except AlreadyExists:
                    if get is not None and (found := await self.find(kind, source_id, get)) is not None:
                        return found
                    if id_ == candidates[-1]:
                        raise
            raise AssertionError("each kind has a candidate")
        finally:
            self.ids.kept.pop(kind, None)
