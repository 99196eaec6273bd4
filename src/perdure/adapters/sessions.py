"""Sessions of messages in an archive, for frameworks that keep a list of messages for each session."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure import NewPassage, NotFound, Passage
from perdure.adapters.opening import PAGE, ArchiveStore, StoreOwner, in_store
from perdure.library.parts.checks import name_form

NO_TEXT = "(no text)"
TEXT_CHARS = 1_000_000
PART_CHARS = 200_000
"""A message with longer JSON, such as one with a picture, is kept in several passages."""


@dataclass(frozen=True, slots=True)
class SessionItem:
    """A message of a session. `value`: its JSON in the framework's form; `text`: its text for searches."""

    value: Mapping[str, Any]
    text: str


class SessionArchive(ArchiveStore):
    """The messages of sessions as passages of one archive, in the order in which they were added.

    An agent that has the archive finds what was said in any session.
    """

    def __init__(self, address: str | Path | None = None, *, archive: str, **options: Any) -> None:
        super().__init__(address, archive=archive, **options)
        self._in_order = asyncio.Lock()
        """Held while messages are added: many take several transactions, which those of others may not come between."""

    async def load(self, session: str, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the values of a session's messages, oldest first; with a limit, those of the newest."""
        return await self._values(await self._load(session, limit=limit))

    async def append(self, session: str, items: Sequence[SessionItem]) -> None:
        """Append messages to a session: up to 500, of 250,000 characters in all, or none. Raises: InvalidInput."""
        async with self._in_order:
            await self._append(session, items)

    async def remove(self, session: str, place: int) -> dict[str, Any] | None:
        """Remove the message at index `place` (-1: the newest) and return its value; None: there is none."""
        while True:
            passages = await self._load(session, limit=1 if place == -1 else None)
            if not -1 <= place < len(passages) or not passages:
                return None
            values = await self._values([passages[place]])
            with suppress(NotFound):  # somebody else has removed it: look again
                await self._delete(passages[place])
                return values[0] if values else None

    async def replace(self, session: str, items: Sequence[SessionItem]) -> list[dict[str, Any]]:
        """Replace all messages of a session; return the values of the old ones. The new ones are stored first, so that
        nothing is lost if the process is killed. Of two calls at once the later one counts. Raises: InvalidInput."""
        async with self._in_order:
            new = {one.id for one in await self._append(session, items)}
            before = list(itertools.takewhile(lambda one: one.id not in new, await self._load(session)))
            values = await self._values(before)
            for one in before:
                with suppress(NotFound):  # another process has removed it
                    await self._delete(one)
            return values

    async def clear(self, session: str) -> None:
        """Remove all messages of a session."""
        await (await self.archive()).delete_where(tags=[_tag(session), _tag(session, "parts")])

    async def sessions(self) -> Sequence[str]:
        """Return the names of the sessions that have messages, in order; at most 10,000."""
        tags = await (await self.archive()).tags()
        return sorted(json.loads(tag.partition(":")[2]) for tag in tags if tag.startswith("session:"))

    async def search(self, session: str, text: str, *, limit: int) -> list[dict[str, Any]]:
        """Return the values of a session's messages that match a text best, best first."""
        hits = await (await self.archive()).search(text, tags=[_tag(session)], limit=limit)
        return await self._values([hit.passage for hit in hits])

    async def _append(self, session: str, items: Sequence[SessionItem]) -> Sequence[Passage]:
        new = [passage for item in items for passage in _new_passages(name_form(session), item)]
        return await (await self.archive()).insert_many(new)

    async def _load(self, session: str, *, limit: int | None = None) -> Sequence[Passage]:
        """Return a session's passages, oldest first; with a limit, the newest of them."""
        size = PAGE if limit is None else min(PAGE, limit)
        found: list[Passage] = []
        async for passage in self.passages([_tag(session)], newest_first=True, page_size=size):
            found.append(passage)
            if len(found) == limit:
                break
        return found[::-1]

    async def _values(self, passages: Sequence[Passage]) -> list[dict[str, Any]]:
        """Return the values of the messages that passages store, without those whose parts are gone."""
        values: list[dict[str, Any]] = []
        for passage in passages:
            if (key := passage.metadata.get("parts")) is None:
                values.append(dict(passage.metadata["value"]))
            elif parts := [one.metadata async for one in self.passages([f"part:{key}"])]:
                parts.sort(key=lambda one: one["number"])
                values.append(json.loads("".join(part["part"] for part in parts)))
        return values

    async def _delete(self, passage: Passage) -> None:
        """Remove a message, then its parts. Raises: NotFound."""
        await (await self.archive()).delete_passage(passage.id)
        if (key := passage.metadata.get("parts")) is not None:
            await (await self.archive()).delete_where(tags=[f"part:{key}"])


class SessionAdapter(StoreOwner[SessionArchive]):
    """The base of adapters for one session, in the archive `_archive` by default.

    Args:
        session_id: whose messages these are. Other processes see them at once.
        address: the store, as `Perdure` takes it: a file, `postgresql://...`, by default the user's own.
        archive: the name of the archive; it is created with the first call.
        options: as `Perdure` takes them.
    Raises: StoreError, InvalidInput.
    """

    _archive: str

    def __init__(
        self, session_id: str, address: str | Path | None = None, *, archive: str | None = None, **options: Any
    ) -> None:
        self.session_id = session_id
        self._store = SessionArchive(address, archive=archive or self._archive, **options)

    @in_store
    async def clear(self) -> None:
        """Remove all messages of the session."""
        await self._store.clear(self.session_id)


def _new_passages(session: str, item: SessionItem) -> Iterator[NewPassage]:
    """Yield the passages of a message, its parts first."""
    text, shown = json.dumps(dict(item.value)), item.text[:TEXT_CHARS]
    metadata: dict[str, Any] = {"session": session, "value": dict(item.value)}
    if len(text) > PART_CHARS:
        key = secrets.token_hex(16)
        for number, start in enumerate(range(0, len(text), PART_CHARS)):
            part = {"number": number, "part": text[start : start + PART_CHARS]}
            yield NewPassage(text="(part)", tags=[_tag(session, "parts"), f"part:{key}"], metadata=part)
        metadata = {"session": session, "parts": key}
    yield NewPassage(text=shown if shown.strip() else NO_TEXT, tags=[_tag(session)], metadata=metadata)


def _tag(session: str, kind: str = "session") -> str:
    """Return the tag of a session's passages."""
    return f"{kind}:{json.dumps(name_form(session), ensure_ascii=False)}"
