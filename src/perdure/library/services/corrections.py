"""The service of corrections: change a line, a passage or a message so that it can be undone; forget a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from perdure.app import App
from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.forgetting.values import Correction, CorrectionItem, ForgetPreview, ForgetResult, UndoResult
from perdure.core.ids import AgentId, PassageId
from perdure.core.passages import Passage
from perdure.domain.archives.passages import get_passage
from perdure.domain.companions.units import find_companion
from perdure.engine.forgetting.erase import erase
from perdure.engine.forgetting.find import Progress, find_mentions, resolve_text
from perdure.engine.forgetting.forget import forget, record, undo
from perdure.library.checks import check_limit, check_number, check_text, outside
from perdure.storage.tx import Tx


def _copies(tx: Tx, agent_id: AgentId, text_or_id: str) -> Sequence[tuple[AgentId, str, int]]:
    """The agent's companion, if it has one, the text that is to leave it too, and the number of its next message."""
    group = find_companion(tx, agent_id)
    if group is None:
        return ()
    with suppress(NotFound, InvalidInput):  # then it is refused for the agent
        text = resolve_text(tx, agent_id, text_or_id)
        return [(companion_id, text, tx.messages.next_seq(companion_id)) for companion_id in group.agent_ids]
    return ()


def no_progress(what: str, done: int, total: int) -> None:
    """Take a progress that nobody is shown."""


class CorrectionService:
    """Corrections of an agent's memory and history. Each can be undone, except what is erased."""

    def __init__(self, app: App) -> None:
        self._ports = app.ports
        self._after_runs = app.runner.after_runs

    async def find_mentions(
        self, agent_id: AgentId, text_or_id: str, *, progress: Progress = no_progress
    ) -> ForgetPreview:
        """Where a text stands, or that of a message or passage with this id. Nothing is changed.

        Raises: NotFound; InvalidInput: the text is too short or too long.
        """
        check_text("text", text_or_id)
        return await find_mentions(self._ports, agent_id, text_or_id, progress=progress)

    async def forget(
        self,
        agent_id: AgentId,
        text_or_id: str,
        *,
        erase_text: bool = False,
        author: Author | None = None,
        progress: Progress = no_progress,
    ) -> ForgetResult:
        """Take a text out of the agent's view, or with `erase_text` remove it from the store. Raises: NotFound,
        InvalidInput, ConversationBusy, Conflict, StoreError."""
        check_text("text", text_or_id)

        async def take_out(one: AgentId, text: str) -> ForgetResult:
            if erase_text:
                result = await erase(self._ports, one, text, progress=progress)
            else:
                result = await forget(self._ports, one, text, author=author or outside())
            await self._note_changes(one)
            return result

        # A companion has copies of what it read. They go first: if it is at work, nothing is done.
        copies = await self._ports.store.read(_copies, agent_id, text_or_id)
        for one, text, _ in copies:
            await take_out(one, text)
        result = await take_out(agent_id, text_or_id)
        for one, text, next_seq in copies:  # it may have begun to read meanwhile
            if await self._ports.store.read(lambda tx: tx.messages.next_seq(one)) != next_seq:  # noqa: B023
                await take_out(one, text)
        return result

    async def _note_changes(self, agent_id: AgentId) -> None:
        """Have the summaries in view that lost a text written again in the background."""
        for one in await self._ports.store.read(lambda tx: tx.conversations.list(agent_id)):
            self._after_runs.note_change((agent_id, one.seq))

    async def list(self, agent_id: AgentId, *, limit: int = 20) -> Sequence[Correction]:
        """The agent's corrections, the newest first. Raises: NotFound, InvalidInput."""
        check_limit(limit)

        def read(tx: Tx) -> Sequence[Correction]:
            tx.agents.model(agent_id)
            return tx.corrections.list(agent_id, limit=limit)

        return await self._ports.store.read(read)

    async def undo(self, agent_id: AgentId, number: int | None = None, *, author: Author | None = None) -> UndoResult:
        """Undo a correction, by default the newest that is not undone. Raises: NotFound, ConversationBusy."""
        check_number("number", number)
        result = await undo(self._ports, agent_id, number, author=author or outside())
        await self._note_changes(agent_id)
        return result

    async def _correct_passages(
        self, agent_id: AgentId, ids: Sequence[PassageId], correct: Callable[[Tx, Passage], CorrectionItem]
    ) -> Correction:
        """Correct each of these passages in one transaction. Raises: NotFound."""
        for passage_id in ids:
            check_text("passage_id", passage_id)
        now = self._ports.clock.now()

        def write(tx: Tx) -> Correction:
            passages = [get_passage(tx, agent_id, passage_id) for passage_id in dict.fromkeys(ids)]
            what = f"passage: {passages[0].text}" if len(passages) == 1 else f"{len(passages)} passages"
            return record(tx, agent_id, "passage", what, [correct(tx, one) for one in passages], at=now)

        correction = await self._ports.store.write(write)
        self._ports.waiting.note((agent_id, 0))
        return correction
