"""What is one agent's own: folders and archives that it has, passages, conversations with their history, schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any, cast

from perdure.core.errors import ApprovalPending, ConversationBusy, InvalidInput, ModelNotFound, NotFound
from perdure.core.ids import AgentId, ArchiveId, ConversationId, ScheduleId
from perdure.core.passages import Passage
from perdure.domain.archives.units import ArchiveChanges
from perdure.domain.conversations.importing import message_ids
from perdure.domain.conversations.transfer import parse_fields
from perdure.domain.conversations.units import SUMMARY_CHARS
from perdure.domain.values import BATCH
from perdure.features.imports.common.values import BUSY, DELETED, FORGOTTEN
from perdure.features.imports.letta import units
from perdure.features.imports.letta.client import PAGE, LettaRefused, Object, path_of
from perdure.features.imports.letta.context import LettaContext
from perdure.features.imports.letta.messages import LettaHistory
from perdure.features.imports.sources.plain import key_of, list_in, object_in, text_in, time_of

SOURCE = "letta"
NO_TIME = datetime(1970, 1, 2, tzinfo=UTC)
ODD_PASSAGES = "passages without a text"
CONVERSATION_MODELS = "models of conversations, which have their agent's here"


class AgentParts:
    """Takes what is one agent's own. `agent_id`: empty: the agent is not made yet, and all of it is new."""

    def __init__(self, context: LettaContext, agent_id: AgentId, state: Object) -> None:
        """Copy into the agent `agent_id` what belongs to the server's agent with this `state`."""
        self._context, self._state, self._source_id, self._id = context, state, state["id"], agent_id
        self._server, self._report, self._store = context.server, context.report, context.store
        self._dry, self._agent = context.dry, context.library.agent_of(agent_id)

    async def take(self) -> None:
        """Copy everything that is new; a part that fails does not stop the others. Raises: LettaUnreachable,
        StoreError: what was stored stays."""
        steps = {
            "folders": self._folders,
            "archives": self._archives,
            "messages": self._first_history,
            "conversations": self._conversations,
            "schedules": self._schedules,
        }
        for kind, step in steps.items():
            await self._context.guard(f"{kind} of agents", self._state, step)

    async def _is_known(self, key: str) -> bool:
        """Return whether a key is noted of the agent."""
        return await self._context.noted(self._id, key) is not None

    async def _progress(self, kind: str, key: str) -> tuple[str, int]:
        """Return the id of the last item that was taken of a list, and how many were before; count these."""
        last, _, count = (await self._context.noted(self._id, key) or "").partition(" ")
        self._context.count(kind, already=int(count or 0))
        return last, int(count or 0)

    # --- folders, archives and passages

    async def _folders(self, _: Object) -> None:
        """Attach the agent's folders that no earlier import attached."""
        async for one in self._server.items(path_of("agents", self._source_id, "folders")):
            key, here = f"letta folder {one['id']}", self._context.folders.get(one["id"])
            if here and not self._dry and not await self._is_known(key):
                await self._agent.files.attach(here)
                await self._context.note(self._id, key)

    async def _archives(self, _: Object) -> None:
        """Create and attach the agent's archives, and copy their passages from where the last import ended."""
        context = self._context
        async for one in self._server.items("/v1/archives/", {"agent_id": self._source_id}):
            key = f"letta archive {one['id']}"
            is_known = await self._is_known(key)
            await import_archive_of(context, one, makes=not is_known)
            if not is_known and not self._dry:
                await self._agent.archives.attach(ArchiveId(context.archives[one["id"]]))
                await context.note(self._id, key)
        key, archives = "letta passages", set[str]()
        last, done = await self._progress("passages", key)
        path, params = path_of("agents", self._source_id, "archival-memory"), {"ascending": "true"}
        async for page in self._server.pages(path, params, after=last):
            # What another agent has brought is passed over.
            own = [one for one in page if text_in(one.get("archive_id")) not in context.read_archives]
            for source, group in groupby(own, lambda one: text_in(one.get("archive_id"))):
                archives.add(source)
                done += await put_passages(context, self._id, context.archives.get(source), [*group])
            if not self._dry:
                await context.note(self._id, key, f"{page[-1]['id']} {done}")
        context.read_archives |= archives - {""}

    # --- conversations

    async def _conversations(self, _: Object) -> None:
        """Take the agent's conversations beside its first one."""
        params, context = {"agent_id": self._source_id, "archive_status": "all"}, self._context
        async for one in self._server.items("/v1/conversations/", params):
            key = f"letta conversation {one['id']}"
            known, here = await context.noted(self._id, key), None
            if known is not None:
                if (here := await self._store.read(units.find_conversation, self._id, known)) is None:
                    self._report.leave_out(DELETED)
                    continue
            elif not self._dry:
                here = await self._make_conversation(one, key)
            context.count("conversations", new=known is None, already=known is not None)
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
        at = time_of(found.get("created_at")) or context.app.ports.clock.now()
        title = " ".join(text_in(found.get("summary")).split())[:SUMMARY_CHARS] or None
        archived_at = (time_of(found.get("archived_at")) or at) if found.get("archived") else None
        make = partial(
            units.make_conversation, key=key, summary=title, settings=settings, archived_at=archived_at, blocks=blocks
        )

        async def create() -> ConversationId:
            """Make it with the id that it is to have."""
            return await self._store.write(make, self._id, at=at, inputs=context.app.ports.inputs())

        async def get(id_: str) -> ConversationId:
            """Return the one with this id. Raises: NotFound: the agent has none."""
            if (here := await self._store.read(units.find_conversation, self._id, id_)) is None:
                raise NotFound("conversation", id_)
            return here

        return await context.make("conversation", found["id"], create, get)

    async def _first_history(self, _: Object) -> None:
        """Take the messages of the agent's first conversation."""
        await self._history("default", (await self._agent.find_conversation()).id if self._id else None)

    async def _history(self, source: str, here: ConversationId | None) -> None:
        """Take a conversation's messages page by page from where the last import ended. `here`: None: it is new."""
        key, context = f"letta messages {source}", self._context
        last, done = await self._progress("messages", key)
        limit, system = context.app.settings.message_limit_chars, text_in(self._state.get("system"))
        history = LettaHistory(system, limit, self._report, is_begun=bool(last))
        params = {"conversation_id": source, "use_assistant_message": "false"}
        path = path_of("agents", self._source_id, "messages")
        try:
            async for page in self._server.pages(path, params, after=last):
                if not last:
                    await self._check_order(path, params, page)
                last = page[-1]["id"]
                history.take(page)
                if len(history.messages) >= BATCH:
                    done += await self._store_messages(history, here, key, done)
            history.finish()
            await self._store_messages(history, here, key, done)
        except (ConversationBusy, ApprovalPending):
            self._report.leave_out(BUSY)

    async def _check_order(self, path: str, params: Mapping[str, Any], first: Sequence[Object]) -> None:
        """Check that a history's first page is its beginning. Raises: LettaRefused: older servers begin at the end."""
        if len(first) >= PAGE and await self._server.find(path, {**params, "before": first[0]["id"], "limit": 1}):
            raise LettaRefused(0, "it lists messages from the newest on only: upgrade it to 0.16 first")

    async def _store_messages(self, history: LettaHistory, here: ConversationId | None, key: str, done: int) -> int:
        """Store the complete messages, note how far that is, counting `done` before them; return how many they are.
        Raises: ConversationBusy, ApprovalPending."""
        messages, history.messages = history.messages, []
        new = len(messages)
        ids = message_ids(self._id, here, messages) if here is not None else []
        if self._dry and here is not None:
            new -= len(await self._store.read(lambda tx: tx.messages.find_existing(ids)))
        elif here is not None and history.cursor:
            kept = await self._context.forgotten.redact(self._id, messages)
            new = (await self._agent.import_messages(kept, conversation=here, checked=True, source=SOURCE)).imported
            notes, inputs = {key: f"{history.cursor} {done + len(messages)}"}, self._context.app.ports.inputs()
            await self._store.write(units.note_messages, self._id, here, ids, notes, inputs)
        self._context.count("messages", new=new, already=len(messages) - new)
        return len(messages)

    # --- schedules

    async def _schedules(self, _: Object) -> None:
        """Take the schedules that the agent was never given. They are paused: the old server may still send them."""
        path = path_of("agents", self._source_id, "schedule")
        async for one in self._server.items(path, field="scheduled_messages"):
            if hasattr(self._agent, "schedules") and text_in(one.get("status")) in ("", "active"):
                await self._context.guard("schedules", one, self._schedule)

    async def _schedule(self, found: Object) -> None:
        """Take a schedule. Raises: InvalidInput: it can't be made here."""
        key, options = f"letta schedule {found['id']}", schedule_options(found)
        known = await self._is_known(key)
        if not known and not self._dry:
            create = partial(self._agent.schedules.create, **options)
            made: Any = await self._context.find("schedule", found["id"], self._get_schedule)  # of a killed run
            made = made or await self._context.make("schedule", found["id"], create, self._get_schedule)
            await self._agent.schedules.pause(made.id)
            await self._context.note(self._id, key)
        self._context.count("schedules", new=not known, already=known)

    async def _get_schedule(self, schedule_id: str) -> Any:
        """Return a schedule of the agent. Raises: NotFound."""
        return await self._agent.schedules.get(ScheduleId(schedule_id))


async def import_archive_of(context: LettaContext, found: Object, *, makes: bool = True) -> None:
    """Make an archive where it is not here, unless it was, and was deleted (`makes`). Raises: InvalidInput."""
    if found["id"] in context.archives:
        return
    fields: ArchiveChanges = {"name": text_in(found.get("name")) or "archive"}
    fields |= {"description": text_in(found.get("description")) or None}
    fields |= {"metadata": dict(object_in(found.get("metadata")))}
    archives = context.library.archives
    here = await context.take("archive", found["id"], partial(archives.add, fields), archives.get, makes=makes)
    context.archives[found["id"]] = "" if here is None else here.id


async def put_passages(context: LettaContext, agent_id: AgentId, archive_id: str | None, page: Sequence[Object]) -> int:
    """Store passages of the server that were never imported, and count them; return how many can be used. `agent_id`:
    empty: no agent here has them; `archive_id`: None or empty: the agent's own."""
    passages = [*filter(None, (passage_of(context, one) for one in page))]
    kept = await context.forgotten.without(agent_id, passages)
    context.report.leave_out(FORGOTTEN, len(passages) - len(kept))
    put = partial(units.put_passages, inputs=context.app.ports.inputs(), dry=context.dry)
    store = context.store.read if context.dry else context.store.write
    new = await store(put, agent_id, ArchiveId(archive_id) if archive_id else None, kept)
    context.count("passages", new=new, already=len(kept) - new)
    return len(passages)


def passage_of(context: LettaContext, found: Object) -> Passage | None:
    """Return a passage of the server as one to store; None: it belongs to a file, or can't be used."""
    if found.get("file_id") or found.get("is_deleted"):
        return None
    limits = context.app.ports.settings.limits
    tags = [str(one)[: limits.name_limit_chars] for one in list_in(found.get("tags"))][: limits.tags_per_item]
    fields = {
        "id": context.candidates("passage", found["id"])[0],
        "text": found.get("text"),
        "tags": tags,
        "metadata": dict(object_in(found.get("metadata"))),
        "source": {"import": SOURCE, "id": key_of(found["id"])},
        "occurred_at": time_of(found.get("created_at")) or NO_TIME,
        "sources": [f"import:{SOURCE}"],
    }
    try:
        return cast(Passage, parse_fields(fields))
    except InvalidInput:
        context.report.leave_out(ODD_PASSAGES)
        return None


def schedule_options(found: Object) -> dict[str, Any]:
    """Return the options by which a schedule of the server is made here. Raises: InvalidInput: it can't be."""
    when, messages = object_in(found.get("schedule")), list_in(object_in(found.get("message")).get("messages"))
    texts = [_text(object_in(message).get("content")) for message in messages]
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
