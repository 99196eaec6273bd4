"""What an agent forgets, and how that is taken back; `AsyncAgent` has these methods."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.forgetting.values import Correction, ForgetPreview, ForgetResult, UndoResult
from perdure.library.agent_base import AsyncAgentBase


class AsyncCorrections(AsyncAgentBase):
    """Forgetting, erasing and undoing of one agent."""

    async def find_mentions(self, text_or_id: str) -> ForgetPreview:
        """Where a text stands: in blocks, archives, history, summaries, old versions, recorded requests.

        Args:
            text_or_id: a text, found in any letter case; or the id of a message or passage, for all of its text.
        Raises: NotFound; InvalidInput: the text is too short to look for everywhere, or too long.
        """
        return await self._services.corrections.find_mentions(self.id, text_or_id)

    async def forget(self, text_or_id: str, *, erase: bool = False) -> ForgetResult:
        """Take a text out of what the agent sees and finds; `undo` brings it back.

        A block loses the line, an archive the passage; messages and summaries read "[redacted]".

        Args:
            erase: remove it from the store's file instead: also from old versions, recorded requests, files, indexes
                and free space. This can't be undone, and others wait while the file is written anew.
        Raises: NotFound, InvalidInput; ConversationBusy: a run has not ended; Conflict: a file is still being read;
            StoreError.
        """
        return await self._services.corrections.forget(self.id, text_or_id, erase_text=erase)

    async def corrections(self, *, limit: int = 20) -> Sequence[Correction]:
        """What was corrected or forgotten, the newest first. Raises: InvalidInput, NotFound."""
        return await self._services.corrections.list(self.id, limit=limit)

    async def undo(self, number: int | None = None) -> UndoResult:
        """Undo a correction by its number, or the last. What was changed again since stays, and is named in
        `conflicts`.

        Raises: NotFound: there is nothing to undo; ConversationBusy: a run has not ended.
        """
        return await self._services.corrections.undo(self.id, number)
