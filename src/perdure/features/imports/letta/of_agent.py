"""What is one agent's own: folders and archives that it has, passages, conversations with their history, schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

from perdure.core.errors import AlreadyExists, ApprovalPending, ConversationBusy, InvalidInput, ModelNotFound
from perdure.core.ids import AgentId, ArchiveId, ConversationId, PassageId, ScheduleId
from perdure.core.passages import Passage
from perdure.core.sources import Source, WriteSource
from perdure.domain.archives.passages import check_passage
from perdure.domain.archives.units import ArchiveChanges
from perdure.domain.conversations.importing import message_ids
from perdure.domain.conversations.units import SUMMARY_CHARS
from perdure.domain.values import BATCH
from perdure.features.imports.common.values import BUSY, DELETED, FORGOTTEN, TOO_LONG
from perdure.features.imports.letta import units
from perdure.features.imports.letta.client import PAGE, LettaRefused, Object, path_of
from perdure.features.imports.letta.context import LettaContext
from perdure.features.imports.letta.messages import HistoryPart, LettaHistory
from perdure.features.imports.sources.plain import key_of, list_in, object_in, text_in, time_of

SOURCE = "letta"
NO_TIME = datetime(1970, 1, 2, tzinfo=UTC)
PICTURES = "pictures whose bytes the server does not give"
WAITING = "answers there whose calls wait for somebody: decide there, and import again"
ODD = "messages of unknown kinds"
ODD_PASSAGES = "passages without a text"
CONVERSATION_MODELS = "models of conversations, which have their agent's here"


class AgentParts:
    """Takes what is one agent's own. `agent_id`: empty: the agent is not made yet, and all of it is new."""

    def __init__(self, context: LettaContext, source_id: str, agent_id: AgentId, system: str) -> None:
        self._context, self._source_id, self._id, self._system = context, source_id, agent_id, system
        self._server, self._report, self._store = context.server, context.report, context.store
        self._dry, self._agent = context.dry, context.library.agent_of(agent_id)

    async def take(self) -> None:
        """Take all that is new. Raises: LettaRefused, LettaUnreachable, InvalidInput, StoreError: what was stored
        stays."""
        await self._folders()
        await self._archives()
        await self._passages()
        await self._history("default")
        await self._conversations()
        await self._schedules()

    async def _noted(self, *keys: str) -> Mapping[str, str]:
        """Return which keys are noted of the agent."""
        return await self._store.read(units.noted, self._id, *keys) if self._id else {}

    # --- folders and archives

    async def _folders(self) -> None:
        """Give the agent those of its folders that it was never given."""
        async for one in self._server.items(path_of("agents", self._source_id, "folders")):
            key, here = f"letta folder {one['id']}", self._context.folders.get(one["id"])
            if here and not self._dry and key not in await self._noted(key):
                await self._agent.files.attach(here)
                await self._store.write(units.note, self._id, {key: ""})

    async def _archives(self) -> None:
        """Make the agent's archives that it was never given, and give it them."""
        context = self._context
        async for one in self._server.items("/v1/archives/", {"agent_id": self._source_id}):
            key = f"letta archive {one['id']}"
            is_known = key in await self._noted(key)
            await take_archive(context, one, makes=not is_known)
            if not is_known and not self._dry:
                await self._agent.archives.attach(ArchiveId(context.archives[one["id"]]))
                await self._store.write(units.note, self._id, {key: ""})

    # --- passages

    async def _passages(self) -> None:
        """Take the passages of all archives of the agent, from where the last import has ended."""
        key, context = "letta passages", self._context
        last, _, count = (await self._noted(key)).get(key, "").partition(" ")
        done = int(count or 0)
        context.count("passages", already=done)
        path, params = path_of("agents", self._source_id, "archival-memory"), {"ascending": "true"}
        archives: set[str] = set()
        async for page in self._server.behind(path, params, last):
            # What another agent has brought is passed over.
            own = [one for one in page if text_in(one.get("archive_id")) not in context.read_archives]
            archives |= {text_in(one.get("archive_id")) for one in own}
            for source, group in groupby(own, lambda one: text_in(one.get("archive_id"))):
                passages = [*filter(None, (passage_of(context, one) for one in group))]
                archive_id = context.archives.get(source)
                await self._put_passages(ArchiveId(archive_id) if archive_id else None, passages)
                done += len(passages)
            if not self._dry:
                await self._store.write(units.note, self._id, {key: f"{page[-1]['id']} {done}"})
        context.read_archives |= archives - {""}

    async def _put_passages(self, archive_id: ArchiveId | None, passages: Sequence[Passage]) -> None:
        """Store passages that were never imported, and count them."""
        kept = await self._context.forgotten.without(self._id, passages)
        self._report.leave_out(FORGOTTEN, len(passages) - len(kept))
        put = partial(units.put_passages, inputs=self._context.app.ports.inputs(), dry=self._dry)
        new = await (self._store.read if self._dry else self._store.write)(put, self._id, archive_id, kept)
        self._context.count("passages", new=new, already=len(kept) - new)

    # --- conversations

    async def _conversations(self) -> None:
        """Take the agent's conversations beside its first one."""
        params = {"agent_id": self._source_id, "archive_status": "all"}
        async for one in self._server.items("/v1/conversations/", params):
            key = f"letta conversation {one['id']}"
            known = (await self._noted(key)).get(key)
            if known is not None:
                here = await self._store.read(units.find_conversation, self._id, known)
                if here is None:
                    self._report.leave_out(DELETED)
                    continue
            else:
                here = None if self._dry else await self._make_conversation(one, key)
            self._context.count("conversations", new=known is None, already=known is not None)
            await self._history(one["id"], here)

    async def _make_conversation(self, found: Object, key: str) -> ConversationId:
        """Make a conversation with the title, the model and the blocks of its own that it has at the server."""
        context, settings = self._context, dict[str, Any]()
        if description := text_in(found.get("description")):
            settings["description"] = description[:SUMMARY_CHARS]
        if handle := text_in(found.get("model")):
            try:
                settings["model"] = await context.library.handles.resolve(handle)
            except ModelNotFound:
                self._report.leave_out(CONVERSATION_MODELS)
        blocks: dict[str, str] = {}
        for id_ in map(str, list_in(found.get("isolated_block_ids"))):
            context.blocks.add(id_)
            block = object_in(await self._server.find(path_of("blocks", id_)))
            blocks[text_in(block.get("label"))] = str(block.get("value") or "")
        at, inputs = time_of(found.get("created_at")) or context.app.ports.clock.now(), context.app.ports.inputs()
        title = " ".join(text_in(found.get("summary")).split())[:SUMMARY_CHARS] or None
        archived_at = (time_of(found.get("archived_at")) or at) if found.get("archived") else None
        make = partial(
            units.make_conversation, key=key, summary=title, settings=settings, archived_at=archived_at, blocks=blocks
        )
        ids = context.candidates("conversation", found["id"])
        for id_ in ids[:-1]:
            with suppress(AlreadyExists):
                return await self._store.write(make, self._id, id_, at=at, inputs=inputs)
        return await self._store.write(make, self._id, ids[-1], at=at, inputs=inputs)

    async def _history(self, source: str, here: ConversationId | None = None) -> None:
        """Take the messages of a conversation, "default": the agent's first one, page by page from where the last
        import has ended."""
        key, context = f"letta messages {source}", self._context
        last, _, count = (await self._noted(key)).get(key, "").partition(" ")
        done = int(count or 0)
        context.count("messages", already=done)
        if self._id and source == "default":
            here = await self._store.read(lambda tx: tx.conversations.get_by_seq(self._id, 0).id)
        history = LettaHistory(self._system, context.app.settings.message_limit_chars, is_begun=bool(last))
        params = {"conversation_id": source, "use_assistant_message": "false"}
        try:
            batch, path = HistoryPart(), path_of("agents", self._source_id, "messages")
            async for page in self._server.behind(path, params, last):
                if not last:
                    await self._check_order(path, params, page)
                last = page[-1]["id"]
                batch += history.take(page)
                if len(batch.messages) >= BATCH:
                    done, batch = await self._store_batch(batch, here, key, done), HistoryPart()
            batch += history.finish()
            await self._store_batch(batch, here, key, done)
        except (ConversationBusy, ApprovalPending):
            self._report.leave_out(BUSY)

    async def _check_order(self, path: str, params: Mapping[str, Any], first: Sequence[Object]) -> None:
        """Check that the first page of a history is its beginning. Raises: LettaRefused: older servers begin at its
        end."""
        if len(first) >= PAGE and await self._server.find(path, {**params, "before": first[0]["id"], "limit": 1}):
            raise LettaRefused(0, "it lists messages from the newest on only: upgrade it to 0.16 first")

    async def _store_batch(self, batch: HistoryPart, here: ConversationId | None, key: str, done: int) -> int:
        """Store messages that are whole, and note how far that is; return how many are here now, with `done` before.
        Raises: ConversationBusy, ApprovalPending."""
        report, new = self._report, len(batch.messages)
        report.leave_out(PICTURES, batch.images)
        report.leave_out(ODD, batch.odd)
        report.leave_out(WAITING, batch.waiting)
        report.leave_out(TOO_LONG.format(limit=self._context.app.settings.message_limit_chars), batch.too_long)
        ids = message_ids(self._id, here, batch.messages) if here is not None else []
        if self._dry and here is not None:
            new -= len(await self._store.read(lambda tx: tx.messages.find_existing(ids)))
        elif here is not None and batch.cursor:
            messages = await self._context.forgotten.redact(self._id, batch.messages)
            add = self._agent.import_messages(messages, conversation=here, checked=True, source=SOURCE)
            new = (await add).imported
            notes = {key: f"{batch.cursor} {done + len(batch.messages)}"}
            inputs = self._context.app.ports.inputs()
            await self._store.write(units.note_messages, self._id, here, ids, notes, inputs)
        self._context.count("messages", new=new, already=len(batch.messages) - new)
        return done + len(batch.messages)

    # --- schedules

    async def _schedules(self) -> None:
        """Take the schedules that the agent was never given. They are paused: the old server may still send them."""
        if not hasattr(self._agent, "schedules"):
            return
        path = path_of("agents", self._source_id, "schedule")
        async for one in self._server.items(path, field="scheduled_messages"):
            if text_in(one.get("status")) not in ("", "active"):
                continue
            key = f"letta schedule {one['id']}"
            known = key in await self._noted(key)
            try:
                options = schedule_options(one)
            except InvalidInput as error:
                self._report.leave_out(f"schedules: {error!s:.200}")
                continue
            if not known and not self._dry:
                create = partial(self._agent.schedules.create, **options)
                try:
                    made: Any = await self._context.find("schedule", one["id"], self._schedule)  # of a killed run
                    made = made or await self._context.make("schedule", one["id"], create, self._schedule)
                    await self._agent.schedules.pause(made.id)
                except InvalidInput as error:
                    self._report.leave_out(f"schedules: {error!s:.200}")
                    continue
                await self._store.write(units.note, self._id, {key: ""})
            self._context.count("schedules", new=not known, already=known)

    async def _schedule(self, schedule_id: str) -> Any:
        """Return a schedule of the agent. Raises: NotFound."""
        return await self._agent.schedules.get(ScheduleId(schedule_id))


async def take_archive(context: LettaContext, found: Object, *, makes: bool = True) -> None:
    """Make an archive where it is not here, unless it was, and was deleted (`makes`). Raises: InvalidInput."""
    if found["id"] in context.archives:
        return
    here = await context.find("archive", found["id"], context.library.archives.get)
    new = here is None and makes
    if here is None and makes and not context.dry:
        fields: ArchiveChanges = {"name": text_in(found.get("name")) or "archive"}
        fields |= {"description": text_in(found.get("description")) or None}
        fields |= {"metadata": dict(object_in(found.get("metadata")))}
        add = partial(context.library.archives.add, fields)
        here = await context.make("archive", found["id"], add, context.library.archives.get)
    context.archives[found["id"]] = "" if here is None else here.id
    context.count("archives", new=new, already=not new)


def passage_of(context: LettaContext, found: Object) -> Passage | None:
    """Return a passage of the server as one to store; None: it is one of a file, or can't be used."""
    at = time_of(found.get("created_at")) or NO_TIME
    limits = context.app.ports.settings.limits
    if found.get("file_id") or found.get("is_deleted"):
        return None
    tags = [str(one)[: limits.name_limit_chars] for one in list_in(found.get("tags"))][: limits.tags_per_item]
    try:
        return check_passage(
            Passage(
                id=PassageId(context.candidates("passage", found["id"])[0]),
                archive_id=ArchiveId(""),
                text=found.get("text"),  # type: ignore[arg-type]  # it is checked
                tags=tuple(tags),
                metadata=dict(object_in(found.get("metadata"))),
                source={"import": SOURCE, "id": key_of(found["id"])},
                created_at=at,
                occurred_at=at,
                sources=(WriteSource(Source.of("import", SOURCE)),),
            )
        )
    except InvalidInput:
        context.report.leave_out(ODD_PASSAGES)
        return None


def schedule_options(found: Object) -> dict[str, Any]:
    """Return the options by which a schedule of the server is made here. Raises: InvalidInput: it can't be."""
    when, messages = object_in(found.get("schedule")), list_in(object_in(found.get("message")).get("messages"))
    texts = [_text(object_in(one).get("content")) for one in messages]
    role = object_in(messages[0]).get("role") if messages else "user"
    options: dict[str, Any] = {
        "message": "\n\n".join(filter(None, texts)),
        "role": role if role in ("user", "system") else "user",
        "timezone": text_in(found.get("timezone")) or "UTC",
        "name": text_in(found.get("name")),
        "max_steps": object_in(found.get("message")).get("max_steps"),
    }
    own = ("starts_at", "ends_at", "max_firings", "missed", "missed_limit", "quiet_hours", "in_quiet_hours")
    options |= {name: found[name] for name in own if found.get(name) is not None}
    match when:
        case {"cron_expression": str(cron)}:
            options["cron"] = cron
        case {"every_s": int(every)}:
            options["every"] = every
        case {"scheduled_at": value}:
            options["at"] = time_of(value)
    if not options["message"] or not any(options.get(name) for name in ("cron", "every", "at")):
        raise InvalidInput("one has no text, or no time")
    return options


def _text(content: Any) -> str:
    """Return the text of a message of a schedule."""
    if isinstance(content, str):
        return content
    return "\n".join(text_in(object_in(one).get("text")) for one in list_in(content))
