"""Beside a chat: what was recalled for its newest message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from starlette.requests import Request

from perdure.context.sections.assemble import parse_recalled
from perdure.core.ids import ConversationId
from perdure.core.runs import RunFilter
from perdure.features.origins.answers import recalled_texts
from perdure.features.origins.origin_values import RecalledText
from perdure.library.parts.part import AsyncPart, find_conversation, reads
from perdure.library.perdure import AsyncPerdure
from perdure.storage.tx import Tx
from perdure.ui.render import Data, Section, agent_id_of


class AsyncRecalled(AsyncPart):
    """What was recalled for the requests of an agent."""

    @reads
    def newest(self, tx: Tx, conversation: ConversationId | None) -> Sequence[RecalledText]:
        """What was recalled for the newest message of a conversation; empty also before its model is called. Raises:
        NotFound."""
        found = find_conversation(tx, self._id, conversation)
        where = RunFilter(agent_ids=(found.agent_id,), conversation_seq=found.seq)
        for run in tx.runs.page(where, limit=1):
            for step in tx.steps.list_by_run(run.key):
                if text := parse_recalled(step.recipe.tail):
                    return recalled_texts(tx, run, text)
        return ()


async def load(request: Request, library: AsyncPerdure) -> list[Data]:
    """What was recalled for the newest message of the conversation that the query names."""
    conversation = request.query_params.get("conversation")
    recalled = AsyncRecalled(library.app, agent_id_of(request))
    return [asdict(one) for one in await recalled.newest(ConversationId(conversation) if conversation else None)]


SECTION = Section(name="recalled", load=load, actions={})
