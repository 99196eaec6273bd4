"""The open engines of a process, one for each organisation that it serves.

The default organisation's is there from the start; the others are opened when somebody asks for them, or when they have
work that nobody does: messages that were accepted, schedules, files, texts to embed. Those that were not used for the
longest time are closed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from datetime import datetime

from perdure.app import start_organisation
from perdure.core.errors import NotFound, PerdureError, StoreUnavailable
from perdure.core.features import Point
from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.core.incoming.principals import LOCAL, Principal, current_principal
from perdure.engine.workers.worker import Worker
from perdure.features.access.directory import Organisations
from perdure.features.access.service import Access, remove_organisation, trim_audit
from perdure.library.perdure import AsyncPerdure
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

WORK_WAITS: Point[[Tx, datetime], bool] = Point("work_waits")
"""Whether a feature would do something by itself for an organisation."""

OPEN_MAX = 64
"""How many organisations are open besides the default one, if that many are enough for those in use."""

LOOK_S = 10.0
"""How often it is looked which organisations have work."""

LAST_LOOK_S = 5.0
"""How long the end of the process waits for the last look, whose database may be away."""

PAGE = 100


class OrganisationGone(NotFound):
    """The organisation was deleted."""


class OpenOrganisations:
    """The open stores of a process, one for each organisation in use.

    Args:
        default: the store of the default organisation, which the caller has opened and closes after this.
        open_max: how many others stay open when nobody uses them.
    """

    def __init__(self, default: AsyncPerdure, *, open_max: int = OPEN_MAX) -> None:
        self._default, self._open_max = default, open_max
        self._open: OrderedDict[OrgId, AsyncPerdure] = OrderedDict()
        self._users: dict[OrgId, int] = {}  # how many contexts of `use` are open
        self._used: set[OrgId] = set()  # since the last look
        self._locks: dict[OrgId, asyncio.Lock] = {}
        self._worker = Worker("organisations", self.look, LOOK_S)
        self._closed = False

    @contextlib.asynccontextmanager
    async def use(self, org_id: OrgId) -> AsyncIterator[AsyncPerdure]:
        """An organisation's open store, kept open inside the context. Raises: OrganisationGone; StoreError."""
        if org_id == DEFAULT_ORG:
            yield self._default
            return
        self._users[org_id] = self._users.get(org_id, 0) + 1
        try:
            yield await self._open_or_get(org_id)
        finally:
            self._used.add(org_id)
            self._users[org_id] -= 1
            if not self._users[org_id]:
                del self._users[org_id]

    async def start(self) -> None:
        """Begin to look for organisations with work."""
        await self._worker.start()

    async def drain(self, within_s: float) -> None:
        """Stop looking for work, and drain every open store, see `App.drain`."""
        await self._worker.close()
        await asyncio.gather(*(library.app.drain(within_s) for library in (self._default, *self._open.values())))

    async def close(self) -> None:
        """Close all stores but the default one's."""
        self._closed = True
        await self._worker.close()
        used = self._in_use()
        while self._open:
            _, library = self._open.popitem()
            await library.close()
        try:
            async with asyncio.timeout(LAST_LOOK_S):
                await self._remove_gone(used)
        except (PerdureError, TimeoutError) as error:
            log.warning("what deleted organisations wrote last may be left: %s", error)

    async def _open_or_get(self, org_id: OrgId) -> AsyncPerdure:
        """The open store of an organisation, opened if it was not. Raises: OrganisationGone; StoreError."""
        async with self._locks.setdefault(org_id, asyncio.Lock()):
            library = self._open.get(org_id)
            if library is None:
                store = self._default.app.shared.store
                found = await store.read(lambda tx: tx.of(Organisations).find(org_id))
                if found is None or found.deleted_at is not None:
                    raise OrganisationGone("org", org_id)
                # What its workers do, such as schedules, is not done for the key of the request that opens it.
                token = current_principal.set(Principal(org_id=org_id))
                try:
                    library = AsyncPerdure(await start_organisation(self._default.app, org_id))
                finally:
                    current_principal.reset(token)
                if self._closed:
                    await library.close()
                self._open[org_id] = library
        self._open.move_to_end(org_id)
        return library

    async def look(self) -> None:
        """Open organisations that have work, close some if too many are open, and go on with removals."""
        app = self._default.app
        store = app.shared.store
        await self._remove_gone(self._in_use())
        after: OrgId | None = None
        await trim_audit(store, app.ports.clock, days=app.settings.audit_days)
        model = app.embedder.handle if app.embedder is not None else None
        while True:
            page = await store.read(lambda tx, after: tx.of(Organisations).list(after=after, limit=PAGE), after)
            for organisation in page:
                if organisation.id == DEFAULT_ORG:
                    continue
                if organisation.deleted_at is not None:
                    await self._try_to_remove(organisation.id)
                elif organisation.id not in self._open:
                    view = store.for_organisation(organisation.id)
                    if await view.read(has_work, model, at=app.ports.clock.now()):
                        with contextlib.suppress(OrganisationGone):  # deleted meanwhile
                            await self._open_or_get(organisation.id)
            if len(page) < PAGE:
                break
            after = page[-1].id
        await self._close_unused(model)

    def _in_use(self) -> set[OrgId]:
        """The organisations that this process may have written to since the last call, which this call forgets."""
        used, self._used = self._used, set()
        return used | {*self._users, *self._open}

    async def _remove_gone(self, used: set[OrgId]) -> None:
        """Remove what this process wrote for those of the `used` organisations that another process had removed."""
        if not used:
            return

        def find_gone(tx: Tx) -> list[OrgId]:
            """Return the organisations in use whose rows are gone."""
            return [org_id for org_id in used if tx.of(Organisations).find(org_id) is None]

        try:
            for org_id in await self._default.app.shared.store.read(find_gone):
                await self._try_to_remove(org_id)
        except BaseException:
            self._used |= used
            raise

    async def _try_to_remove(self, org_id: OrgId) -> None:
        """Remove an organisation that was deleted. If its files can't be reached, the others go on meanwhile."""
        try:
            await self.remove(org_id)
        except StoreUnavailable as error:
            self._used.add(org_id)
            log.warning("the rest of %s is removed later: %s", org_id, error)

    async def remove(self, org_id: OrgId) -> None:
        """Remove a deleted organisation in bounded steps; its row is deleted once no process writes for it any more."""
        async with self._locks.setdefault(org_id, asyncio.Lock()):
            if (library := self._open.pop(org_id, None)) is not None:
                await library.close()
        app = self._default.app
        await remove_organisation(app.shared.store, org_id, app.ports.contents, clock=app.ports.clock)

    async def _close_unused(self, model: str | None) -> None:
        """Close stores that nobody uses and that have no work, the longest unused first, down to `open_max`.

        `model` is the handle of the embedding model.
        """
        for org_id in list(self._open):
            if len(self._open) <= self._open_max:
                return
            library = self._open[org_id]
            at = library.app.ports.clock.now()
            if org_id in self._users or await library.app.store.read(has_work, model, at=at):
                continue
            async with self._locks.setdefault(org_id, asyncio.Lock()):
                if org_id not in self._users and self._open.pop(org_id, None) is not None:
                    await library.close()


@contextlib.asynccontextmanager
async def open_organisation(default: AsyncPerdure, name_or_id: str) -> AsyncIterator[AsyncPerdure]:
    """The open store of another organisation, beside that of the default one. Raises: NotFound; StoreError."""
    app = default.app
    found = await Access.of(app, LOCAL).organisation(name_or_id)
    if found.id == DEFAULT_ORG:
        yield default
        return
    async with AsyncPerdure(await start_organisation(app, found.id)) as library:
        yield library


def has_work(tx: Tx, embedding: str | None, *, at: datetime) -> bool:
    """Whether an organisation has work that an open engine would do by itself at `at`: runs, what features have to do,
    callbacks that are due, removals, or texts to embed with the model of the handle `embedding`."""
    return bool(
        tx.runs.list_oldest(limit=1)
        or any(WORK_WAITS(tx, at))
        or tx.callbacks.list_due(at=at, limit=1)
        or tx.upkeep.unfinished_deletes()
        or tx.resets.list_agents(limit=1)
        or (embedding is not None and tx.vectors.has_work(embedding, at=at))
    )
