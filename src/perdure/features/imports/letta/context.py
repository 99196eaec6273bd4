"""What all steps of one import of a server share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from pydantic import ValidationError

from perdure.app import App
from perdure.core.errors import AlreadyExists, NotFound, PerdureError, StoreError
from perdure.core.ids import AgentId
from perdure.features.imports.common.forgotten import ForgottenTexts
from perdure.features.imports.common.tables import ImportedItems
from perdure.features.imports.letta.client import LettaRefused, LettaServer, LettaUnreachable, Object, Params
from perdure.features.imports.letta.values import ImportedIds, LettaReport, ids_for
from perdure.features.imports.sources.plain import text_in
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
        self.ids = ImportedIds(app.ports.ids)
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
        self._is_taken = False

    def count(self, kind: str, *, new: int = 0, already: int = 0) -> None:
        """Add to the report how many objects of a kind are new, and how many were here already."""
        found = self.report.counts[kind]
        found.new, found.already = found.new + new, found.already + already
        self._progress(self.report.total)

    async def each(
        self, path: str, kind: str, step: Callable[[Object], Awaitable[None]], params: Params | None = None
    ) -> None:
        """Take each item of a list; what can't be taken or listed is left out. Raises: LettaUnreachable, StoreError."""
        try:
            async for one in self.server.items(path, params):
                await self.guard(kind, one, step)
        except LettaRefused as error:
            if kind == "agents":
                raise LettaUnreachable(f"{self.server.label} does not list its agents: {error}") from error
            self.report.leave_out(f"lists of {kind} that the server does not give: {error!s:.200}")

    async def guard(self, kind: str, found: Object, step: Callable[[Object], Awaitable[None]]) -> None:
        """Run the step for one object; if it fails, report why and go on. Raises: LettaUnreachable, StoreError."""
        try:
            await step(found)
        except (LettaUnreachable, StoreError):
            raise
        except (LettaRefused, PerdureError, ValueError, TypeError, LookupError, AttributeError) as error:
            names = (text_in(found.get(name)) for name in ("name", "label", "file_name", "id"))
            self.report.leave_out(
                f"{kind} that can't be taken whole now: {next(filter(None, names))!r:.100}: {reason_of(error):.300}"
            )

    async def noted(self, agent_id: AgentId, key: str) -> str | None:
        """Return what is noted of an agent under a key; None: nothing, or the agent is not made yet."""
        return await self.store.read(lambda tx: tx.of(ImportedItems).find(agent_id, [key]).get(key))

    async def note(self, agent_id: AgentId, key: str, value: str = "") -> None:
        """Store a note about an agent under a key. Raises: NotFound."""
        await self.store.write(lambda tx: tx.of(ImportedItems).put(agent_id, {key: value}))

    def id_of(self, kind: str, source_id: str) -> str:
        """Return the local id for an object of the server: its own, or another one if `make` found that taken."""
        return self.candidates(kind, source_id)[-1 if self._is_taken else 0]

    def candidates(self, kind: str, source_id: str) -> Sequence[str]:
        """Return the ids that a thing of the server may have here."""
        return ids_for(kind, source_id, self.app.org_id)

    async def find(self, kind: str, source_id: str, get: Callable[[str], Awaitable[T]]) -> T | None:
        """The local object for one of the server, by its id, or None; `get` raises NotFound if it does not exist."""
        for id_ in self.candidates(kind, source_id):
            with suppress(NotFound):
                return await get(id_)
        return None

    async def take(
        self,
        kind: str,
        source_id: str,
        create: Callable[[], Awaitable[T]],
        get: Callable[[str], Awaitable[T]],
        *,
        makes: bool = True,
    ) -> T | None:
        """Return a thing of the server that is here, or that is made now, and count it; None: it is only planned, or it
        is not here and is not to be made (`makes`). Raises: as `create`."""
        here = await self.find(kind, source_id, get)
        is_new = here is None and makes
        if is_new and not self.dry:
            here = await self.make(kind, source_id, create, get)
        self.count(f"{kind}s", new=is_new, already=not is_new)
        return here

    async def make(
        self,
        kind: str,
        source_id: str,
        create: Callable[[], Awaitable[T]],
        get: Callable[[str], Awaitable[T]] | None = None,
    ) -> T:
        """Create an object with the id it has at the server, or another one if that is taken; with `get`, return one
        that was created from another copy of the server meanwhile. Raises: as `create`."""
        try:
            for self._is_taken in (False, True):
                self.ids.kept[kind] = self.id_of(kind, source_id)
                try:
                    return await create()
                except AlreadyExists:
                    if get is not None and (found := await self.find(kind, source_id, get)) is not None:
                        return found
                    if self._is_taken:
                        raise
            raise AssertionError("the second try returns or raises")
        finally:
            self._is_taken = False
            self.ids.kept.pop(kind, None)


def reason_of(error: Exception) -> str:
    """Return an error's reason on one line."""
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
    if isinstance(error, (LettaRefused, PerdureError)):
        return " ".join(str(error).split())
    return f"its fields have other forms ({type(error).__name__})"
