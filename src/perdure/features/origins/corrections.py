"""Corrections of an agent: what was changed so that it can be undone; and a text that it is to forget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.core.blocks import Author
from perdure.core.features import Point
from perdure.core.forgetting.corrections import Correction
from perdure.core.ids import AgentId
from perdure.domain.agents.units import COMPANIONS
from perdure.domain.corrections import MEMORY_CORRECTED
from perdure.features.origins.erase import erase as erase_text
from perdure.features.origins.find import Progress, find_mentions, resolve_text
from perdure.features.origins.forget import check_idle, find_correction, forget, undo
from perdure.features.origins.values import ForgetPreview, ForgetResult, UndoResult
from perdure.library.parts.checks import check_limit, check_number, check_text, outside
from perdure.library.parts.part import AsyncAgentPart, reads
from perdure.storage.tx import Tx

SAME_MAX = 100
"""Corrections of a companion among which one is looked for."""
TEXT_ERASED: Point[[AgentId, str], None] = Point("text_erased")
"""A text of an agent was erased: what lies outside of the store may have it. Called in a thread."""


def _list_companions(tx: Tx, agent_id: AgentId) -> Sequence[AgentId]:
    """The agent's companions, which have copies of what they read. Raises: ConversationBusy: one is at work."""
    found = [one for some in COMPANIONS(tx, agent_id) for one in some]
    check_idle(tx, found)
    return found


def _list_same(tx: Tx, agent_id: AgentId, number: int | None) -> Sequence[Correction]:
    """The corrections of companions that a correction of the agent has brought about."""
    first = find_correction(tx, agent_id, number)
    return [
        one
        for companion in _list_companions(tx, agent_id)
        for one in tx.corrections.list(companion, limit=SAME_MAX, undone=False)
        if (one.kind, one.text) == (first.kind, first.text) and one.created_at >= first.created_at
    ]


class AsyncCorrections(AsyncAgentPart):
    """Corrections of an agent's memory and history, as methods of `AsyncAgent`. All but erasing can be undone."""

    async def find_mentions(
        self, text_or_id: str, *, progress: Progress = lambda what, done, total: None
    ) -> ForgetPreview:
        """Where a text stands: in blocks, archives, history, summaries, old versions, recorded requests.

        Args:
            text_or_id: a text, found in any letter case; or the id of a message or passage, for all of its text.
        Raises: NotFound; InvalidInput: the text is too short to look for everywhere, or too long.
        """
        check_text("text", text_or_id)
        return await find_mentions(self._ports, self.id, text_or_id, progress=progress)

    async def forget(
        self,
        text_or_id: str,
        *,
        erase: bool = False,
        author: Author | None = None,
        progress: Progress = lambda what, done, total: None,
    ) -> ForgetResult:
        """Take a text out of what the agent sees and finds; `undo` brings it back.

        A block loses the line, an archive the passage; messages and summaries read "[redacted]".

        Args:
            erase: remove it from the store's file instead: also from old versions, recorded requests, files, indexes
                and free space. This can't be undone, and others wait while the file is written anew.
        Raises: NotFound, InvalidInput; ConversationBusy: a run has not ended; Conflict: a file is still being read;
            StoreError.
        """
        check_text("text", text_or_id)

        async def take_out(agent_id: AgentId, text: str) -> ForgetResult:
            """Forget or erase the text for one agent."""
            if erase:
                result = await erase_text(self._ports, agent_id, text, progress=progress)
                await asyncio.to_thread(TEXT_ERASED, agent_id, text)
            else:
                result = await forget(self._ports, agent_id, text, author=author or outside())
            await self._note_changes(agent_id)
            return result

        companions = await self._ports.store.read(_list_companions, self.id)
        text = await self._ports.store.read(resolve_text, self.id, text_or_id)
        # The agent goes first, so that `undo` brings back what it shares with its companions.
        result = await take_out(self.id, text)
        for one in companions:
            await take_out(one, text)
        return result

    @reads
    def corrections(self, tx: Tx, *, limit: int = 20) -> Sequence[Correction]:
        """What was corrected or forgotten, the newest first. Raises: InvalidInput, NotFound."""
        check_limit(limit)
        tx.agents.model(self.id)
        return tx.corrections.list(self.id, limit=limit)

    async def undo(self, number: int | None = None, *, author: Author | None = None) -> UndoResult:
        """Undo a correction by its number, or the last. What was changed again since stays, and is named in
        `conflicts`. Raises: NotFound: there is nothing to undo; ConversationBusy: a run has not ended."""
        check_number("number", number)
        for one in await self._ports.store.read(_list_same, self.id, number):
            await undo(self._ports, one.agent_id, one.number, author=author or outside())
            await self._note_changes(one.agent_id)
        result = await undo(self._ports, self.id, number, author=author or outside())
        await self._note_changes(self.id)
        return result

    async def _note_changes(self, agent_id: AgentId) -> None:
        """Begin in the background to write summaries again that have lost a text."""
        await self._ports.store.read(MEMORY_CORRECTED, agent_id)
        for one in await self._ports.store.read(lambda tx: tx.conversations.list(agent_id)):
            self._app.runner.after_runs.note_change((agent_id, one.seq))
