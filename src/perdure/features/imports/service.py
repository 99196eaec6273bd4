"""Imports from other programs, planned and carried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from perdure.core.ids import AgentId
from perdure.features.imports.common.values import ImportReport
from perdure.features.imports.letta.client import LettaServer
from perdure.features.imports.letta.review import UnreviewedTool, approve_tool, list_unreviewed
from perdure.features.imports.letta.values import LettaReport
from perdure.features.imports.letta.work import LettaWork
from perdure.features.imports.sources.items import IMPORT_SOURCES, ImportSource
from perdure.features.imports.work import ImportWork
from perdure.library.parts.checks import check_choice, check_text
from perdure.library.parts.part import AsyncPart, reads, writes
from perdure.storage.tx import Tx

LINES_MAX = 100_000


class AsyncImports(AsyncPart):
    """Brings conversations and memories from other programs.

    A second import of the same adds nothing, and one that was interrupted goes on.
    """

    async def plan(
        self, source: ImportSource, place: str | Path | BinaryIO, *, agent: str | None = None, label: str = ""
    ) -> ImportReport:
        """What `run` would do: everything is read and checked, and nothing is stored. Raises: as `run`."""
        check_choice("source", source, IMPORT_SOURCES)
        return await ImportWork(self._app, source, agent, dry=True).run(place, label)

    async def run(
        self,
        source: ImportSource,
        place: str | Path | BinaryIO,
        *,
        agent: str | None = None,
        facts: bool = False,
        label: str = "",
        plan: ImportReport | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportReport:
        """Import what a file, folder, ZIP file or database holds.

        Args:
            source: "chatgpt", "claude", "mem0", "zep", "letta-db", "markdown" or "jsonl".
            place: a path; for "letta-db" also postgresql://...; or an open file.
            agent: name or id of the agent that gets it, which is made if it is missing; by default one named after the
                source, and agents of the source as themselves.
            facts: whether facts are extracted from it in the background, also from what was imported before without.
            label: what errors call an open file.
            plan: what `plan` has returned for the same, so that it is not read and checked once more.
            progress: takes how many messages and memories are stored or were here.
        Raises: InvalidInput: what can't be read, with file and line or byte, before anything is stored; StoreError.
            What was stored stays, and the same import goes on there.
        """
        if plan is None:
            await self.plan(source, place, agent=agent, label=label)
        work = ImportWork(self._app, source, agent, dry=False, facts=facts, progress=progress)
        report = await work.run(place, label)
        for agent_id in report.agents.values() if facts else ():
            for line in await self._store.read(lambda tx, id_: tx.conversations.list(id_, limit=LINES_MAX), agent_id):
                self._ports.unread.note((agent_id, line.seq), now=True)
        return report

    async def plan_server(
        self, url: str, *, key: str | None = None, progress: Callable[[int], None] = lambda done: None
    ) -> LettaReport:
        """What `run_server` would do: the whole server is read, and nothing is stored. Raises: as `run_server`."""
        return await self._take_server(url, key, dry=True, progress=progress)

    async def run_server(
        self, url: str, *, key: str | None = None, progress: Callable[[int], None] = lambda done: None
    ) -> LettaReport:
        """Copy a running server of Letta's API: agents with all that is theirs, tools, folders, identities and groups.

        A second import takes what is new there. Tools with code wait until a person has read it (`unreviewed_tools`);
        secrets are not copied.

        Args:
            url: its address, such as http://127.0.0.1:8283.
            key: its key, if it wants one.
            progress: takes how many messages and passages are read or were here.
        Raises: LettaUnreachable, an InvalidInput: the server can't be reached, or stopped answering; StoreError. What
            was stored stays, and the same import goes on there.
        """
        return await self._take_server(url, key, dry=False, progress=progress)

    @reads
    def unreviewed_tools(self, tx: Tx, agent_id: AgentId | None = None) -> Sequence[UnreviewedTool]:
        """List the imported tools that no agent may use before a review; with `agent_id` those meant for it."""
        return list_unreviewed(tx, agent_id)

    @writes
    def approve_tool(self, tx: Tx, name: str) -> UnreviewedTool:
        """Give a tool whose code you have read to the agents that had it at the server. Raises: NotFound."""
        check_text("name", name)
        return approve_tool(tx, name, self._ports, self._ports.clock.now())

    async def _take_server(
        self, url: str, key: str | None, *, dry: bool, progress: Callable[[int], None]
    ) -> LettaReport:
        """Copy a server, or with `dry` only look. Raises: as `run_server`."""
        check_text("url", url)
        server = LettaServer(url, key)
        try:
            return await LettaWork(self._app, server, dry=dry, progress=progress).run()
        finally:
            await server.close()
